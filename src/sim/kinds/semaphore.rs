//! The semaphore: its permits are in a key of their own, each with its end as server time in ms. A
//! reservation is permits as well.

use crate::backend::memory::keyspace::Keyspace;
use crate::backend::memory::store::Stored;
use crate::base::name::LockName;
use crate::sim::kinds::Found;
use crate::sim::kinds::Place;
use crate::sim::kinds::Places;
use crate::sim::kinds::Promises;
use crate::sim::kinds::Rules;

/// How many permits the semaphores of the simulation have.
const PERMITS: usize = 2;

pub(super) struct Semaphore;

impl Rules for Semaphore {
    fn promises(&self) -> Promises {
        Promises { tokens_protect: false, hands_off: false, moves_between_clocks: false }
    }

    fn at_once(&self) -> usize {
        PERMITS
    }

    /// Each hold has the permits that its field says, so that the first of them stands for all.
    fn allows(&self, together: &[Place]) -> bool {
        together.iter().map(|place| wanted(&place.field)).sum::<usize>() <= PERMITS
    }

    fn find(&self, keys: &Keyspace, time: i64, name: &LockName) -> Option<Found> {
        let dumped = keys.peek(time, &name.permits_key())?;
        let Stored::SortedSet(permits) = dumped.value else { return None };
        let mut holds = Places::new();
        for (end, permit) in permits.iter() {
            let left = *end as i64 - time / 1_000;
            if let (Some(field), true) = (permit.strip_suffix(":1"), left > 0) {
                let count = wanted(field).to_string();
                holds.push(Place { field: field.to_owned(), count, left: Some(left) });
            }
        }
        Some(Found { name: name.clone(), pttl: dumped.pttl, holds })
    }

    fn foreign_hold(&self, field: &str, time: i64, ttl_ms: i64) -> Stored {
        let end = (time / 1_000 + ttl_ms) as f64;
        Stored::SortedSet([(end, format!("{field}:1"))].into_iter().collect())
    }
}

/// How many permits the hold of a field wants.
fn wanted(field: &str) -> usize {
    field.rsplit(':').nth(1).and_then(|want| want.parse().ok()).unwrap_or(1)
}
