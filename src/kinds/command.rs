//! What the engine has sent: a command for each thing that it wants done, whatever the kind of
//! lock.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Call;
use crate::backend::Script;
use crate::backend::words::Words;
use crate::base::kind::Kind;
use crate::base::lease::LeaseMs;
use crate::base::name::LONGEST_FENCE_KEY;

use crate::base::name::LockName;
use crate::base::name::WireProfile;
use crate::kinds::calls::call;
use crate::kinds::calls::with_line;
use crate::kinds::calls::with_renewals;
use crate::kinds::fair_queue;
use crate::kinds::latch;
use crate::kinds::of_all;
use crate::kinds::operation::Operation;
use crate::kinds::permit_expirable;
use crate::kinds::read_write;
use crate::kinds::reentrant::RAISE;
use crate::kinds::semaphore;
use crate::kinds::share::Share;

/// Bytes that the line's key has beside the name.
const LINE_KEY_BYTES: usize = "redisson_lock_line__{}".len();
/// Bytes that the arguments of most scripts have, or more.
const USUAL: usize = 128;

/// Of a preflight.
pub(crate) static PERMISSIONS: Script = script!("preflight/permissions");

/// Microseconds on the server's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServerTime(pub(crate) i64);

impl ServerTime {
    pub(crate) fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(time.as_micros()).unwrap_or(i64::MAX)))
    }

    /// The same for what is asked for at about the same time, so that several are told it once:
    /// earlier by less than a 128th of what is `left` until then.
    pub(crate) fn shared(self, left: Duration) -> Self {
        let most = i64::try_from(left.as_micros() / 128).unwrap_or(i64::MAX);
        let step = most.checked_ilog2().map_or(1, |bits| 1 << bits);
        Self(self.0 - self.0.rem_euclid(step))
    }
}

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
        /// What the hold is to have; [`Share::ONE`] takes a free lock.
        share: Share,
        lease: LeaseMs,
        not_after: ServerTime,
        /// Whether the line's key is named.
        line: bool,
        wait: WaitMode,
        /// Where the attempt tells those for whom it reserves what it finds free, if it may do that.
        announce: Option<Announce>,
        /// Holds that a refused attempt was told about: it removes those that are dead. Or, if one
        /// polls for all places of a client, the other places.
        told: Box<[String]>,
    },
    /// Gives a hold the exclusive share that its owner wants beside the shared one that it has.
    Upgrade {
        name: LockName,
        /// What the owner has.
        from: String,
        /// What it gets: a hold of its own.
        to: String,
        lease: LeaseMs,
        not_after: ServerTime,
        told: Box<[String]>,
    },
    /// Gives up the exclusive share of a hold and keeps this one, in one step.
    Downgrade {
        name: LockName,
        field: String,
        share: Share,
        lease: LeaseMs,
        announce: Announce,
    },
    Release {
        name: LockName,
        field: String,
        /// What the hold is to keep.
        share: Share,
        announce: Announce,
        /// Of a dead hold id: removes whatever that may have left. It keeps nothing.
        undo: bool,
    },
    /// The last releases of many holds. All are of one kind.
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
    /// All are of one kind.
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
        /// The first in line goes before `to`, which then waits behind it.
        line_first: bool,
        /// The subscription to the channel is confirmed.
        hears: bool,
    },
    Inspect {
        name: LockName,
    },
    /// Raises the fence counter to a token that this hold has.
    Raise {
        name: LockName,
        field: String,
        token: u64,
    },
    /// What is done once, however often this arrives.
    Operate(Box<Operation>),
    /// Asks for the count of a latch.
    Count {
        name: LockName,
        profile: WireProfile,
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
        self.name().map(LockName::slot)
    }

    /// The name that it is about, or one of them.
    pub(crate) fn name(&self) -> Option<&LockName> {
        match self {
            Self::Acquire { name, .. }
            | Self::Upgrade { name, .. }
            | Self::Downgrade { name, .. }
            | Self::Release { name, .. }
            | Self::ReleaseAt { name, .. }
            | Self::HandOff { name, .. }
            | Self::Inspect { name }
            | Self::Raise { name, .. }
            | Self::Count { name, .. }
            | Self::ForceRelease { name, .. } => Some(name),
            Self::Operate(operation) => Some(&operation.name),
            Self::ReleaseMany(holds) => holds.first().map(|hold| &hold.name),
            Self::Renew { holds, .. } => holds.first().map(|hold| &hold.name),
            Self::Time | Self::Ping | Self::Info | Self::Permissions(_) => None,
        }
    }
}

/// What an attempt says about waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitMode {
    /// It does not wait. So are re-entries.
    Try,
    /// Nobody of this client has been told to wait yet: a free lock is granted, whoever waits.
    First { hears: bool },
    /// A free lock goes to the first in line. The ticket is 0 as long as none is known. `hears`: the
    /// subscription to the channel was confirmed when this was sent.
    Again { ticket: u64, hears: bool },
}

fn lock_and_fence(name: &LockName, line: bool) -> Words {
    let lock = name.as_str();
    let line_bytes = if line { lock.len() + LINE_KEY_BYTES } else { 0 };
    let words = Words::with_capacity(lock.len() + LONGEST_FENCE_KEY + line_bytes);
    with_line(words.with(lock).with_written(|text| name.add_fence_key(text)), name, line)
}

fn lock_and_line(name: &LockName, line: bool) -> Words {
    if !line {
        return [name.as_str()].into();
    }
    let lock = name.as_str();
    with_line(Words::with_capacity(2 * lock.len() + LINE_KEY_BYTES).with(lock), name, line)
}

/// The locks of many holds, and then their lines.
fn locks_and_lines(holds: &[ReleaseItem]) -> Words {
    let locks = holds.iter().map(|hold| hold.name.as_str()).collect();
    let lines = holds.iter().filter(|hold| hold.announce.line);
    lines.fold(locks, |keys: Words, hold| keys.with_written(|text| hold.name.add_line_key(text)))
}

/// What becomes of a freed lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Announce {
    /// Where it is announced. Where each waiter has a channel of its own, it is that of the one whose
    /// command this is.
    pub(crate) channel: Arc<str>,
    pub(crate) sharded: bool,
    /// It goes to the first in line, whose key is named.
    pub(crate) line: bool,
    /// Only the key of the lock is named, because the hold has no other one, and a cluster refuses
    /// scripts that name a key that is there and one that is not while it moves their slot.
    pub(crate) alone: bool,
}

impl Announce {
    pub(crate) fn of(name: &LockName, profile: WireProfile, sharded: bool) -> Self {
        Self::on(name.channel(profile), name, profile, sharded)
    }

    /// The same, where the name's channel has been spelled out.
    pub(crate) fn on(
        channel: Arc<str>,
        name: &LockName,
        profile: WireProfile,
        sharded: bool,
    ) -> Self {
        Self { channel, sharded, line: name.kind().has_line(profile), alone: false }
    }

    pub(super) fn verb(&self) -> &'static str {
        if self.sharded { "SPUBLISH" } else { "PUBLISH" }
    }

    pub(super) fn add_to(&self, args: Words) -> Words {
        args.with(&self.channel).with(self.verb())
    }
}

impl WaitMode {
    pub(super) fn add_to(self, args: Words) -> Words {
        let (mode, ticket, hears) = match self {
            Self::Try => ("try", 0, false),
            Self::First { hears } => ("first", 0, hears),
            Self::Again { ticket, hears } => ("again", ticket, hears),
        };
        args.with(mode).with_number(ticket).with(flag(hears))
    }
}

fn flag(flag: bool) -> &'static str {
    if flag { "1" } else { "0" }
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
    /// What the hold has.
    pub(crate) share: Share,
    pub(crate) lease: LeaseMs,
}

impl Command {
    /// The script and its arguments.
    pub(crate) fn to_call(&self) -> Call {
        let own = match self.name().map(LockName::kind) {
            Some(Kind::ReadWrite) => read_write::calls::of(self),
            Some(Kind::Semaphore) => semaphore::calls::of(self),
            Some(Kind::PermitExpirable) => permit_expirable::calls::of(self),
            Some(Kind::FairQueue) => fair_queue::calls::of(self).or_else(|| self.usual_call()),
            _ => self.usual_call(),
        };
        // No kind gets commands that it has no scripts for.
        own.unwrap_or(Call::Ping)
    }

    /// The same for kinds that keep nothing beside the key of the lock and its line.
    fn usual_call(&self) -> Option<Call> {
        let of = |name: &LockName| name.kind().scripts();
        let args = || Words::with_capacity(USUAL);
        Some(match self {
            Self::Time => Call::Time,
            Self::Ping => Call::Ping,
            Self::Info => Call::Info,
            Self::Permissions(pairs) => {
                let words = pairs.iter().flat_map(|(command, target)| [*command, target]);
                call(&PERMISSIONS, Words::default(), words.collect())
            }
            Self::Acquire { name, field, share, lease, not_after, line, wait, announce, told } => {
                let args = args().with(field).with_number(share.total());
                let args = args.with_number(lease.millis()).with_number(not_after.0);
                let args = wait.add_to(args);
                let args = match announce {
                    Some(announce) => announce.add_to(args),
                    None => args,
                };
                let args = told.iter().fold(args, |args, field| args.with(field));
                call(of(name)?.acquire, lock_and_fence(name, *line), args)
            }
            // Only the read-write lock has shared holds.
            Self::Upgrade { .. } | Self::Downgrade { .. } => return None,
            Self::Release { name, field, share, announce, undo } => {
                let scripts = of(name)?;
                let release = if *undo { scripts.undo } else { scripts.release };
                let args = announce.add_to(args().with(field).with_number(share.total()));
                call(release, lock_and_line(name, announce.line), args)
            }
            Self::ReleaseMany(holds) => {
                let verb = holds.first().map(|hold| hold.announce.verb()).unwrap_or_default();
                let args = holds.iter().fold(args().with(verb), |args, hold| {
                    args.with(&hold.field).with(&hold.announce.channel)
                });
                call(
                    of_all(holds.iter().map(|hold| &hold.name))?.release_many,
                    locks_and_lines(holds),
                    args,
                )
            }
            Self::ReleaseAt { name, field, free_at, most, announce } => {
                let args = args().with(field).with_number(free_at.0).with_number(most.millis());
                let keys = lock_and_line(name, announce.line);
                call(of(name)?.release_at, keys, announce.add_to(args))
            }
            Self::Renew { holds, not_after } => {
                let args = with_renewals(args(), holds, *not_after);
                call(
                    of_all(holds.iter().map(|hold| &hold.name))?.renew,
                    holds.iter().map(|hold| hold.name.as_str()).collect(),
                    args,
                )
            }
            Self::HandOff { name, from, to, lease, not_after, announce, line_first, hears } => {
                let args =
                    args().with(from).with(to).with_number(lease.millis()).with_number(not_after.0);
                let args = announce.add_to(args).with(flag(*line_first)).with(flag(*hears));
                call(of(name)?.hand_off, lock_and_fence(name, announce.line), args)
            }
            Self::Inspect { name } => {
                call(of(name)?.inspect, lock_and_line(name, false), Words::default())
            }
            Self::Raise { name, field, token } => {
                let args = args().with(field).with_number(*token);
                call(&RAISE, lock_and_fence(name, false), args)
            }
            Self::Operate(operation) => return operation.to_call(),
            Self::Count { name, profile } => {
                let keys = lock_and_line(name, false);
                call(&latch::LOOK, keys, [latch::format(*profile)].into())
            }
            Self::ForceRelease { name, expected, not_after, announce, client_channel } => {
                let args = announce.add_to(args().with(expected).with_number(not_after.0));
                let keys = lock_and_line(name, announce.line);
                call(of(name)?.force_release, keys, args.with(client_channel))
            }
        })
    }

    /// For logs and errors.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Ping => "ping",
            Self::Info => "info",
            Self::Permissions(_) => "permissions",
            Self::Acquire { .. } => "acquire",
            Self::Upgrade { .. } => "upgrade",
            Self::Downgrade { .. } => "downgrade",
            Self::Release { .. } => "release",
            Self::ReleaseMany(_) => "release_many",
            Self::ReleaseAt { .. } => "release_at",
            Self::Renew { .. } => "renew",
            Self::HandOff { .. } => "hand_off",
            Self::Inspect { .. } => "inspect",
            Self::Raise { .. } => "raise",
            Self::Operate(operation) => operation.change.label(),
            Self::Count { .. } => "count",
            Self::ForceRelease { .. } => "force_release",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
