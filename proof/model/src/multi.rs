//! The multi-lock: several locks taken all together or not at all, beside others that want some of the
//! same, and beside code that nests plain locks in an order of its own.
//!
//! Commands arrive one by one and are answered at once; what one lock does with lost commands is the
//! subject of the other models. Here it is about who waits for whom.

mod rules;

pub(crate) use rules::model;

use crate::explore::NOBODY;
use crate::explore::Protocol;
use crate::explore::Step;
use crate::multi::rules::Switch;

const NAMES: usize = 3;
const OWNERS: usize = 3;

/// A lock that is wanted, to read or to write. A mutex is one that is always written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Want {
    name: u8,
    write: bool,
}

/// What an owner does: acquisitions, each inside the one before. Then it releases everything.
#[derive(Debug, Clone, Copy)]
struct Program {
    acquisitions: &'static [&'static [Want]],
    /// Plain locks, one member each, which know nothing of an order.
    plain: bool,
}

/// What may happen, and how often.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// For people.
    pub name: &'static str,
    owners: &'static [Program],
    /// How often somebody loses a lock that it has.
    losses: u8,
    /// A lease may end while a lock is waited for.
    leases_end: bool,
}

/// The protocol within a scope, with at most one rule broken.
#[derive(Debug, Clone, Copy)]
pub struct Multi {
    scope: Scope,
    switch: Option<Switch>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    /// Everything that is missing is tried at once; these members were refused, and these tried.
    Trying {
        tried: u8,
        refused: u8,
    },
    /// For this member.
    Waiting(u8),
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Owner {
    /// Which acquisition it is at.
    level: u8,
    phase: Phase,
    /// The members of this acquisition that it was granted, one bit each.
    granted: u8,
    /// Those of them that it has lost.
    lost: u8,
}

/// How often an owner reads and writes a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Held {
    reads: u8,
    writes: u8,
}

/// One state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    held: [[Held; OWNERS]; NAMES],
    owners: [Owner; OWNERS],
    losses: u8,
    /// An acquisition was said to be complete without a member.
    incomplete: bool,
}

impl Multi {
    fn breaks(&self, switch: Switch) -> bool {
        self.switch == Some(switch)
    }

    /// The members of an acquisition, in the order in which they are taken.
    fn members(&self, owner: usize, level: u8) -> Vec<Want> {
        let program = self.scope.owners[owner];
        let mut members = program.acquisitions[usize::from(level)].to_vec();
        if !self.breaks(Switch::TakesInGivenOrder) {
            members.sort_unstable();
        }
        if !self.breaks(Switch::ReadAndWriteAreTwoMembers) {
            let all = members.clone();
            members.retain(|want| want.write || !all.contains(&Want { write: true, ..*want }));
        }
        members
    }

    fn all(&self, owner: usize, level: u8) -> u8 {
        (1 << self.members(owner, level).len()) - 1
    }

    /// The members before which there is none that was refused.
    fn before(&self, first: u8) -> u8 {
        if self.breaks(Switch::KeepsWhatComesBehind) { u8::MAX } else { (1 << first) - 1 }
    }

    /// Whether the owner has a lock, from an acquisition outside of this one, that comes after this.
    fn has_later(&self, state: &State, who: usize, want: Want) -> bool {
        let later = state.held.iter().skip(usize::from(want.name) + 1);
        let outside = state.owners[who].level > 0;
        outside && later.into_iter().any(|held| held[who] != Held::default())
    }

    fn start_over(&self, state: &mut State, who: usize) {
        self.release_level(state, who, state.owners[who].level);
        let owner = &mut state.owners[who];
        (owner.granted, owner.lost) = (0, 0);
        owner.phase = Phase::Trying { tried: 0, refused: 0 };
    }

    fn release_level(&self, state: &mut State, who: usize, level: u8) {
        let current = level == state.owners[who].level;
        for (index, want) in self.members(who, level).into_iter().enumerate() {
            let Owner { granted, lost, .. } = state.owners[who];
            if !current || granted & !lost & (1 << index) != 0 {
                state.give_back(who, want);
            }
        }
    }

    fn release_all(&self, state: &mut State, who: usize) {
        for level in 0..=state.owners[who].level {
            self.release_level(state, who, level);
        }
        state.owners[who].phase = Phase::Done;
    }

    /// Every member was tried: what it does then.
    fn decide(&self, state: &State, who: usize, refused: u8) -> (Step, State) {
        let mut next = state.clone();
        let Owner { level, granted, lost, .. } = state.owners[who];
        let client = who as u8;
        if refused == 0 {
            if lost != 0 && !self.breaks(Switch::TakesLostForHeld) {
                self.start_over(&mut next, who);
                return (Step::new(client, "sees that a member is lost, and starts over"), next);
            }
            next.incomplete |= lost != 0;
            return (Step::new(client, "has all"), self.complete(next, who));
        }
        let first = refused.trailing_zeros() as u8;
        let members = self.members(who, level);
        let wanted = members[usize::from(first)];
        let plain = self.scope.owners[who].plain;
        let refuses = !plain && !self.breaks(Switch::WaitsWithLaterLock);
        if refuses && self.has_later(state, who, wanted) {
            self.release_all(&mut next, who);
            return (
                Step::about(client, "would wait out of order: gives up", wanted.name + 1),
                next,
            );
        }
        let keeps = granted & self.before(first);
        for (index, want) in members.into_iter().enumerate() {
            if granted & !keeps & !lost & (1 << index) != 0 {
                next.give_back(who, want);
            }
        }
        let owner = &mut next.owners[who];
        (owner.granted, owner.lost) = (keeps, lost & keeps);
        owner.phase = Phase::Waiting(first);
        (Step::about(client, "releases what comes behind, and waits for", wanted.name + 1), next)
    }

    /// The next acquisition begins, or all is over.
    fn complete(&self, mut state: State, who: usize) -> State {
        let last = self.scope.owners[who].acquisitions.len() - 1;
        let owner = &mut state.owners[who];
        if usize::from(owner.level) == last {
            self.release_all(&mut state, who);
        } else {
            // What is lost of an outer acquisition is not followed any further.
            let level = owner.level + 1;
            *owner = Owner { level, ..Owner::new() };
        }
        state
    }

    fn tries(&self, state: &State, who: usize, next: &mut Vec<(Step, State)>) {
        let Owner { level, phase, granted, .. } = state.owners[who];
        let Phase::Trying { tried, refused } = phase else { return };
        if granted | tried == self.all(who, level) {
            return next.push(self.decide(state, who, refused));
        }
        for (index, want) in self.members(who, level).into_iter().enumerate() {
            let bit = 1 << index;
            if (granted | tried) & bit != 0 {
                continue;
            }
            let mut after = state.clone();
            let grants = after.take(who, want);
            let owner = &mut after.owners[who];
            if grants {
                owner.granted |= bit;
            }
            let refused = if grants { refused } else { refused | bit };
            owner.phase = Phase::Trying { tried: tried | bit, refused };
            let what = if grants { "is granted" } else { "is refused" };
            next.push((Step::about(who as u8, what, want.name + 1), after));
        }
    }

    fn waits(&self, state: &State, who: usize, next: &mut Vec<(Step, State)>) {
        let Owner { level, phase, granted, lost } = state.owners[who];
        let Phase::Waiting(index) = phase else { return };
        let want = self.members(who, level)[usize::from(index)];
        let client = who as u8;
        let mut after = state.clone();
        if after.take(who, want) {
            let owner = &mut after.owners[who];
            owner.granted |= 1 << index;
            owner.phase = Phase::Trying { tried: 0, refused: 0 };
            next.push((Step::about(client, "has waited, and is granted", want.name + 1), after));
        }
        if lost != 0 {
            let mut after = state.clone();
            self.start_over(&mut after, who);
            let step = Step::new(client, "hears of its loss, and starts over");
            next.push((step, after));
        }
        let lets_go = self.scope.leases_end && !self.breaks(Switch::NeverLetsGo);
        if lets_go && granted != 0 && !self.scope.owners[who].plain {
            let mut after = state.clone();
            self.start_over(&mut after, who);
            next.push((Step::new(client, "has waited for a lease, and starts over"), after));
        }
    }

    fn loses(&self, state: &State, who: usize, next: &mut Vec<(Step, State)>) {
        let Owner { level, phase, granted, lost } = state.owners[who];
        if state.losses == 0 || phase == Phase::Done {
            return;
        }
        for (index, want) in self.members(who, level).into_iter().enumerate() {
            let bit = 1 << index;
            if granted & !lost & bit != 0 {
                let mut after = state.clone();
                after.losses -= 1;
                after.give_back(who, want);
                after.owners[who].lost |= bit;
                next.push((Step::about(NOBODY, "a lock is taken away:", want.name + 1), after));
            }
        }
    }
}

impl Owner {
    fn new() -> Self {
        Self { level: 0, phase: Phase::Trying { tried: 0, refused: 0 }, granted: 0, lost: 0 }
    }
}

impl State {
    /// Takes a lock if nobody else is in the way.
    fn take(&mut self, who: usize, want: Want) -> bool {
        let held = &mut self.held[usize::from(want.name)];
        let mut others = (0..OWNERS).filter(|other| *other != who).map(|other| held[other]);
        let is_free = others.all(|other| other.writes == 0 && (!want.write || other.reads == 0));
        if is_free {
            let own = &mut held[who];
            *(if want.write { &mut own.writes } else { &mut own.reads }) += 1;
        }
        is_free
    }

    fn give_back(&mut self, who: usize, want: Want) {
        let own = &mut self.held[usize::from(want.name)][who];
        let count = if want.write { &mut own.writes } else { &mut own.reads };
        *count = count.saturating_sub(1);
    }
}

impl Protocol for Multi {
    type State = State;

    fn start(&self) -> State {
        let mut owners = [Owner::new(); OWNERS];
        for owner in owners.iter_mut().skip(self.scope.owners.len()) {
            owner.phase = Phase::Done;
        }
        let held = [[Held::default(); OWNERS]; NAMES];
        State { held, owners, losses: self.scope.losses, incomplete: false }
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for who in 0..OWNERS {
            self.tries(state, who, next);
            self.waits(state, who, next);
            self.loses(state, who, next);
        }
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        if state.incomplete {
            return Some("an acquisition is complete only while all its members are held");
        }
        let is_over = state.owners.iter().all(|owner| owner.phase == Phase::Done);
        let mut next = Vec::new();
        for who in 0..OWNERS {
            self.tries(state, who, &mut next);
            self.waits(state, who, &mut next);
        }
        (!is_over && next.is_empty()).then_some("nobody waits for ever")
    }
}
