//! Looks at all servers again and again: no key may be locked for ever, for longer than a lease, or
//! by holds that exclude each other; no reservation and no waiting line may last longer than the
//! scripts say; and who is a primary is seen, whatever made it one.

use std::collections::BTreeMap;
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
use crate::kind::PERMITS;
use crate::place::Content;
use crate::place::Field;
use crate::place::Key;
use crate::place::Role;
use crate::place::connect;
use crate::place::keys;

const EVERY: Duration = Duration::from_millis(25);
/// So much later than the end of a failover, in ns, what it did may be seen.
const SEEN_LATE: u64 = 500_000_000;

pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Seen>>,
    set_back: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) violations: Vec<Violation>,
    /// How many keys were looked at.
    pub(crate) keys: u64,
    pub(crate) samples: Vec<Sample>,
    /// By so much more keys may have to live, since clocks are set back.
    set_back: Duration,
    turnovers: Vec<Turnover>,
    /// When a primary was last seen, by its history.
    primaries: BTreeMap<String, u64>,
}

/// Between these two times a server became a primary, or was one no more, or one of another
/// history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Turnover {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) url: String,
    pub(crate) before: Role,
    pub(crate) after: Role,
}

impl Watch {
    /// `set_back`: by how much clocks are set back at most.
    pub(crate) fn start(urls: Vec<String>, lease: Duration, set_back: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let watch = |url: String| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || look(&url, lease, set_back, &stop))
        };
        let threads = urls.into_iter().map(watch).collect();
        Self { stop, threads, set_back }
    }

    pub(crate) fn end(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Seen { set_back: self.set_back, ..Seen::default() };
        for seen in self.threads.into_iter().filter_map(|thread| thread.join().ok()) {
            all.violations.extend(seen.violations);
            all.keys += seen.keys;
            all.samples.extend(seen.samples);
            all.turnovers.extend(seen.turnovers);
            for (history, at) in seen.primaries {
                let last = all.primaries.entry(history).or_default();
                *last = at.max(*last);
            }
        }
        all
    }
}

fn look(url: &str, lease: Duration, set_back: Duration, stop: &AtomicBool) -> Seen {
    let mut seen = Seen { set_back, ..Seen::default() };
    let (mut connection, mut known) = (None, None);
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(EVERY);
        if connection.is_none() {
            connection = connect(url).ok();
        }
        let Some(open) = &mut connection else { continue };
        let from = now();
        match Role::ask(open).and_then(|role| Ok((role, keys(open)?))) {
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
        for key @ Key { name, left, content } in keys {
            let mut wrong = |what: String| {
                self.violations.push(Violation { at: now(), name: name.clone(), what });
            };
            let (what, limit) = key.limit(lease);
            let limit = limit + self.set_back;
            let longest = key.holders().map(|field| field.left).chain([*left]).max();
            let too_long = |left| u128::try_from(left).is_ok_and(|left| left > limit.as_millis());
            if *left < 0 && !key.may_stay() || longest.is_some_and(too_long) {
                wrong(format!(
                    "its key has {left} ms to live, and {what} is {limit:?}: {content:?}"
                ));
            }
            if !is_allowed(key) {
                wrong(format!("its key has the content {content:?}"));
            }
        }
    }

    /// `before` is what was seen at the last look, and when that was.
    fn turn(&mut self, url: &str, before: Option<(Role, u64)>, role: &Role) {
        let to = now();
        let primaries =
            before.iter().map(|(before, _)| before).chain([role]).filter(|role| role.primary);
        for primary in primaries {
            self.primaries.insert(primary.history.clone(), to);
        }
        let Some((before, from)) = before.filter(|(before, _)| before != role) else { return };
        if before.primary || role.primary {
            self.turnovers.push(Turnover {
                from,
                to,
                url: url.to_owned(),
                before,
                after: role.clone(),
            });
        }
    }

    /// On a machine that is too busy a server may seem dead to the others: what nobody ordered, and
    /// when it was over.
    pub(crate) fn of_their_own(&self, ordered: &[Breach]) -> Vec<(Breach, &Turnover)> {
        let breaches = self.turnovers.iter().map(|turnover| {
            // Clients may be with the old primary for as long as that one does not know.
            let old = self.primaries.get(&turnover.before.history).copied().unwrap_or(0);
            let (from, to) = (turnover.from, turnover.to.max(old));
            (Breach { from, to, two_servers: true, names: Vec::new() }, turnover)
        });
        let expected = |breach: &Breach| {
            let inside = |one: &Breach| one.from <= breach.to && breach.to <= one.to + SEEN_LATE;
            ordered.iter().any(|one| one.two_servers && inside(one))
        };
        breaches.filter(|(breach, _)| !expected(breach)).collect()
    }

    fn note(&mut self, from: u64, keys: &[Key]) {
        let to = now();
        for key in keys {
            for field in key.holders() {
                let (name, hold, left) = (key.name.clone(), field.hold.clone(), field.left);
                self.samples.push(Sample { from, to, name, hold, left });
            }
        }
    }
}

/// Whether all this may be there at one moment, breach or no breach.
fn is_allowed(key: &Key) -> bool {
    let client = |field: &Field| field.hold.split(':').next().map(str::to_owned);
    match &key.content {
        Content::Lock(fields) => fields.len() == 1,
        // An upgrade is beside the reads of its own client.
        Content::ReadWrite(_) => key.holders().filter(|writer| writer.writes).all(|writer| {
            let mut others = key.holders().filter(|other| other.hold != writer.hold);
            others.all(|other| !other.writes && client(other) == client(writer))
        }),
        Content::Permits(_) => {
            key.holders().map(|field| field.count).sum::<u64>() <= u64::from(PERMITS)
        }
        Content::Latch(count) => *count > 0,
        Content::Beside(_) => true,
        Content::Other(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Duration = Duration::from_secs(12);

    fn role(primary: bool, history: &str) -> Role {
        Role { primary, history: history.to_owned() }
    }

    #[test]
    fn who_stays_what_it_is_and_a_replica_of_another_are_no_failover() {
        let mut seen = Seen::default();
        seen.turn("a", None, &role(true, "1"));
        seen.turn("a", Some((role(true, "1"), 5)), &role(true, "1"));
        seen.turn("b", Some((role(false, "1"), 5)), &role(false, "2"));
        assert!(seen.of_their_own(&[]).is_empty(), "{seen:?}");
    }

    #[test]
    fn a_failover_that_nobody_ordered_is_a_breach_until_the_old_primary_knows() {
        let mut seen = Seen::default();
        seen.turn("b", Some((role(false, "1"), 10)), &role(true, "2"));
        seen.turn("a", Some((role(true, "1"), 20)), &role(false, "2"));
        let knows = seen.turnovers[1].to;
        let own = seen.of_their_own(&[]);
        assert_eq!((own[0].0.from, own[0].0.to, own.len()), (10, knows, 2));
        let ordered = |to| Breach { from: 0, to, two_servers: true, names: Vec::new() };
        assert!(seen.of_their_own(&[ordered(knows)]).is_empty());
        assert_eq!(seen.of_their_own(&[ordered(knows - SEEN_LATE - 1)]).len(), 2);
    }

    fn key(name: &str, left: i64, content: Content) -> Key {
        Key { name: name.to_owned(), left, content }
    }

    fn lock(name: &str, left: i64, fields: &[(&str, u64)]) -> Key {
        let field = |(hold, count): &(&str, u64)| field(hold, *count, true, left);
        key(name, left, Content::Lock(fields.iter().map(field).collect()))
    }

    fn field(hold: &str, count: u64, writes: bool, left: i64) -> Field {
        Field { hold: hold.to_owned(), count, writes, left }
    }

    fn is_wrong(content: Content, left: i64) -> bool {
        let mut seen = Seen::default();
        seen.take(&[key("a", left, content)], Duration::from_millis(300));
        !seen.violations.is_empty()
    }

    #[test]
    fn a_writer_beside_others_is_found_on_the_server() {
        let with = |other: Field| Content::ReadWrite(vec![field("c:1", 1, true, 300), other]);
        assert!(!is_wrong(with(field("d:2", 1, false, 0)), 300), "it is dead");
        assert!(!is_wrong(with(field("d:2", 0, false, 9)), 300), "it is a reservation");
        assert!(!is_wrong(with(field("c:2", 1, false, 9)), 300), "the writer was upgraded from it");
        assert!(is_wrong(with(field("d:2", 1, false, 9)), 300));
        assert!(is_wrong(with(field("c:2", 1, true, 9)), 300));
        let readers = vec![field("c:1", 1, false, 9), field("d:1", 1, false, 9)];
        assert!(!is_wrong(Content::ReadWrite(readers.clone()), 1_500));
        assert!(is_wrong(Content::ReadWrite(readers), 1_501));
    }

    #[test]
    fn more_permits_than_there_are_are_found_on_the_server() {
        let permits = |more| {
            Content::Permits(vec![field("c:1", 2, true, 300), field("d:1", more, true, 300)])
        };
        assert!(!is_wrong(permits(1), 300));
        assert!(is_wrong(permits(2), 300));
        assert!(is_wrong(Content::Permits(vec![field("c:1", 1, true, 1_501)]), 300));
    }

    #[test]
    fn keys_without_an_end_those_beyond_a_lease_and_those_of_two_are_found() {
        let keys = [
            lock("a", 300, &[("c:1", 1)]),
            lock("b", -1, &[("c:2", 1)]),
            lock("c", 301, &[("c:3", 2)]),
            lock("d", 1, &[("c:4", 1), ("c:5", 1)]),
            lock("reserved", 1_500, &[("c:6", 0)]),
            lock("e", 1_501, &[("c:7", 0)]),
            key("line", 12_000, Content::Beside(LINE)),
            key("f", 12_001, Content::Beside(LINE)),
            key("g", -1, Content::Beside(LINE)),
            key("h", 1, Content::Other("string".to_owned())),
            key("latch", -1, Content::Latch(1)),
            key("i", -1, Content::Latch(0)),
            key("j", 201, Content::Latch(1)),
        ];
        let mut seen = Seen::default();
        seen.take(&keys, Duration::from_millis(300));
        let names: String =
            seen.violations.iter().map(|violation| violation.name.as_str()).collect();
        assert_eq!((names.as_str(), seen.keys), ("bcdefghij", 13));
    }

    #[test]
    fn only_who_has_a_lock_is_a_sample_of_its_key() {
        let mut seen = Seen::default();
        let line = key("line", 1, Content::Beside(LINE));
        seen.note(0, &[lock("a", 7, &[("c:1", 0)]), line, lock("b", 7, &[("c:2", 1)])]);
        let holds: Vec<&str> = seen.samples.iter().map(|sample| sample.hold.as_str()).collect();
        assert_eq!(holds, ["c:2"]);
    }
}
