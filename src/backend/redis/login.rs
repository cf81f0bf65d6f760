//! The login of one connection: requested when the connection is made, and again before it expires.

use std::convert::Infallible;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::redis::config::Login;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::link;
use crate::backend::redis::link::RetryPause;
use crate::base::process::spawn;
use crate::settings::credentials::CredentialProvider;
use crate::settings::credentials::Credentials;

/// The least time between two requests, for credentials that are valid for no time.
const SHORTEST: Duration = Duration::from_millis(100);

/// Adds the current login to the configuration, and returns how to renew it.
pub(crate) async fn log_in(config: RedisConfig) -> Result<(RedisConfig, LoginRenewal), Failure> {
    let Some(provider) = config.provider().cloned() else {
        return Ok((config, LoginRenewal { provider: None, valid_for: None }));
    };
    let provider = TimedProvider { provider, patience: config.budgets().provider() };
    let credentials = provider.ask().await?;
    let renewal = LoginRenewal { provider: Some(provider), valid_for: credentials.valid_for };
    let login = Login { user: credentials.user, password: Some(credentials.password) };
    Ok((config.with_login(login), renewal))
}

/// With a credential provider a refused login is transient, because the provider is asked again at
/// the next attempt.
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

/// Adds a hint if user or password have white space around them. They are sent unchanged, so this
/// matters only if they were refused.
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

/// A live connection that can log in again.
pub(crate) trait Relogin: Sync {
    /// Uses these credentials from now on. The error is the server's refusal or the end of the
    /// connection.
    fn log_in(&self, credentials: &Credentials) -> impl Future<Output = Result<(), String>> + Send;
}

/// The source of a connection's login, and how long the login is valid.
pub(crate) struct LoginRenewal {
    provider: Option<TimedProvider>,
    valid_for: Option<Duration>,
}

impl LoginRenewal {
    /// Renews the login on the live connection again and again; never returns.
    pub(crate) async fn keep_logged_in(mut self, connection: &impl Relogin) -> Infallible {
        loop {
            let mut pause = RetryPause::default();
            let mut credentials = self.newer().await;
            while let Err(words) = connection.log_in(&credentials).await {
                let words =
                    with_hint(&words, credentials.user.as_deref(), Some(&credentials.password));
                report(&refused(&words));
                tokio::time::sleep(pause.next()).await;
                credentials = self.ask_until_answered().await;
            }
            self.valid_for = credentials.valid_for;
        }
    }

    /// Returns when there are newer credentials. For a connection that cannot log in again and has
    /// to be replaced.
    pub(crate) async fn ended(self) {
        self.newer().await;
    }

    /// Waits until the login has to be renewed, and gets new credentials.
    async fn newer(&self) -> Credentials {
        match self.valid_for {
            Some(time) => tokio::time::sleep(renew_after(time)).await,
            None => std::future::pending().await,
        }
        self.ask_until_answered().await
    }

    async fn ask_until_answered(&self) -> Credentials {
        let Some(provider) = &self.provider else { return std::future::pending().await };
        let mut pause = RetryPause::default();
        loop {
            match provider.ask().await {
                Ok(credentials) => return credentials,
                Err(failure) => report(&failure.message),
            }
            tokio::time::sleep(pause.next()).await;
        }
    }
}

/// Three quarters of the validity, so that there is time to ask again if the provider fails at
/// first.
fn renew_after(valid_for: Duration) -> Duration {
    (valid_for / 4 * 3).max(SHORTEST)
}

/// A credential provider, and how long it may take to answer.
struct TimedProvider {
    provider: CredentialProvider,
    patience: Duration,
}

impl TimedProvider {
    /// Asks in a task of its own, because the provider may panic, and because its first poll may
    /// block and counts as well.
    async fn ask(&self) -> Result<Credentials, Failure> {
        let provider = self.provider.clone();
        let mut task = AbortOnDrop(spawn(async move { provider.ask().await }));
        let failed = |words: String| {
            Err(Failure::new(FailureKind::Busy, format!("the credential provider {words}")))
        };
        match tokio::time::timeout(self.patience, &mut task.0).await {
            Ok(Ok(Ok(credentials))) => Ok(credentials),
            Ok(Ok(Err(error))) => failed(format!("failed: {error}")),
            Ok(Err(_)) => failed("panicked".to_owned()),
            Err(_) => failed(format!("did not answer within {:?}", self.patience)),
        }
    }
}

/// A task that is aborted when the future that waits for it is dropped.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn refused(words: &str) -> String {
    format!("the login from the credential provider was refused: {words}")
}

/// Logs that the connection goes on with its present login.
fn report(cause: &str) {
    link::report(cause, "not logged in again");
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering;

    use tokio::time::Instant;

    use crate::backend::redis::config::Access;

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
            let login =
                Login { user: user.map(str::to_owned), password: password.map(str::to_owned) };
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

    /// A connection that accepts every login except for the given passwords.
    struct Connection {
        begun: Instant,
        refuses: &'static str,
        /// When, in milliseconds, and with which password.
        logins: Mutex<Vec<(u128, String)>>,
    }

    impl Relogin for Connection {
        async fn log_in(&self, credentials: &Credentials) -> Result<(), String> {
            let login = (self.begun.elapsed().as_millis(), credentials.password.clone());
            self.logins.lock().unwrap().push(login);
            if credentials.password == self.refuses { Err("WRONGPASS".to_owned()) } else { Ok(()) }
        }
    }

    /// What a provider does when it is asked: returns a password that is valid for this many
    /// milliseconds, fails, or hangs.
    #[derive(Clone, Copy)]
    enum ProviderStep {
        Valid(&'static str, Option<u64>),
        Fails,
        Hangs,
    }

    fn provider(says: &'static [ProviderStep]) -> CredentialProvider {
        let asked = AtomicUsize::new(0);
        CredentialProvider::new(move || {
            let says = says.get(asked.fetch_add(1, Ordering::Relaxed)).copied();
            async move {
                match says {
                    Some(ProviderStep::Valid(password, None)) => Ok(Credentials::new("", password)),
                    Some(ProviderStep::Valid(password, Some(ms))) => {
                        Ok(Credentials::new("", password).valid_for(Duration::from_millis(ms)))
                    }
                    Some(ProviderStep::Fails) => Err(std::io::Error::other("the vault is sealed")),
                    Some(ProviderStep::Hangs) | None => std::future::pending().await,
                }
            }
        })
    }

    /// The logins of a connection within this time.
    async fn logins(
        says: &'static [ProviderStep],
        refuses: &'static str,
        time: Duration,
    ) -> Vec<(u128, String)> {
        let access = Access { provider: Some(provider(says)), ..Access::default() };
        let config = RedisConfig::with_access("redis://h", &access).unwrap();
        let (config, renewal) = log_in(config).await.unwrap();
        let connection = Connection { begun: Instant::now(), refuses, logins: Mutex::default() };
        assert_eq!(config.login().password.as_deref(), Some("first"));
        let kept = tokio::time::timeout(time, renewal.keep_logged_in(&connection)).await;
        assert!(kept.is_err());
        connection.logins.into_inner().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn each_login_is_renewed_by_its_own_lifetime() {
        use ProviderStep::Valid;
        let lifetimes = &[
            Valid("first", Some(100_000)),
            Valid("shorter", Some(8_000)),
            Valid("over at once", Some(0)),
            Valid("longer", Some(40_000)),
            Valid("for ever", None),
        ];
        let expected = [
            (75_000, "shorter"),
            (81_000, "over at once"),
            (81_100, "longer"),
            (111_100, "for ever"),
        ];
        let found = logins(lifetimes, "", Duration::from_secs(100_000)).await;
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for ((at, password), (due, expected)) in found.iter().zip(expected) {
            assert_eq!(password, expected);
            assert!((due..due + 20).contains(at), "{password} at {at}, due at {due}");
        }
        let never = logins(&[Valid("first", None)], "", Duration::from_secs(1_000_000)).await;
        assert!(never.is_empty(), "{never:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_is_asked_until_it_says_what_the_server_takes() {
        use ProviderStep::Fails;
        use ProviderStep::Hangs;
        use ProviderStep::Valid;
        // What the provider does, and the longest time until the good login.
        let table: [(&[ProviderStep], u128); 4] = [
            (&[Valid("first", Some(4_000)), Fails, Fails, Valid("good", None)], 100),
            (&[Valid("first", Some(4_000)), Hangs, Valid("good", None)], 3_100),
            (&[Valid("first", Some(4_000)), Valid("bad", None), Valid("good", None)], 100),
            (
                &[
                    Valid("first", Some(4_000)),
                    Valid("bad", None),
                    Fails,
                    Hangs,
                    Valid("good", None),
                ],
                3_200,
            ),
        ];
        for (number, (says, late)) in table.into_iter().enumerate() {
            let found = logins(says, "bad", Duration::from_secs(1_000)).await;
            let Some((at, password)) = found.last() else { panic!("{number}: no login") };
            assert_eq!(password, "good", "{number}");
            assert!((3_000..=3_000 + late).contains(at), "{number}: {found:?}");
            assert!(
                *at >= 3_000 + late / 2 || late < 3_000,
                "{number}: it had no time to answer: {found:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refused_credentials_are_followed_by_a_pause() {
        const BAD: ProviderStep = ProviderStep::Valid("bad", None);
        let says = &[
            ProviderStep::Valid("first", Some(4_000)),
            BAD,
            BAD,
            BAD,
            BAD,
            ProviderStep::Valid("good", None),
        ];
        let found = logins(says, "bad", Duration::from_secs(1_000)).await;
        let at: Vec<u128> = found.iter().map(|(at, _)| *at).collect();
        assert_eq!(at.len(), 5, "{found:?}");
        for (number, pair) in at.windows(2).enumerate() {
            assert!(
                pair[1] - pair[0] >= 10 << number,
                "half of 20 ms, doubled each time: {found:?}"
            );
        }
    }

    /// A connection that cannot log in again ends when there are newer credentials, not before.
    #[tokio::test(start_paused = true)]
    async fn a_connection_that_takes_no_login_ends_when_there_is_a_newer_one() {
        let access = Access {
            provider: Some(provider(&[
                ProviderStep::Valid("first", Some(4_000)),
                ProviderStep::Fails,
                ProviderStep::Valid("next", None),
            ])),
            ..Access::default()
        };
        let config = RedisConfig::with_access("redis://h", &access).unwrap();
        let (_, renewal) = log_in(config).await.unwrap();
        let begun = Instant::now();
        renewal.ended().await;
        assert!((3_000..3_100).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_has_three_command_timeouts() {
        for (command_timeout, patience) in [(1, 3), (7, 21)] {
            let access =
                Access { provider: Some(provider(&[ProviderStep::Hangs])), ..Access::default() };
            let config = RedisConfig::with_access("redis://h", &access).unwrap();
            let begun = Instant::now();
            let asked = log_in(config.timed(Duration::from_secs(command_timeout))).await;
            let Err(failure) = asked else { panic!("it hangs") };
            assert_eq!(failure.kind, FailureKind::Busy);
            assert!(failure.message.contains(&format!("within {patience}s")), "{failure}");
            assert_eq!(begun.elapsed().as_secs(), patience);
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
