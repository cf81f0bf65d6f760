//! Logins that a callback provides.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A user and a password, and for how long they are valid. They are never shown: `Debug` hides the
/// password.
#[derive(Clone)]
pub struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
    pub(crate) valid_for: Option<Duration>,
}

impl Credentials {
    /// With an empty user, the login is for the default user of Redis.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        let user = user.into();
        Self {
            user: (!user.is_empty()).then_some(user),
            password: password.into(),
            valid_for: None,
        }
    }

    /// For how long from now on the server accepts them, such as the lifetime of a token. The
    /// provider is asked for new ones when three quarters of that time are over. Default: forever.
    pub fn valid_for(mut self, time: Duration) -> Self {
        self.valid_for = Some(time);
        self
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .field("password", &"***")
            .field("valid_for", &self.valid_for)
            .finish()
    }
}

type CredentialsFuture =
    Pin<Box<dyn Future<Output = Result<Credentials, Box<dyn StdError + Send + Sync>>> + Send>>;

/// A source of logins that change: a secret store, or the token service of a managed cloud.
///
/// It is asked for every new connection: each server has one for commands and one for pub/sub. So a
/// changed password is picked up by itself. While no primary of a cluster answers, the nodes are
/// asked again, every 50 ms at first and once a second at last, each time with a new login. If
/// credentials are [valid for some time](Credentials::valid_for) only, the provider is asked again
/// before that time is over. The connection for commands then logs in again without reconnecting,
/// so no hold and no renewal is affected; the one for pub/sub is replaced.
///
/// With a provider, a refused login is not a lasting error: the provider is asked again, after a
/// pause of 20 ms at first and 1 s at most. The same is true if the provider fails, panics or does
/// not answer within 3 s, or within three [command
/// timeouts](crate::LockClientBuilder::command_timeout) if that is more. When their time is over,
/// operations end in [`Error::Unavailable`](crate::Error::Unavailable), whose text has that of the
/// provider's error.
///
/// The provider runs where the client's connections run: on the driver's thread, or with
/// [`Driver::Current`](crate::Driver::Current) on that runtime. It must not block: use
/// `tokio::task::spawn_blocking` for work that does. If credentials are slow to get, the provider
/// should keep them until they expire.
///
/// ```no_run
/// use redis_reentrant_lock::{CredentialProvider, Credentials, LockClient};
/// use std::time::Duration;
///
/// # async fn token() -> std::io::Result<String> { Ok(String::new()) }
/// # async fn example() -> redis_reentrant_lock::Result<()> {
/// let provider = CredentialProvider::new(|| async {
///     let token = token().await?;
///     Ok::<_, std::io::Error>(Credentials::new("locks", token).valid_for(Duration::from_secs(900)))
/// });
/// let builder = LockClient::builder().url("rediss://redis.internal");
/// let client = builder.credentials(provider).connect().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CredentialProvider(Arc<dyn Fn() -> CredentialsFuture + Send + Sync>);

impl CredentialProvider {
    /// Calls this function whenever a login is needed. Its error is shown in texts, so it should
    /// not contain a password.
    pub fn new<F, A, E>(ask: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        Self(Arc::new(move || {
            let asked = ask();
            Box::pin(async move { asked.await.map_err(Into::into) })
        }))
    }

    pub(crate) fn ask(&self) -> CredentialsFuture {
        (self.0)()
    }
}

impl fmt::Debug for CredentialProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialProvider").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let credentials = Credentials::new("ann", "hunter2").valid_for(Duration::from_secs(9));
        let shown = format!("{credentials:?} {credentials:#?}");
        assert!(
            shown.contains("ann") && shown.contains("9s") && !shown.contains("hunter2"),
            "{shown}"
        );
        assert_eq!(Credentials::new("", "x").user, None);
    }
}
