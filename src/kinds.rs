//! The kinds of locks: for each its scripts, and the answers to what the engine asks.
//!
//! The engine knows commands and replies, and names no kind. A kind is a folder of scripts in
//! `lua/`, one file here, and one arm in each `match` below. What its keys and channels are called
//! is the same for every kind, and stands in `base/name.rs`.

/// The text of a file in `lua/`.
macro_rules! lua {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/", $name, ".lua"))
    };
}

/// A script of `lua/`. If it includes other files, their texts stand behind the `-- include` lines,
/// and it is a `LazyLock`. A file that includes others is named before them.
macro_rules! script {
    ($name:literal) => {
        $crate::backend::Script { name: $name, source: lua!($name) }
    };
    ($name:literal, includes $($body:literal),+) => {
        std::sync::LazyLock::new(|| {
            let source = lua!($name).to_owned();
            $(
                let line = concat!("-- include ", $body, ".lua\n");
                let source = source.replace(line, &[line, lua!($body)].concat());
            )+
            $crate::backend::Script { name: $name, source: source.leak() }
        })
    };
}

mod calls;
pub(crate) mod command;
pub(crate) mod conflict;
pub(crate) mod fair;
pub(crate) mod fair_queue;
pub(crate) mod latch;
pub(crate) mod operation;
#[cfg(all(test, repository))]
pub(crate) mod pair;
pub(crate) mod permit_expirable;
pub(crate) mod read_write;
pub(crate) mod reentrant;
pub(crate) mod reply;
#[cfg(all(test, feature = "in-memory"))]
mod script_tests;
pub(crate) mod semaphore;
pub(crate) mod share;
pub(crate) mod sight;

use std::sync::Arc;

use crate::backend::Script;
use crate::base::kind::Kind;
use crate::base::name::LockName;
use crate::base::name::WireProfile;
use crate::kinds::share::Share;

/// The scripts of a kind that keeps nothing beside the key of the lock and its line. Each has the
/// same KEYS and ARGV in every such kind.
pub(crate) struct Scripts {
    pub(crate) acquire: &'static Script,
    /// A count of 0 gives the hold up; a larger count sets it.
    pub(crate) release: &'static Script,
    /// Removes whatever a dead hold id may have left. The same arguments as a release.
    pub(crate) undo: &'static Script,
    pub(crate) release_many: &'static Script,
    pub(crate) release_at: &'static Script,
    pub(crate) renew: &'static Script,
    /// Not sent where [`Kind::hands_off`] says no.
    pub(crate) hand_off: &'static Script,
    pub(crate) inspect: &'static Script,
    pub(crate) force_release: &'static Script,
}

/// What is asked of a kind.
impl Kind {
    /// `None`: it keeps more, or has no holds.
    pub(crate) fn scripts(self) -> Option<&'static Scripts> {
        match self {
            Self::Reentrant => Some(&reentrant::SCRIPTS),
            Self::Fair => Some(&fair::SCRIPTS),
            Self::FairQueue => Some(&fair_queue::SCRIPTS),
            Self::CountDownLatch | Self::ReadWrite => None,
            Self::Semaphore | Self::PermitExpirable => None,
            #[cfg(all(test, repository))]
            Self::Pair => Some(&pair::SCRIPTS),
        }
    }

    /// Whether a hold with the share `wanted` may be granted while other holds take `beside`: the
    /// sum of what each of them takes.
    pub(crate) fn admits(self, beside: Share, wanted: Share) -> bool {
        let taken = beside.plus(self.taken_by(wanted));
        match self {
            Self::Reentrant | Self::Fair | Self::FairQueue => taken.exclusive <= 1,
            Self::CountDownLatch => false,
            Self::ReadWrite => taken.exclusive == 0 || (taken.exclusive == 1 && taken.shared == 0),
            // Somebody may have set another number: only the server knows.
            Self::Semaphore | Self::PermitExpirable => true,
            #[cfg(all(test, repository))]
            Self::Pair => taken.exclusive <= 2,
        }
    }

    /// What a hold with this share takes from what others may have.
    pub(crate) fn taken_by(self, share: Share) -> Share {
        match self {
            // One place, however often its owner has it.
            Self::Reentrant | Self::Fair | Self::FairQueue => {
                Share::exclusive(share.exclusive.min(1))
            }
            Self::CountDownLatch => Share::NOTHING,
            Self::ReadWrite if share.exclusive > 0 => Share::ONE,
            Self::ReadWrite => Share { exclusive: 0, shared: share.shared.min(1) },
            Self::Semaphore | Self::PermitExpirable => share,
            #[cfg(all(test, repository))]
            Self::Pair => Share::exclusive(share.exclusive.min(1)),
        }
    }

    /// Whether a release may grant to a waiter of the same client in the same script.
    pub(crate) fn hands_off(self) -> bool {
        match self {
            Self::Reentrant => true,
            Self::Fair | Self::FairQueue | Self::CountDownLatch | Self::ReadWrite => false,
            Self::Semaphore | Self::PermitExpirable => false,
            #[cfg(all(test, repository))]
            Self::Pair => false,
        }
    }

    /// Whether its waiters stand in a line that the server keeps.
    pub(crate) fn has_line(self, profile: WireProfile) -> bool {
        match self {
            Self::Reentrant | Self::Fair | Self::ReadWrite | Self::Semaphore => profile.has_lines(),
            // Redisson's queue is none: who waits is not told of others, and has no ticket.
            Self::CountDownLatch | Self::PermitExpirable | Self::FairQueue => false,
            #[cfg(all(test, repository))]
            Self::Pair => false,
        }
    }

    /// Whether each owner waits for itself, with a place of its own in the line. If not, one waiter of
    /// a client tries at a time.
    pub(crate) fn waits_per_owner(self) -> bool {
        match self {
            Self::Fair | Self::FairQueue | Self::ReadWrite => true,
            Self::Semaphore | Self::PermitExpirable => true,
            Self::Reentrant | Self::CountDownLatch => false,
            #[cfg(all(test, repository))]
            Self::Pair => false,
        }
    }

    /// Whether each of those who wait has a channel of its own, on which it alone is told that it is
    /// next. Its place in the queue of the server has the name of that channel.
    pub(crate) fn has_channel_per_waiter(self) -> bool {
        self == Self::FairQueue
    }

    /// Whether it keeps, beside the line, which clients let a reservation run out. Where the line's key
    /// is named, that of these marks is named behind it.
    pub(crate) fn has_marks(self) -> bool {
        self == Self::Fair
    }

    /// Whether one poll is for all places that a client has in the line: it names the others, and is
    /// told which of them are not there any more.
    pub(crate) fn polls_together(self) -> bool {
        self == Self::Fair
    }

    /// Whether the removal of what a dead hold id has left tells the ticket of its place. As long as a
    /// waiter knows none, it waits for that answer: an attempt without one may have taken a place.
    pub(crate) fn undo_tells_ticket(self) -> bool {
        self == Self::Fair
    }

    /// The kinds that have the same keys and are others in this client: their waiters would not see
    /// each other.
    pub(crate) fn shares_keys_with(self) -> &'static [Self] {
        match self {
            Self::Reentrant => &[Self::Fair, Self::FairQueue],
            Self::Fair | Self::FairQueue => &[Self::Reentrant],
            _ => &[],
        }
    }

    /// Whether a first attempt, too, may reserve what is free for others.
    pub(crate) fn first_attempt_passes_on(self) -> bool {
        self.waits_per_owner()
    }

    /// Whether the last releases of many holds may go in one script.
    pub(crate) fn releases_many(self) -> bool {
        !self.waits_per_owner()
    }

    /// Whether a smaller share is only informative on the server. If it is not, others may be let in by
    /// it.
    pub(crate) fn lets_others_in(self, from: Share, to: Share) -> bool {
        self == Self::ReadWrite && from.exclusive > 0 && to.exclusive == 0
    }

    /// Whether clients of Redisson shorten the lease of a hold with this share to their own watchdog
    /// time.
    pub(crate) fn is_shortened_by_redisson(self, share: Share) -> bool {
        self == Self::ReadWrite && share.exclusive == 0
    }

    /// How many entries of keys a hold with this share has, each of which a renewal looks at.
    pub(crate) fn entries(self, share: Share) -> usize {
        match self {
            _ if self.has_permits() => usize::try_from(share.exclusive).unwrap_or(usize::MAX),
            _ => 1,
        }
    }

    /// What the field of a hold with this share has behind the hold id.
    pub(crate) fn add_share_to(self, field: &mut String, share: Share) {
        if self.has_permits() {
            for number in [share.exclusive, share.shared] {
                field.push(':');
                field.push_str(itoa::Buffer::new().format(number));
            }
        }
    }

    /// The share of a field, from what it has behind the hold id. `None`: no client of this crate
    /// writes such a field.
    pub(crate) fn share_in(self, rest: &str) -> Option<Share> {
        match self {
            _ if self.has_permits() => {
                let (permits, number) = rest.strip_prefix(':')?.split_once(':')?;
                Some(Share::permits(permits.parse().ok()?, number.parse().ok()?))
            }
            Self::ReadWrite if rest == ":write" => Some(Share::ONE),
            Self::ReadWrite if rest.is_empty() => Some(Share::READ),
            _ => rest.is_empty().then_some(Share::ONE),
        }
    }

    /// How many fields the hash of its key has at most; a hold may have more than one.
    pub(crate) fn most_fields(self) -> i64 {
        match self {
            Self::Reentrant | Self::Fair | Self::FairQueue => 1,
            Self::CountDownLatch => 2,
            Self::ReadWrite => i64::MAX,
            // What kind it is, and the number.
            Self::Semaphore => 2,
            // It is no hash.
            Self::PermitExpirable => 0,
            #[cfg(all(test, repository))]
            Self::Pair => 4,
        }
    }
}

/// The channel on which the waiter with this number of this client is told that it is its turn.
pub(crate) fn channel_of_waiter(
    name: &LockName,
    profile: WireProfile,
    client: &str,
    number: u64,
) -> Arc<str> {
    match name.kind().has_channel_per_waiter() {
        true => fair_queue::channel_of_waiter(name, client, number),
        false => name.channel(profile),
    }
}

/// The scripts of names that are all of one kind.
fn of_all<'a>(mut names: impl Iterator<Item = &'a LockName>) -> Option<&'static Scripts> {
    names.next()?.kind().scripts()
}
