//! A copy of the repository to break: patches are applied there, and tests run.

use std::fs;
use std::fs::File;
use std::fs::TryLockError;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::process;
use crate::process::Echo;
use crate::process::Finished;
use crate::test;

const BUILD_LIMIT: Duration = Duration::from_secs(900);

/// A patch with a header: lines `# key: value` in front of the diff.
#[derive(Debug, Clone)]
pub(crate) struct Patch {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    text: String,
}

impl Patch {
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, path: path.to_owned(), text })
    }

    /// The values of a key of the header, in order.
    pub(crate) fn header(&self, key: &str) -> Vec<String> {
        let lines =
            self.text.lines().take_while(|line| !line.starts_with("diff ") && !line.starts_with("--- "));
        let value = |line: &str| {
            let (found, value) = line.strip_prefix("# ")?.split_once(':')?;
            (found == key).then(|| value.trim().to_owned())
        };
        lines.filter_map(value).collect()
    }

    /// Git's words if it does not apply to the repository as it is.
    #[cfg(test)]
    pub(crate) fn check(&self) -> Result<(), String> {
        let patch = std::path::absolute(&self.path).map_err(|error| error.to_string())?;
        git(crate::root(), &["apply", "-C1", "--check", &patch.to_string_lossy()]).map(drop)
    }
}

/// The patches of a directory below `tests`, by name; those named, or all.
pub(crate) fn patches(directory: &str, names: &[&str]) -> Result<Vec<Patch>, String> {
    let dir = crate::root().join("tests").join(directory);
    let mut all = std::collections::BTreeMap::new();
    for entry in fs::read_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "patch") {
            let patch = Patch::read(&path)?;
            all.insert(patch.name.clone(), patch);
        }
    }
    if names.is_empty() {
        let all: Vec<Patch> = all.into_values().collect();
        return if all.is_empty() { Err(format!("{} is empty", dir.display())) } else { Ok(all) };
    }
    let pick = |name: &&str| {
        let name = name.trim_end_matches(".patch");
        all.remove(name).ok_or_else(|| format!("no such patch, or named twice: {name}"))
    };
    names.iter().map(pick).collect()
}

/// A copy of the repository to break, below `target/lab`, with a target directory of its own.
#[derive(Debug)]
pub(crate) struct Lab {
    tree: PathBuf,
    target: PathBuf,
    redis: PathBuf,
    /// Unlocked when the lab is dropped, or its process dies.
    _alone: File,
}

impl Lab {
    pub(crate) fn new(redis: PathBuf) -> Result<Self, String> {
        let base =
            std::path::absolute(crate::root().join("target/lab")).map_err(|error| error.to_string())?;
        let lab = Self {
            tree: base.join("tree"),
            target: base.join("target"),
            redis,
            _alone: alone(&base.join("in-use"))?,
        };
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

    /// Breaks the copy, looks at it, and mends it again. The inner error: the patch does not apply.
    pub(crate) fn with<T>(
        &self,
        patch: &Patch,
        look: impl FnOnce(&Self) -> Result<T, String>,
    ) -> Result<Result<T, String>, String> {
        let applied = self.apply(patch, &[])?;
        if !applied.success {
            return Ok(Err(applied.output));
        }
        let seen = look(self);
        if !self.apply(patch, &["-R"])?.success {
            return Err(format!("{} cannot be taken back", patch.name));
        }
        seen.map(Ok)
    }

    fn apply(&self, patch: &Patch, options: &[&str]) -> Result<Finished, String> {
        let patch = std::path::absolute(&patch.path).map_err(|error| error.to_string())?;
        let mut command = Command::new("git");
        // One line of context is enough: the lines around a rule change more often than the rule.
        command.args(["apply", "-C1"]).args(options).arg(patch).current_dir(&self.tree);
        // Else git finds the repository around the copy, and ignores what the patch says about it.
        command.env("GIT_CEILING_DIRECTORIES", self.tree.parent().unwrap_or(&self.tree));
        process::run(command, Duration::from_secs(10), Echo::Off)
    }

    /// Builds the tests that one line runs.
    pub(crate) fn build(&self, line: &str) -> Result<Finished, String> {
        let words = [&["test", "--no-run"], test::without_filters(line).as_slice()].concat();
        process::run(self.command(&words), BUILD_LIMIT, Echo::Off)
    }

    /// Runs the tests of one line, with these settings.
    pub(crate) fn test(
        &self,
        line: &str,
        settings: &[(&str, &str)],
        limit: Duration,
    ) -> Result<Finished, String> {
        let words = std::iter::once("test").chain(line.split_whitespace());
        let mut command = self.command(&words.collect::<Vec<_>>());
        command.envs(settings.iter().copied());
        process::run(command, limit, Echo::Off)
    }

    /// Cargo in the copy. The features go right behind the subcommand: after `--` they would be the tests'.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = process::cargo(&args[..1]);
        command.arg(test::FEATURES).args(&args[1..]).current_dir(&self.tree);
        command.env("CARGO_TARGET_DIR", &self.target).env("REDIS_SERVER", &self.redis);
        // Built again and again.
        command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
        command
    }
}

/// Nobody else breaks this copy meanwhile.
fn alone(path: &Path) -> Result<File, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(|error| failed(&error))?;
    let file = File::create(path).map_err(|error| failed(&error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(failed(&"another process breaks this copy")),
        Err(TryLockError::Error(error)) => Err(failed(&error)),
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
    fn the_header_ends_where_the_diff_begins() {
        let text =
            "# rule: 3 no immortal lock\n# test: --lib a\n# test: --test it b\ndiff --git a b\n# test: c\n";
        let patch = Patch { name: "a".into(), path: "a.patch".into(), text: text.into() };
        assert_eq!(patch.header("rule"), ["3 no immortal lock"]);
        assert_eq!(patch.header("test"), ["--lib a", "--test it b"]);
    }
}
