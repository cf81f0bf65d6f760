//! The lock names in use, by id and by name. Where each owner waits for itself, each has a record of
//! its own.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::hash::RandomState;
use std::ops::Index;

use hashbrown::HashTable;

use crate::base::name::LockName;
use crate::base::owner::OwnerKey;
use crate::engine::by_id::ById;
use crate::engine::by_id::give_back;
use crate::engine::name_record::NameRecord;

/// Uses the hasher of std, because names may be chosen by others so that they collide.
#[derive(Debug, Default)]
pub(crate) struct NameTable {
    records: ById<Box<NameRecord>>,
    ids: HashTable<u64>,
    hasher: RandomState,
    /// How many records of single owners there are of a name that may have a twin.
    per_owner: BTreeMap<LockName, usize>,
}

impl NameTable {
    pub(crate) fn get(&self, id: &u64) -> Option<&NameRecord> {
        self.records.get(id).map(|name| &**name)
    }

    pub(crate) fn get_mut(&mut self, id: &u64) -> Option<&mut NameRecord> {
        self.records.get_mut(id).map(|name| &mut **name)
    }

    /// The record that an owner shares with all others, or the one that it has for itself.
    pub(crate) fn id_of(&self, lock: &LockName, owner: Option<OwnerKey>) -> Option<u64> {
        let is_it = |id: &u64| {
            let record = &self.records[id];
            record.owner == owner && record.lock == *lock
        };
        self.ids.find(self.hash(lock, owner), is_it).copied()
    }

    /// The record that all owners share.
    pub(crate) fn find(&self, lock: &LockName) -> Option<&NameRecord> {
        self.id_of(lock, None).and_then(|id| self.get(&id))
    }

    /// Whether the name is in use with another kind that has the same keys.
    pub(crate) fn has_twin(&self, lock: &LockName) -> bool {
        lock.kind().shares_keys_with().iter().any(|&kind| {
            if kind.waits_per_owner() {
                // Mostly there is no such name at all.
                return !self.per_owner.is_empty()
                    && self.per_owner.contains_key(&lock.clone().of_kind(kind));
            }
            let twin = self.find(&lock.clone().of_kind(kind));
            twin.is_some_and(|name| name.hold.is_some() || name.has_waiters())
        })
    }

    fn hash(&self, lock: &LockName, owner: Option<OwnerKey>) -> u64 {
        hash(&self.hasher, lock, owner)
    }

    /// Adds a name that is not in use.
    pub(crate) fn add(&mut self, name: NameRecord) {
        let (hash, id) = (self.hash(&name.lock, name.owner), name.id);
        if name.owner.is_some() && !name.lock.kind().shares_keys_with().is_empty() {
            *self.per_owner.entry(name.lock.clone()).or_default() += 1;
        }
        self.records.insert(Box::new(name));
        self.ids.insert_unique(hash, id, |id| hash_of(&self.hasher, &self.records[id]));
    }

    pub(crate) fn remove(&mut self, id: &u64) {
        let Some(name) = self.records.get(id) else { return };
        if let Ok(place) = self.ids.find_entry(hash_of(&self.hasher, name), |other| other == id) {
            place.remove();
            give_back(&mut self.ids, |id| hash_of(&self.hasher, &self.records[id]));
        }
        if let Some(count) = name.owner.and_then(|_| self.per_owner.get_mut(&name.lock)) {
            *count -= 1;
            if *count == 0 {
                self.per_owner.remove(&name.lock);
            }
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

fn hash_of(hasher: &RandomState, record: &NameRecord) -> u64 {
    hash(hasher, &record.lock, record.owner)
}

fn hash(hasher: &RandomState, lock: &LockName, owner: Option<OwnerKey>) -> u64 {
    match owner {
        None => hasher.hash_one(lock),
        Some(owner) => hasher.hash_one((lock, owner)),
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
        (0..20_000).for_each(|id| names.add(NameRecord::new(id, lock(id), None)));
        let large = names.ids.capacity();
        (0..19_900).for_each(|id| names.remove(&id));
        assert!(names.ids.capacity() <= large / 4, "{}", names.ids.capacity());
        assert!((19_900..20_000).all(|id| names.id_of(&lock(id), None) == Some(id)));
    }

    #[test]
    fn an_owner_that_waits_for_itself_has_a_record_of_its_own() {
        let mut names = NameTable::default();
        let owner = |number| Some(OwnerKey::from_test(number));
        names.add(NameRecord::new(1, lock(1), None));
        names.add(NameRecord::new(2, lock(1), owner(1)));
        names.add(NameRecord::new(3, lock(1), owner(2)));
        names.add(NameRecord::new(4, lock(2), owner(1)));
        let found = |names: &NameTable| {
            [None, owner(1), owner(2), owner(3)].map(|owner| names.id_of(&lock(1), owner))
        };
        assert_eq!(found(&names), [Some(1), Some(2), Some(3), None]);
        names.remove(&2);
        assert_eq!(found(&names), [Some(1), None, Some(3), None]);
        assert_eq!(names.id_of(&lock(2), owner(1)), Some(4));
    }

    #[test]
    fn a_name_is_found_by_its_id_and_by_what_it_is_called_until_it_goes() {
        let mut names = NameTable::default();
        (0..1_000).for_each(|id| names.add(NameRecord::new(id, lock(id), None)));
        for id in 0..1_000 {
            assert_eq!(
                (names.id_of(&lock(id), None), &names.get(&id).unwrap().lock),
                (Some(id), &lock(id))
            );
        }
        (0..1_000).step_by(2).for_each(|id| names.remove(&id));
        for id in 0..1_000 {
            assert_eq!(names.id_of(&lock(id), None), (id % 2 == 1).then_some(id));
            assert_eq!(names.get(&id).is_some(), id % 2 == 1);
        }
        (1..1_000).step_by(2).for_each(|id| names.remove(&id));
        assert!(names.is_empty());
    }
}
