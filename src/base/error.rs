//! The errors of this crate.

use std::fmt;
use std::time::Duration;

/// Each text begins with this, so that a line of a log says by itself which crate it is about.
const CRATE: &str = env!("CARGO_PKG_NAME");

/// Result of the operations of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
///
/// "Somebody else holds the lock" is not an error: it is the answer
/// [`NotAcquired`](crate::NotAcquired). Texts never contain
/// a password. The page on [errors](crate::docs::errors) says what each means, what to do, and
/// which reply of the server leads to it. Each text begins with the name of this crate and, if the
/// call was about a lock, has the lock's name: [`lock_name`](Self::lock_name) gives it by itself.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The lock name is not allowed. Nothing was sent.
    #[error("{CRATE}: lock name \"{name}\" is not allowed: {reason}")]
    InvalidName {
        /// The name, escaped and cut to 80 characters.
        name: String,
        /// What is wrong with it and what is allowed.
        reason: String,
    },
    /// A setting is outside its limits. Nothing was sent.
    #[error("{CRATE}: {option} {given} is not allowed: it must be {allowed}")]
    InvalidOption {
        /// The setting.
        option: &'static str,
        /// What was given.
        given: String,
        /// What is allowed.
        allowed: String,
    },
    /// The server address is not understood. Nothing was sent.
    #[error("{CRATE}: server address is not allowed: {reason}")]
    InvalidUrl {
        /// What is wrong with it and what is allowed.
        reason: String,
    },
    /// `ReentrantLock` was used where there is no task or thread to own the hold. A thread inside
    /// `block_on` is an owner. In a work-stealing pool such as rayon that owner is shared by all
    /// jobs of the thread, so use a scope or a `Mutex` there.
    #[error(
        "{CRATE}: no owner: this is neither a Tokio task nor the root of a Tokio runtime; \
         run it in `Owner::new().scope(..)`, or use `LockClient::mutex`"
    )]
    NoOwner,
    /// A call of the module [`blocking`](crate#features) was made in an async task, or elsewhere in a
    /// future that Tokio polls. It would have blocked the thread, and every other task that needs
    /// that thread. Nothing was sent.
    #[error(
        "{CRATE}: a blocking call must not block the thread of an async task: await `{instead}` there, \
         or make the call in `tokio::task::spawn_blocking`"
    )]
    InAsyncTask {
        /// The async function that does the same.
        instead: &'static str,
    },
    /// Not now: the server cannot be reached, does not answer in time, or answers that it cannot do
    /// this right now; or the system has no thread for the driver. An acquisition that was sent is
    /// taken back in the background, a release goes on there, and a force-unlock may have been
    /// executed.
    #[error("{CRATE}: {}unavailable, gave up after {}: {cause}", about(.name), shown(.waited))]
    Unavailable {
        /// The lock that the call was about, if it was about one.
        name: Option<String>,
        /// How long the operation took, from the call on.
        waited: Duration,
        /// The last thing that went wrong.
        cause: String,
    },
    /// The hold ended without its owner releasing it.
    #[error("{CRATE}: lock \"{name}\" was lost: {reason}")]
    Lost {
        /// The lock name.
        name: String,
        /// Why it ended.
        reason: LossReason,
    },
    /// An earlier hold of this owner was lost, and a guard of it still exists. The owner gets no
    /// other hold of this lock before that guard is dropped, so that work under the lost hold does
    /// not go on unnoticed. A retry that does not drop it returns the same error at once.
    #[error(
        "{CRATE}: lock \"{name}\" was lost: {reason}; drop the guard of the lost hold first, then lock again"
    )]
    GuardOfLostHold {
        /// The lock name.
        name: String,
        /// Why the earlier hold ended.
        reason: LossReason,
    },
    /// The hold is valid for less time than was asked for. A watched hold may be valid for longer
    /// after its next renewal.
    #[error("{CRATE}: lock \"{name}\" is valid for {} more, but {needed:?} were asked for", shown(.remaining))]
    EndsSoon {
        /// The lock name.
        name: String,
        /// How long it is still valid.
        remaining: Duration,
        /// What was asked for.
        needed: Duration,
    },
    /// The key or its fence counter holds something that is not a reentrant lock. It was left
    /// untouched.
    #[error(
        "{CRATE}: a key of lock \"{name}\" is used for something else: {found}; it was left untouched"
    )]
    KeyConflict {
        /// The lock name.
        name: String,
        /// What is there.
        found: String,
    },
    /// The lock is released, but its key is in other use: while the lock was held, another program
    /// has put fields of its own into the hash. They were kept. From now on an acquisition of this
    /// lock returns [`KeyConflict`](Self::KeyConflict).
    #[error("{CRATE}: lock \"{name}\" is released, but its key is in other use: {found}")]
    KeyStillInUse {
        /// The lock name.
        name: String,
        /// What is there.
        found: String,
    },
    /// The hold is nested too deeply.
    #[error("{CRATE}: lock \"{name}\" is already nested {limit} times, the limit")]
    HoldCountLimit {
        /// The lock name.
        name: String,
        /// The limit.
        limit: u32,
    },
    /// A wait that might never end is refused. Either an owner that only reads wants to write the same
    /// read-write lock, and would wait for its own read: release the read first, or use
    /// [`try_upgrade`](crate::RwLockReadGuard::try_upgrade). Or a [`MultiLock`](crate::MultiLock) would
    /// wait for one of its members while the owner holds a lock that comes after it in the order of
    /// names: release that lock first, or make both members of one multi-lock.
    #[error("{CRATE}: {}", would_deadlock(.name, .held))]
    WouldDeadlock {
        /// The lock that would have been waited for.
        name: String,
        /// The lock that the owner holds and that comes after it. `None`: the owner reads the lock.
        held: Option<String>,
    },
    /// More permits are wanted than the semaphore has. Also for those who wait, when the number is
    /// lowered.
    #[error(
        "{CRATE}: {wanted} permits of semaphore \"{name}\" are wanted, which has {permits}; \
         1 to {permits} are allowed"
    )]
    TooManyPermits {
        /// The name of the semaphore.
        name: String,
        /// How many are wanted.
        wanted: u32,
        /// How many there are.
        permits: u32,
    },
    /// Too many tasks of this client already wait for the lock.
    #[error(
        "{CRATE}: lock \"{name}\" already has {limit} waiters in this client, the limit; try again later"
    )]
    TooManyWaiters {
        /// The lock name.
        name: String,
        /// The limit.
        limit: usize,
    },
    /// Redis refused the credentials, or requires some.
    #[error("{CRATE}: {}Redis refused the login: {message}", about(.name))]
    Auth {
        /// The lock that the call was about, if it was about one.
        name: Option<String>,
        /// Redis's own words.
        message: String,
    },
    /// The Redis user may not do this.
    #[error("{CRATE}: {}Redis denied a permission: {message}", about(.name))]
    Denied {
        /// The lock that the call was about, if it was about one.
        name: Option<String>,
        /// Redis's own words.
        message: String,
    },
    /// The lock is released, but its waiters could not be told: the Redis user may not publish.
    /// They find out by themselves, after 5.5 s at the latest; Redisson's waiters when the lease
    /// would have ended.
    #[error("{CRATE}: lock \"{name}\" is released, but {message}")]
    NotAnnounced {
        /// The lock name.
        name: String,
        /// What was refused.
        message: String,
    },
    /// No secure connection: a certificate is missing or not accepted, or only one side speaks TLS.
    #[error("{CRATE}: {}no secure connection to Redis: {message}", about(.name))]
    Tls {
        /// The lock that the call was about, if it was about one.
        name: Option<String>,
        /// What is wrong, what to do, and the words of the TLS library.
        message: String,
    },
    /// The server cannot serve locks: a replica, too old, or without a needed command.
    #[error("{CRATE}: {}this server cannot be used: {reason}", about(.name))]
    Unsupported {
        /// The lock that the call was about, if it was about one.
        name: Option<String>,
        /// What is missing and what is needed.
        reason: String,
    },
    /// The answer of Redis will not change by trying again.
    #[error("{CRATE}: {}Redis refused the command: {message}", about(.name))]
    Refused {
        /// The lock that the call was about, if it was about one.
        name: Option<String>,
        /// Redis's own words.
        message: String,
    },
    /// The client cannot be used any more, and never again.
    #[error("{CRATE}: {}this lock client is closed: {cause}", about(.name))]
    Closed {
        /// The lock that the call was about, if it was about one.
        name: Option<String>,
        /// Why.
        cause: String,
    },
}

/// The lock that an error is about, as in its text.
fn about(name: &Option<String>) -> String {
    name.as_ref().map(|name| format!("lock \"{name}\": ")).unwrap_or_default()
}

/// Why a wait might never end.
fn would_deadlock(name: &str, held: &Option<String>) -> String {
    match held {
        None => format!(
            "lock \"{name}\" is read by the same owner, which would wait for itself to write it; \
             release the read first, or use try_upgrade"
        ),
        Some(held) => format!(
            "lock \"{name}\" is taken, and the owner that wants it holds \"{held}\", which comes \
             after it; release \"{held}\" first, or take both with one multi-lock"
        ),
    }
}

/// A duration for people, without meaningless digits.
fn shown(duration: &Duration) -> String {
    let unit = if *duration < Duration::from_millis(1) { 1_000 } else { 1_000_000 };
    let rest = duration.subsec_nanos() % unit;
    format!("{:?}", *duration - Duration::from_nanos(u64::from(rest)))
}

impl Error {
    /// The error of every call on a client whose driver has ended.
    pub(crate) fn closed() -> Self {
        Self::Closed { name: None, cause: "it was shut down, or its runtime has ended".to_owned() }
    }

    /// The same error, of a call that was about this lock.
    pub(crate) fn of_lock(mut self, lock: &str) -> Self {
        match &mut self {
            Self::Unavailable { name, .. }
            | Self::Auth { name, .. }
            | Self::Denied { name, .. }
            | Self::Tls { name, .. }
            | Self::Unsupported { name, .. }
            | Self::Refused { name, .. }
            | Self::Closed { name, .. } => *name = Some(lock.to_owned()),
            _ => {}
        }
        self
    }

    /// The text without the name of this crate, for places where that is clear.
    pub(crate) fn words(&self) -> String {
        let text = self.to_string();
        let words = text.strip_prefix(CRATE).and_then(|rest| rest.strip_prefix(": "));
        words.map(str::to_owned).unwrap_or(text)
    }

    /// The name of the lock that the failed call was about. `None` if the call was about the client
    /// as a whole ([`connect`](crate::LockClient::connect), [`ping`](crate::LockClient::ping),
    /// [`shutdown`](crate::LockClient::shutdown)), or if the mistake is the name, a setting, the
    /// address, the missing owner or the place of the call: [`InvalidName`](Self::InvalidName),
    /// [`InvalidOption`](Self::InvalidOption), [`InvalidUrl`](Self::InvalidUrl),
    /// [`NoOwner`](Self::NoOwner), [`InAsyncTask`](Self::InAsyncTask).
    pub fn lock_name(&self) -> Option<&str> {
        match self {
            Self::Unavailable { name, .. }
            | Self::Auth { name, .. }
            | Self::Denied { name, .. }
            | Self::Tls { name, .. }
            | Self::Unsupported { name, .. }
            | Self::Refused { name, .. }
            | Self::Closed { name, .. } => name.as_deref(),
            Self::Lost { name, .. }
            | Self::GuardOfLostHold { name, .. }
            | Self::EndsSoon { name, .. }
            | Self::KeyConflict { name, .. }
            | Self::KeyStillInUse { name, .. }
            | Self::HoldCountLimit { name, .. }
            | Self::WouldDeadlock { name, .. }
            | Self::TooManyPermits { name, .. }
            | Self::TooManyWaiters { name, .. }
            | Self::NotAnnounced { name, .. } => Some(name),
            Self::InvalidName { .. }
            | Self::InvalidOption { .. }
            | Self::InvalidUrl { .. }
            | Self::NoOwner
            | Self::InAsyncTask { .. } => None,
        }
    }

    /// Whether the same call may succeed later, without any change:
    /// [`Unavailable`](Self::Unavailable), [`TooManyWaiters`](Self::TooManyWaiters) and
    /// [`EndsSoon`](Self::EndsSoon). For a watched hold, `EndsSoon` ends with the next renewal.
    /// With a fixed lease, and near `max_hold`, it does not end, although this returns true.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unavailable { .. } | Self::TooManyWaiters { .. } | Self::EndsSoon { .. }
        )
    }

    /// Whether the hold is gone: [`Lost`](Self::Lost), or, if the call wanted a new hold, the one
    /// before ([`GuardOfLostHold`](Self::GuardOfLostHold)). The owner can lock again as soon as the
    /// guards of the lost hold are dropped.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::GuardOfLostHold { .. })
    }

    /// Whether the call, the settings or the server must be changed first.
    pub fn is_config(&self) -> bool {
        !matches!(
            self,
            Self::Unavailable { .. }
                | Self::TooManyWaiters { .. }
                | Self::Lost { .. }
                | Self::GuardOfLostHold { .. }
                | Self::EndsSoon { .. }
                | Self::Closed { .. }
                | Self::HoldCountLimit { .. }
        )
    }
}

/// Why a hold ended without its owner releasing it. The first cause wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// No renewal was confirmed in time, or a fixed lease ran out.
    Expired,
    /// Somebody called `force_unlock`.
    ForceUnlocked,
    /// The key belongs to another holder, or something else is in its place.
    TakenOver,
    /// The key is gone, and the server is another one or was restarted since the grant.
    ServerLostData,
    /// The key is gone, and the client cannot see why: it was deleted, flushed or evicted.
    Removed,
    /// The time of `max_hold` is over.
    MaxHold,
    /// The client was shut down.
    ClientShutdown,
    /// This process is a child, by `fork`, of the one that holds the lock. There the hold goes on.
    Forked,
}

impl LossReason {
    /// The name of the reason, as in logs and in the driver's output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::ForceUnlocked => "force_unlocked",
            Self::TakenOver => "taken_over",
            Self::ServerLostData => "server_lost_data",
            Self::Removed => "removed",
            Self::MaxHold => "max_hold",
            Self::ClientShutdown => "client_shutdown",
            Self::Forked => "forked",
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease ran out: it was fixed, or no renewal was confirmed in time",
            Self::ForceUnlocked => "it was force-unlocked",
            Self::TakenOver => "its key belongs to another holder, or holds something else",
            Self::ServerLostData => "the server lost its data",
            Self::Removed => "its key is gone",
            Self::MaxHold => "the time of its max_hold is over",
            Self::ClientShutdown => "the client was shut down",
            Self::Forked => "it belongs to the process that this one was forked from",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The variants of a public enum, read from its source.
    fn variants<'a>(source: &'a str, of: &str) -> Vec<&'a str> {
        let (_, rest) = source.split_once(&format!("enum {of} {{\n")).unwrap();
        let body = rest.split("\n}\n").next().unwrap();
        let outer =
            |line: &&str| line.starts_with("    ") && line[4..].starts_with(char::is_uppercase);
        let name = |line: &'a str| line.trim().split([' ', ',']).next().unwrap();
        body.lines().filter(outer).map(name).collect()
    }

    #[test]
    fn the_page_on_errors_names_every_one() {
        let page = include_str!("../../docs/errors.md");
        let (errors, backend) = (include_str!("error.rs"), include_str!("../backend.rs"));
        let first_column = |name: &&str| !page.contains(&format!("\n| `{name}` |"));
        let missing: Vec<&str> =
            variants(errors, "Error").into_iter().filter(first_column).collect();
        assert_eq!(missing, [""; 0]);
        let missing: Vec<&str> =
            variants(errors, "LossReason").into_iter().filter(first_column).collect();
        assert_eq!(missing, [""; 0]);
        let kinds = variants(backend, "FailureKind");
        let missing: Vec<&&str> =
            kinds.iter().filter(|kind| !page.contains(&format!(" | {kind} | "))).collect();
        assert_eq!(missing, [&""; 0]);
        assert_eq!((variants(errors, "Error").len(), kinds.len()), (22, 12));
    }

    /// An error of each kind.
    fn one_of_each() -> Vec<Error> {
        let text = || "x".to_owned();
        let (name, reason, waited) = (text(), LossReason::Removed, Duration::from_secs(1));
        vec![
            Error::InvalidName { name: text(), reason: text() },
            Error::InvalidOption { option: "lease", given: text(), allowed: text() },
            Error::InvalidUrl { reason: text() },
            Error::NoOwner,
            Error::InAsyncTask { instead: "Mutex::lock" },
            Error::Unavailable { name: None, waited, cause: text() },
            Error::Lost { name: name.clone(), reason },
            Error::GuardOfLostHold { name: name.clone(), reason },
            Error::EndsSoon { name: name.clone(), remaining: waited, needed: 2 * waited },
            Error::KeyConflict { name: name.clone(), found: text() },
            Error::KeyStillInUse { name: name.clone(), found: text() },
            Error::HoldCountLimit { name: name.clone(), limit: 1 },
            Error::WouldDeadlock { name: name.clone(), held: Some("later".to_owned()) },
            Error::TooManyPermits { name: name.clone(), wanted: 3, permits: 2 },
            Error::TooManyWaiters { name: name.clone(), limit: 1 },
            Error::Auth { name: None, message: text() },
            Error::Denied { name: None, message: text() },
            Error::NotAnnounced { name, message: text() },
            Error::Tls { name: None, message: text() },
            Error::Unsupported { name: None, reason: text() },
            Error::Refused { name: None, message: text() },
            Error::closed(),
        ]
    }

    /// A single line of a log says what failed, and for which lock.
    #[test]
    fn each_text_names_the_crate_and_the_lock() {
        let all = one_of_each();
        assert_eq!(all.len(), variants(include_str!("error.rs"), "Error").len());
        for error in all {
            let text = error.to_string();
            assert_eq!(text.strip_prefix("redis-reentrant-lock: "), Some(&*error.words()));
            let about_a_lock = error.clone().of_lock("orders:42");
            match (error.lock_name(), about_a_lock.lock_name()) {
                (Some("x"), Some("x")) => {
                    let what = match error {
                        Error::TooManyPermits { .. } => "semaphore \"x\"",
                        _ => "lock \"x\"",
                    };
                    assert!(text.contains(what), "{text}")
                }
                (None, Some("orders:42")) => {
                    let wanted =
                        format!("redis-reentrant-lock: lock \"orders:42\": {}", error.words());
                    assert_eq!(about_a_lock.to_string(), wanted);
                }
                (None, None) => {
                    let before_any_lock = |error: &Error| {
                        matches!(
                            error,
                            Error::InvalidName { .. }
                                | Error::InvalidOption { .. }
                                | Error::InvalidUrl { .. }
                                | Error::NoOwner
                                | Error::InAsyncTask { .. }
                        )
                    };
                    assert!(before_any_lock(&error) && about_a_lock.to_string() == text, "{text}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn durations_are_told_without_noise() {
        let said =
            |waited| Error::Unavailable { name: None, waited, cause: "x".to_owned() }.words();
        assert_eq!(said(Duration::from_nanos(28_993_899)), "unavailable, gave up after 28ms: x");
        assert_eq!(said(Duration::from_nanos(5_000)), "unavailable, gave up after 5µs: x");
        assert_eq!(said(Duration::from_millis(30_001)), "unavailable, gave up after 30.001s: x");
        assert!(said(Duration::MAX).ends_with(".999s: x"));
    }
}
