//! A copy of the repository to break: mutants are put in there, and tests run.

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
        let base = std::path::absolute(crate::root().join("target/lab"))
            .map_err(|error| error.to_string())?;
        let lab = Self {
            tree: base.join("tree"),
            target: base.join("target"),
            redis,
            _alone: alone(&base.join("in-use"))?,
        };
        lab.copy_repository()?;
        Ok(lab)
    }

    /// Brings the copy up to date. Files that are the same are left alone, so that they are not
    /// built again.
    fn copy_repository(&self) -> Result<(), String> {
        let listed =
            git(crate::root(), &["ls-files", "--cached", "--others", "--exclude-standard", "-z"])?;
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

    /// Cargo in the copy. The features go right behind the subcommand: after `--` they would be the
    /// tests'.
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
