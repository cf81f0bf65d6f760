//! The waiting line: P17, that the lock goes by ticket, and what may be there of a line and of a
//! reservation, and for how long (P7, P9, P10).
//!
//! A client has a claim from the first attempt that was executed and told it a ticket, until it is
//! granted the lock or nobody of it waits any more. A claim is excused while the place that goes
//! with it may be lost: its client was not subscribed, does not know what became of its attempt,
//! missed its reservation, or the server lost the line. Its next attempt ends that.
//!
//! What a command does is looked at in `passing`, what clients send and hear in `calls`, and what
//! must be true after each event in `standing`. What is known of a line is here.

mod calls;
mod passing;
mod standing;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::backend::Outcome;
use crate::backend::Value;
use crate::base::clock::Moment;
use crate::base::name::LockName;
use crate::kinds::command::Command;
use crate::kinds::command::WaitMode;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::HandedOff;
use crate::kinds::reply::Place as Told;
use crate::kinds::reply::Reply;
use crate::sim::checker::Checker;
use crate::sim::client::Request;
use crate::sim::kinds::Found;
use crate::sim::server::FoundLine;

/// What line and lock may be told to last. The scripts have the same times.
const RESERVATION: Duration = Duration::from_millis(1_500);
const LINE: Duration = Duration::from_secs(12);

/// A name, as those servers have it whose word counts.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::sim) struct View {
    pub(in crate::sim) name: LockName,
    pub(in crate::sim) lock: Option<Found>,
    pub(in crate::sim) line: Option<FoundLine>,
}

impl View {
    fn holds(&self, field: &str) -> bool {
        let place = self.lock.as_ref().and_then(|lock| lock.hold(field));
        place.is_some_and(|place| !place.is_reservation())
    }

    fn reserved_for(&self) -> Option<&str> {
        Some(&self.lock.as_ref()?.reservation()?.field)
    }

    /// The places of the line with their tickets, in their order.
    fn tickets(&self) -> impl Iterator<Item = (f64, &str)> {
        let waiting = self.line.iter().flat_map(|line| line.waiting.iter());
        waiting.map(|(ticket, field)| (*ticket, &**field))
    }

    fn places(&self) -> impl Iterator<Item = &str> {
        self.tickets().map(|(_, field)| field)
    }

    fn has_place(&self, field: &str) -> bool {
        self.places().any(|place| place == field)
    }
}

/// A command that was executed.
pub(in crate::sim) struct Executed<'a> {
    pub(in crate::sim) request: &'a Rc<Request>,
    pub(in crate::sim) outcome: &'a Outcome<Value>,
    /// Commands of its script may have been refused.
    pub(in crate::sim) refuses: bool,
    pub(in crate::sim) before: &'a [View],
}

#[derive(Debug, Clone, Copy)]
struct Claim {
    ticket: u64,
    /// The client knows its ticket.
    told: bool,
    excused: bool,
}

/// What is known of the line of a name.
#[derive(Debug, Default)]
pub(super) struct Line {
    claims: BTreeMap<usize, Claim>,
    /// The lock became free in a way that gives it to whoever asks first.
    newcomers_may_overtake: bool,
    /// The holds and the places that were seen last.
    seen_holds: Vec<(String, bool)>,
    seen_places: Vec<String>,
    /// For whom the lock is reserved, and since when.
    reserved: Option<(String, Moment)>,
    /// When the last reservation was made. Where Redis refuses PEXPIRE, what is picked up lasts for
    /// the rest of it.
    last_reserved: Moment,
    /// The last attempt of somebody who waits.
    renewed: Moment,
    /// Places of clients that do not want them, and since when.
    unwanted: Vec<(String, Moment)>,
    /// A replica may have brought back what had been given up.
    restored: bool,
    /// For each client the hand-offs since others could have the lock, and since when.
    rows: BTreeMap<usize, (u32, Moment)>,
    /// For each client the last ticket that ended: with a grant, or with the last waiter.
    over: BTreeMap<usize, u64>,
}

impl Line {
    /// The client has ended.
    pub(super) fn forget(&mut self, client: usize) {
        self.claims.remove(&client);
        self.rows.remove(&client);
    }

    fn excuse(&mut self, client: usize) {
        if let Some(claim) = self.claims.get_mut(&client) {
            claim.excused = true;
        }
    }

    /// The place of a client may be lost. If it knows its ticket it comes back with it.
    fn lose_place(&mut self, client: usize) {
        self.excuse(client);
        if self.claims.get(&client).is_some_and(|claim| !claim.told) {
            self.claims.remove(&client);
        }
    }
}

fn seen_holds(view: &View) -> Vec<(String, bool)> {
    let holds = view.lock.iter().flat_map(|lock| &lock.holds);
    holds.map(|hold| (hold.field.clone(), hold.is_reservation())).collect()
}

fn seen_places(view: &View) -> Vec<String> {
    view.places().map(str::to_owned).collect()
}

/// The ticket that an answer tells, and whether its client hears messages.
fn told_by(command: &Command, reply: &Reply) -> Option<(Told, bool)> {
    match (command, &reply.body) {
        (Command::Acquire { wait, .. }, Body::Acquire(Acquired::Held { place, .. })) => {
            let hears = match wait {
                WaitMode::Try => return None,
                WaitMode::First { hears } | WaitMode::Again { hears, .. } => *hears,
            };
            Some(((*place)?, hears))
        }
        (Command::HandOff { hears, .. }, Body::HandOff(HandedOff::LineFirst { place, .. })) => {
            Some((*place, *hears))
        }
        _ => None,
    }
}

impl Checker {
    fn line_mut(&mut self, name: &LockName) -> Option<&mut Line> {
        self.names.get_mut(name.as_str()).map(|name| &mut name.line)
    }

    /// A replica has taken over, with places and reservations of its own.
    pub(in crate::sim) fn restore_line(&mut self, name: &LockName) {
        if let Some(line) = self.line_mut(name) {
            line.restored = true;
            line.claims.clear();
        }
    }

    /// Keys have run out, were lost or were deleted since the last look.
    fn note_what_vanished(&mut self, now: Moment, view: &View) {
        let (holds, places) = (seen_holds(view), seen_places(view));
        let Some(line) = self.names.get(view.name.as_str()).map(|name| &name.line) else { return };
        let (holds_changed, places_changed) =
            (line.seen_holds != holds, line.seen_places != places);
        let missed = line.reserved.as_ref().map(|(field, _)| field.clone());
        let missed = missed.filter(|field| view.reserved_for() != Some(field.as_str()));
        let missed = missed.filter(|field| !self.is_dead(field)).and_then(|it| self.key_of(&it));
        let Some(line) = self.line_mut(&view.name) else { return };
        if holds_changed {
            line.newcomers_may_overtake = true;
            if let Some((client, _)) = missed {
                line.excuse(client);
            }
        }
        if places_changed {
            let claimants: Vec<usize> = line.claims.keys().copied().collect();
            claimants.into_iter().for_each(|client| line.lose_place(client));
            line.renewed = now;
        }
        self.note_seen(now, view);
    }

    fn note_seen(&mut self, now: Moment, view: &View) {
        let Some(line) = self.line_mut(&view.name) else { return };
        (line.seen_holds, line.seen_places) = (seen_holds(view), seen_places(view));
        line.unwanted.retain(|(field, _)| view.has_place(field));
        line.restored &= view.line.is_some();
        let known = line.reserved.take();
        line.reserved = view.reserved_for().map(|field| match known {
            Some((same, since)) if same == field => (same, since),
            _ => (field.to_owned(), now),
        });
    }

    /// The id waits for the lock no more: it was granted, or a release of it was sent.
    fn is_dead(&self, field: &str) -> bool {
        let hold = self.key_of(field).and_then(|key| self.holds.get(&key));
        hold.is_none_or(|hold| hold.release_sent || hold.answered_granted)
    }
}
