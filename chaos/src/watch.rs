//! Looks at all keys again and again: none may be locked for ever, or for longer than a lease.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::event::now;
use crate::history::Sample;
use crate::history::Violation;
use crate::place::Key;
use crate::place::connect;
use crate::place::is_primary;
use crate::place::lock_keys;

const EVERY: Duration = Duration::from_millis(25);

pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Seen>>,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) violations: Vec<Violation>,
    /// How many keys were looked at.
    pub(crate) keys: u64,
    pub(crate) samples: Vec<Sample>,
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
            all.keys += seen.keys;
            all.samples.extend(seen.samples);
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
        let from = now();
        match is_primary(open).and_then(|primary| Ok((primary, lock_keys(open)?))) {
            Ok((primary, keys)) => {
                seen.note(from, if primary { &keys } else { &[] });
                seen.take(&keys, lease);
            }
            Err(_) => connection = None,
        }
    }
    seen
}

impl Seen {
    pub(crate) fn take(&mut self, keys: &[Key], lease: Duration) {
        self.keys += keys.len() as u64;
        for Key { name, left, fields } in keys {
            let mut wrong = |what: String| {
                self.violations.push(Violation { at: now(), name: name.clone(), what });
            };
            if u128::try_from(*left).is_ok_and(|left| left > lease.as_millis()) || *left < 0 {
                wrong(format!("its key has {left} ms to live, and a lease is {lease:?}"));
            }
            if fields.len() != 1 {
                wrong(format!("its key has the fields {fields:?}"));
            }
        }
    }

    fn note(&mut self, from: u64, keys: &[Key]) {
        let to = now();
        for Key { name, left, fields } in keys {
            let (name, hold, left) = (name.clone(), fields.concat(), *left);
            self.samples.push(Sample { from, to, name, hold, left });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_without_an_end_those_beyond_a_lease_and_those_of_two_are_found() {
        let key = |name: &str, left, fields: &[&str]| {
            let fields = fields.iter().map(|field| (*field).to_owned()).collect();
            Key { name: name.to_owned(), left, fields }
        };
        let keys = [
            key("a", 300, &["c:1"]),
            key("b", -1, &["c:2"]),
            key("c", 301, &["c:3"]),
            key("d", 1, &["c:4", "c:5"]),
        ];
        let mut seen = Seen::default();
        seen.take(&keys, Duration::from_millis(300));
        let names: Vec<&str> = seen.violations.iter().map(|violation| violation.name.as_str()).collect();
        assert_eq!((names, seen.keys), (vec!["b", "c", "d"], 4));
    }
}
