//! P1, exclusion: never more holders of a name at once than its kind allows.

use std::time::Duration;

use crate::base::cell::HoldCell;
use crate::base::clock::Moment;
use crate::base::name::LockName;
use crate::sim::checker::Checker;
use crate::sim::kinds::Found;
use crate::sim::kinds::Place;
use crate::sim::kinds::Places;
use crate::sim::kinds::rules_of;

impl Checker {
    /// By what clients believe: more holders at a time than the kind allows only if one of them was
    /// robbed.
    pub(super) fn look_for_overlaps(&self, now: Moment) -> Result<(), String> {
        if self.plan.drifts_too_much() {
            return Ok(());
        }
        let believing = || {
            self.live.iter().filter_map(|key| {
                let hold = &self.holds[key];
                let cell =
                    hold.cell.as_ref().filter(|cell| cell.is_held(now) && hold.breach.is_none())?;
                Some((*key, cell))
            })
        };
        for (one, cell) in believing() {
            let others =
                || believing().filter(|(key, other)| *key > one && other.name == cell.name);
            if others().next().is_none() {
                continue;
            }
            let field = |(client, id): (usize, u64)| format!("{}:{id}", self.ids[client]);
            let together: Places = std::iter::once((one, cell))
                .chain(others())
                .map(|(key, cell)| self.holds[&key].place(field(key), cell))
                .collect();
            if !self.allows(&cell.name, &together) {
                return Err(format!("P1: {} is held at once by {together:?}", cell.name));
            }
        }
        Ok(())
    }

    /// By the key: its holds may be there at once.
    pub(super) fn check_holds(&self, lock: &Found) -> Result<(), String> {
        let only_one = !lock.name.kind().waits_per_owner();
        if only_one && lock.reservation().is_some() && lock.holds.len() > 1 {
            return Err(format!("P1: a lock that somebody has is reserved: {lock:?}"));
        }
        match self.allows(&lock.name, &lock.holds) {
            true => Ok(()),
            false => Err(format!("P1: more holds at once than the kind of lock allows: {lock:?}")),
        }
    }

    /// Whether the kind allows these holds at once. A write that came from an upgrade is there
    /// together with the reads of its own owner.
    fn allows(&self, name: &LockName, together: &[Place]) -> bool {
        if rules_of(name).allows(together) {
            return true;
        }
        let writes = together.iter().filter(|place| place.exclusive);
        let reads: Vec<_> = writes
            .filter_map(|place| self.upgraded.get(&self.key_of(&place.field)?).copied())
            .collect();
        let counts = |place: &&Place| {
            place.exclusive || self.key_of(&place.field).is_none_or(|key| !reads.contains(&key))
        };
        rules_of(name).allows(&together.iter().filter(counts).cloned().collect::<Places>())
    }
}

/// Whoever believes that it holds has the key, for at least as long as it believes so (P6).
pub(super) fn check_key(
    now: Moment,
    client: usize,
    field: &str,
    cell: &HoldCell,
    locks: &[Found],
) -> Result<(), String> {
    let id = cell.id;
    let key = locks.iter().find(|lock| lock.name == cell.name);
    match key.and_then(|key| key.hold(field)) {
        Some(place) if place.is_reservation() => Err(format!(
            "P1: client {client} hold {id} is believed in, and is a reservation: {key:?}"
        )),
        Some(place) => {
            // What lies beyond its lease is not for the holder.
            let left = Duration::from_millis(u64::try_from(place.left.unwrap_or(0)).unwrap_or(0));
            let left = left.saturating_sub(rules_of(&cell.name).outlasts());
            let end = now.plus(left - left / 200 + Duration::from_nanos(1_100_000));
            if cell.valid_until() > end {
                let over = cell.valid_until().since(end);
                return Err(format!(
                    "P6: client {client} hold {id} is believed in {over:?} too long"
                ));
            }
            Ok(())
        }
        None => Err(format!("P1: client {client} hold {id} is believed in, there is {key:?}")),
    }
}
