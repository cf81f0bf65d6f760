//! Hold ids whose last attempt may still be granted: each is released until that can no longer happen.

use std::collections::BTreeMap;

use crate::backend::OpId;
use crate::base::clock::Moment;
use crate::base::name::LockName;
use crate::kinds::command::ServerTime;

/// A hold id that is never used in an acquire again.
#[derive(Debug)]
pub(crate) struct Dead {
    pub(crate) name: u64,
    pub(crate) lock: LockName,
    /// The attempt cannot be executed once the server's clock is past this.
    pub(crate) not_after: ServerTime,
    /// If it was granted, the key is gone by then.
    pub(crate) key_end: Moment,
    pub(crate) op: Option<OpId>,
    /// A release of it was answered, so whatever was granted by then is undone.
    pub(crate) answered: bool,
    pub(crate) failures: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Cleanup {
    dead: BTreeMap<u64, Dead>,
}

impl Cleanup {
    pub(crate) fn add(&mut self, id: u64, name: u64, lock: LockName, not_after: ServerTime, key_end: Moment) {
        self.dead.insert(id, Dead { name, lock, not_after, key_end, op: None, answered: false, failures: 0 });
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut Dead> {
        self.dead.get_mut(&id)
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Dead> {
        self.dead.get(&id)
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Dead> {
        self.dead.remove(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Dead)> {
        self.dead.iter().map(|(id, dead)| (*id, dead))
    }

    pub(crate) fn len(&self) -> usize {
        self.dead.len()
    }

    /// Whether a release of the id is on the wire or was answered: only then may the name be tried again.
    pub(crate) fn is_under_way(&self, id: u64) -> bool {
        self.dead.get(&id).is_none_or(|dead| dead.op.is_some() || dead.answered)
    }
}
