//! Logins that a callback gives.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A user and a password, and how long they may be used. Never shown: `Debug` hides the password.
#[derive(Clone)]
pub struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
    pub(crate) valid_for: Option<Duration>,
}

impl Credentials {
    /// An empty user is Redis's default one.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        let user = user.into();
        Self { user: (!user.is_empty()).then_some(user), password: password.into(), valid_for: None }
    }

    /// How long from now on the server accepts them, such as a token's lifetime. The provider is asked for newer ones
    /// when three quarters of it are over. Default: forever.
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

type Asked = Pin<Box<dyn Future<Output = Result<Credentials, Box<dyn StdError + Send + Sync>>> + Send>>;

/// Where logins come from when they change: a secret store, or the token service of a managed cloud.
///
/// It is asked at every new connection: commands and pub/sub have one each, for each server, and
/// while no primary of a cluster answers its nodes are asked again, every 50 ms at first and once a second at last. So a changed password
/// is taken up by itself. When credentials are only [valid for some time](Credentials::valid_for), it is asked again
/// before that is over: the connection for commands then logs in again as it is, so that no hold and no renewal
/// notices, and the one for pub/sub is replaced.
///
/// A refused login is no lasting error with a provider: it is asked again, after a pause of 20 ms at first and 1 s at
/// most. The same goes for a provider that fails, panics or does not answer within 3 s. Operations end in
/// [`Error::Unavailable`](crate::Error::Unavailable), which repeats the text of the provider's error, when their time is
/// over.
///
/// It runs where the client's connections run, on the keeper's thread unless that is
/// [`Keeper::Current`](crate::Keeper::Current), and must not block: use `tokio::task::spawn_blocking` for what does.
/// It should keep credentials that are slow to get until they run out.
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
/// let client = LockClient::builder().url("rediss://redis.internal").credentials(provider).connect().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CredentialProvider(Arc<dyn Fn() -> Asked + Send + Sync>);

impl CredentialProvider {
    /// Calls this function whenever a login is needed. Its error should not contain a password: it is shown.
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

    pub(crate) fn ask(&self) -> Asked {
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
        assert!(shown.contains("ann") && shown.contains("9s") && !shown.contains("hunter2"), "{shown}");
        assert_eq!(Credentials::new("", "x").user, None);
    }
}
