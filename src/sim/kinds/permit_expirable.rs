//! The semaphore of the profile `Redisson`: the key of the name says how many permits are free, and
//! what is out is in a key of its own. Neither expires. What has run out comes back with the next
//! acquire.

use std::time::Duration;

use crate::backend::memory::keyspace::Keyspace;
use crate::backend::memory::store::Stored;
use crate::base::name::LockName;
use crate::kinds::share::Share;
use crate::sim::kinds::Found;
use crate::sim::kinds::PERMITS;
use crate::sim::kinds::Place;
use crate::sim::kinds::Promises;
use crate::sim::kinds::Rules;
use crate::sim::kinds::semaphore;
use crate::sim::kinds::semaphore::Semaphore;

/// An end is so much later than the lease, and a permit is taken back so much after its end.
const SLACK: Duration = Duration::from_secs(5);

/// What its scripts call.
const CALLED: [&str; 15] = [
    "TIME",
    "TYPE",
    "GET",
    "SET",
    "INCRBY",
    "PERSIST",
    "PUBLISH",
    "SPUBLISH",
    "ZADD",
    "ZCARD",
    "ZCOUNT",
    "ZRANGEBYSCORE",
    "ZREM",
    "ZREMRANGEBYSCORE",
    "ZSCORE",
];

pub(super) struct PermitExpirable;

impl Rules for PermitExpirable {
    fn promises(&self) -> Promises {
        Semaphore.promises()
    }

    fn at_once(&self) -> usize {
        Semaphore.at_once()
    }

    fn allows(&self, together: &[Place]) -> bool {
        Semaphore.allows(together)
    }

    fn outlasts(&self) -> Duration {
        2 * SLACK
    }

    fn count(&self, share: Share) -> u32 {
        Semaphore.count(share)
    }

    fn is_new(&self, share: Share) -> bool {
        Semaphore.is_new(share)
    }

    fn keys(&self, name: &LockName) -> Vec<String> {
        vec![name.permits_key(), name.to_string()]
    }

    fn beside(&self, _keys: &Keyspace, _time: i64, name: &LockName) -> Vec<String> {
        vec![name.permits_key()]
    }

    /// A permit is there until an acquire may take it back.
    fn find(&self, keys: &Keyspace, time: i64, name: &LockName) -> Option<Found> {
        let found = semaphore::find(keys, time, name, SLACK)?;
        let last = found.holds.iter().filter_map(|hold| hold.left).max()?;
        Some(Found { pttl: Some(last), ..found })
    }

    fn called(&self) -> &'static [&'static str] {
        &CALLED
    }

    /// P19: what is free and what is out are as many as there are.
    fn look(&self, keys: &Keyspace, time: i64, name: &LockName) -> Result<(), String> {
        let Some(Stored::Text(free)) = keys.peek(time, name.as_str()).map(|key| key.value) else {
            return Ok(());
        };
        let out = match keys.peek(time, &name.permits_key()).map(|key| key.value) {
            Some(Stored::SortedSet(permits)) => permits.iter().count() as i64,
            _ => 0,
        };
        match free.parse::<i64>() {
            Ok(free) if free + out == i64::from(PERMITS) => Ok(()),
            _ => Err(format!("P19: of {PERMITS} permits of {name} {free} are free, {out} are out")),
        }
    }

    fn foreign_hold(&self, field: &str, time: i64, ttl_ms: i64) -> Stored {
        Semaphore.foreign_hold(field, time, ttl_ms)
    }
}
