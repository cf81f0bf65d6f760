//! The scripts of `lua/reentrant/`.

use std::sync::LazyLock;
use std::time::Duration;

use crate::backend::Call;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OneOf;
use crate::backend::Outcome;
use crate::backend::Script;
use crate::backend::ScriptCall;
use crate::backend::Several;
use crate::backend::Value;
use crate::backend::words::Words;
use crate::base::lease::LeaseMs;
use crate::base::name::LONGEST_FENCE_KEY;
use crate::base::name::LockName;

/// What follows in a script is done by several, too: they know its keys and arguments, and the time.
const COMMON: &str = "-- From here on several do the same.";

/// Bytes that the arguments of most scripts have, or more.
const USUAL: usize = 128;

/// Microseconds on the server's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServerTime(pub(crate) i64);

impl ServerTime {
    pub(crate) fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(time.as_micros()).unwrap_or(i64::MAX)))
    }

    /// The same for what is asked for at about the same time, so that several are told it once: earlier by less than a
    /// 128th of what is `left` until then.
    pub(crate) fn shared(self, left: Duration) -> Self {
        let most = i64::try_from(left.as_micros() / 128).unwrap_or(i64::MAX);
        let step = most.checked_ilog2().map_or(1, |bits| 1 << bits);
        Self(self.0 - self.0.rem_euclid(step))
    }
}

macro_rules! script {
    ($name:literal) => {
        Script { name: $name, source: include_str!(concat!("../../lua/", $name, ".lua")) }
    };
}

pub(crate) static ACQUIRE: Script = script!("reentrant/acquire");
pub(crate) static RELEASE: Script = script!("reentrant/release");
pub(crate) static RELEASE_MANY: Script = script!("reentrant/release_many");
pub(crate) static RELEASE_AT: Script = script!("reentrant/release_at");
pub(crate) static RENEW: Script = script!("reentrant/renew");
pub(crate) static HAND_OFF: Script = script!("reentrant/hand_off");
pub(crate) static INSPECT: Script = script!("reentrant/inspect");
pub(crate) static FORCE_RELEASE: Script = script!("reentrant/force_release");

/// Runs several of the first two, by their own texts.
static SEVERAL: LazyLock<Script> = LazyLock::new(|| {
    let Script { name, source } = script!("several/reentrant");
    let source = source.replace("-- acquire.lua", &body(&ACQUIRE)).replace("-- release.lua", &body(&RELEASE));
    Script { name, source: source.leak() }
});

/// What a script has in common with that of several, which does without a table for each reply.
fn body(script: &Script) -> String {
    let (_, body) = script.source.split_once(COMMON).expect("the line that tells what is common");
    let mut parts = body.split("return {");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('}') {
            Some((list, rest)) if !list.starts_with("err") => {
                debug_assert!(!list.contains('{'), "{list}: the bracket that was found is another's");
                text.extend(["return ", list, rest]);
            }
            _ => text.extend(["return {", part]),
        }
    }
    text
}

/// Which calls may be run together.
pub(crate) fn several() -> Several {
    static OF: [OneOf; 2] = [
        OneOf { script: &ACQUIRE, mark: 'a', usual: &[1, 2, 3] },
        OneOf { script: &RELEASE, mark: 'r', usual: &[1, 3] },
    ];
    Several { script: &SEVERAL, of: &OF }
}

/// Of a preflight.
pub(crate) static PERMISSIONS: Script = script!("preflight/permissions");

/// Every script, for tests.
#[cfg(any(test, fuzzing))]
pub(crate) static ALL: [&Script; 8] =
    [&ACQUIRE, &RELEASE, &RELEASE_MANY, &RELEASE_AT, &RENEW, &HAND_OFF, &INSPECT, &FORCE_RELEASE];

/// A command of the engine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    Time,
    Ping,
    /// Everything that the server tells about itself.
    Info,
    /// Whether the user may use each command with each key or channel.
    Permissions(Vec<(&'static str, String)>),
    Acquire {
        name: LockName,
        field: String,
        count: u32,
        lease: LeaseMs,
        not_after: ServerTime,
    },
    Release {
        name: LockName,
        field: String,
        count: u32,
        announce: Announce,
    },
    /// The last releases of many holds.
    ReleaseMany(Vec<ReleaseItem>),
    /// The last release of a hold whose lock stays taken until then.
    ReleaseAt {
        name: LockName,
        field: String,
        free_at: ServerTime,
        /// What is left until then at most, whatever the server's clock says.
        most: LeaseMs,
        announce: Announce,
    },
    Renew {
        holds: Vec<RenewItem>,
        not_after: ServerTime,
    },
    HandOff {
        name: LockName,
        from: String,
        to: String,
        lease: LeaseMs,
        not_after: ServerTime,
        announce: Announce,
    },
    Inspect {
        name: LockName,
    },
    ForceRelease {
        name: LockName,
        expected: String,
        not_after: ServerTime,
        announce: Announce,
        client_channel: String,
    },
}

impl Command {
    /// The hash slot of its keys, if it has any. All are in one.
    pub(crate) fn slot(&self) -> Option<u16> {
        match self {
            Self::Acquire { name, .. }
            | Self::Release { name, .. }
            | Self::ReleaseAt { name, .. }
            | Self::HandOff { name, .. }
            | Self::Inspect { name }
            | Self::ForceRelease { name, .. } => Some(name.slot()),
            Self::ReleaseMany(holds) => holds.first().map(|hold| hold.name.slot()),
            Self::Renew { holds, .. } => holds.first().map(|hold| hold.name.slot()),
            Self::Time | Self::Ping | Self::Info | Self::Permissions(_) => None,
        }
    }
}

fn lock_and_fence(name: &LockName) -> Words {
    let words = Words::with_capacity(name.as_str().len() + LONGEST_FENCE_KEY);
    words.with(name.as_str()).with_written(|text| name.add_fence_key(text))
}

/// Where and how a freed lock is announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Announce {
    pub(crate) channel: std::sync::Arc<str>,
    pub(crate) sharded: bool,
}

impl Announce {
    fn verb(&self) -> &'static str {
        if self.sharded { "SPUBLISH" } else { "PUBLISH" }
    }

    fn add_to(&self, args: Words) -> Words {
        args.with(&self.channel).with(self.verb())
    }
}

/// One hold of many that are released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReleaseItem {
    pub(crate) name: LockName,
    pub(crate) field: String,
    pub(crate) announce: Announce,
}

/// One hold of a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RenewItem {
    pub(crate) name: LockName,
    pub(crate) field: String,
    pub(crate) lease: LeaseMs,
}

/// An answered command. `time` is the server's clock during the script.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) time: Option<ServerTime>,
    pub(crate) body: Body,
}

/// What an answered command said.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Body {
    /// TIME and PING.
    Pong,
    Info(String),
    /// An entry for each pair, or `None`: the server cannot tell.
    Permissions(Option<Vec<Permission>>),
    Acquire(Acquired),
    Release(Released),
    /// One entry for each hold. `None`: not done.
    ReleaseMany(Vec<Option<Released>>),
    /// One entry for each hold, or `None`: late.
    Renew(Option<Vec<Renewed>>),
    HandOff(HandedOff),
    Inspect(KeyState),
    Force(Forced),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// The token is 0 for a count of 2 and more.
    Granted {
        token: u64,
    },
    /// Time to live in ms, negative without one, and the holder's field.
    Held {
        pttl: i64,
        holder: String,
    },
    Late,
    Gone,
    Foreign,
    Conflict(&'static str),
}

/// What a user may do with a command and a key or channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    Given,
    Missing,
    /// The server has no such command.
    Unknown,
}

/// A hold was given up, and the hash still has fields of another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leftover {
    /// `None`: Redis refused to publish it.
    pub(crate) receivers: Option<u64>,
    /// They keep the time to live that the lock had.
    pub(crate) ends: bool,
}

impl Leftover {
    /// What is under the key now.
    pub(crate) fn found(self) -> &'static str {
        if self.ends {
            "other fields of its hash were kept; they end with the time to live that the lock had, \
             unless somebody takes it off (PERSIST)"
        } else {
            "other fields of its hash were kept, without a time to live"
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    /// `None`: freed, but Redis refused to publish it.
    Freed {
        receivers: Option<u64>,
    },
    InOtherUse(Leftover),
    /// Given up, and nobody may have the lock for a while.
    Kept {
        /// `None`: Redis refused to publish it.
        receivers: Option<u64>,
    },
    CountSet,
    Gone,
    Foreign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewed {
    Yes,
    Gone,
    Foreign,
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandedOff {
    Granted {
        token: u64,
    },
    Gone,
    Foreign,
    /// Nothing granted; `from` is released. `None`: Redis refused to publish it.
    ReleasedOnly {
        late: bool,
        receivers: Option<u64>,
    },
    /// The same, whether late or not.
    InOtherUse(Leftover),
}

/// What a lock's key holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyState {
    Absent,
    Hash { pttl: i64, fields: i64, field: String, count: String },
    ReadWriteLock,
    Other,
}

impl KeyState {
    /// What makes it no lock of this kind, in the order and the words of an acquire that meets it.
    pub(crate) fn conflict(&self) -> Option<&'static str> {
        match self {
            Self::Absent => None,
            Self::Other => conflict(1),
            Self::ReadWriteLock => conflict(4),
            Self::Hash { fields, .. } if *fields != 1 => conflict(2),
            Self::Hash { pttl, field, .. } => conflict_of_holder(*pttl, field),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forced {
    Freed { receivers: Option<u64> },
    InOtherUse(Leftover),
    Gone,
    Late,
    Foreign,
}

impl Command {
    /// The script and its arguments.
    pub(crate) fn to_call(&self) -> Call {
        let script = |script, keys, args| Call::Script(Box::new(ScriptCall::new(script, keys, args)));
        let lock = |name: &LockName| [name.as_str()].into();
        let args = || Words::with_capacity(USUAL);
        match self {
            Self::Time => Call::Time,
            Self::Ping => Call::Ping,
            Self::Info => Call::Info,
            Self::Permissions(pairs) => {
                let words = pairs.iter().flat_map(|(command, target)| [*command, target]);
                script(&PERMISSIONS, Words::default(), words.collect())
            }
            Self::Acquire { name, field, count, lease, not_after } => {
                let args = args().with(field).with_number(*count);
                let args = args.with_number(lease.millis()).with_number(not_after.0);
                script(&ACQUIRE, lock_and_fence(name), args)
            }
            Self::Release { name, field, count, announce } => {
                let args = announce.add_to(args().with(field).with_number(*count));
                script(&RELEASE, lock(name), args)
            }
            Self::ReleaseMany(holds) => {
                let verb = holds.first().map(|hold| hold.announce.verb()).unwrap_or_default();
                let args = holds.iter().fold(args().with(verb), |args, hold| {
                    args.with(&hold.field).with(&hold.announce.channel)
                });
                script(&RELEASE_MANY, holds.iter().map(|hold| hold.name.as_str()).collect(), args)
            }
            Self::ReleaseAt { name, field, free_at, most, announce } => {
                let args = args().with(field).with_number(free_at.0).with_number(most.millis());
                script(&RELEASE_AT, lock(name), announce.add_to(args))
            }
            Self::Renew { holds, not_after } => {
                let args = holds.iter().fold(args().with_number(not_after.0), |args, hold| {
                    args.with(&hold.field).with_number(hold.lease.millis())
                });
                script(&RENEW, holds.iter().map(|hold| hold.name.as_str()).collect(), args)
            }
            Self::HandOff { name, from, to, lease, not_after, announce } => {
                let args = args().with(from).with(to).with_number(lease.millis()).with_number(not_after.0);
                script(&HAND_OFF, lock_and_fence(name), announce.add_to(args))
            }
            Self::Inspect { name } => script(&INSPECT, lock(name), Words::default()),
            Self::ForceRelease { name, expected, not_after, announce, client_channel } => {
                let args = announce.add_to(args().with(expected).with_number(not_after.0));
                script(&FORCE_RELEASE, lock(name), args.with(client_channel))
            }
        }
    }

    /// Reads the reply to this command. A reply of another shape is `Unknown`: something was executed.
    pub(crate) fn read(&self, value: Value) -> Outcome<Reply> {
        match self.parse(&value) {
            Some(Ok(reply)) => Outcome::Done(reply),
            Some(Err(failure)) => Outcome::NotExecuted(failure),
            None => {
                let shown = format!("{value:?}");
                let message = format!("unexpected reply {shown:.200} to {}", self.label());
                Outcome::Unknown(Failure::new(FailureKind::Refused, message))
            }
        }
    }

    /// For logs and errors.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Ping => "ping",
            Self::Info => "info",
            Self::Permissions(_) => "permissions",
            Self::Acquire { .. } => "acquire",
            Self::Release { .. } => "release",
            Self::ReleaseMany(_) => "release_many",
            Self::ReleaseAt { .. } => "release_at",
            Self::Renew { .. } => "renew",
            Self::HandOff { .. } => "hand_off",
            Self::Inspect { .. } => "inspect",
            Self::ForceRelease { .. } => "force_release",
        }
    }

    fn parse(&self, value: &Value) -> Option<Result<Reply, Failure>> {
        let mut fields = Fields::of(value)?;
        match self {
            Self::Ping => return Some(Ok(Reply { time: None, body: Body::Pong })),
            Self::Info => return Some(Ok(Reply { time: None, body: Body::Info(fields.text()?) })),
            Self::Time => {
                return Some(Ok(Reply { time: Some(ServerTime(fields.int()?)), body: Body::Pong }));
            }
            _ => {}
        }
        let code = fields.int()?;
        let time = Some(ServerTime(fields.int()?));
        if code == -9 {
            let message = format!("{} script: ARGV[{}] is not allowed", self.label(), fields.int()?);
            return Some(Err(Failure::new(FailureKind::Refused, message)));
        }
        let body = match self {
            Self::Acquire { .. } => Body::Acquire(match code {
                1 => Acquired::Granted { token: fields.uint()? },
                0 => Acquired::Held { pttl: fields.int()?, holder: fields.text()? },
                -1 => Acquired::Late,
                -2 => Acquired::Gone,
                -3 => Acquired::Foreign,
                -4 => Acquired::Conflict(conflict(fields.int()?)?),
                _ => return None,
            }),
            Self::Release { .. } => Body::Release(match code {
                1 => Released::Freed { receivers: fields.receivers()? },
                2 => Released::CountSet,
                3 | 4 => Released::InOtherUse(fields.leftover(code)?),
                0 => Released::Gone,
                -3 => Released::Foreign,
                _ => return None,
            }),
            Self::ReleaseAt { .. } => Body::Release(match code {
                1 => Released::Freed { receivers: fields.receivers()? },
                2 => Released::Kept { receivers: fields.receivers()? },
                3 | 4 => Released::InOtherUse(fields.leftover(code)?),
                0 => Released::Gone,
                -3 => Released::Foreign,
                _ => return None,
            }),
            Self::ReleaseMany(holds) => Body::ReleaseMany(match code {
                1 => holds.iter().map(|_| Some(released(fields.int()?))).collect::<Option<_>>()?,
                _ => return None,
            }),
            Self::Renew { holds, .. } => Body::Renew(match code {
                1 => Some(holds.iter().map(|_| renewed(fields.int()?)).collect::<Option<_>>()?),
                -1 => None,
                _ => return None,
            }),
            Self::HandOff { .. } => Body::HandOff(match code {
                1 => HandedOff::Granted { token: fields.uint()? },
                0 => HandedOff::Gone,
                2 => HandedOff::ReleasedOnly { late: false, receivers: fields.receivers()? },
                3 | 4 => HandedOff::InOtherUse(fields.leftover(code)?),
                -1 => HandedOff::ReleasedOnly { late: true, receivers: fields.receivers()? },
                -3 => HandedOff::Foreign,
                _ => return None,
            }),
            Self::Inspect { .. } => Body::Inspect(match code {
                0 => KeyState::Absent,
                1 => KeyState::Hash {
                    pttl: fields.int()?,
                    fields: fields.int()?,
                    field: fields.text()?,
                    count: fields.text()?,
                },
                2 => KeyState::Other,
                3 => KeyState::ReadWriteLock,
                _ => return None,
            }),
            Self::ForceRelease { .. } => Body::Force(match code {
                1 => Forced::Freed { receivers: fields.receivers()? },
                3 | 4 => Forced::InOtherUse(fields.leftover(code)?),
                0 => Forced::Gone,
                -1 => Forced::Late,
                -3 => Forced::Foreign,
                _ => return None,
            }),
            Self::Permissions(pairs) => Body::Permissions(match code {
                1 => Some(pairs.iter().map(|_| permission(fields.int()?)).collect::<Option<_>>()?),
                0 => None,
                _ => return None,
            }),
            Self::Time | Self::Ping | Self::Info => return None,
        };
        Some(Ok(Reply { time, body }))
    }
}

/// The conflicts that only the client can see.
const NOT_A_HOLDER: &str = "a hash whose field is not a lock holder";
pub(crate) const WITHOUT_END: &str = "a lock without a time to live, which never ends by itself: \
     somebody took its time to live off (PERSIST), or its client could not set one; \
     `force_unlock` removes it";

/// The conflict that is not in the lock's own key.
const BROKEN_FENCE: &str = "the fence counter is not a whole number from 0 to 2^53 - 2";

/// What is where, so that it can be found.
pub(crate) fn conflict_words(found: &str, name: &LockName) -> String {
    if found == BROKEN_FENCE { format!("{found}, {}", name.fence_key()) } else { found.to_owned() }
}

fn conflict(what: i64) -> Option<&'static str> {
    Some(match what {
        1 => "a value that is not a hash",
        2 => "a hash with several fields",
        4 => "a read-write lock",
        5 => BROKEN_FENCE,
        _ => return None,
    })
}

/// What is wrong with the only field of a hash, taken for a holder with this time to live in ms.
pub(crate) fn conflict_of_holder(pttl: i64, field: &str) -> Option<&'static str> {
    match is_holder_field(field) {
        false => Some(NOT_A_HOLDER),
        true => (pttl < 0).then_some(WITHOUT_END),
    }
}

fn permission(answer: i64) -> Option<Permission> {
    Some(match answer {
        1 => Permission::Given,
        0 => Permission::Missing,
        -1 => Permission::Unknown,
        _ => return None,
    })
}

/// Of one hold of many.
fn released(answer: i64) -> Option<Released> {
    match answer {
        -5 => None,
        receivers => Some(Released::Freed { receivers: receivers.try_into().ok() }),
    }
}

fn renewed(code: i64) -> Option<Renewed> {
    Some(match code {
        1 => Renewed::Yes,
        0 => Renewed::Gone,
        -3 => Renewed::Foreign,
        -5 => Renewed::Refused,
        _ => return None,
    })
}

/// The entries of a reply, taken one after the other.
struct Fields<'a>(std::slice::Iter<'a, Value>);

impl<'a> Fields<'a> {
    fn of(value: &'a Value) -> Option<Self> {
        match value {
            Value::List(list) => Some(Self(list.iter())),
            _ => None,
        }
    }

    fn int(&mut self) -> Option<i64> {
        match self.0.next()? {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }

    fn uint(&mut self) -> Option<u64> {
        self.int()?.try_into().ok()
    }

    /// A count of receivers; -1 says that publishing was refused.
    fn receivers(&mut self) -> Option<Option<u64>> {
        Some(self.int()?.try_into().ok())
    }

    /// Of a reply with the code 3 or 4.
    fn leftover(&mut self, code: i64) -> Option<Leftover> {
        Some(Leftover { receivers: self.receivers()?, ends: code == 4 })
    }

    fn text(&mut self) -> Option<String> {
        match self.0.next()? {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

/// Whether a field has the form `<uuid>:<number>[:suffix]`, as every reentrant holder writes it.
pub(crate) fn is_holder_field(field: &str) -> bool {
    let Some((client, rest)) = field.split_once(':') else { return false };
    let number = rest.split(':').next().unwrap_or_default();
    client.len() == 36
        && uuid::Uuid::try_parse(client).is_ok()
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(all(test, feature = "in-memory"))]
mod script_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_fields_are_told_from_foreign_ones() {
        let uuid = "6e3d30b7-83b1-433a-9335-5e8b9916d3ac";
        for good in [format!("{uuid}:731"), format!("{uuid}:1:tx"), format!("{uuid}:1:write")] {
            assert!(is_holder_field(&good), "{good}");
        }
        for bad in [uuid.to_owned(), format!("{uuid}:"), format!("{uuid}:x"), "a:1".into(), String::new()] {
            assert!(!is_holder_field(&bad), "{bad}");
        }
    }

    #[test]
    fn a_shared_time_is_a_little_earlier_and_never_later() {
        let time = ServerTime(1_795_583_849_481_996);
        for (left_us, step) in [(0, 1), (127, 1), (256, 2), (10_000, 64), (3_000_000, 16_384)] {
            let left = Duration::from_micros(left_us);
            let shared = time.shared(left);
            assert_eq!(shared.0 % step, 0, "{left:?}");
            assert!((0..step).contains(&(time.0 - shared.0)), "{left:?}: {shared:?}");
            assert_eq!(ServerTime(shared.0 + step - 1).shared(left), shared, "{left:?}");
        }
        assert!(time.shared(Duration::MAX) <= time);
    }

    #[test]
    fn a_reply_of_another_shape_is_unknown() {
        let command = Command::Inspect { name: LockName::new("n").unwrap() };
        for value in
            [Value::Nil, Value::Int(1), Value::List(vec![]), Value::List(vec![Value::Int(7), Value::Int(1)])]
        {
            assert!(matches!(command.read(value), Outcome::Unknown(_)));
        }
    }
}
