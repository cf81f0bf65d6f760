//! The read-write lock: readers, each alive while its own key exists, or one writer.

use crate::backend::memory::keyspace::Keyspace;
use crate::backend::memory::store::Stored;
use crate::base::name::LockName;
use crate::kinds::share::Share;
use crate::sim::kinds::Found;
use crate::sim::kinds::Place;
use crate::sim::kinds::Places;
use crate::sim::kinds::Promises;
use crate::sim::kinds::Rules;
use crate::sim::kinds::hash;

/// The end of the field of somebody who writes.
const WRITE: &str = ":write";

pub(super) struct ReadWrite;

impl Rules for ReadWrite {
    fn promises(&self) -> Promises {
        Promises {
            tokens_protect: false,
            hands_off: false,
            moves_between_clocks: true,
            in_order: false,
        }
    }

    /// A writer.
    fn at_once(&self) -> usize {
        1
    }

    fn allows(&self, together: &[Place]) -> bool {
        together.len() <= 1 || together.iter().all(|place| !place.exclusive)
    }

    fn is_exclusive(&self, share: Share) -> bool {
        share.exclusive > 0
    }

    fn keeps_what_was_given_up(&self) -> bool {
        true
    }

    fn is_new(&self, share: Share) -> bool {
        share.total() == 1
    }

    fn beside(&self, keys: &Keyspace, time: i64, name: &LockName) -> Vec<String> {
        let fields = hash(keys, time, name).map(|(fields, _)| fields).unwrap_or_default();
        fields.iter().map(|(field, _)| name.reader_key(field)).collect()
    }

    /// A reader whose own key is gone is dead, and has no time left. Its field stays until a writer
    /// removes it.
    fn find(&self, keys: &Keyspace, time: i64, name: &LockName) -> Option<Found> {
        let (fields, pttl) = hash(keys, time, name)?;
        let mut holds = Places::new();
        for (field, count) in fields.iter().filter(|(field, _)| field != "mode") {
            let (id, exclusive) = match field.strip_suffix(WRITE) {
                Some(id) => (id, true),
                None => (field.as_str(), false),
            };
            let alive = keys.peek(time, &name.reader_key(id)).map(|reader| reader.pttl);
            let left = if exclusive { pttl } else { alive.unwrap_or(Some(0)) };
            let count: u32 = count.parse().unwrap_or(0);
            match holds.iter_mut().find(|place: &&mut Place| place.field == id) {
                Some(known) => {
                    // A writer that reads, too, has the lock for as long as it writes.
                    let both = known.count.parse().unwrap_or(0) + count;
                    (known.count, known.exclusive, known.left) = (both.to_string(), true, pttl);
                }
                None => holds.push(Place {
                    field: id.to_owned(),
                    count: count.to_string(),
                    exclusive,
                    left,
                }),
            }
        }
        Some(Found { name: name.clone(), pttl, holds })
    }

    fn foreign_hold(&self, field: &str, _time: i64, _ttl_ms: i64) -> Stored {
        let fields = [("mode", "write"), (&*[field, WRITE].concat(), "1")];
        Stored::Hash(fields.map(|(field, value)| (field.to_owned(), value.to_owned())).into())
    }
}
