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

/// What is valid for no time at all is not asked for more often.
const SHORTEST: Duration = Duration::from_millis(100);

/// The same configuration with the login of the moment, and how to renew that.
pub(crate) async fn log_in(config: RedisConfig) -> Result<(RedisConfig, Renewal), Failure> {
    let Some(provider) = config.provider().cloned() else {
        return Ok((config, Renewal { provider: None, valid_for: None }));
    };
    let provider = Patient { provider, patience: config.budgets().provider() };
    let credentials = provider.ask().await?;
    let renewal = Renewal { provider: Some(provider), valid_for: credentials.valid_for };
    let login = Login { user: credentials.user, password: Some(credentials.password) };
    Ok((config.with_login(login), renewal))
}

/// With a provider a refused login is not the last word: the next attempt asks it again.
pub(crate) fn judge(failure: Failure, config: &RedisConfig) -> Failure {
    if failure.kind != FailureKind::Auth {
        return failure;
    }
    let login = config.login();
    let message = with_hint(&failure.message, login.user.as_deref(), login.password.as_deref());
    match config.provider() {
        None => Failure { message, ..failure },
        Some(_) => Failure::new(FailureKind::Busy, refused(&message)),
    }
}

/// A login is sent as it is: only where it was refused white space around it is told of.
fn with_hint(words: &str, user: Option<&str>, password: Option<&str>) -> String {
    let around = |text: Option<&str>| text.is_some_and(|text| text.trim() != text);
    let what = match (around(user), around(password)) {
        (false, false) => return words.to_owned(),
        (true, false) => "user",
        (false, true) => "password",
        (true, true) => "user and password",
    };
    format!(
        "{words} (white space around the {what}: perhaps the line break of the file that it was read from)"
    )
}

/// A live connection.
pub(crate) trait LogsIn: Sync {
    /// Uses these credentials from now on. The error is what speaks against it.
    fn log_in(&self, credentials: &Credentials) -> impl Future<Output = Result<(), String>> + Send;
}

/// What a connection's login was asked from, and for how long it is valid.
pub(crate) struct Renewal {
    provider: Option<Patient>,
    valid_for: Option<Duration>,
}

impl Renewal {
    /// Logs in on the live connection again and again; does not return.
    pub(crate) async fn keep_logged_in(mut self, connection: &impl LogsIn) -> Infallible {
        loop {
            let mut pause = Pause::default();
            let mut credentials = self.newer().await;
            while let Err(words) = connection.log_in(&credentials).await {
                let words = with_hint(&words, credentials.user.as_deref(), Some(&credentials.password));
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
            match provider.ask().await {
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

/// A provider, and how long it may take before it is taken to hang.
struct Patient {
    provider: CredentialProvider,
    patience: Duration,
}

impl Patient {
    /// In a task of its own: it may panic, and its first poll belongs to the time that it has.
    async fn ask(&self) -> Result<Credentials, Failure> {
        let provider = self.provider.clone();
        let mut task = Ends(spawn(async move { provider.ask().await }));
        let failed =
            |words: String| Err(Failure::new(FailureKind::Busy, format!("the credential provider {words}")));
        match tokio::time::timeout(self.patience, &mut task.0).await {
            Ok(Ok(Ok(credentials))) => Ok(credentials),
            Ok(Ok(Err(error))) => failed(format!("failed: {error}")),
            Ok(Err(_)) => failed("panicked".to_owned()),
            Err(_) => failed(format!("did not answer within {:?}", self.patience)),
        }
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
    fn white_space_around_a_refused_login_is_told_of() {
        let table = [
            ((Some("ann"), Some("pw")), None),
            ((None, Some("p w")), None),
            ((None, None), None),
            ((None, Some("pw\n")), Some("around the password: perhaps the line break")),
            ((Some(" ann"), Some("pw")), Some("around the user: ")),
            ((Some("ann\r\n"), Some("\tpw")), Some("around the user and password: ")),
        ];
        for ((user, password), hint) in table {
            let config = RedisConfig::parse("redis://h").unwrap();
            let login = Login { user: user.map(str::to_owned), password: password.map(str::to_owned) };
            let refused = Failure::new(FailureKind::Auth, "WRONGPASS");
            let judged = judge(refused, &config.with_login(login));
            assert_eq!(judged.kind, FailureKind::Auth);
            match hint {
                None => assert_eq!(judged.message, "WRONGPASS"),
                Some(hint) => assert!(judged.message.contains(hint), "{judged}"),
            }
            assert!(!judged.message.contains("pw"), "{judged}");
        }
    }

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
