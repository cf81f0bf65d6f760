//! The reentrant lock and the fair lock: one holder, whose field lasts as long as the key.

use crate::backend::memory::keyspace::Keyspace;
use crate::backend::memory::store::Stored;
use crate::base::name::LockName;
use crate::sim::kinds::Found;
use crate::sim::kinds::Place;
use crate::sim::kinds::Promises;
use crate::sim::kinds::Rules;
use crate::sim::kinds::hash;

pub(super) struct OneHolder {
    promises: Promises,
}

pub(super) static REENTRANT: OneHolder = OneHolder {
    promises: Promises {
        tokens_protect: true,
        hands_off: true,
        moves_between_clocks: true,
        in_order: false,
    },
};

/// It is never handed over, since that would be out of order.
pub(super) static FAIR: OneHolder =
    OneHolder { promises: Promises { hands_off: false, in_order: true, ..REENTRANT.promises } };

impl Rules for OneHolder {
    fn promises(&self) -> Promises {
        self.promises
    }

    fn at_once(&self) -> usize {
        1
    }

    /// Every field counts as a hold, so that a second one is seen.
    fn find(&self, keys: &Keyspace, time: i64, name: &LockName) -> Option<Found> {
        let (fields, pttl) = hash(keys, time, name)?;
        let place = |(field, count)| Place { field, count, exclusive: true, left: pttl };
        let holds = fields.into_iter().map(place).collect();
        Some(Found { name: name.clone(), pttl, holds })
    }

    fn foreign_hold(&self, field: &str, _time: i64, _ttl_ms: i64) -> Stored {
        Stored::Hash(vec![(field.to_owned(), "1".to_owned())])
    }
}
