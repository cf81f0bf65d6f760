//! `cargo xtask mutants`: each patch breaks one rule, and the tests that it names must notice.
//!
//! A patch starts with lines `# rule: …` (what it breaks) and one or more `# test: …` (arguments of `cargo test`).

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::process;
use crate::process::Echo;
use crate::process::Finished;
use crate::servers;
use crate::test;

const BUILD_LIMIT: Duration = Duration::from_secs(900);
/// A mutant that makes its test hang is noticed as well.
const TEST_LIMIT: Duration = Duration::from_secs(60);

struct Mutant {
    name: String,
    patch: PathBuf,
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
    lab.check_unmutated(&mutants)?;
    let mut survivors = 0;
    for mutant in &mutants {
        let verdict = lab.try_mutant(mutant)?;
        let (word, detail) = match &verdict {
            Verdict::Killed => ("killed", String::new()),
            Verdict::Survived(tests) => ("SURVIVED", format!("\n  passed: {}", tests.join("\n  passed: "))),
            Verdict::DoesNotApply(why) => ("DOES NOT APPLY", format!("\n{why}")),
            Verdict::DoesNotCompile(why) => ("DOES NOT COMPILE", format!("\n{why}")),
        };
        println!("{word:<16} {:<32} {}{detail}", mutant.name, mutant.rule);
        survivors += usize::from(verdict != Verdict::Killed);
    }
    println!("{} mutants killed, {survivors} not", mutants.len() - survivors);
    Ok(survivors == 0)
}

fn load(names: &[&str]) -> Result<Vec<Mutant>, String> {
    let dir = crate::root().join("tests/mutants");
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?.flatten() {
        let patch = entry.path();
        if patch.extension().is_some_and(|ending| ending == "patch") {
            let mutant = parse(&patch)?;
            all.insert(mutant.name.clone(), mutant);
        }
    }
    if names.is_empty() {
        return if all.is_empty() {
            Err("there are no mutants".into())
        } else {
            Ok(all.into_values().collect())
        };
    }
    let pick = |name: &&str| {
        let name = name.trim_end_matches(".patch");
        all.remove(name).ok_or_else(|| format!("no such mutant, or named twice: {name}"))
    };
    names.iter().map(pick).collect()
}

fn parse(patch: &Path) -> Result<Mutant, String> {
    let text = fs::read_to_string(patch).map_err(|error| format!("{}: {error}", patch.display()))?;
    let header = |key: &str| -> Vec<String> {
        let lines = text.lines().take_while(|line| !line.starts_with("diff ") && !line.starts_with("--- "));
        lines.filter_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned()).collect()
    };
    let (rules, tests) = (header("# rule:"), header("# test:"));
    if rules.is_empty() || tests.is_empty() {
        return Err(format!("{}: needs a line `# rule:` and a line `# test:`", patch.display()));
    }
    let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Mutant { name, patch: patch.to_owned(), rule: rules.join(" "), tests })
}

/// A copy of the repository to break, below `target/mutants`, with a target directory of its own.
struct Lab {
    tree: PathBuf,
    target: PathBuf,
    redis: PathBuf,
}

impl Lab {
    fn new(redis: PathBuf) -> Result<Self, String> {
        let base =
            std::path::absolute(crate::root().join("target/mutants")).map_err(|error| error.to_string())?;
        let lab = Self { tree: base.join("tree"), target: base.join("target"), redis };
        lab.copy_repository()?;
        Ok(lab)
    }

    /// Brings the copy up to date. Files that are the same are left alone, so that they are not built again.
    fn copy_repository(&self) -> Result<(), String> {
        let listed = git(crate::root(), &["ls-files", "--cached", "--others", "--exclude-standard", "-z"])?;
        let wanted: Vec<&str> = listed.output.split('\0').filter(|path| !path.is_empty()).collect();
        remove_others(&self.tree, &self.tree, &wanted)?;
        for path in wanted {
            let (from, to) = (crate::root().join(path), self.tree.join(path));
            // Listed but deleted in the work tree.
            let Ok(content) = fs::read(&from) else { continue };
            if fs::read(&to).is_ok_and(|old| old == content) {
                continue;
            }
            let parent = to.parent().unwrap_or(&self.tree);
            fs::create_dir_all(parent)
                .and_then(|()| fs::write(&to, content))
                .map_err(|error| format!("{}: {error}", to.display()))?;
        }
        Ok(())
    }

    /// A mutant says nothing if its test fails anyway, or does not exist.
    fn check_unmutated(&self, mutants: &[Mutant]) -> Result<(), String> {
        let tests: BTreeSet<&String> = mutants.iter().flat_map(|mutant| &mutant.tests).collect();
        for test in tests {
            println!("unmutated: cargo test {test}");
            let built = self.build(test)?;
            if !built.success {
                return Err(format!("the unmutated copy does not build:\n{}", built.output));
            }
            let done = self.test(test)?;
            if !done.success {
                return Err(format!("`{test}` fails without any mutant:\n{}", done.output));
            }
            if test::counts(&done.output).passed == 0 {
                return Err(format!("`{test}` names no test"));
            }
        }
        Ok(())
    }

    fn try_mutant(&self, mutant: &Mutant) -> Result<Verdict, String> {
        let applied = self.apply(mutant, &[])?;
        if !applied.success {
            return Ok(Verdict::DoesNotApply(applied.output));
        }
        let verdict = self.judge(mutant);
        if !self.apply(mutant, &["-R"])?.success {
            return Err(format!("{} cannot be taken back", mutant.name));
        }
        verdict
    }

    fn judge(&self, mutant: &Mutant) -> Result<Verdict, String> {
        let mut survived = Vec::new();
        for test in &mutant.tests {
            let built = self.build(test)?;
            if !built.success {
                return Ok(Verdict::DoesNotCompile(built.output));
            }
            if self.test(test)?.success {
                survived.push(test.clone());
            }
        }
        Ok(if survived.is_empty() { Verdict::Killed } else { Verdict::Survived(survived) })
    }

    fn apply(&self, mutant: &Mutant, options: &[&str]) -> Result<Finished, String> {
        let patch = std::path::absolute(&mutant.patch).map_err(|error| error.to_string())?;
        let mut command = Command::new("git");
        // One line of context is enough: the lines around a rule change more often than the rule.
        command.args(["apply", "-C1"]).args(options).arg(patch).current_dir(&self.tree);
        // Else git finds the repository around the copy, and ignores what the patch says about it.
        command.env("GIT_CEILING_DIRECTORIES", self.tree.parent().unwrap_or(&self.tree));
        process::run(command, Duration::from_secs(10), Echo::Off)
    }

    /// Builds what one `# test:` line runs: the tests, and the driver that integration tests start.
    fn build(&self, line: &str) -> Result<Finished, String> {
        let options = test::without_filters(line);
        let tests = self.cargo(&[&["test", "--no-run"], options.as_slice()].concat(), BUILD_LIMIT)?;
        if !tests.success || !options.contains(&"--test") {
            return Ok(tests);
        }
        self.cargo(&["build", "--example", "driver"], BUILD_LIMIT)
    }

    fn test(&self, line: &str) -> Result<Finished, String> {
        let words = std::iter::once("test").chain(line.split_whitespace());
        self.cargo(&words.collect::<Vec<_>>(), TEST_LIMIT)
    }

    /// Runs cargo in the copy. The features go right behind the subcommand: after `--` they would be the tests'.
    fn cargo(&self, args: &[&str], limit: Duration) -> Result<Finished, String> {
        let mut command = process::cargo(&args[..1]);
        command.arg(test::FEATURES).args(&args[1..]).current_dir(&self.tree);
        command.env("CARGO_TARGET_DIR", &self.target).env("REDIS_SERVER", &self.redis);
        // Only this crate is built again and again; its dependencies stay optimized.
        command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
        process::run(command, limit, Echo::Off)
    }
}

fn git(dir: &Path, args: &[&str]) -> Result<Finished, String> {
    let mut command = Command::new("git");
    command.args(args).current_dir(dir);
    let done = process::run(command, Duration::from_secs(10), Echo::Off)?;
    if done.success { Ok(done) } else { Err(format!("git {}: {}", args.join(" "), done.output)) }
}

/// Removes from the copy what is not in the repository any more.
fn remove_others(tree: &Path, dir: &Path, wanted: &[&str]) -> Result<(), String> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            remove_others(tree, &path, wanted)?;
        } else {
            let inside = path.strip_prefix(tree).unwrap_or(&path).to_string_lossy().into_owned();
            if !wanted.contains(&inside.as_str()) {
                fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_patch_applies() {
        let check = |mutant: &Mutant| {
            let patch = std::path::absolute(&mutant.patch).unwrap();
            let args = ["apply", "-C1", "--check", &patch.to_string_lossy()];
            git(crate::root(), &args).err()
        };
        let stale: Vec<String> = load(&[]).unwrap().iter().filter_map(check).collect();
        assert!(stale.is_empty(), "{}", stale.join("\n"));
    }

    #[test]
    fn the_header_ends_where_the_diff_begins() {
        let path = std::env::temp_dir().join(format!("xtask-mutant-{}.patch", std::process::id()));
        fs::write(
            &path,
            "# rule: 3 no immortal lock\n# test: --lib a\n# test: --test it b\ndiff --git a b\n# test: c\n",
        )
        .unwrap();
        let mutant = parse(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(mutant.rule, "3 no immortal lock");
        assert_eq!(mutant.tests, ["--lib a", "--test it b"]);
    }
}
