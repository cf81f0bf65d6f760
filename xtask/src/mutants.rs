//! `cargo xtask mutants`: each patch breaks one rule, and the tests that it names must notice.
//!
//! A patch starts with lines `# rule: …` (what it breaks) and one or more `# test: …` (arguments of `cargo test`).

use std::collections::BTreeSet;
use std::time::Duration;

use crate::lab;
use crate::lab::Lab;
use crate::lab::Patch;
use crate::servers;
use crate::test;

/// A mutant that makes its test hang is noticed as well.
const TEST_LIMIT: Duration = Duration::from_secs(60);

struct Mutant {
    patch: Patch,
    rule: String,
    tests: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Killed,
    /// These tests passed although the rule is broken.
    Survived(Vec<String>),
    DoesNotApply(String),
    DoesNotCompile(String),
}

/// True if every mutant was killed.
pub(crate) fn run(names: &[&str]) -> Result<bool, String> {
    let mutants = load(names)?;
    let lab = Lab::new(servers::find_or_install()?)?;
    check_unmutated(&lab, &mutants)?;
    let mut survivors = 0;
    for mutant in &mutants {
        let verdict = match lab.with(&mutant.patch, |lab| judge(lab, mutant))? {
            Ok(verdict) => verdict,
            Err(why) => Verdict::DoesNotApply(why),
        };
        let (word, detail) = match &verdict {
            Verdict::Killed => ("killed", String::new()),
            Verdict::Survived(tests) => ("SURVIVED", format!("\n  passed: {}", tests.join("\n  passed: "))),
            Verdict::DoesNotApply(why) => ("DOES NOT APPLY", format!("\n{why}")),
            Verdict::DoesNotCompile(why) => ("DOES NOT COMPILE", format!("\n{why}")),
        };
        println!("{word:<16} {:<32} {}{detail}", mutant.patch.name, mutant.rule);
        survivors += usize::from(verdict != Verdict::Killed);
    }
    println!("{} mutants killed, {survivors} not", mutants.len() - survivors);
    Ok(survivors == 0)
}

fn load(names: &[&str]) -> Result<Vec<Mutant>, String> {
    lab::patches("mutants", names)?.into_iter().map(parse).collect()
}

fn parse(patch: Patch) -> Result<Mutant, String> {
    let (rules, tests) = (patch.header("rule"), patch.header("test"));
    if rules.is_empty() || tests.is_empty() {
        return Err(format!("{}: needs a line `# rule:` and a line `# test:`", patch.path.display()));
    }
    Ok(Mutant { patch, rule: rules.join(" "), tests })
}

/// A mutant says nothing if its test fails anyway, or does not exist.
fn check_unmutated(lab: &Lab, mutants: &[Mutant]) -> Result<(), String> {
    let tests: BTreeSet<&String> = mutants.iter().flat_map(|mutant| &mutant.tests).collect();
    for test in tests {
        println!("unmutated: cargo test {test}");
        let built = lab.build(test)?;
        if !built.success {
            return Err(format!("the unmutated copy does not build:\n{}", built.output));
        }
        let done = lab.test(test, &[], TEST_LIMIT)?;
        if !done.success {
            return Err(format!("`{test}` fails without any mutant:\n{}", done.output));
        }
        if test::counts(&done.output).passed == 0 {
            return Err(format!("`{test}` names no test"));
        }
    }
    Ok(())
}

fn judge(lab: &Lab, mutant: &Mutant) -> Result<Verdict, String> {
    let mut survived = Vec::new();
    for test in &mutant.tests {
        let built = lab.build(test)?;
        if !built.success {
            return Ok(Verdict::DoesNotCompile(built.output));
        }
        if lab.test(test, &[], TEST_LIMIT)?.success {
            survived.push(test.clone());
        }
    }
    Ok(if survived.is_empty() { Verdict::Killed } else { Verdict::Survived(survived) })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_patch_applies() {
        let check = |mutant: &Mutant| mutant.patch.check().err();
        let stale: Vec<String> = load(&[]).unwrap().iter().filter_map(check).collect();
        assert!(stale.is_empty(), "{}", stale.join("\n"));
    }

    /// A renamed or moved test would be missed when mutants are run, which is seldom. Filters are parts of names.
    #[test]
    fn every_test_named_is_there() {
        let mut sources = Vec::new();
        for folder in ["src", "tests/it"] {
            let root = crate::root().join(folder);
            read_sources(&root, &root, &mut sources);
        }
        let there = |filter: &str| sources.iter().any(|(module, text)| has(module, text, filter));
        assert!(
            there("engine::tests::waiting::one_contender") && !there("engine::tests::loss::one_contender")
        );
        for mutant in load(&[]).unwrap() {
            for test in &mutant.tests {
                let filter = test.rsplit(' ').next().unwrap();
                assert!(there(filter), "{}: `{test}` names no test", mutant.patch.name);
            }
        }
    }

    /// Whether a file has what is named: the first words are its module's, the others stand in it, be they modules in it
    /// or what a macro makes tests of.
    fn has(module: &str, text: &str, filter: &str) -> bool {
        let words: Vec<&str> = filter.split("::").collect();
        let least = usize::from(words.len() > 1);
        (least..words.len()).any(|at| {
            let (outer, inner) = words.split_at(at);
            let outer = outer.join("::");
            let is_there = module == outer || module.ends_with(&format!("::{outer}")) || at == 0;
            is_there && inner.iter().all(|word| text.contains(word))
        })
    }

    /// The modules below `root`, each with its text.
    fn read_sources(root: &Path, folder: &Path, sources: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read_sources(root, &path, sources);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let module = path.with_extension("");
                let words: Vec<_> = module.strip_prefix(root).unwrap().iter().collect();
                let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
                sources.push((words.join("::"), std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
}
