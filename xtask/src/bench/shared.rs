//! Loads of what several hold at once: reads, permits, the value of a single flight; and of what one
//! holds several of: the names of a multi-lock, the servers of a Redlock.

use std::thread;
use std::time::Duration;
use std::time::Instant;

use serde_json::Value;
use serde_json::json;

use crate::servers;
use crate::servers::Server;

use super::figures::Sent;
use super::figures::median;
use super::figures::number;
use super::figures::percentile;
use super::figures::turns;
use super::fleet::Worker;
use super::loads::Bench;
use super::loads::Block;
use super::loads::crowd_of;
use super::loads::each;
use super::loads::hand_overs;
use super::loads::pairs_of;
use super::loads::taken;
use super::programs::LOCAL;
use super::programs::OWN;
use super::programs::RAW;
use super::programs::with_multi_and_fair;
use super::programs::with_read_write;
use super::programs::with_semaphore;

/// How names are taken, and the load that has one task do so without contention.
pub(super) const ALONE: [(&str, &str); 4] = [
    ("lock", "alone-lock"),
    ("read", "alone-read"),
    ("write", "alone-write"),
    ("permits", "alone-permit"),
];
/// The same for several names at once, beside one.
pub(super) const MULTI: [(&str, &str); 2] = [("lock", "one-of-4"), ("multi", "all-of-4")];
/// How long several processes take several names, in all blocks together.
const MINUTE: Duration = Duration::from_secs(60);
const PROCESSES: usize = 4;
/// Of all blocks together.
const WRITES: usize = 200;
const PERMITS: u64 = 8;
const FOLLOWERS: u64 = 1_000;
/// How long the leader of a flight computes.
const COMPUTES: Duration = Duration::from_secs(1);

impl Bench<'_> {
    pub(super) fn shared(&mut self) -> Result<(), String> {
        if self.plan.wants("alone") {
            self.alone()?;
        }
        if self.plan.wants("readers") {
            self.readers()?;
        }
        if self.plan.wants("read-write") {
            self.read_write()?;
        }
        if self.plan.wants("permits") {
            self.permits()?;
        }
        if self.plan.wants("many-permits") {
            self.many_permits()?;
        }
        if self.plan.wants("flight") {
            self.flight()?;
        }
        if self.plan.wants("fair") {
            self.fair()?;
        }
        if self.plan.wants("multi") {
            self.multi()?;
        }
        if self.plan.wants("redlock") {
            self.redlock()?;
        }
        Ok(())
    }

    /// A lock over three servers: one task without contention, and two processes that take turns.
    fn redlock(&mut self) -> Result<(), String> {
        let third = Server::start(&servers::find_or_install()?)?;
        let all = [self.server.url(), self.beside.url(), third.url()].join(",");
        let alone = std::mem::replace(&mut self.at, all);
        let pairs = self.plan.pairs();
        let kinds = [RAW, OWN[1], OWN[0], "rslock", "redsync", "redisson"];
        let cases = taken("lock", "redlock", &self.kinds("redlock", &kinds));
        self.alternate(&cases, 1, &mut |workers, _| pairs_of(&mut workers[0], pairs, "lock"))?;
        let load = "redlock-turns";
        let cases = taken("lock", load, &self.kinds(load, &kinds[1..]));
        let turns = if self.plan.quick { 15 } else { 40 };
        self.alternate(&cases, 2, &mut |workers, _| {
            let wanting = json!({
                "do": "turns", "name": format!("{load}:{}", workers[0].pid), "count": turns,
                "hold_us": 3_000, "pause_us": 1_000,
            });
            Ok(hand_overs(&each(workers, &vec![wanting; 2])?))
        })?;
        self.at = alone;
        Ok(())
    }

    /// A lock, a read, a write and a permit in the same rounds.
    fn alone(&mut self) -> Result<(), String> {
        let mut cases = Vec::new();
        for (mode, load) in ALONE {
            let mut kinds = match mode {
                "permits" => with_semaphore(),
                _ => with_read_write(),
            };
            if mode == "lock" {
                kinds.extend(with_semaphore().last());
            }
            cases.extend(taken(mode, load, &self.kinds(load, &kinds)));
        }
        let pairs = self.plan.pairs();
        self.alternate(&cases, 1, &mut |workers, case| pairs_of(&mut workers[0], pairs, case.mode))
    }

    /// 64 tasks of four processes that read, and one of a fifth process that writes every 100 ms.
    fn readers(&mut self) -> Result<(), String> {
        let load = "readers-4x16";
        let cases = taken("read", load, &self.kinds(load, &with_read_write()));
        let writes = WRITES.div_ceil(self.plan.blocks.max(1));
        let length = 100_000 * writes;
        self.alternate(&cases, PROCESSES + 1, &mut |workers, case| {
            let name = format!("{load}:{}", workers[0].pid);
            // Within a process there are too many to tell of each.
            let each_read = case.kind != LOCAL;
            let read = json!({
                "do": "crowd", "name": name, "mode": "read", "tasks": 16, "us": length,
                "each": each_read,
            });
            let write = json!({
                "do": "crowd", "name": name, "mode": "write", "tasks": 1, "us": length,
                "each": true, "pause_us": 100_000,
            });
            let mut loads = vec![read; PROCESSES];
            loads.push(write);
            Ok(with_a_writer(&each(workers, &loads)?))
        })
    }

    /// Four processes that read and four that write, one task each.
    fn read_write(&mut self) -> Result<(), String> {
        let load = "read-write-4+4";
        let cases = taken("read", load, &self.kinds(load, &with_read_write()));
        self.alternate(&cases, 2 * PROCESSES, &mut |workers, _| {
            let name = format!("{load}:{}", workers[0].pid);
            let side = |mode| {
                let load = json!({
                    "do": "crowd", "name": name, "mode": mode, "tasks": 1, "us": 2_000_000,
                    "hold_us": 1_000,
                });
                vec![load; PROCESSES]
            };
            Ok(sides(&each(workers, &[side("read"), side("write")].concat())?))
        })
    }

    /// 64 tasks of four processes on eight permits; then with holders counted by another server.
    fn permits(&mut self) -> Result<(), String> {
        let length = if self.plan.quick { 100_000 } else { 250_000 };
        let counter = self.beside.url();
        for (load, kinds, counter) in [
            ("permits-4x16", with_semaphore(), ""),
            ("permits-4x16-counted", OWN.to_vec(), &*counter),
        ] {
            let cases = taken("permits", load, &self.kinds(load, &kinds));
            self.alternate(&cases, PROCESSES, &mut |workers, _| {
                let wanting = json!({
                    "do": "crowd", "name": format!("{load}:{}", workers[0].pid),
                    "mode": "permits", "of": PERMITS, "want": 1, "tasks": 16, "us": length,
                    "counter": counter,
                });
                let answers = each(workers, &vec![wanting; PROCESSES])?;
                let mut block = crowd_of(&answers);
                if !counter.is_empty() {
                    let most = answers.iter().map(|answer| number(answer, "held at most"));
                    block.others.push(("held at most", most.fold(0.0, f64::max)));
                }
                Ok(block)
            })?;
        }
        Ok(())
    }

    /// One task that wants all eight permits among 32 tasks of four processes that want one.
    fn many_permits(&mut self) -> Result<(), String> {
        let load = "many-permits";
        let mut kinds = with_semaphore();
        // That of npm cannot take several.
        kinds.pop();
        let cases = taken("permits", load, &self.kinds(load, &kinds));
        self.alternate(&cases, PROCESSES + 1, &mut |workers, _| {
            let name = format!("{load}:{}", workers[0].pid);
            let crowd = |tasks: u64, want: u64, pause_us: u64| {
                json!({
                    "do": "crowd", "name": name, "mode": "permits", "of": PERMITS, "want": want,
                    "tasks": tasks, "us": 2_000_000, "hold_us": 10_000, "pause_us": pause_us,
                })
            };
            let mut loads = vec![crowd(8, 1, 0); PROCESSES];
            loads.push(crowd(1, PERMITS, 50_000));
            Ok(with_a_large_want(&each(workers, &loads)?))
        })
    }

    /// 64 tasks of four processes on one fair lock.
    fn fair(&mut self) -> Result<(), String> {
        let load = "fair-4x16";
        let length = if self.plan.quick { 100_000 } else { 250_000 };
        let cases = taken("fair", load, &self.kinds(load, &with_multi_and_fair()));
        self.alternate(&cases, PROCESSES, &mut |workers, _| {
            let wanting = json!({
                "do": "crowd", "name": format!("{load}:{}", workers[0].pid), "mode": "fair",
                "tasks": 16, "us": length,
            });
            Ok(crowd_of(&each(workers, &vec![wanting; PROCESSES])?))
        })
    }

    /// A multi-lock of four names beside a lock; then eight processes that take three of five names,
    /// chosen anew each time, for a minute in all.
    fn multi(&mut self) -> Result<(), String> {
        let mut cases = Vec::new();
        for (mode, load) in MULTI {
            cases.extend(taken(mode, load, &self.kinds(load, &with_multi_and_fair())));
        }
        let pairs = self.plan.pairs();
        self.alternate(&cases, 1, &mut |workers, case| {
            pairs_of(&mut workers[0], pairs, case.mode)
        })?;
        let load = "multi-8x1";
        let cases = taken("multi", load, &self.kinds(load, &with_multi_and_fair()));
        let length = MINUTE.as_micros() / self.plan.blocks.max(1) as u128;
        self.alternate(&cases, 2 * PROCESSES, &mut |workers, _| {
            let wanting = json!({
                "do": "crowd", "name": format!("{load}:{}", workers[0].pid), "mode": "multi",
                "want": 3, "of": 5, "tasks": 1, "us": length as u64, "hold_us": 1_000,
            });
            Ok(crowd_of(&each(workers, &vec![wanting; 2 * PROCESSES])?))
        })
    }

    /// A thousand tasks of four processes want a value that a fifth process computes.
    fn flight(&mut self) -> Result<(), String> {
        let load = "flight-1000";
        let cases = taken("lock", load, &self.kinds(load, &OWN));
        let mut connection = self.server.connect().map_err(|error| error.to_string())?;
        let store = self.beside.url();
        let mut flights = 0;
        self.alternate(&cases, PROCESSES + 1, &mut |workers, case| {
            flights += 1;
            let want = json!({
                "do": "flight", "name": format!("{load}:{}:{flights}", case.kind), "store": store,
                "us": micros(COMPUTES), "tasks": 1,
            });
            let started = Instant::now();
            let (leader, followers) = workers.split_first_mut().ok_or("no workers")?;
            leader.tell(&want)?;
            thread::sleep(COMPUTES / 4);
            let mut all = want.clone();
            all["tasks"] = json!(FOLLOWERS / followers.len() as u64);
            for worker in &mut *followers {
                worker.tell(&all)?;
            }
            thread::sleep((COMPUTES * 9 / 10).saturating_sub(started.elapsed()));
            let before = Sent::so_far(&mut connection).map_err(|error| error.to_string())?;
            let led = leader.answer()?;
            let served: Vec<Value> =
                followers.iter().map(Worker::answer).collect::<Result<_, _>>()?;
            let after = Sent::so_far(&mut connection).map_err(|error| error.to_string())?;
            Ok(served_by(&led, &served, after.since(before)))
        })
    }
}

/// Reads per second; and of each write how long it waited, and how long after the last of the
/// readers who were there when it asked had given up.
fn with_a_writer(answers: &[Value]) -> Block {
    let Some((writer, readers)) = answers.split_last() else { return crowd_of(answers) };
    let reads: Vec<[f64; 3]> = readers.iter().flat_map(turns).collect();
    let (mut waits, mut beyond, mut passed) = (Vec::new(), Vec::new(), Vec::new());
    for [asked, granted, _] in turns(writer) {
        let before = reads.iter().filter(|read| read[1] < granted);
        let (present, later): (Vec<&[f64; 3]>, Vec<_>) = before.partition(|read| read[0] < asked);
        let last = present.iter().map(|read| read[2]).fold(asked, f64::max);
        waits.push((granted - asked) / 1_000.0);
        beyond.push((granted - last) / 1_000.0);
        passed.push(later.len() as f64);
    }
    let mut block = crowd_of(readers);
    let largest = |values: &[f64]| percentile(values, 1.0);
    block.grants += waits.len() as f64;
    block.others.extend([
        ("writes", waits.len() as f64),
        ("write wait p50", median(&waits)),
        ("write wait max", largest(&waits)),
        ("beyond readers, p50", median(&beyond)),
        ("beyond readers", largest(&beyond)),
        ("overtaken by", largest(&passed)),
    ]);
    block
}

/// How the grants are shared between the sides, and within them.
fn sides(answers: &[Value]) -> Block {
    let grants: Vec<f64> = answers.iter().map(|answer| number(answer, "grants")).collect();
    let all: f64 = grants.iter().sum();
    let (reading, writing) = grants.split_at(grants.len() / 2);
    let least =
        |side: &[f64]| percentile(side, 0.0) / (side.iter().sum::<f64>() / side.len() as f64);
    let part = |side: &[f64]| side.iter().sum::<f64>() / all;
    let mut block = crowd_of(answers);
    block.others.extend([
        ("least share, reading", least(reading)),
        ("least share, writing", least(writing)),
        ("part of reads", part(reading)),
        ("part of writes", part(writing)),
    ]);
    block
}

/// How long the last one waited, who wants many.
fn with_a_large_want(answers: &[Value]) -> Block {
    let Some((large, small)) = answers.split_last() else { return crowd_of(answers) };
    let mut block = crowd_of(small);
    let mean = block.others.iter().find(|(name, _)| *name == "wait mean").map_or(0.0, |it| it.1);
    let longest = number(large, "max") / 1_000.0;
    block.others.extend([
        ("grants of 8", number(large, "grants")),
        ("longest wait of 8", longest),
        ("wait of 8 / mean", longest / mean),
    ]);
    block
}

/// How long after the value was stored the last one had it.
fn served_by(led: &Value, served: &[Value], after: Sent) -> Block {
    let all = |field: &str| served.iter().map(|answer| number(answer, field)).collect::<Vec<_>>();
    let computed = number(led, "computed") + all("computed").iter().sum::<f64>();
    let late = percentile(&all("answered"), 1.0) - number(led, "stored_at");
    // One is the leader's release. Each process has to see once that the lock is gone; one that
    // acquired it would need another script for that.
    let scripts = (after.scripts - 1.0) / served.len() as f64;
    let others = vec![
        ("last answer, ms", late / 1e6),
        ("computed", computed),
        ("looks of a process after it", percentile(&all("found"), 1.0)),
        ("scripts of a process after it", scripts),
    ];
    Block { main: late / 1e6, samples: Vec::new(), grants: FOLLOWERS as f64, others }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd(grants: u64, turns: &[[u64; 3]]) -> Value {
        json!({
            "grants": grants, "ns": 1e9, "mean": 1_000, "p50": 1_000, "p99": 1_000, "max": 9_000,
            "least": 1, "most": 1, "turns": turns,
        })
    }

    fn figure(block: &Block, wanted: &str) -> f64 {
        block.others.iter().find(|(name, _)| *name == wanted).expect("it is there").1
    }

    #[test]
    fn a_writer_waits_for_the_readers_who_were_there_and_those_who_overtook_it_are_counted() {
        let first = crowd(2, &[[0, 1_000, 20_000], [11_000, 12_000, 40_000]]);
        let second = crowd(1, &[[45_000, 60_000, 70_000]]);
        let writer = crowd(1, &[[10_000, 45_000, 50_000]]);
        let block = with_a_writer(&[first, second, writer]);
        assert_eq!(block.main, 3.0);
        assert_eq!(figure(&block, "write wait max"), 35.0);
        // 20 us is when the reader who was there gave up; the second read began after the writer.
        assert_eq!(figure(&block, "beyond readers"), 25.0);
        assert_eq!(figure(&block, "overtaken by"), 1.0);
    }

    #[test]
    fn shares_are_those_within_a_side_and_of_the_sides() {
        let all: Vec<Value> = [30, 50, 5, 15].map(|grants| crowd(grants, &[])).to_vec();
        let block = sides(&all);
        assert_eq!(figure(&block, "least share, reading"), 0.75);
        assert_eq!(figure(&block, "least share, writing"), 0.5);
        assert_eq!(figure(&block, "part of reads"), 0.8);
        assert_eq!(figure(&block, "part of writes"), 0.2);
    }

    #[test]
    fn who_wants_many_is_compared_with_those_who_want_one() {
        let block = with_a_large_want(&[crowd(10, &[]), crowd(20, &[]), crowd(2, &[])]);
        assert_eq!(figure(&block, "wait of 8 / mean"), 9.0);
    }
}
