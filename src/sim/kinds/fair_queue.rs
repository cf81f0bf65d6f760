//! The fair lock of the profile `Redisson`: one holder, and a queue in two keys of their own, which
//! do not expire.

use std::time::Duration;

use crate::backend::memory::keyspace::Keyspace;
use crate::backend::memory::store::Stored;
use crate::base::name::LockName;
use crate::sim::kinds::Found;
use crate::sim::kinds::Promises;
use crate::sim::kinds::Rules;
use crate::sim::kinds::reentrant;

/// What its scripts call.
const CALLED: [&str; 24] = [
    "TIME", "PTTL", "PEXPIRE", "PERSIST", "EXISTS", "TYPE", "HGET", "HSET", "HDEL", "HLEN",
    "HEXISTS", "HKEYS", "GET", "SET", "PUBLISH", "SPUBLISH", "LPOP", "LRANGE", "LREM", "RPUSH",
    "ZADD", "ZINCRBY", "ZREM", "ZSCORE",
];

pub(super) struct FairQueue;

impl Rules for FairQueue {
    /// Who has waited for too long by the clock of the server loses its place.
    fn promises(&self) -> Promises {
        Promises { in_order: false, ..reentrant::FAIR.promises() }
    }

    fn at_once(&self) -> usize {
        reentrant::FAIR.at_once()
    }

    fn turn_lasts(&self) -> Duration {
        Duration::from_secs(15)
    }

    fn beside(&self, _keys: &Keyspace, _time: i64, name: &LockName) -> Vec<String> {
        vec![name.queue_key(), name.deadlines_key()]
    }

    fn find(&self, keys: &Keyspace, time: i64, name: &LockName) -> Option<Found> {
        reentrant::FAIR.find(keys, time, name)
    }

    fn called(&self) -> &'static [&'static str] {
        &CALLED
    }

    /// P19: each place has a deadline, since Redisson's scripts stop at one without.
    fn look(&self, keys: &Keyspace, time: i64, name: &LockName) -> Result<(), String> {
        let Some(Stored::List(places)) = keys.peek(time, &name.queue_key()).map(|key| key.value)
        else {
            return Ok(());
        };
        let deadlines = keys.peek(time, &name.deadlines_key()).map(|key| key.value);
        let has_deadline = |place: &&String| match &deadlines {
            Some(Stored::SortedSet(set)) => set.iter().any(|(_, member)| member == *place),
            _ => false,
        };
        match places.iter().find(|place| !has_deadline(place)) {
            None => Ok(()),
            Some(place) => Err(format!("P19: the place {place} in {name} has no deadline")),
        }
    }

    fn foreign_hold(&self, field: &str, time: i64, ttl_ms: i64) -> Stored {
        reentrant::FAIR.foreign_hold(field, time, ttl_ms)
    }
}
