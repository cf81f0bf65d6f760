//! Clocks of independent servers that are set forward or back while they run.
//!
//! A clock that is set forward ends leases early on that server. That must not give a lock to two
//! as long as its holder has it on a majority of the others. So before clocks are set all workers
//! stop for a moment, and it is looked at who has what where.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use super::Alone;
use super::Nemesis;
use crate::event::now;
use crate::history::Breach;
use crate::history::Violation;
use crate::place::INDEPENDENT;
use crate::place::Key;
use crate::place::ask;
use crate::place::connect;
use crate::place::keys;
use crate::process::Process;
use crate::wire::Wire;
use crate::wire::client_of;

/// So often it is tried to set a clock, each time with this pause.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(15);
/// A server shows the time that was set, but for so many ms.
const OFF: i64 = 500;

impl Nemesis<'_> {
    /// To so much ahead of the others, or behind them.
    pub(super) fn set_clocks(&mut self, servers: u8, ahead_ms: i32) {
        if self.place.clocks.is_empty() {
            return;
        }
        let ahead_ms = i64::from(ahead_ms);
        let set: Vec<usize> =
            (0..INDEPENDENT).filter(|server| servers >> server & 1 == 1).collect();
        for _ in 0..TRIES {
            if set.iter().all(|server| self.runs(*server)) && self.try_to_set(&set, ahead_ms) {
                return;
            }
            thread::sleep(PAUSE);
        }
        self.say(format!(
            "the clocks of servers {set:?} are left as they are: too few have a lock"
        ));
    }

    fn runs(&self, server: usize) -> bool {
        self.servers[server] == Alone::Runs
    }

    fn try_to_set(&mut self, set: &[usize], ahead_ms: i64) -> bool {
        let mut stopped = Vec::new();
        for (number, worker) in self.workers.iter_mut().enumerate() {
            if let Some(process) = worker.as_mut().filter(|process| !process.is_frozen()) {
                process.freeze();
                stopped.push(number);
            }
        }
        let from = now();
        let others = (0..INDEPENDENT).filter(|server| !set.contains(server));
        let forward = set.iter().any(|server| self.place.clocks[*server].ahead_ms() < ahead_ms);
        let may = !forward || self.rest_is_enough(others, set);
        if may {
            for server in set {
                self.place.clocks[*server].set(ahead_ms).expect("the file of a clock");
            }
        }
        for number in stopped {
            self.workers[number].as_mut().and_then(Process::thaw);
        }
        if may {
            self.counts.clock_steps += set.len() as u64;
            // A holder may lose what it had there.
            let (to, names) = (now(), Vec::new());
            self.outages.push(Breach { from, to, two_servers: false, names });
            self.say(format!("the clocks of servers {set:?} are set, to {ahead_ms} ms ahead"));
            self.check_clocks(set, ahead_ms);
        }
        may
    }

    /// Whether every worker that has a lock on one of the servers in `set` has it on a majority of
    /// all among the others, and for no shorter time there: else it may count on the one that is set
    /// when the others have ended.
    fn rest_is_enough(&self, others: impl Iterator<Item = usize>, set: &[usize]) -> bool {
        let mut has: BTreeMap<(String, usize), Vec<u64>> = BTreeMap::new();
        // What one that is away has cannot be looked at, and does not count.
        for server in others.filter(|server| self.runs(*server)) {
            let looked = now();
            let Some(held) = self.held(server) else { return false };
            for (holder, left) in held {
                has.entry(holder).or_default().push(looked + left);
            }
        }
        // Last, right before they are set.
        set.iter().all(|server| {
            self.held(*server).is_some_and(|held| {
                let looked = now();
                held.iter().all(|(holder, left)| {
                    let ends = has.get(holder).into_iter().flatten();
                    ends.filter(|end| **end >= looked + left).count() > INDEPENDENT / 2
                })
            })
        })
    }

    /// Names that are locked on this server, by which worker, and for how many ns still. None if that
    /// cannot be told.
    fn held(&self, server: usize) -> Option<Vec<((String, usize), u64)>> {
        let keys = connect(&self.place.admin_urls()[server])
            .and_then(|mut connection| keys(&mut connection))
            .ok()?;
        let of = |key: &Key| -> Vec<(String, String, i64)> {
            key.holders().map(|field| (key.name.clone(), field.hold.clone(), key.left)).collect()
        };
        let worker = |(name, hold, left): (String, String, i64)| {
            let client = Some(client_of(&hold).to_owned());
            let is_it = |wires: &Vec<Wire>| wires[server].client() == client;
            let left = u64::try_from(left).map_or(u64::MAX / 2, |left| left * 1_000_000);
            Some(((name, self.place.wires.iter().position(is_it)?), left))
        };
        // What a worker has that was killed, nobody believes in.
        Some(keys.iter().flat_map(of).filter_map(worker).collect())
    }

    /// That this harm is done at all.
    fn check_clocks(&mut self, set: &[usize], ahead_ms: i64) {
        for server in set {
            let time = connect(&self.place.admin_urls()[*server])
                .and_then(|mut open| ask::<(i64, i64)>(&mut open, &["TIME"]));
            let Ok((seconds, micros)) = time else { continue };
            let now_ms = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |time| i64::try_from(time.as_millis()).unwrap_or(0));
            let shows = seconds * 1_000 + micros / 1_000 - now_ms;
            if (shows - ahead_ms).abs() > OFF {
                let what = format!("the clock of server {server} is {shows} ms ahead");
                self.violations.push(Violation { at: now(), name: "-".to_owned(), what });
            }
        }
    }
}
