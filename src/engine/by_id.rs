//! Records by ids that this crate chooses, looked up several times for each command.

use std::hash::Hash;
use std::ops::Index;

use crate::map::Map;

/// A table with fewer records than this gives nothing back.
const SMALL: usize = 4096;
/// Of so many places in a table one is to be used, or it becomes smaller.
const SPARSE: usize = 8;

/// A hash map that is listed in the order of its ids: what the engine does depends on nothing else than what happens.
#[derive(Debug)]
pub(crate) struct ById<K, T>(Map<K, T>);

impl<K, T> Default for ById<K, T> {
    fn default() -> Self {
        Self(Map::default())
    }
}

impl<K: Copy + Ord + Hash, T> ById<K, T> {
    pub(crate) fn get(&self, id: &K) -> Option<&T> {
        self.0.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: &K) -> Option<&mut T> {
        self.0.get_mut(id)
    }

    pub(crate) fn insert(&mut self, id: K, record: T) {
        self.0.insert(id, record);
    }

    pub(crate) fn remove(&mut self, id: &K) -> Option<T> {
        let record = self.0.remove(id);
        if self.0.capacity() > SMALL && self.0.len() < self.0.capacity() / SPARSE {
            // To half of it: it does not grow again at once.
            self.0.shrink_to(self.0.capacity() / 2);
        }
        record
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In order.
    pub(crate) fn ids(&self, wanted: impl Fn(&T) -> bool) -> Vec<K> {
        let mut ids: Vec<K> = self.0.iter().filter(|(_, record)| wanted(record)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// In no order.
    pub(crate) fn unordered(&self) -> impl Iterator<Item = &T> {
        self.0.values()
    }
}

impl<K: Copy + Ord + Hash, T> Index<&K> for ById<K, T> {
    type Output = T;

    fn index(&self, id: &K) -> &T {
        &self.0[id]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_listed_in_order() {
        let mut records = ById::default();
        for id in (0..1_000_u64).rev() {
            records.insert(id, id % 3);
        }
        let expected: Vec<u64> = (0..1_000).filter(|id| id % 3 == 1).collect();
        assert_eq!(records.ids(|rest| *rest == 1), expected);
    }

    #[test]
    fn memory_is_given_back() {
        let mut records = ById::default();
        (0..100_000_u64).for_each(|id| records.insert(id, id));
        let large = records.0.capacity();
        (0..99_000_u64).for_each(|id| assert_eq!(records.remove(&id), Some(id)));
        assert!(records.0.capacity() <= large / 8, "{}", records.0.capacity());
        assert_eq!(records.ids(|_| true), (99_000..100_000).collect::<Vec<_>>());
    }
}
