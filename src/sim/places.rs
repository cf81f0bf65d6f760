//! Which process has which slot: one server and whoever follows it, or a cluster whose slots move.

use std::sync::OnceLock;

use crate::backend::Call;
use crate::backend::ServerId;
use crate::base::kind::Kind;
use crate::base::name::LockName;
use crate::kinds::command::Command;
use crate::sim::client::server_id;

/// The slots that names here are in. A whole table of 16,384 would cost more than all the rest.
const SLOTS: u16 = 64;

#[derive(Debug)]
pub(super) struct Places {
    pub(super) cluster: bool,
    pub(super) sharded: bool,
    /// The process that has a slot.
    pub(super) owners: Vec<usize>,
    pub(super) moving: Option<Moving>,
}

/// A slot on its way.
#[derive(Debug, Clone)]
pub(super) struct Moving {
    pub(super) slot: u16,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// What a server of a cluster does with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    Here,
    TryAgain,
    /// MOVED, or with `ask` ASK.
    Elsewhere {
        process: usize,
        ask: bool,
    },
}

impl Places {
    pub(super) fn new(primaries: Option<usize>, sharded: bool, names: &[LockName]) -> Self {
        let number = primaries.unwrap_or(1);
        let mut owners: Vec<usize> = (0..usize::from(SLOTS)).map(|slot| slot % number).collect();
        for (at, name) in names.iter().enumerate() {
            owners[usize::from(name.slot())] = at % number;
        }
        Self { cluster: primaries.is_some(), sharded, owners, moving: None }
    }

    pub(super) fn owner(&self, slot: u16) -> usize {
        self.owners[usize::from(slot)]
    }

    pub(super) fn owners(&self) -> &[usize] {
        &self.owners
    }

    /// The one that clients of a single server are to talk to.
    pub(super) fn current(&self) -> usize {
        self.owners[0]
    }

    pub(super) fn replace(&mut self, old: usize, new: usize) {
        self.owners.iter_mut().filter(|owner| **owner == old).for_each(|owner| *owner = new);
    }

    pub(super) fn server_id(&self, process: usize) -> ServerId {
        if self.cluster { server_id(process) } else { ServerId::ONLY }
    }
}

/// Names of these kinds in different slots, all of them low.
pub(super) fn names(kinds: &[Kind]) -> Vec<LockName> {
    static FOUND: OnceLock<Vec<LockName>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let mut found: Vec<LockName> = Vec::new();
        for at in 0.. {
            let name = LockName::new(&format!("n{at}")).expect("a name");
            if name.slot() < SLOTS && !found.iter().any(|known| known.slot() == name.slot()) {
                found.push(name);
            }
            if found.len() == 3 {
                break;
            }
        }
        found
    });
    found.iter().zip(kinds).map(|(name, kind)| name.clone().of_kind(*kind)).collect()
}

/// Whether a command names the line of its lock.
pub(super) fn names_line(command: &Command) -> bool {
    match command {
        Command::Acquire { line, .. } => *line,
        Command::HandOff { announce, .. }
        | Command::Release { announce, .. }
        | Command::ReleaseAt { announce, .. }
        | Command::ForceRelease { announce, .. } => announce.line,
        Command::ReleaseMany(holds) => holds.iter().any(|item| item.announce.line),
        _ => false,
    }
}

/// The keys of a command; all of them in one slot.
pub(super) fn keys_of(command: &Command) -> Vec<String> {
    match command.to_call() {
        Call::Script(call) => call.keys.iter().map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}
