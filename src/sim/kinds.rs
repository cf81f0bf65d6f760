//! What the simulation must know of a kind of lock. Everything else in it is the same for all kinds
//! and names none.
//!
//! A kind has one file here, with its [`Rules`]: how the holds in its key are read, which of them
//! may be there at once, and which promises apply to it. What it promises beyond that is checked in
//! the same file.

mod fair_queue;
mod pair;
mod permit_expirable;
mod read_write;
mod reentrant;
mod semaphore;
mod tests;

use std::time::Duration;

pub(super) use semaphore::PERMITS;
use smallvec::SmallVec;

use crate::backend::memory::keyspace::Keyspace;
use crate::backend::memory::store::Stored;
use crate::base::kind::Kind;
use crate::base::name::LockName;
use crate::kinds::share::Share;
use crate::sim::server::CALLED;

/// The end of a field that keeps a name taken after its hold was given up (`at_least`).
pub(super) const KEPT: &str = ":kept";

/// A hold, as its server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) field: String,
    pub(super) count: String,
    /// Nobody else may have anything beside it, as far as the kind goes by that.
    pub(super) exclusive: bool,
    /// How long it lasts if nothing renews it, in ms. Nothing: for ever.
    pub(super) left: Option<i64>,
}

impl Place {
    /// A hold of which only the field and the count are known.
    pub(super) fn of(field: String, count: u32) -> Self {
        Self { field, count: count.to_string(), exclusive: true, left: None }
    }

    /// What is left of a hold whose time is over.
    pub(super) fn is_dead(&self) -> bool {
        self.left == Some(0)
    }

    /// Its lease is over, while it may still keep others away.
    pub(super) fn is_over(&self, rules: &dyn Rules) -> bool {
        let beyond = i64::try_from(rules.outlasts().as_millis()).unwrap_or(i64::MAX);
        self.left.is_some_and(|left| left <= beyond)
    }

    /// The lock is reserved for this field, and nobody holds it yet.
    pub(super) fn is_reservation(&self) -> bool {
        self.count == "0" && !self.field.ends_with(KEPT)
    }

    /// The hold whose place this is, and whether it was given up and is kept.
    pub(super) fn hold_field(&self) -> (&str, bool) {
        match self.field.strip_suffix(KEPT) {
            Some(field) => (field, true),
            None => (&self.field, false),
        }
    }
}

/// Client and hold id of a field, which is what a hold is called here.
pub(super) fn id_part(field: &str) -> &str {
    let end = field.match_indices(':').nth(1).map_or(field.len(), |(at, _)| at);
    if field.ends_with(KEPT) { field } else { &field[..end] }
}

/// The holds of a name that are there at once.
pub(super) type Places = SmallVec<[Place; 1]>;

/// What a lock's key holds, as the checks look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) name: LockName,
    pub(super) pttl: Option<i64>,
    pub(super) holds: Places,
}

impl Found {
    pub(super) fn hold(&self, field: &str) -> Option<&Place> {
        self.holds.iter().find(|hold| hold.field == id_part(field))
    }

    /// The reservation, if the lock is reserved.
    pub(super) fn reservation(&self) -> Option<&Place> {
        self.holds.iter().find(|hold| hold.is_reservation())
    }
}

/// The promises that not every kind gives. All others are checked for each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Promises {
    /// P3: a resource that takes only the largest token loses no update. For this a name must have
    /// one holder.
    pub(super) tokens_protect: bool,
    /// A release may grant to a waiter of the same client. If not, P15: no hand-off is ever sent.
    pub(super) hands_off: bool,
    /// How long a hold lasts does not depend on the server's clock: a slot may move to a server
    /// with another clock.
    pub(super) moves_between_clocks: bool,
    /// P17: nobody overtakes a waiter who has a place in the line.
    pub(super) in_order: bool,
}

/// A kind of lock, for the simulation and its checker.
pub(super) trait Rules: Sync {
    fn promises(&self) -> Promises;

    /// How many may hold a name at once, if they all want the most that the kind has to give.
    fn at_once(&self) -> usize;

    /// P1: whether all of these may hold the name at once.
    fn allows(&self, together: &[Place]) -> bool {
        together.len() <= self.at_once()
    }

    /// Whether a waiter can have the name beside these.
    fn has_room(&self, beside: &[Place]) -> bool {
        beside.len() < self.at_once()
    }

    /// Whether the count of a hold may be larger than its owner's for a while.
    fn keeps_what_was_given_up(&self) -> bool {
        false
    }

    /// Whether a reservation can be told from a hold by its key.
    fn shows_reservations(&self) -> bool {
        true
    }

    /// The count that a hold with this share has.
    fn count(&self, share: Share) -> u32 {
        share.total()
    }

    /// Whether a hold with this share lets nobody else have anything beside it.
    fn is_exclusive(&self, _share: Share) -> bool {
        true
    }

    /// Whether a command with this share grants a hold that was not there.
    fn is_new(&self, share: Share) -> bool {
        share == Share::ONE
    }

    /// How much longer than its lease a hold keeps others away, unless it is released.
    fn outlasts(&self) -> Duration {
        Duration::ZERO
    }

    /// For how long whoever is next may keep others away although it does not come, without a
    /// reservation that shows in the key.
    fn turn_lasts(&self) -> Duration {
        Duration::ZERO
    }

    /// The key in which its holds are, and those that must not be there without it.
    fn keys(&self, name: &LockName) -> Vec<String> {
        vec![name.to_string()]
    }

    /// Further keys with what is known of its holds. When a slot moves they go with the name's own.
    fn beside(&self, _keys: &Keyspace, _time: i64, _name: &LockName) -> Vec<String> {
        Vec::new()
    }

    /// The key of a name at this server time, in µs. A key without a hold that is still there has
    /// no places.
    fn find(&self, keys: &Keyspace, time: i64, name: &LockName) -> Option<Found>;

    /// What its scripts call.
    fn called(&self) -> &'static [&'static str] {
        &CALLED
    }

    /// What must be true of its keys beyond its holds.
    fn look(&self, _keys: &Keyspace, _time: i64, _name: &LockName) -> Result<(), String> {
        Ok(())
    }

    /// A key in which a client that is none of ours holds the name for so many ms.
    fn foreign_hold(&self, field: &str, time: i64, ttl_ms: i64) -> Stored;
}

pub(super) fn rules(kind: Kind) -> &'static dyn Rules {
    match kind {
        // The latch has no holds.
        Kind::Reentrant | Kind::CountDownLatch => &reentrant::REENTRANT,
        Kind::Fair => &reentrant::FAIR,
        Kind::FairQueue => &fair_queue::FairQueue,
        Kind::ReadWrite => &read_write::ReadWrite,
        Kind::Pair => &pair::Pair,
        Kind::Semaphore => &semaphore::Semaphore,
        Kind::PermitExpirable => &permit_expirable::PermitExpirable,
    }
}

pub(super) fn rules_of(name: &LockName) -> &'static dyn Rules {
    rules(name.kind())
}

/// Every kind that a seed may draw.
pub(super) const ALL: &[Kind] = &[
    Kind::Reentrant,
    Kind::Pair,
    Kind::ReadWrite,
    Kind::Semaphore,
    Kind::PermitExpirable,
    Kind::Fair,
    Kind::FairQueue,
];

/// The kind that is called so.
pub(super) fn named(text: &str) -> Option<Kind> {
    ALL.iter().copied().find(|kind| format!("{kind:?}").eq_ignore_ascii_case(text))
}

/// The fields of a hash, with their values.
type HashFields = Vec<(String, String)>;

/// The fields of a hash under a key, and its time to live.
fn hash(keys: &Keyspace, time: i64, name: &LockName) -> Option<(HashFields, Option<i64>)> {
    let dumped = keys.peek(time, name.as_str())?;
    match dumped.value {
        Stored::Hash(fields) => Some((fields, dumped.pttl)),
        _ => None,
    }
}
