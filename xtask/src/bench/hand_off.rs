//! What hand-off does to those outside of the process that hands the lock over to itself.

use serde_json::Value;
use serde_json::json;

use crate::servers::Server;

use super::Plan;
use super::figures::median;
use super::figures::number;
use super::figures::percentile;
use super::figures::turns;
use super::fleet::Worker;
use super::programs::PROFILES;
use super::programs::Programs;
use super::report::HAND_OFF_LOADS as LOADS;
use super::report::Report;
use super::report::Row;

const CROWD: u64 = 16;

/// Who waits: tasks of one process, one task of another, one thread of Redisson.
struct Party {
    members: Vec<(&'static str, u64, Worker)>,
    /// For each block and member.
    answers: Vec<Vec<Value>>,
}

pub(crate) fn all(
    plan: &Plan,
    programs: &Programs,
    server: &Server,
    report: &mut Report,
) -> Result<(), String> {
    println!("hand-off: on, off");
    let mut parties = Vec::new();
    for (load, kind) in LOADS.into_iter().zip(PROFILES) {
        let redisson = plan.kinds(load, programs, &["redisson"], report);
        let mut members = vec![
            ("crowd of 16", CROWD, Worker::start(programs, kind, server)?),
            ("one task elsewhere", 1, Worker::start(programs, kind, server)?),
        ];
        for kind in redisson {
            members.push((kind, 1, Worker::start(programs, kind, server)?));
        }
        parties.push(Party { members, answers: Vec::new() });
    }
    let length = if plan.quick { 500_000 } else { 1_000_000 };
    for (round, at) in plan.turns(parties.len()) {
        let answers = parties[at].block(length)?;
        if round > 0 {
            parties[at].answers.push(answers);
        }
    }
    for (load, party) in LOADS.into_iter().zip(&parties) {
        for (at, (who, ..)) in party.members.iter().enumerate() {
            report.add(party.row(load, who, at));
        }
    }
    Ok(())
}

impl Party {
    fn block(&mut self, length: u64) -> Result<Vec<Value>, String> {
        let name = format!("hand-off:{}", self.members[0].2.pid);
        for (_, tasks, worker) in &mut self.members {
            worker
                .tell(&json!({ "do": "crowd", "name": name, "tasks": *tasks, "us": length, "each": true }))?;
        }
        self.members.iter().map(|(.., worker)| worker.answer()).collect()
    }

    fn row(&self, load: &str, who: &str, at: usize) -> Row {
        let own = || self.answers.iter().map(|answers| &answers[at]);
        let waits = |answer| {
            turns(answer).into_iter().map(|[asked, granted, _]| (granted - asked) / 1_000.0)
        };
        let mut row =
            Row::new(load, who, own().map(|answer| number(answer, "p50") / 1_000.0).collect());
        let samples: Vec<f64> = own().flat_map(waits).collect();
        for (name, share) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)] {
            row.figure(name, percentile(&samples, share));
        }
        row.quantiles =
            (0..=100).map(|step| percentile(&samples, f64::from(step) / 100.0)).collect();
        let rates = own().map(|answer| number(answer, "grants") / (number(answer, "ns") / 1e9));
        row.figure("grants/s", median(&rates.collect::<Vec<_>>()));
        row
    }
}
