//! The kind for tests that two may hold at once. Each place has its own end, as server time in ms,
//! beside its count.

use crate::backend::memory::keyspace::Keyspace;
use crate::backend::memory::store::Stored;
use crate::base::name::LockName;
use crate::sim::kinds::Found;
use crate::sim::kinds::Place;
use crate::sim::kinds::Promises;
use crate::sim::kinds::Rules;
use crate::sim::kinds::hash;

/// The end of the name of the field that says when a place ends.
const ENDS: &str = ":ends";

pub(super) struct Pair;

impl Rules for Pair {
    fn promises(&self) -> Promises {
        Promises {
            tokens_protect: false,
            hands_off: false,
            moves_between_clocks: false,
            in_order: false,
        }
    }

    fn at_once(&self) -> usize {
        2
    }

    /// A place whose end has passed is not there, also while its fields are.
    fn find(&self, keys: &Keyspace, time: i64, name: &LockName) -> Option<Found> {
        let (fields, pttl) = hash(keys, time, name)?;
        let end_of = |field: &str| {
            let own = fields.iter().find(|(other, _)| other.strip_suffix(ENDS) == Some(field))?;
            own.1.parse::<i64>().ok()
        };
        let places = fields.iter().filter(|(field, _)| !field.ends_with(ENDS)).filter_map(
            |(field, count)| {
                let left = end_of(field).map(|end| end - time / 1_000);
                let is_there = left.is_none_or(|left| left > 0);
                is_there.then(|| Place {
                    field: field.clone(),
                    count: count.clone(),
                    exclusive: true,
                    left,
                })
            },
        );
        Some(Found { name: name.clone(), pttl, holds: places.collect() })
    }

    fn foreign_hold(&self, field: &str, time: i64, ttl_ms: i64) -> Stored {
        let end = (time / 1_000 + ttl_ms).to_string();
        Stored::Hash(vec![(field.to_owned(), "1".to_owned()), (format!("{field}{ENDS}"), end)])
    }
}
