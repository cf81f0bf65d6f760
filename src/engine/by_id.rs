//! Tables of records with ids that this crate chooses. Records are looked up several times for each
//! command.

use std::hash::BuildHasher;
use std::hash::Hash;
use std::ops::Index;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::base::map::Hasher;

/// A table with fewer records than this keeps its memory.
const SMALL: usize = 4096;
/// A table shrinks if fewer than one in this many places are used.
const SPARSE: usize = 8;

/// A record that has an id.
pub(crate) trait Record {
    type Id: Copy + Ord + Hash;

    fn id(&self) -> Self::Id;
}

impl<T: Record> Record for Box<T> {
    type Id = T::Id;

    fn id(&self) -> T::Id {
        (**self).id()
    }
}

/// An id without further data.
impl Record for u64 {
    type Id = Self;

    fn id(&self) -> Self {
        *self
    }
}

/// A hash table whose ids are listed in ascending order, so that the engine's behaviour depends
/// only on its input. The ids are stored only in the records, because a third of the table's places
/// is empty and takes as much memory as the others.
#[derive(Debug)]
pub(crate) struct ById<T> {
    records: HashTable<T>,
    hasher: Hasher,
}

impl<T> Default for ById<T> {
    fn default() -> Self {
        Self { records: HashTable::new(), hasher: Hasher::default() }
    }
}

impl<T: Record> ById<T> {
    pub(crate) fn get(&self, id: &T::Id) -> Option<&T> {
        self.records.find(self.hasher.hash_one(id), |record| record.id() == *id)
    }

    pub(crate) fn get_mut(&mut self, id: &T::Id) -> Option<&mut T> {
        self.records.find_mut(self.hasher.hash_one(id), |record| record.id() == *id)
    }

    pub(crate) fn insert(&mut self, record: T) {
        let (id, hasher) = (record.id(), &self.hasher);
        let place = self.records.entry(
            hasher.hash_one(id),
            |known| known.id() == id,
            |known| hasher.hash_one(known.id()),
        );
        match place {
            Entry::Occupied(mut place) => *place.get_mut() = record,
            Entry::Vacant(place) => {
                place.insert(record);
            }
        }
    }

    pub(crate) fn remove(&mut self, id: &T::Id) -> Option<T> {
        let place =
            self.records.find_entry(self.hasher.hash_one(id), |record| record.id() == *id).ok()?;
        let (record, _) = place.remove();
        give_back(&mut self.records, |known| self.hasher.hash_one(known.id()));
        Some(record)
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The ids of the wanted records, in ascending order.
    pub(crate) fn ids(&self, wanted: impl Fn(&T) -> bool) -> Vec<T::Id> {
        let mut ids: Vec<T::Id> =
            self.unordered().filter(|record| wanted(record)).map(T::id).collect();
        ids.sort_unstable();
        ids
    }

    /// All records, in no particular order.
    pub(crate) fn unordered(&self) -> impl Iterator<Item = &T> {
        self.records.iter()
    }
}

impl<T: Record> Index<&T::Id> for ById<T> {
    type Output = T;

    fn index(&self, id: &T::Id) -> &T {
        self.get(id).expect("a record with this id")
    }
}

/// Called after a removal: frees memory that is hardly used any more.
pub(crate) fn give_back<T>(table: &mut HashTable<T>, hash: impl Fn(&T) -> u64) {
    if table.capacity() > SMALL && table.len() < table.capacity() / SPARSE {
        // Shrinks to half of its size, so that it does not have to grow again at once.
        table.shrink_to(table.capacity() / 2, hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Record for (u64, u64) {
        type Id = u64;

        fn id(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn there_is_one_record_of_an_id_the_last() {
        let mut records = ById::default();
        [(1, 10), (2, 20), (1, 11)].into_iter().for_each(|record| records.insert(record));
        assert_eq!((records.len(), records.get(&1), records[&2]), (2, Some(&(1, 11)), (2, 20)));
        assert_eq!(
            (records.remove(&1), records.remove(&1), records.get(&1)),
            (Some((1, 11)), None, None)
        );
    }

    #[test]
    fn it_is_listed_in_order() {
        let mut records = ById::default();
        for id in (0..1_000_u64).rev() {
            records.insert((id, id % 3));
        }
        let expected: Vec<u64> = (0..1_000).filter(|id| id % 3 == 1).collect();
        assert_eq!(records.ids(|(_, rest)| *rest == 1), expected);
    }

    #[test]
    fn memory_is_given_back() {
        let mut records = ById::default();
        (0..100_000_u64).for_each(|id| records.insert(id));
        let large = records.records.capacity();
        (0..99_000_u64).for_each(|id| assert_eq!(records.remove(&id), Some(id)));
        assert!(records.records.capacity() <= large / 8, "{}", records.records.capacity());
        assert_eq!(records.ids(|_| true), (99_000..100_000).collect::<Vec<_>>());
    }
}
