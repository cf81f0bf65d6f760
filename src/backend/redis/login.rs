//! The login of one connection: asked for when it is made, and again before it runs out.

use std::convert::Infallible;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::redis::config::Login;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::link;
use crate::backend::redis::link::Pause;
use crate::credentials::CredentialProvider;
use crate::credentials::Credentials;
use crate::process::spawn;

/// A provider that takes longer is taken to hang. Less than the time that `connect` has, so that it can say so.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(3);
/// What is valid for no time at all is not asked for more often.
const SHORTEST: Duration = Duration::from_millis(100);

/// The same configuration with the login of the moment, and how to renew that.
pub(crate) async fn log_in(config: RedisConfig) -> Result<(RedisConfig, Renewal), Failure> {
    let Some(provider) = config.provider().cloned() else {
        return Ok((config, Renewal { provider: None, valid_for: None }));
    };
    let credentials = ask(&provider).await?;
    let renewal = Renewal { provider: Some(provider), valid_for: credentials.valid_for };
    let login = Login { user: credentials.user, password: Some(credentials.password) };
    Ok((config.with_login(login), renewal))
}

/// With a provider a refused login is not the last word: the next attempt asks it again.
pub(crate) fn judge(failure: Failure, config: &RedisConfig) -> Failure {
    if config.provider().is_none() || failure.kind != FailureKind::Auth {
        return failure;
    }
    Failure::new(FailureKind::Busy, refused(&failure.message))
}

/// A live connection.
pub(crate) trait LogsIn: Sync {
    /// Uses these credentials from now on. The error is what speaks against it.
    fn log_in(&self, credentials: &Credentials) -> impl Future<Output = Result<(), String>> + Send;
}

/// What a connection's login was asked from, and for how long it is valid.
pub(crate) struct Renewal {
    provider: Option<CredentialProvider>,
    valid_for: Option<Duration>,
}

impl Renewal {
    /// Logs in on the live connection again and again; does not return.
    pub(crate) async fn keep_logged_in(mut self, connection: &impl LogsIn) -> Infallible {
        loop {
            let mut pause = Pause::default();
            let mut credentials = self.newer().await;
            while let Err(words) = connection.log_in(&credentials).await {
                report(&refused(&words));
                tokio::time::sleep(pause.next()).await;
                credentials = self.ask_until_answered().await;
            }
            self.valid_for = credentials.valid_for;
        }
    }

    /// Returns when there are newer credentials: where a connection cannot log in again it has to be replaced.
    pub(crate) async fn ended(self) {
        self.newer().await;
    }

    /// Waits until it is time, and asks.
    async fn newer(&self) -> Credentials {
        match self.valid_for {
            Some(time) => tokio::time::sleep(renew_after(time)).await,
            None => std::future::pending().await,
        }
        self.ask_until_answered().await
    }

    async fn ask_until_answered(&self) -> Credentials {
        let Some(provider) = &self.provider else { return std::future::pending().await };
        let mut pause = Pause::default();
        loop {
            match ask(provider).await {
                Ok(credentials) => return credentials,
                Err(failure) => report(&failure.message),
            }
            tokio::time::sleep(pause.next()).await;
        }
    }
}

/// Three quarters, so that a provider that fails at first can be asked again in time.
fn renew_after(valid_for: Duration) -> Duration {
    (valid_for / 4 * 3).max(SHORTEST)
}

/// In a task of its own: it may panic, and its first poll belongs to the time that it has.
async fn ask(provider: &CredentialProvider) -> Result<Credentials, Failure> {
    let provider = provider.clone();
    let mut task = Ends(spawn(async move { provider.ask().await }));
    let failed =
        |words: String| Err(Failure::new(FailureKind::Busy, format!("the credential provider {words}")));
    match tokio::time::timeout(PROVIDER_TIMEOUT, &mut task.0).await {
        Ok(Ok(Ok(credentials))) => Ok(credentials),
        Ok(Ok(Err(error))) => failed(format!("failed: {error}")),
        Ok(Err(_)) => failed("panicked".to_owned()),
        Err(_) => failed(format!("did not answer within {PROVIDER_TIMEOUT:?}")),
    }
}

/// A task that ends with whoever waits for it.
struct Ends<T>(JoinHandle<T>);

impl<T> Drop for Ends<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn refused(words: &str) -> String {
    format!("the login from the credential provider was refused: {words}")
}

/// The connection goes on with the login that it has.
fn report(cause: &str) {
    link::report(cause, "not logged in again");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_renewed_before_it_runs_out() {
        for seconds in [1, 60, 900, 86_400] {
            let valid_for = Duration::from_secs(seconds);
            assert!(renew_after(valid_for) < valid_for);
        }
        assert_eq!(renew_after(Duration::ZERO), SHORTEST);
        assert!(renew_after(Duration::MAX) < Duration::MAX);
    }
}
