//! `cargo xtask seeded`: breaks rules of the protocol one at a time, and expects the simulation or
//! a unit test to notice each. The switches are in the library's code: `src/base/seeded.rs`.

#[path = "../../src/base/seeded/rules.rs"]
#[allow(dead_code, reason = "the library exchanges the texts of scripts")]
mod rules;

use std::process::Command;
use std::time::Duration;

use rules::Finder;
pub(crate) use rules::Rule;

use crate::process;
use crate::process::Echo;
use crate::servers;
use crate::sim;
use crate::test;

/// The environment variable that names the broken rule.
const BROKEN: &str = "SEEDED_BUG";

const BUILD_LIMIT: Duration = Duration::from_secs(900);
const LIMIT: Duration = Duration::from_secs(900);

#[derive(Debug)]
enum Verdict {
    /// Where, and in which words.
    Found(String),
    Missed(String),
}

/// True if every rule was noticed to be broken.
pub(crate) fn run(names: &[&str]) -> Result<bool, String> {
    let rules = if names.is_empty() {
        Rule::ALL.to_vec()
    } else {
        names.iter().map(|name| named(name)).collect::<Result<_, _>>()?
    };
    let built = process::run(
        cargo(&["test", test::FEATURES, "--lib", "--no-run"]),
        BUILD_LIMIT,
        Echo::Off,
    )?;
    if !built.success {
        return Err(format!("the build failed:\n{}", built.output));
    }
    let mut found = 0;
    for rule in &rules {
        let (word, detail) = match judge(*rule)? {
            Verdict::Found(detail) => ("found", detail),
            Verdict::Missed(detail) => ("MISSED", detail),
        };
        println!("{word:<8} {:<26} {}\n         {detail}", rule.name(), rule.words());
        found += usize::from(word == "found");
    }
    println!("{found} of {} seeded bugs found", rules.len());
    println!("{{\"part\":\"seeded_bugs\",\"found\":{found},\"of\":{}}}", rules.len());
    Ok(found == rules.len())
}

pub(crate) fn named(name: &str) -> Result<Rule, String> {
    let known = || Rule::ALL.iter().map(|rule| rule.name()).collect::<Vec<_>>().join(" ");
    let rule = Rule::ALL.iter().find(|rule| rule.name() == name);
    rule.copied().ok_or_else(|| format!("no such rule: {name}; there are: {}", known()))
}

/// Cargo for a build in which rules can be broken, in a folder of its own: other builds do not
/// change.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = process::cargo(args);
    command.env("CARGO_TARGET_DIR", crate::root().join("target/seeded"));
    // It replaces what `.cargo/config.toml` says.
    command.env("RUSTFLAGS", "--cfg repository --cfg seeded");
    command
}

/// The setting that breaks a rule in such a build.
pub(crate) fn broken(rule: Rule) -> (&'static str, &'static str) {
    (BROKEN, rule.name())
}

fn judge(rule: Rule) -> Result<Verdict, String> {
    let test = match rule.finder() {
        Finder::Sim(_) => sim::TEST,
        Finder::Test(name) => name,
    };
    let mut command =
        cargo(&["test", test::FEATURES, "--lib", test, "--", "--exact", "--nocapture"]);
    let (name, value) = broken(rule);
    command
        .env(name, value)
        .env("RUST_BACKTRACE", "0")
        .env("REDIS_SERVER", servers::find_or_install()?);
    if let Finder::Sim(seeds) = rule.finder() {
        command.env("SIM_SEEDS", format!("0..{seeds}")).env("SIM_SHRINK", "0");
    }
    let done = process::run(command, LIMIT, Echo::Off)?;
    let counts = test::counts(&done.output);
    if !done.timed_out && counts.passed + counts.failed == 0 {
        return Err(format!("no test ran for {}:\n{}", rule.name(), done.output));
    }
    let failed = counts.failed > 0;
    Ok(match rule.finder() {
        Finder::Sim(seeds) => {
            match done.output.lines().find_map(|line| line.strip_prefix("FOUND ")) {
                Some(words) if failed => Verdict::Found(words.to_owned()),
                _ => Verdict::Missed(format!("not within {seeds} seeds")),
            }
        }
        Finder::Test(test) if failed => Verdict::Found(format!("by the test {test}")),
        Finder::Test(test) => Verdict::Missed(format!("the test {test} passes")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// The texts of all files below a folder with this ending.
    fn texts(folder: &Path, ending: &str) -> Vec<String> {
        let mut found = Vec::new();
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                found.extend(texts(&path, ending));
            } else if path.extension().is_some_and(|known| known == ending) {
                found.push(fs::read_to_string(&path).unwrap());
            }
        }
        found
    }

    #[test]
    fn every_rule_of_the_list_has_its_place_in_the_code() {
        let mut asked: BTreeSet<String> = BTreeSet::new();
        for text in texts(&crate::root().join("src"), "rs") {
            let rules = text.split("seeded!(").skip(1).filter_map(|rest| rest.split_once(')'));
            asked.extend(rules.map(|(rule, _)| rule.to_owned()).filter(|rule| !rule.is_empty()));
        }
        asked.extend(rules::SCRIPTS.iter().map(|(rule, ..)| rule.name().to_owned()));
        let listed: BTreeSet<String> =
            Rule::ALL.iter().map(|rule| rule.name().to_owned()).collect();
        assert_eq!(asked, listed);
    }

    #[test]
    fn every_test_that_finds_a_rule_is_there() {
        let sources = texts(&crate::root().join("src"), "rs").concat();
        for rule in Rule::ALL {
            if let Finder::Test(path) = rule.finder() {
                let name = path.rsplit("::").next().unwrap();
                // A table of calls of a script is a test, too, which a macro makes.
                let is_table = path.contains("::script_tests::in_memory::")
                    && sources.contains(&format!("(\"{name}\", "));
                assert!(is_table || sources.contains(&format!("fn {name}()")), "{path}");
            }
        }
    }

    #[test]
    fn what_is_exchanged_in_a_script_stands_there_once() {
        let scripts = texts(&crate::root().join("lua"), "lua");
        for (rule, from, to) in rules::SCRIPTS {
            assert_ne!(from, to, "{rule:?}");
            let counts: Vec<usize> =
                scripts.iter().map(|script| script.matches(from).count()).collect();
            assert!(
                counts.contains(&1) && counts.iter().all(|count| *count <= 1),
                "{rule:?}: {from:?}"
            );
        }
    }
}
