//! The fair lock: the key of a reentrant lock, which is never handed over.

use crate::backend::memory::keyspace::Keyspace;
use crate::backend::memory::store::Stored;
use crate::base::name::LockName;
use crate::sim::kinds::Found;
use crate::sim::kinds::Promises;
use crate::sim::kinds::Rules;
use crate::sim::kinds::reentrant::Reentrant;

pub(super) struct Fair;

impl Rules for Fair {
    fn promises(&self) -> Promises {
        Promises { hands_off: false, in_order: true, ..Reentrant.promises() }
    }

    fn at_once(&self) -> usize {
        Reentrant.at_once()
    }

    fn find(&self, keys: &Keyspace, time: i64, name: &LockName) -> Option<Found> {
        Reentrant.find(keys, time, name)
    }

    fn foreign_hold(&self, field: &str, time: i64, ttl_ms: i64) -> Stored {
        Reentrant.foreign_hold(field, time, ttl_ms)
    }
}
