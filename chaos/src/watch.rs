//! Looks at all keys again and again: none may be locked for ever, or for longer than a lease.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::event::now;
use crate::history::Violation;
use crate::place::connect;
use crate::place::lock_keys;

const EVERY: Duration = Duration::from_millis(50);

pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Seen>>,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) violations: Vec<Violation>,
    /// How many keys were looked at.
    pub(crate) samples: u64,
}

impl Watch {
    pub(crate) fn start(urls: Vec<String>, lease: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let watch = |url: String| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || look(&url, lease, &stop))
        };
        let threads = urls.into_iter().map(watch).collect();
        Self { stop, threads }
    }

    pub(crate) fn end(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Seen::default();
        for seen in self.threads.into_iter().filter_map(|thread| thread.join().ok()) {
            all.violations.extend(seen.violations);
            all.samples += seen.samples;
        }
        all
    }
}

fn look(url: &str, lease: Duration, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut connection = None;
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(EVERY);
        if connection.is_none() {
            connection = connect(url).ok();
        }
        let Some(open) = &mut connection else { continue };
        match lock_keys(open) {
            Ok(keys) => seen.take(keys, lease),
            Err(_) => connection = None,
        }
    }
    seen
}

impl Seen {
    pub(crate) fn take(&mut self, keys: Vec<(String, i64)>, lease: Duration) {
        self.samples += keys.len() as u64;
        for (name, left) in keys {
            let within = u128::try_from(left).is_ok_and(|left| left <= lease.as_millis());
            if !within {
                let what = format!("its key has {left} ms to live, and a lease is {lease:?}");
                self.violations.push(Violation { at: now(), name, what });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_without_an_end_and_those_beyond_a_lease_are_found() {
        let mut seen = Seen::default();
        seen.take(vec![("a".into(), 300), ("b".into(), -1), ("c".into(), 301)], Duration::from_millis(300));
        let names: Vec<&str> = seen.violations.iter().map(|violation| violation.name.as_str()).collect();
        assert_eq!((names, seen.samples), (vec!["b", "c"], 3));
    }
}
