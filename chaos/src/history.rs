//! What happened, put together from the files of the workers, the store and whoever did harm.

use std::collections::BTreeMap;
use std::collections::HashMap;

use crate::event::Event;
use crate::event::How;
use crate::event::What;
use crate::kind::LockKind;
use crate::kind::Share;
use crate::kind::plain;
use crate::store::Access;
use crate::wire::Call;

/// Nothing takes so long that is sent only once.
const ONCE: u64 = 300_000_000;

/// Later than everything.
pub(crate) const NEVER: u64 = u64::MAX;

/// All of one run.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) processes: Vec<Process>,
    pub(crate) accesses: Vec<Access>,
    /// The keys of locks, as they were from time to time.
    pub(crate) samples: Vec<Sample>,
    /// Of every hold, in nanoseconds.
    pub(crate) lease: u64,
    pub(crate) breaches: Vec<Breach>,
    /// When one of several independent servers was away. It may have forgotten what it had granted,
    /// so that a hold may be lost; two may not hold at once.
    pub(crate) outages: Vec<Breach>,
    /// The scripts of fair locks that were called, where one server answers all.
    pub(crate) calls: Vec<Call>,
    /// When places in a line may have been lost: somebody removed the line, or the server had no
    /// memory for it, or no permission was left to enter it.
    pub(crate) unsure: Vec<Breach>,
    /// What was done to servers, networks and workers, for people.
    pub(crate) harm: Vec<(u64, String)>,
}

/// A worker.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) label: String,
    pub(crate) events: Vec<Event>,
    /// When it was killed.
    pub(crate) died: Option<u64>,
}

/// What a primary said about a lock's key between these two times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) name: String,
    /// Its only field.
    pub(crate) hold: String,
    /// What it had left, in ms.
    pub(crate) left: i64,
}

/// From when to when servers forgot what they had granted, or some of them did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Breach {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Two servers may both have answered, for the same names.
    pub(crate) two_servers: bool,
    /// Which ones, without generations; all of them if there are none.
    pub(crate) names: Vec<String>,
}

impl Breach {
    pub(crate) fn is_of(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|known| known == plain(name))
    }
}

/// A rule was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) at: u64,
    pub(crate) name: String,
    pub(crate) what: String,
}

/// A grant and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) kind: LockKind,
    /// What it was granted.
    pub(crate) share: Share,
    /// The read of the same owner that it was upgraded from.
    pub(crate) beside: Option<String>,
    /// When its write became a read.
    pub(crate) downgraded: Option<u64>,
    /// Which process has it.
    pub(crate) process: usize,
    pub(crate) token: u64,
    pub(crate) called: u64,
    pub(crate) granted: u64,
    /// The last time when the guard said that it is held.
    pub(crate) seen_held: u64,
    /// The latest valid-until that the guard told.
    pub(crate) until: u64,
    pub(crate) lost: Option<(u64, String)>,
    /// When the release of the last level was asked for.
    pub(crate) release_called: Option<u64>,
    /// When that was confirmed.
    pub(crate) released: Option<u64>,
}

impl Hold {
    /// Whether it lets nobody else have the lock at this time, as far as its kind has levels.
    pub(crate) fn is_exclusive(&self, at: u64) -> bool {
        self.share.exclusive > 0 && self.downgraded.is_none_or(|downgraded| at < downgraded)
    }

    /// From the grant to here the guard promised to hold, and did not take it back.
    pub(crate) fn sure_until(&self) -> u64 {
        let told = match &self.lost {
            Some((at, reason)) if reason == "expired" => self.until.min(*at),
            // When it came to know is not seen.
            Some(_) => self.seen_held,
            None => self.until,
        };
        told.max(self.seen_held).min(self.release_called.unwrap_or(NEVER))
    }

    /// When nobody believes in it any more.
    pub(crate) fn over(&self) -> u64 {
        let lost = self.lost.as_ref().map_or(NEVER, |(at, _)| *at);
        self.released.unwrap_or(NEVER).min(lost)
    }

    /// Whether its release may have been sent twice, because nobody knew what became of the first
    /// time. If the key is gone by then, that counts as released, and it cannot be told from a
    /// loss.
    pub(crate) fn released_twice(&self, history: &History) -> bool {
        let (Some(called), Some(ended)) = (self.release_called, self.released) else {
            return false;
        };
        let between = |(at, _): &(u64, String)| called <= *at && *at <= ended;
        ended - called > ONCE || history.harm.iter().any(between)
    }

    /// The first breach that may have taken it away.
    pub(crate) fn breach<'a>(&self, breaches: &'a [Breach]) -> Option<&'a Breach> {
        let hit = |breach: &&Breach| {
            self.called <= breach.to && breach.from <= self.over() && breach.is_of(&self.name)
        };
        breaches.iter().find(hit)
    }
}

/// An operation, from its call to its end, if that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) process: usize,
    pub(crate) what: What,
    pub(crate) name: String,
    pub(crate) kind: LockKind,
    pub(crate) hold: String,
    pub(crate) share: Share,
    pub(crate) called: u64,
    pub(crate) ended: Option<(u64, How)>,
}

impl History {
    pub(crate) fn operations(&self) -> Vec<Operation> {
        let mut all = Vec::new();
        for (process, Process { events, .. }) in self.processes.iter().enumerate() {
            let mut open: HashMap<u64, usize> = HashMap::new();
            for event in events {
                match event {
                    Event::Call { op, at, what, name, hold, share, kind, .. } => {
                        open.insert(*op, all.len());
                        let (name, hold) = (name.clone(), hold.clone());
                        let (what, share, kind, called) = (*what, *share, *kind, *at);
                        all.push(Operation {
                            process,
                            what,
                            name,
                            kind,
                            hold,
                            share,
                            called,
                            ended: None,
                        });
                    }
                    Event::End { op, at, how } => {
                        if let Some(index) = open.remove(op) {
                            all[index].ended = Some((*at, how.clone()));
                        }
                    }
                    _ => {}
                }
            }
        }
        all.sort_by_key(|operation| operation.called);
        all
    }

    /// Every hold by its id, and what contradicts itself within one.
    pub(crate) fn holds(&self) -> (BTreeMap<String, Hold>, Vec<Violation>) {
        let (mut holds, mut bad) = (BTreeMap::new(), Vec::new());
        for operation in self.operations() {
            note(&mut holds, &mut bad, &operation);
        }
        for Process { events, .. } in &self.processes {
            for event in events {
                look(&mut holds, &mut bad, event);
            }
        }
        (holds, bad)
    }

    /// Operations whose call and end were both seen.
    pub(crate) fn finished(&self) -> usize {
        let ends = |event: &&Event| matches!(event, Event::End { .. });
        self.processes.iter().map(|process| process.events.iter().filter(ends).count()).sum()
    }
}

fn note(holds: &mut BTreeMap<String, Hold>, bad: &mut Vec<Violation>, operation: &Operation) {
    let mut wrong =
        |at: u64, what: String| bad.push(Violation { at, name: operation.name.clone(), what });
    match &operation.ended {
        Some((at, How::Granted { hold: id, token, count, levels, until })) => {
            if count != levels {
                wrong(*at, format!("{id} has {levels} guards, and its count is {count}"));
            }
            let known = holds.get(id);
            if operation.what == What::Nested {
                if *id != operation.hold || known.is_none_or(|hold| hold.token != *token) {
                    wrong(
                        *at,
                        format!("{} was re-entered and became {id}, token {token}", operation.hold),
                    );
                }
                return;
            }
            if known.is_some() {
                return wrong(*at, format!("{id} was granted twice"));
            }
            let hold = Hold {
                id: id.clone(),
                name: operation.name.clone(),
                kind: operation.kind,
                share: operation.share,
                beside: (operation.what == What::Upgrade).then(|| operation.hold.clone()),
                downgraded: None,
                process: operation.process,
                token: *token,
                called: operation.called,
                granted: *at,
                seen_held: *at,
                until: *until,
                lost: None,
                release_called: None,
                released: None,
            };
            holds.insert(id.clone(), hold);
        }
        Some((at, How::Failed(word))) => {
            if matches!(
                word.as_str(),
                "key_conflict"
                    | "closed"
                    | "hold_count_limit"
                    | "other"
                    | "refused"
                    | "would_deadlock"
            ) {
                wrong(*at, format!("{} failed: {word}", operation.what));
            }
            if let Some(hold) = holds.get_mut(&operation.hold) {
                // What cannot become a read is given up.
                if operation.share == Share::NOTHING || operation.what == What::Downgrade {
                    hold.release_called = Some(operation.called);
                }
                if word == "lost" && hold.lost.is_none() {
                    hold.lost = Some((*at, "lost".to_owned()));
                }
            }
        }
        ended => {
            let Some(hold) = holds.get_mut(&operation.hold) else { return };
            if operation.what == What::Downgrade {
                hold.downgraded = Some(operation.called);
            }
            if operation.share == Share::NOTHING
                && matches!(operation.what, What::Unlock | What::DropGuard)
            {
                hold.release_called = Some(operation.called);
                if operation.what == What::Unlock {
                    hold.released = ended.as_ref().map(|(at, _)| *at);
                }
            }
        }
    }
}

fn look(holds: &mut BTreeMap<String, Hold>, bad: &mut Vec<Violation>, event: &Event) {
    let (Event::Look { hold: id, .. } | Event::Lost { hold: id, .. }) = event else { return };
    let Some(hold) = holds.get_mut(id) else { return };
    let mut wrong =
        |at: u64, what: String| bad.push(Violation { at, name: hold.name.clone(), what });
    match event {
        Event::Look { from, held: true, until, .. } => {
            if *until != 0 && until < from {
                wrong(*from, format!("{id} says it is held, and that it was valid until earlier"));
            }
            if hold.lost.as_ref().is_some_and(|(at, _)| at < from) {
                wrong(*from, format!("{id} was lost and is held again"));
            }
            hold.seen_held = hold.seen_held.max(*from);
            hold.until = hold.until.max(*until);
        }
        Event::Look { to, held: false, .. } => {
            let earlier = hold.lost.as_ref().is_some_and(|(at, _)| at <= to);
            if !earlier {
                hold.lost = Some((*to, "not held".to_owned()));
            }
        }
        Event::Lost { at, reason, .. } => {
            // Says more than what was seen before.
            let vague = |known: &(u64, String)| known.1 == "not held" || known.1 == "lost";
            hold.lost =
                hold.lost.take().filter(|known| !vague(known)).or(Some((*at, reason.clone())));
        }
        _ => {}
    }
}
