//! The lock names in use, by id and by name.

use std::hash::BuildHasher;
use std::hash::RandomState;
use std::ops::Index;

use hashbrown::HashTable;

use crate::base::name::LockName;
use crate::engine::by_id::ById;
use crate::engine::by_id::give_back;
use crate::engine::name_record::NameRecord;

/// Uses the hasher of std, because names may be chosen by others so that they collide.
#[derive(Debug, Default)]
pub(crate) struct NameTable {
    records: ById<Box<NameRecord>>,
    ids: HashTable<u64>,
    hasher: RandomState,
}

impl NameTable {
    pub(crate) fn get(&self, id: &u64) -> Option<&NameRecord> {
        self.records.get(id).map(|name| &**name)
    }

    pub(crate) fn get_mut(&mut self, id: &u64) -> Option<&mut NameRecord> {
        self.records.get_mut(id).map(|name| &mut **name)
    }

    pub(crate) fn id_of(&self, lock: &LockName) -> Option<u64> {
        self.ids.find(self.hasher.hash_one(lock), |id| self.records[id].lock == *lock).copied()
    }

    pub(crate) fn find(&self, lock: &LockName) -> Option<&NameRecord> {
        self.id_of(lock).and_then(|id| self.get(&id))
    }

    /// Adds a name that is not in use.
    pub(crate) fn add(&mut self, name: NameRecord) {
        let (hash, id) = (self.hasher.hash_one(&name.lock), name.id);
        self.records.insert(Box::new(name));
        self.ids.insert_unique(hash, id, |id| self.hasher.hash_one(&self.records[id].lock));
    }

    pub(crate) fn remove(&mut self, id: &u64) {
        let Some(name) = self.records.get(id) else { return };
        if let Ok(place) =
            self.ids.find_entry(self.hasher.hash_one(&name.lock), |other| other == id)
        {
            place.remove();
            give_back(&mut self.ids, |id| self.hasher.hash_one(&self.records[id].lock));
        }
        self.records.remove(id);
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.ids.is_empty()
    }

    /// Their ids, in order.
    pub(crate) fn ids(&self, wanted: impl Fn(&NameRecord) -> bool) -> Vec<u64> {
        self.records.ids(|name| wanted(name))
    }

    #[cfg(test)]
    pub(crate) fn unordered(&self) -> impl Iterator<Item = &NameRecord> {
        self.records.unordered().map(|name| &**name)
    }
}

impl Index<&u64> for NameTable {
    type Output = NameRecord;

    fn index(&self, id: &u64) -> &NameRecord {
        &self.records[id]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(id: u64) -> LockName {
        LockName::new(&format!("n{id}")).unwrap()
    }

    #[test]
    fn memory_is_given_back() {
        let mut names = NameTable::default();
        (0..20_000).for_each(|id| names.add(NameRecord::new(id, lock(id))));
        let large = names.ids.capacity();
        (0..19_900).for_each(|id| names.remove(&id));
        assert!(names.ids.capacity() <= large / 4, "{}", names.ids.capacity());
        assert!((19_900..20_000).all(|id| names.id_of(&lock(id)) == Some(id)));
    }

    #[test]
    fn a_name_is_found_by_its_id_and_by_what_it_is_called_until_it_goes() {
        let mut names = NameTable::default();
        (0..1_000).for_each(|id| names.add(NameRecord::new(id, lock(id))));
        for id in 0..1_000 {
            assert_eq!(
                (names.id_of(&lock(id)), &names.get(&id).unwrap().lock),
                (Some(id), &lock(id))
            );
        }
        (0..1_000).step_by(2).for_each(|id| names.remove(&id));
        for id in 0..1_000 {
            assert_eq!(names.id_of(&lock(id)), (id % 2 == 1).then_some(id));
            assert_eq!(names.get(&id).is_some(), id % 2 == 1);
        }
        (1..1_000).step_by(2).for_each(|id| names.remove(&id));
        assert!(names.is_empty());
    }
}
