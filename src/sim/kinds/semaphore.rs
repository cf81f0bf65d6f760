//! The semaphore: its permits are in a key of their own, each with its end as server time in ms. A
//! reservation is permits as well.

use std::time::Duration;

use crate::backend::memory::keyspace::Keyspace;
use crate::backend::memory::store::Stored;
use crate::base::name::LockName;
use crate::kinds::share::Share;
use crate::sim::kinds::Found;
use crate::sim::kinds::Place;
use crate::sim::kinds::Places;
use crate::sim::kinds::Promises;
use crate::sim::kinds::Rules;
use crate::sim::kinds::id_part;

/// How many permits the semaphores of the simulation have.
pub(in crate::sim) const PERMITS: u32 = 3;

pub(super) struct Semaphore;

impl Rules for Semaphore {
    fn promises(&self) -> Promises {
        Promises {
            tokens_protect: false,
            hands_off: false,
            moves_between_clocks: false,
            in_order: false,
        }
    }

    /// One that wants them all.
    fn at_once(&self) -> usize {
        1
    }

    fn allows(&self, together: &[Place]) -> bool {
        let taken = together.iter().map(|place| place.count.parse().unwrap_or(PERMITS + 1));
        taken.sum::<u32>() <= PERMITS
    }

    fn shows_reservations(&self) -> bool {
        false
    }

    fn count(&self, share: Share) -> u32 {
        share.exclusive
    }

    fn is_new(&self, _share: Share) -> bool {
        true
    }

    fn keys(&self, name: &LockName) -> Vec<String> {
        vec![name.permits_key()]
    }

    fn beside(&self, _keys: &Keyspace, _time: i64, name: &LockName) -> Vec<String> {
        vec![name.permits_key(), name.heard_key()]
    }

    fn find(&self, keys: &Keyspace, time: i64, name: &LockName) -> Option<Found> {
        find(keys, time, name, Duration::ZERO)
    }

    fn foreign_hold(&self, field: &str, time: i64, ttl_ms: i64) -> Stored {
        let end = (time / 1_000 + ttl_ms) as f64;
        Stored::SortedSet([(end, format!("{field}:1"))].into_iter().collect())
    }
}

/// The permits of a name, each of which is there for so long after its end. Each hold has the permits
/// that its field says, so that the first of them stands for all.
pub(super) fn find(
    keys: &Keyspace,
    time: i64,
    name: &LockName,
    after_end: Duration,
) -> Option<Found> {
    let dumped = keys.peek(time, &name.permits_key())?;
    let Stored::SortedSet(permits) = dumped.value else { return None };
    let last = time / 1_000 - after_end.as_millis() as i64;
    let mut holds = Places::new();
    for (end, permit) in permits.iter() {
        let left = *end as i64 - last;
        if let (Some(field), true) = (permit.strip_suffix(":1"), left > 0) {
            let count = wanted(field).to_string();
            let field = id_part(field).to_owned();
            holds.push(Place { field, count, exclusive: true, left: Some(left) });
        }
    }
    Some(Found { name: name.clone(), pttl: dumped.pttl, holds })
}

/// How many permits the hold of a field wants.
fn wanted(field: &str) -> u32 {
    field.split(':').nth(2).and_then(|want| want.parse().ok()).unwrap_or(1)
}
