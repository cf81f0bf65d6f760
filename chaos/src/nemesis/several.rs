//! Harm to servers that stand in for each other: failovers, and slots that move.

use super::Nemesis;
use crate::event::now;
use crate::history::Breach;
use crate::kind::LockKind;
use crate::kind::Name;
use crate::place::Kind;
use crate::place::Servers;
use crate::plan::Failover;
use crate::support::topology::Topology;

/// The primary of a cluster that is failed over, with its slots. The others have theirs moved.
const FAILED_OVER: usize = 0;

#[derive(Debug, Default)]
pub(super) struct Several {
    failover: Option<Running>,
    /// A slot, from whom, to whom.
    moving: Option<(u16, usize, usize)>,
}

#[derive(Debug, Clone)]
struct Running {
    why: Failover,
    from: u64,
    old: usize,
    /// In a cluster known beforehand.
    new: Option<usize>,
    names: Vec<String>,
}

impl Nemesis<'_> {
    fn topology(&mut self) -> Option<&mut Topology> {
        match &mut self.place.servers {
            Servers::Many(topology) => Some(topology),
            Servers::Alone(_) => None,
        }
    }

    // ---- failovers

    pub(super) fn begin_failover(&mut self, why: Failover) {
        let (kind, names) = (self.place.kind, self.names_of(FAILED_OVER));
        let Some(topology) = self.topology() else { return };
        let (old, new, names) = match kind {
            Kind::Sentinel => (topology.primary(), None, Vec::new()),
            _ => (FAILED_OVER, topology.replicas_of(FAILED_OVER).first().copied(), names),
        };
        let from = now();
        match (why, new) {
            (Failover::Killed, _) => topology.kill(old),
            (Failover::Frozen, _) => topology.freeze(old),
            (Failover::Ordered, None) => topology.begin_failover(),
            (Failover::Ordered, Some(new)) => topology.cluster_failover(new, false),
        }
        self.several.failover = Some(Running { why, from, old, new, names });
        self.say(format!("failover from node {old} begins: {why:?}"));
    }

    pub(super) fn end_failover(&mut self) {
        let kind = self.place.kind;
        let Some(Running { why, from, old, new, names }) = self.several.failover.take() else {
            return;
        };
        let Some(topology) = self.topology() else { return };
        let new = match new {
            None => topology.wait_for_other_primary(old),
            Some(new) => {
                topology.wait_for_primary(new);
                new
            }
        };
        match (kind, why) {
            (Kind::Sentinel, _) => topology.rejoin(old, new),
            (_, Failover::Killed) => topology.restart(old),
            (_, Failover::Frozen) => topology.thaw(old),
            (_, Failover::Ordered) => {}
        }
        topology.wait_for_replica(new);
        // Until the old one is a replica it may answer as if it were none.
        let breach = Breach { from, to: now(), two_servers: true, names };
        self.breaches.push(breach);
        match kind {
            Kind::Sentinel => self.counts.sentinel_failovers += 1,
            _ => self.counts.cluster_failovers += 1,
        }
        self.say(format!("failover to node {new} is over"));
    }

    // ---- slots

    /// Those whose slots are this node's. Where a latch is depends on its generation, so that any of
    /// its servers may be meant.
    fn names_of(&mut self, node: usize) -> Vec<String> {
        let names = self.plan.names.clone();
        let is_there = |name: &Name| {
            let slot = self.slot_of(&name.text);
            name.kind == LockKind::Latch || slot.is_some_and(|(_, owner)| owner == node)
        };
        names.into_iter().filter(is_there).map(|name| name.text).collect()
    }

    /// In a cluster: the slot of a name, and who has it.
    fn slot_of(&mut self, name: &str) -> Option<(u16, usize)> {
        if self.place.kind != Kind::Cluster {
            return None;
        }
        // Never failed over, so that it answers.
        let asked = 1;
        let topology = self.topology()?;
        let slot = topology.try_ask(asked, &["CLUSTER", "KEYSLOT", name]).ok()?;
        Some((slot, topology.owner_of(slot, asked)?))
    }

    pub(super) fn begin_move(&mut self, first: usize) {
        self.end_move();
        let spelled = |name: &Name| name.spelled(now());
        let names: Vec<String> = self.plan.names.iter().map(spelled).collect();
        let mut found = names.iter().cycle().skip(first).take(names.len()).filter_map(|name| {
            let (slot, owner) = self.slot_of(name)?;
            [1, 2].contains(&owner).then(|| (name.clone(), slot, owner))
        });
        let Some((name, slot, from)) = found.next() else { return };
        drop(found);
        let to = 3 - from;
        let Some(topology) = self.topology() else { return };
        topology.begin_move(slot, from, to);
        self.several.moving = Some((slot, from, to));
        self.say(format!("slot {slot}, that of {name}, begins to move from {from} to {to}"));
    }

    pub(super) fn end_move(&mut self) {
        let Some((slot, from, to)) = self.several.moving.take() else { return };
        let Some(topology) = self.topology() else { return };
        topology.move_keys(slot, from, to);
        topology.end_move(slot, from, to);
        self.counts.slot_moves += 1;
        self.say(format!("slot {slot} has moved"));
    }
}
