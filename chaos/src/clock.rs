//! The wall clocks of servers, which can be set while they run: `clock.c` is loaded before them.

use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::ROOT;

/// By so much a clock is ahead or behind at most, so that it is set by up to twice as much.
pub(crate) const MOST: Duration = Duration::from_millis(2_500);

/// The clock of one server.
#[derive(Debug)]
pub(crate) struct Clock {
    /// What the server reads, on its own and on each later start.
    path: PathBuf,
    file: File,
    ahead_ms: i64,
}

impl Clock {
    pub(crate) fn new() -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("clock-{}-{number}", std::process::id()));
        fs::write(&path, 0_i64.to_ne_bytes())?;
        let file = File::options().write(true).open(&path)?;
        Ok(Self { path, file, ahead_ms: 0 })
    }

    /// For a server that goes by this clock; `library` is what is loaded before it.
    pub(crate) fn environment(&self, library: &Path) -> Vec<(&'static str, OsString)> {
        vec![("LD_PRELOAD", library.into()), ("CLOCK_AHEAD", self.path.as_os_str().to_owned())]
    }

    pub(crate) fn ahead_ms(&self) -> i64 {
        self.ahead_ms
    }

    pub(crate) fn set(&mut self, ahead_ms: i64) -> io::Result<()> {
        self.file.write_all_at(&(ahead_ms * 1_000).to_ne_bytes(), 0)?;
        self.ahead_ms = ahead_ms;
        Ok(())
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// What is loaded before a server whose clock is to be set, compiled once. An error says what is
/// missing.
pub(crate) fn library() -> Result<&'static Path, &'static str> {
    static LIBRARY: LazyLock<Result<PathBuf, String>> = LazyLock::new(compiled);
    LIBRARY.as_deref().map_err(String::as_str)
}

fn compiled() -> Result<PathBuf, String> {
    if !cfg!(target_os = "linux") {
        return Err("clocks of servers can be set on Linux only".to_owned());
    }
    let directory = Path::new(ROOT).join("target/chaos");
    fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    let library = directory.join(format!("clock-{}.so", std::process::id()));
    let source = Path::new(ROOT).join("chaos/clock.c");
    let done = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source)
        .output()
        .map_err(|error| format!("setting clocks of servers needs the C compiler cc: {error}"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        return Err(format!("{}: {said}", source.display()));
    }
    Ok(library)
}
