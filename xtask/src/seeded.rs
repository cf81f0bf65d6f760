//! `cargo xtask seeded`: classic bugs of such locks, put in one at a time, that the simulation must find.
//!
//! A patch starts with `# rule: …` (what it breaks) and `# found by: …`: `sim N`, within so many seeds, or `test …`,
//! arguments of `cargo test`.

use std::time::Duration;

use crate::lab;
use crate::lab::Lab;
use crate::lab::Patch;
use crate::servers;
use crate::sim;
use crate::test;

const LIMIT: Duration = Duration::from_secs(900);

/// What has to find a bug.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Finder {
    /// The simulation, within so many seeds.
    Seeds(u64),
    Test(String),
}

#[derive(Debug)]
enum Verdict {
    /// Where, and in which words.
    Found(String),
    Missed(String),
}

/// How many of how many bugs were found.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Score {
    pub(crate) found: usize,
    pub(crate) of: usize,
}

/// True if every bug was found.
pub(crate) fn run(names: &[&str]) -> Result<bool, String> {
    let score = hunt(names)?;
    Ok(score.found == score.of)
}

pub(crate) fn hunt(names: &[&str]) -> Result<Score, String> {
    let bugs = lab::patches("seeded", names)?;
    let lab = Lab::new(servers::find_or_install()?)?;
    let mut score = Score { found: 0, of: bugs.len() };
    for bug in &bugs {
        let (rule, finder) = read(bug)?;
        let verdict = lab.with(bug, |lab| judge(lab, &finder))?;
        let (word, detail) = match verdict {
            Ok(Verdict::Found(detail)) => ("found", detail),
            Ok(Verdict::Missed(detail)) => ("MISSED", detail),
            Err(why) => ("DOES NOT APPLY", why),
        };
        println!("{word:<8} {:<32} {rule}\n         {detail}", bug.name);
        score.found += usize::from(word == "found");
    }
    println!("{} of {} seeded bugs found", score.found, score.of);
    println!("{{\"part\":\"seeded_bugs\",\"found\":{},\"of\":{}}}", score.found, score.of);
    Ok(score)
}

fn read(bug: &Patch) -> Result<(String, Finder), String> {
    let finder = bug.header("found by").into_iter().next().and_then(|line| finder(&line));
    match (bug.header("rule").into_iter().next(), finder) {
        (Some(rule), Some(finder)) => Ok((rule, finder)),
        _ => Err(format!("{}: needs a line `# rule:` and a line `# found by:`", bug.path.display())),
    }
}

fn finder(line: &str) -> Option<Finder> {
    match line.split_once(' ')? {
        ("sim", seeds) => seeds.trim().parse().ok().map(Finder::Seeds),
        ("test", line) => Some(Finder::Test(line.trim().to_owned())),
        _ => None,
    }
}

fn judge(lab: &Lab, finder: &Finder) -> Result<Verdict, String> {
    let line = match finder {
        Finder::Seeds(_) => format!("--lib {} -- --exact --nocapture", sim::TEST),
        Finder::Test(line) => line.clone(),
    };
    let built = lab.build(&line)?;
    if !built.success {
        return Ok(Verdict::Missed(format!("does not compile:\n{}", built.output)));
    }
    match finder {
        Finder::Seeds(seeds) => {
            let range = format!("0..{seeds}");
            let settings = [("SIM_SEEDS", range.as_str()), ("SIM_SHRINK", "0"), ("RUST_BACKTRACE", "0")];
            let done = lab.test(&line, &settings, LIMIT)?;
            let found = done.output.lines().find_map(|line| line.strip_prefix("FOUND "));
            Ok(match found {
                Some(words) if !done.success => Verdict::Found(words.to_owned()),
                _ => Verdict::Missed(format!("not within {seeds} seeds")),
            })
        }
        Finder::Test(line) => {
            let done = lab.test(line, &[], LIMIT)?;
            let counts = test::counts(&done.output);
            Ok(match counts.failures.first() {
                Some(name) => Verdict::Found(format!("by the test {name}")),
                None => Verdict::Missed(format!("`{line}`: {} passed", counts.passed)),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_can_still_be_put_in_and_says_who_finds_it() {
        let bugs = lab::patches("seeded", &[]).unwrap();
        assert_eq!(bugs.len(), 16);
        for bug in bugs {
            read(&bug).unwrap();
            bug.check().unwrap();
        }
        assert_eq!(finder("sim 20"), Some(Finder::Seeds(20)));
        assert_eq!(finder("luck"), None);
    }
}
