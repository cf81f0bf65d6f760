//! What must be true of a history.
//!
//! | | |
//! |---|---|
//! | `claims` | a guard does not contradict itself, and loses its hold early only where data was lost |
//! | `exclusion` | no more holds of a name are valid at once than its kind allows, but in a declared breach, and then the older is lost |
//! | `fences` | later grants have larger tokens |
//! | `linear` | there is an order in which a lock of that kind would have given these answers |
//! | `order` | a fair lock is granted in the order of tickets |
//! | `keys` | a guard is never valid for longer than its key on the server |
//! | `flights` | a caller of a single flight is given a value that was there between call and answer |
//! | `updates` | no update is lost while its writer holds; none at all where tokens are checked |

mod claims;
mod exclusion;
mod fences;
mod flights;
mod keys;
mod kinds;
mod linear;
pub(crate) mod order;
mod updates;

use std::collections::BTreeMap;

use crate::history::History;
use crate::history::Hold;
use crate::history::Violation;
use crate::kind::LockKind;

/// What was found, and how much was looked at.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) violations: Vec<Violation>,
    pub(crate) grants: u64,
    pub(crate) losses: u64,
    /// Pairs of holds that were valid at once, in a declared breach.
    pub(crate) overlaps: u64,
    pub(crate) lost_updates: u64,
    pub(crate) refused: u64,
    pub(crate) writes: u64,
    /// Answers "somebody else holds it" that the search had to find a holder for.
    pub(crate) denials: u64,
    /// Samples of keys that were compared with what the guard had said.
    pub(crate) samples: u64,
    /// Values that were given to callers who had not computed them.
    pub(crate) values: u64,
    /// Grants of fair locks whose turn was looked at.
    pub(crate) in_turn: u64,
    /// Places that were behind one of these grants, as they had to be.
    pub(crate) waited_behind: u64,
    /// Places before one of these grants, of clients that were silent for too long.
    pub(crate) passed_over: u64,
    /// Places that were given up.
    pub(crate) left_line: u64,
    /// Names whose search for an order was given up.
    pub(crate) undecided: u64,
    /// What the search for an order was about, a line for each operation, for another checker.
    pub(crate) operations: Vec<String>,
}

pub(crate) fn check(history: &History) -> Verdict {
    let (holds, bad) = history.holds();
    let mut verdict = Verdict { violations: bad, grants: holds.len() as u64, ..Verdict::default() };
    verdict.losses = holds.values().filter(|hold| hold.lost.is_some()).count() as u64;
    claims::check(history, &holds, &mut verdict);
    for holds in by_name(&holds).values() {
        exclusion::check(history, holds, &mut verdict);
        fences::check(holds, &mut verdict);
    }
    keys::check(history, &holds, &mut verdict);
    linear::check(history, &holds, &mut verdict);
    updates::check(history, &holds, &mut verdict);
    order::check(history, &mut verdict);
    flights::check(history, &mut verdict);
    verdict.violations.sort_by_key(|violation| violation.at);
    verdict
}

/// In the order of their grants.
fn by_name(holds: &BTreeMap<String, Hold>) -> BTreeMap<(LockKind, &str), Vec<&Hold>> {
    let mut names: BTreeMap<(LockKind, &str), Vec<&Hold>> = BTreeMap::new();
    for hold in holds.values() {
        names.entry((hold.kind, &hold.name)).or_default().push(hold);
    }
    for holds in names.values_mut() {
        holds.sort_by_key(|hold| hold.granted);
    }
    names
}

impl Verdict {
    fn wrong(&mut self, at: u64, name: &str, what: String) {
        self.violations.push(Violation { at, name: name.to_owned(), what });
    }
}

#[cfg(test)]
pub(crate) mod examples {
    //! Histories made by hand.

    use super::*;
    use crate::event::Event;
    use crate::event::How;
    use crate::event::What;
    use crate::history::Breach;
    use crate::history::Process;
    use crate::kind::Share;

    /// One process and one task for each letter.
    #[derive(Default)]
    pub(crate) struct Made {
        pub(crate) history: History,
        /// Of the calls that are added.
        pub(crate) kind: LockKind,
        /// Of the grants that are added.
        pub(crate) share: Option<Share>,
        op: u64,
    }

    impl Made {
        fn events(&mut self, process: &str) -> &mut Vec<Event> {
            let processes = &mut self.history.processes;
            let at =
                processes.iter().position(|known| known.label == process).unwrap_or_else(|| {
                    processes.push(Process { label: process.to_owned(), ..Process::default() });
                    processes.len() - 1
                });
            &mut processes[at].events
        }

        pub(crate) fn call(
            &mut self,
            process: &str,
            at: u64,
            what: What,
            hold: &str,
            level: u32,
            end: Option<(u64, How)>,
        ) -> &mut Self {
            self.call_for(process, at, what, hold, Share::levels(level), end)
        }

        pub(crate) fn call_for(
            &mut self,
            process: &str,
            at: u64,
            what: What,
            hold: &str,
            share: Share,
            end: Option<(u64, How)>,
        ) -> &mut Self {
            self.history.lease = 1_000;
            self.op += 1;
            let op = self.op;
            let (name, hold) = ("a".to_owned(), hold.to_owned());
            let kind = self.kind;
            self.events(process).push(Event::Call {
                op,
                at,
                task: 0,
                what,
                name,
                hold,
                share,
                kind,
            });
            if let Some((at, how)) = end {
                self.events(process).push(Event::End { op, at, how });
            }
            self
        }

        /// A grant to `hold`, "process:number", valid for 100.
        pub(crate) fn grant(
            &mut self,
            hold: &str,
            called: u64,
            granted: u64,
            token: u64,
        ) -> &mut Self {
            let process = hold.split(':').next().unwrap().to_owned();
            let how = How::Granted {
                hold: hold.to_owned(),
                token,
                count: 1,
                levels: 1,
                until: granted + 100,
            };
            let share = self.share.unwrap_or(Share::ONE);
            self.call_for(&process, called, What::Lock, "-", share, Some((granted, how)))
        }

        /// Grants and refusals that are added from here on are of so much of the lock.
        pub(crate) fn of(&mut self, share: Share) -> &mut Self {
            self.share = Some(share);
            self
        }

        pub(crate) fn nested(
            &mut self,
            hold: &str,
            called: u64,
            ended: u64,
            token: u64,
            count: u32,
        ) -> &mut Self {
            let process = hold.split(':').next().unwrap().to_owned();
            let how = How::Granted {
                hold: hold.to_owned(),
                token,
                count,
                levels: count,
                until: ended + 100,
            };
            self.call(&process, called, What::Nested, hold, count, Some((ended, how)))
        }

        pub(crate) fn unlock(
            &mut self,
            hold: &str,
            called: u64,
            ended: u64,
            left: u32,
        ) -> &mut Self {
            let process = hold.split(':').next().unwrap().to_owned();
            self.call(&process, called, What::Unlock, hold, left, Some((ended, How::Released)))
        }

        pub(crate) fn unlock_lost(&mut self, hold: &str, called: u64, ended: u64) -> &mut Self {
            let process = hold.split(':').next().unwrap().to_owned();
            let how = How::Failed("lost".to_owned());
            self.call(&process, called, What::Unlock, hold, 0, Some((ended, how)))
        }

        pub(crate) fn denied(&mut self, process: &str, called: u64, ended: u64) -> &mut Self {
            let share = self.share.unwrap_or(Share::ONE);
            self.call_for(process, called, What::Try, "-", share, Some((ended, How::Denied)))
        }

        pub(crate) fn look(&mut self, hold: &str, at: u64, held: bool, until: u64) -> &mut Self {
            let process = hold.split(':').next().unwrap().to_owned();
            let hold = hold.to_owned();
            self.events(&process).push(Event::Look { from: at, to: at + 1, hold, held, until });
            self
        }

        pub(crate) fn lost(&mut self, hold: &str, at: u64, reason: &str) -> &mut Self {
            let process = hold.split(':').next().unwrap().to_owned();
            let (hold, reason) = (hold.to_owned(), reason.to_owned());
            self.events(&process).push(Event::Lost { at, hold, reason });
            self
        }

        pub(crate) fn dies(&mut self, process: &str, at: u64) -> &mut Self {
            let found = self.history.processes.iter_mut().find(|known| known.label == process);
            found.unwrap().died = Some(at);
            self
        }

        pub(crate) fn breach(&mut self, from: u64, to: u64) -> &mut Self {
            self.history.breaches.push(Breach { from, to, two_servers: false, names: Vec::new() });
            self
        }

        pub(crate) fn verdict(&self) -> Verdict {
            check(&self.history)
        }

        /// Something with these words is wrong with it.
        pub(crate) fn says(&self, words: &str) {
            assert!(self.wrong().iter().any(|what| what.contains(words)), "{:?}", self.wrong());
        }

        /// What is wrong with it, in words.
        pub(crate) fn wrong(&self) -> Vec<String> {
            self.verdict().violations.into_iter().map(|violation| violation.what).collect()
        }
    }

    #[test]
    fn a_good_history_is_good() {
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).look("a:1", 11, true, 110).nested("a:1", 12, 13, 1, 2);
        made.denied("b", 14, 15).unlock("a:1", 16, 17, 1).unlock("a:1", 18, 20, 0);
        made.grant("b:1", 12, 19, 2).unlock("b:1", 21, 22, 0);
        assert_eq!(made.wrong(), [""; 0]);
        assert_eq!((made.verdict().grants, made.history.finished()), (2, 7));
    }
}
