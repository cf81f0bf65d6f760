//! The single flight of a value that is the text of a file.

use std::fs;
use std::io::ErrorKind;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::Lookup;
use redis_reentrant_lock::SingleFlight;
use serde_json::json;

use crate::output::Done;
use crate::output::Failure;
use crate::output::boot_ns;
use crate::words::Words;
use crate::words::millis;

/// What a `flight` command does.
pub(crate) struct Flight {
    file: PathBuf,
    work: Duration,
    /// The computation fails when its time is over.
    fails: bool,
}

impl Flight {
    /// `FILE [work_ms=N] [fails=1]`
    pub(crate) fn read(words: &mut Words<'_>) -> Result<Self, Failure> {
        let file = PathBuf::from(words.required("the file")?);
        let mut flight = Self { file, work: Duration::ZERO, fails: false };
        while let Some(word) = words.next() {
            match word.split_once('=') {
                Some((key @ "work_ms", value)) => flight.work = millis(key, value)?,
                Some(("fails", "1")) => flight.fails = true,
                _ => return Err(Failure::bad(format!("not an option here: {word}"))),
            }
        }
        Ok(flight)
    }

    pub(crate) async fn run(self, single: SingleFlight) -> Done {
        let led = AtomicBool::new(false);
        let value = single
            .run(
                async || look(&self.file),
                async |_guard| {
                    led.store(true, Ordering::Relaxed);
                    tokio::time::sleep(self.work).await;
                    self.store()
                },
            )
            .await??;
        Ok(("info", json!({ "led": led.load(Ordering::Relaxed), "value": value })))
    }

    /// Writes the value, and a line to the log beside it.
    fn store(&self) -> Result<String, Failure> {
        let value = format!("{}-{}", std::process::id(), boot_ns());
        let outcome = if self.fails { "failed" } else { value.as_str() };
        let log = self.file.with_extension("log");
        let log = fs::File::options().create(true).append(true).open(log);
        log.and_then(|mut log| writeln!(log, "{outcome}")).map_err(|error| broken(&error))?;
        if self.fails {
            return Err(Failure::new("failed", "the computation fails, as it was told to"));
        }
        // Nobody finds half of it.
        let half = self.file.with_extension("half");
        fs::write(&half, &value)
            .and_then(|()| fs::rename(&half, &self.file))
            .map_err(|error| broken(&error))?;
        Ok(value)
    }
}

fn look(file: &Path) -> Result<Lookup<String>, Failure> {
    match fs::read_to_string(file) {
        Ok(value) => Ok(Lookup::Fresh(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Lookup::Missing),
        Err(error) => Err(broken(&error)),
    }
}

fn broken(error: &std::io::Error) -> Failure {
    Failure::new("unavailable", format!("the value: {error}"))
}
