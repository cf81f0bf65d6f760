//! What is read: the words of a line.

use std::str::FromStr;
use std::time::Duration;

use redis_reentrant_lock::LockOptions;

use crate::output::Failure;

/// The words of a line, read from the left.
pub(crate) struct Words<'a>(pub(crate) &'a str);

impl<'a> Words<'a> {
    pub(crate) fn next(&mut self) -> Option<&'a str> {
        let line = self.0.trim_start();
        let end = line.find(char::is_whitespace).unwrap_or(line.len());
        let (word, rest) = line.split_at(end);
        self.0 = rest;
        Some(word).filter(|word| !word.is_empty())
    }

    pub(crate) fn required(&mut self, what: &str) -> Result<&'a str, Failure> {
        self.next().ok_or_else(|| Failure::bad(format!("{what} is missing")))
    }

    /// A bare word or a JSON string.
    pub(crate) fn name(&mut self) -> Result<String, Failure> {
        let line = self.0.trim_start();
        if !line.starts_with('"') {
            return self.required("the lock name").map(str::to_owned);
        }
        let mut values = serde_json::Deserializer::from_str(line).into_iter::<String>();
        let Some(Ok(name)) = values.next() else {
            return Err(Failure::bad("the lock name is not a JSON string"));
        };
        self.0 = &line[values.byte_offset()..];
        match self.0.chars().next() {
            Some(next) if !next.is_whitespace() => {
                Err(Failure::bad("no space after the lock name"))
            }
            _ => Ok(name),
        }
    }

    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        match self.next() {
            None => Ok(()),
            Some(word) => Err(Failure::bad(format!("too many arguments: {word}"))),
        }
    }

    /// The `key=value` words up to the end of the line.
    pub(crate) fn options(&mut self, known: &[&str]) -> Result<Options, Failure> {
        let mut options = Options::default();
        while let Some(word) = self.next() {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            if !known.contains(&key) {
                return Err(Failure::bad(format!("not an option here: {word}")));
            }
            match key {
                "owner" if value.is_empty() => return Err(Failure::bad("owner= wants a word")),
                "owner" => options.owner = Some(value.to_owned()),
                "lease_ms" => options.lease = Some(millis(key, value)?),
                "wait_ms" => options.wait = Some(millis(key, value)?),
                "kind" => match value {
                    "reentrant" | "mutex" | "fair" | "read" | "write" | "permit" | "multi" => {
                        options.kind = Some(value.to_owned())
                    }
                    _ => return Err(Failure::bad(format!("no such kind: {value}"))),
                },
                "permits" => options.permits = Some(number(key, value)?),
                "of" => options.of = Some(number(key, value)?),
                "work_us" => options.work = Duration::from_micros(number(key, value)?),
                "pause_us" => options.pause = Duration::from_micros(number(key, value)?),
                _ => options.max_hold = Some(millis(key, value)?),
            }
        }
        Ok(options)
    }
}

#[derive(Default)]
pub(crate) struct Options {
    pub(crate) owner: Option<String>,
    pub(crate) lease: Option<Duration>,
    pub(crate) wait: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) kind: Option<String>,
    pub(crate) permits: Option<u32>,
    pub(crate) of: Option<u32>,
    pub(crate) work: Duration,
    pub(crate) pause: Duration,
}

impl Options {
    pub(crate) fn permits_there_are(&self) -> Result<u32, Failure> {
        self.of.ok_or_else(|| Failure::bad("of=, how many permits there are, is missing"))
    }

    /// None where the plain method does.
    pub(crate) fn lock_options(&self) -> Option<LockOptions> {
        let mut options = LockOptions::new();
        if self.lease.is_none() && self.wait.is_none() && self.max_hold.is_none() {
            return None;
        }
        if let Some(lease) = self.lease {
            options = options.lease(lease);
        }
        if let Some(wait) = self.wait {
            options = options.wait(wait);
        }
        if let Some(max_hold) = self.max_hold {
            options = options.max_hold(max_hold);
        }
        Some(options)
    }
}

fn number<N: FromStr>(key: &str, value: &str) -> Result<N, Failure> {
    value
        .parse()
        .map_err(|_| Failure::bad(format!("{key} is not a whole number in range: {value}")))
}

pub(crate) fn millis(key: &str, value: &str) -> Result<Duration, Failure> {
    number(key, value).map(Duration::from_millis)
}
