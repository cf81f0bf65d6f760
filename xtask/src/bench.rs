//! `cargo xtask bench`: this crate, its floors and its peers side by side, on one private server.
//!
//! Every kind of lock runs in processes of its own (`bench/`, `bench/peers/`), which are told by
//! lines of JSON what to do. Blocks of the kinds alternate, so that a noisy minute hits all of
//! them; figures are medians over blocks.

pub(crate) mod awake;
mod bars;
mod figures;
pub(crate) mod fleet;
mod hand_off;
mod line;
mod loads;
mod plots;
mod programs;
mod redis_benchmark;
mod report;
mod server_time;
mod shared;
mod show;
mod wide;
#[path = "../../bench/src/wire.rs"]
#[allow(dead_code, reason = "shared with the workers, which use all of it")]
mod wire;

use std::path::PathBuf;

use crate::root;
use crate::servers;
use crate::servers::Server;

use programs::Programs;
use report::Report;
use report::Row;

/// What is measured, and how long.
pub(crate) struct Plan {
    only: Vec<String>,
    kinds: Vec<String>,
    blocks: usize,
    quick: bool,
    /// Of each worker's runtime: as many as Tokio would have on a machine with two cores, or one.
    threads: String,
    out: PathBuf,
    /// Where the plots go once more.
    plots: Option<PathBuf>,
}

impl Plan {
    fn read(options: &[&str]) -> Result<Self, String> {
        let out = root().join("target/bench-report");
        let mut plan = Self {
            only: Vec::new(),
            kinds: Vec::new(),
            blocks: 30,
            quick: false,
            threads: "2".into(),
            out,
            plots: None,
        };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let mut value =
                || options.next().copied().ok_or_else(|| format!("{option} wants a value"));
            let words = |text: &str| text.split(',').map(str::to_owned).collect();
            match *option {
                "--quick" => (plan.quick, plan.blocks) = (true, 6),
                "--only" => plan.only = words(value()?),
                "--kinds" => plan.kinds = words(value()?),
                "--blocks" => {
                    plan.blocks =
                        value()?.parse().map_err(|_| "--blocks wants a number".to_owned())?;
                }
                "--threads" => plan.threads = value()?.to_owned(),
                "--out" => plan.out = value()?.into(),
                "--plots" => plan.plots = Some(value()?.into()),
                other => return Err(format!("bench does not know {other}")),
            }
        }
        Ok(plan)
    }

    fn wants(&self, load: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == load)
    }

    /// Of one block without contention.
    fn pairs(&self) -> u32 {
        if self.quick { 100 } else { 300 }
    }

    /// Those of `kinds` that are wanted.
    fn wanted(&self, kinds: &[&'static str]) -> Vec<&'static str> {
        let wanted =
            |kind: &str| self.kinds.is_empty() || self.kinds.iter().any(|wanted| wanted == kind);
        kinds.iter().copied().filter(|kind| wanted(kind)).collect()
    }

    /// Rounds of blocks, the first of which does not count, and whose block is next: another one
    /// begins each round, and goes before each other, since what a virtual machine compiles after
    /// its block is at the cost of the next.
    fn turns(&self, count: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let steps: Vec<usize> =
            (1..=count).filter(|step| common_divisor(*step, count) == 1).collect();
        let rounds = (0..=self.blocks).zip(steps.into_iter().cycle());
        rounds.flat_map(move |(round, step)| {
            (0..count).map(move |turn| (round, (turn * step + round) % count))
        })
    }

    /// Those of `kinds` that are wanted and there; those that are wanted only are put into the
    /// report of `load`.
    fn kinds(
        &self,
        load: &str,
        programs: &Programs,
        kinds: &[&'static str],
        report: &mut Report,
    ) -> Vec<&'static str> {
        let mut there = Vec::new();
        for kind in self.wanted(kinds) {
            match programs.absent(kind) {
                Some(reason) => report.add(Row::absent(load, kind, reason)),
                None => there.push(kind),
            }
        }
        there
    }
}

pub(crate) fn run(options: &[&str]) -> Result<bool, String> {
    let plan = Plan::read(options)?;
    let program = servers::find_or_install()?;
    let programs = Programs::build(&plan)?;
    let (server, beside) = (Server::start(&program)?, Server::start(&program)?);
    let mut report = Report::new(&server, options)?;
    loads::all(&plan, &programs, &server, &beside, &mut report)?;
    if plan.wants("hand-off") {
        hand_off::all(&plan, &programs, &server, &mut report)?;
    }
    wide::all(&plan, &programs, &server, &mut report)?;
    if plan.wants("line") {
        line::all(&plan, &programs, &program, &mut report)?;
    }
    report.print();
    report.write(&plan.out)?;
    println!("written to {}", plan.out.display());
    if let Some(folder) = &plan.plots {
        report.write_plots(folder)?;
        println!("plots written to {}", folder.display());
    }
    Ok(true)
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_each_kind_once_and_all_go_before_all() {
        for count in [0, 1, 2, 7, 12] {
            let plan = Plan { blocks: 60, ..Plan::read(&[]).expect("the defaults") };
            let turns: Vec<_> = plan.turns(count).collect();
            assert_eq!(turns.len(), 61 * count);
            for round in turns.chunks(count.max(1)) {
                let mut kinds: Vec<_> = round.iter().map(|(_, at)| *at).collect();
                kinds.sort_unstable();
                assert_eq!(kinds, (0..count).collect::<Vec<_>>());
            }
            let mut begins: Vec<_> = turns.chunks(count.max(1)).map(|round| round[0].1).collect();
            begins.sort_unstable();
            begins.dedup();
            assert_eq!(begins.len(), count);
        }
        let plan = Plan { blocks: 60, ..Plan::read(&[]).expect("the defaults") };
        let turns: Vec<_> = plan.turns(7).collect();
        let mut after: Vec<_> =
            turns.windows(2).filter(|two| two[0].1 == 6).map(|two| two[1].1).collect();
        after.sort_unstable();
        after.dedup();
        assert!(after.len() >= 6, "{after:?}");
    }
}
