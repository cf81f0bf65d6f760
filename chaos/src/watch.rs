//! Looks at all servers again and again: no key may be locked for ever, or for longer than a lease; and who is a primary
//! is seen, whatever made it one.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::event::now;
use crate::history::Breach;
use crate::history::Sample;
use crate::history::Violation;
use crate::place::Key;
use crate::place::Role;
use crate::place::connect;
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
    pub(crate) turnovers: Vec<Turnover>,
}

/// Between these two times a server became a primary, or was one no more, or one of another history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Turnover {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) what: String,
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
            all.turnovers.extend(seen.turnovers);
        }
        all
    }
}

fn look(url: &str, lease: Duration, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let (mut connection, mut known) = (None, None);
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(EVERY);
        if connection.is_none() {
            connection = connect(url).ok();
        }
        let Some(open) = &mut connection else { continue };
        let from = now();
        match Role::ask(open).and_then(|role| Ok((role, lock_keys(open)?))) {
            Ok((role, keys)) => {
                seen.note(from, if role.primary { &keys } else { &[] });
                seen.take(&keys, lease);
                seen.turn(url, known.replace((role.clone(), from)), &role);
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

    /// `before` is what was seen at the last look, and when that was.
    fn turn(&mut self, url: &str, before: Option<(Role, u64)>, role: &Role) {
        let Some((before, from)) = before.filter(|(before, _)| before != role) else { return };
        if before.primary || role.primary {
            let what = format!("{url}: {before:?} became {role:?}");
            self.turnovers.push(Turnover { from, to: now(), what });
        }
    }

    /// On a machine that is too busy a server may seem dead to the others: what nobody ordered, as one breach.
    pub(crate) fn of_their_own(&self, ordered: &[Breach]) -> Option<(Breach, Vec<&Turnover>)> {
        let expected = |turnover: &&Turnover| {
            ordered.iter().any(|one| one.two_servers && one.from <= turnover.to && turnover.from <= one.to)
        };
        let own: Vec<&Turnover> = self.turnovers.iter().filter(|turnover| !expected(turnover)).collect();
        let from = own.iter().map(|turnover| turnover.from).min()?;
        let to = own.iter().map(|turnover| turnover.to).max()?;
        Some((Breach { from, to, two_servers: true, names: Vec::new() }, own))
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
    fn a_failover_that_nobody_ordered_is_a_breach() {
        let role = |primary, history: &str| Role { primary, history: history.to_owned() };
        let mut seen = Seen::default();
        for (before, after) in [(role(true, "1"), role(true, "1")), (role(false, "1"), role(false, "2"))] {
            seen.turn("a", Some((before, 5)), &after);
        }
        seen.turn("a", None, &role(true, "1"));
        assert!(seen.of_their_own(&[]).is_none(), "{seen:?}");
        for (at, before, after) in [
            (10, role(false, "1"), role(true, "2")),
            (20, role(true, "1"), role(false, "2")),
            (30, role(true, "1"), role(true, "2")),
        ] {
            seen.turn("a", Some((before, at)), &after);
        }
        let mut ordered = Breach { from: 0, to: 9, two_servers: true, names: Vec::new() };
        let (breach, own) = seen.of_their_own(std::slice::from_ref(&ordered)).unwrap();
        assert_eq!((breach.from, breach.two_servers, own.len()), (10, true, 3));
        ordered.to = u64::MAX;
        assert!(seen.of_their_own(&[ordered]).is_none());
    }

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
