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
use crate::base::process::spawn;
use crate::settings::credentials::CredentialProvider;
use crate::settings::credentials::Credentials;

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
        let mut task = AbortOnDrop(spawn(async move { provider.ask().await }));
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
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
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

    /// A connection that logs in, and refuses the passwords that it is told to refuse.
    struct Connection {
        begun: Instant,
        refuses: &'static str,
        /// In which of all milliseconds, and with what.
        logins: Mutex<Vec<(u128, String)>>,
    }

    impl LogsIn for Connection {
        async fn log_in(&self, credentials: &Credentials) -> Result<(), String> {
            let login = (self.begun.elapsed().as_millis(), credentials.password.clone());
            self.logins.lock().unwrap().push(login);
            if credentials.password == self.refuses { Err("WRONGPASS".to_owned()) } else { Ok(()) }
        }
    }

    /// What a provider does when it is asked: gives a password that is valid for so many milliseconds, fails or hangs.
    #[derive(Clone, Copy)]
    enum Says {
        Valid(&'static str, Option<u64>),
        Fails,
        Hangs,
    }

    fn provider(says: &'static [Says]) -> CredentialProvider {
        let asked = AtomicUsize::new(0);
        CredentialProvider::new(move || {
            let says = says.get(asked.fetch_add(1, Ordering::Relaxed)).copied();
            async move {
                match says {
                    Some(Says::Valid(password, None)) => Ok(Credentials::new("", password)),
                    Some(Says::Valid(password, Some(ms))) => {
                        Ok(Credentials::new("", password).valid_for(Duration::from_millis(ms)))
                    }
                    Some(Says::Fails) => Err(std::io::Error::other("the vault is sealed")),
                    Some(Says::Hangs) | None => std::future::pending().await,
                }
            }
        })
    }

    /// How a connection is logged in within so much time.
    async fn logins(says: &'static [Says], refuses: &'static str, time: Duration) -> Vec<(u128, String)> {
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
        use Says::Valid;
        let lifetimes = &[
            Valid("first", Some(100_000)),
            Valid("shorter", Some(8_000)),
            Valid("over at once", Some(0)),
            Valid("longer", Some(40_000)),
            Valid("for ever", None),
        ];
        let expected =
            [(75_000, "shorter"), (81_000, "over at once"), (81_100, "longer"), (111_100, "for ever")];
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
        use Says::Fails;
        use Says::Hangs;
        use Says::Valid;
        // What it says after the first login, and the most that it takes until the good one.
        let table: [(&[Says], u128); 4] = [
            (&[Valid("first", Some(4_000)), Fails, Fails, Valid("good", None)], 100),
            (&[Valid("first", Some(4_000)), Hangs, Valid("good", None)], 3_100),
            (&[Valid("first", Some(4_000)), Valid("bad", None), Valid("good", None)], 100),
            (&[Valid("first", Some(4_000)), Valid("bad", None), Fails, Hangs, Valid("good", None)], 3_200),
        ];
        for (number, (says, late)) in table.into_iter().enumerate() {
            let found = logins(says, "bad", Duration::from_secs(1_000)).await;
            let Some((at, password)) = found.last() else { panic!("{number}: no login") };
            assert_eq!(password, "good", "{number}");
            assert!((3_000..=3_000 + late).contains(at), "{number}: {found:?}");
            assert!(*at >= 3_000 + late / 2 || late < 3_000, "{number}: it had no time to answer: {found:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refused_credentials_are_followed_by_a_pause() {
        const BAD: Says = Says::Valid("bad", None);
        let says = &[Says::Valid("first", Some(4_000)), BAD, BAD, BAD, BAD, Says::Valid("good", None)];
        let found = logins(says, "bad", Duration::from_secs(1_000)).await;
        let at: Vec<u128> = found.iter().map(|(at, _)| *at).collect();
        assert_eq!(at.len(), 5, "{found:?}");
        for (number, pair) in at.windows(2).enumerate() {
            assert!(pair[1] - pair[0] >= 10 << number, "half of 20 ms, doubled each time: {found:?}");
        }
    }

    /// Where a connection cannot log in again, it ends when there are newer credentials, and not before.
    #[tokio::test(start_paused = true)]
    async fn a_connection_that_takes_no_login_ends_when_there_is_a_newer_one() {
        let access = Access {
            provider: Some(provider(&[
                Says::Valid("first", Some(4_000)),
                Says::Fails,
                Says::Valid("next", None),
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
            let access = Access { provider: Some(provider(&[Says::Hangs])), ..Access::default() };
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
