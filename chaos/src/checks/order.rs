//! A fair lock is granted in the order in which waiters arrived at the server, by the tickets in
//! its replies.
//!
//! Who has a place in the line, by the last reply to it, is not overtaken. Whose turn it is was
//! decided when the lock was reserved, so only places count that were there by then. A waiter may
//! have lost its place without knowing it if its client was silent for as long as a reservation
//! lasts, if the line was removed, or if the server refused commands or lost data: then it counts
//! again from the next reply.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::HashSet;

use crate::checks::Verdict;
use crate::history::Breach;
use crate::history::History;
use crate::wire::Asks;
use crate::wire::Call;
use crate::wire::Reply;
use crate::wire::client_of;

/// How long a reservation lasts, without what the milliseconds of the server's clock may take off.
const RESERVATION: u64 = 1_490_000_000;

pub(crate) fn check(history: &History, verdict: &mut Verdict) {
    let mut names: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in &history.calls {
        names.entry(&call.name).or_default().push(call);
    }
    for (name, calls) in names {
        // What takes one lock away, such as a force-unlock, leaves its line as it is.
        let lost = history.breaches.iter().filter(|breach| breach.names.is_empty());
        let unsure = history.unsure.iter().filter(|breach| breach.is_of(name)).chain(lost);
        let unsure: Vec<&Breach> = unsure.collect();
        let mut line = Line::default();
        for moment in moments(&calls, &unsure) {
            line.sees(&moment, verdict);
        }
    }
}

/// In the order of their times.
fn moments<'a>(calls: &[&'a Call], unsure: &[&Breach]) -> Vec<Moment<'a>> {
    let is_unsure = |at: u64| unsure.iter().any(|one| one.from <= at && at <= one.to);
    let mut all: Vec<Moment<'a>> =
        unsure.iter().map(|one| Moment { at: one.from, what: Happens::Forgets }).collect();
    for call in calls {
        all.push(Moment { at: call.sent, what: Happens::Asks(call) });
        let what = match &call.reply {
            None => continue,
            Some(Reply::Error { at }) => Moment { at: *at, what: Happens::Forgets },
            Some(
                reply @ (Reply::Granted { at } | Reply::Refused { at, .. } | Reply::Done { at }),
            ) => {
                let is_sure = !is_unsure(*at);
                Moment { at: *at, what: Happens::Answers { call, reply, is_sure } }
            }
        };
        all.push(what);
    }
    all.sort_by_key(|moment| moment.at);
    all
}

struct Moment<'a> {
    at: u64,
    what: Happens<'a>,
}

enum Happens<'a> {
    /// Places may be lost without a reply that says so.
    Forgets,
    Asks(&'a Call),
    Answers {
        call: &'a Call,
        reply: &'a Reply,
        is_sure: bool,
    },
}

/// The line of one name, as far as replies have told.
#[derive(Default)]
struct Line<'a> {
    /// Since when each place is there.
    places: BTreeMap<(u64, &'a str), u64>,
    tickets: HashMap<&'a str, u64>,
    /// When each client was last heard of.
    heard: HashMap<&'a str, u64>,
    /// Whoever has given up or was granted, which does not come back.
    over: HashSet<&'a str>,
    /// Who was seen with the lock last, and until when, as its holder or with what is reserved; and
    /// until when another was.
    with: (&'a str, u64),
    with_another: u64,
}

impl<'a> Line<'a> {
    fn sees(&mut self, moment: &Moment<'a>, verdict: &mut Verdict) {
        let at = moment.at;
        match &moment.what {
            Happens::Forgets => self.places.clear(),
            Happens::Asks(call) => match call.asks {
                Asks::Lock { stays: true, .. } => {}
                Asks::Lock { stays: false, .. } => self.leaves(&call.field),
                Asks::Leave => {
                    verdict.left_line += u64::from(self.has_place(&call.field));
                    self.leaves(&call.field);
                    self.over.insert(&call.field);
                }
            },
            Happens::Answers { call, reply, is_sure } => match reply {
                Reply::Granted { .. } => self.granted(call, at, *is_sure, verdict),
                Reply::Refused { holder, ticket, .. } => {
                    // That another waiter of the client asks does not show that it picks up what is
                    // reserved for this one.
                    if holder == &call.field || client_of(holder) != call.client() {
                        self.hears(call.client(), at);
                    }
                    if let Some(ticket) = ticket {
                        self.waits(call, *ticket, at, *is_sure);
                    }
                    self.is_with(holder, at);
                }
                Reply::Done { .. } => {
                    self.hears(call.client(), at);
                    if self.with.0 == call.field {
                        self.is_with(&call.field, at);
                    }
                }
                Reply::Error { .. } => {}
            },
        }
    }

    fn has_place(&self, field: &'a str) -> bool {
        self.tickets.get(field).is_some_and(|ticket| self.places.contains_key(&(*ticket, field)))
    }

    fn leaves(&mut self, field: &'a str) {
        if let Some(ticket) = self.tickets.get(field) {
            self.places.remove(&(*ticket, field));
        }
    }

    fn waits(&mut self, call: &'a Call, ticket: u64, at: u64, is_sure: bool) {
        let field = call.field.as_str();
        if self.tickets.insert(field, ticket).is_some_and(|before| before != ticket) {
            self.places.retain(|(_, known), _| *known != field);
        }
        let stays = matches!(call.asks, Asks::Lock { stays: true, .. });
        if stays && is_sure && !self.over.contains(field) {
            self.places.entry((ticket, field)).or_insert(at);
        }
    }

    fn is_with(&mut self, field: &'a str, at: u64) {
        if self.with.0 != field {
            self.with_another = self.with.1;
        }
        self.with = (field, at);
    }

    /// Before this time it was not decided that this one is the next.
    fn undecided_until(&self, field: &str) -> u64 {
        if self.with.0 == field { self.with_another } else { self.with.1 }
    }

    /// After a silence that was long enough, all places of the client may be gone.
    fn hears(&mut self, client: &'a str, at: u64) {
        if self.was_silent(client, at) {
            self.places.retain(|(_, field), _| client_of(field) != client);
        }
        self.heard.insert(client, at);
    }

    fn was_silent(&self, client: &str, at: u64) -> bool {
        self.heard.get(client).is_none_or(|heard| at.saturating_sub(*heard) >= RESERVATION)
    }

    fn granted(&mut self, call: &'a Call, at: u64, is_sure: bool, verdict: &mut Verdict) {
        let field = call.field.as_str();
        self.leaves(field);
        // A repetition is no grant.
        if self.over.insert(field) && is_sure {
            let named = match call.asks {
                Asks::Lock { ticket, .. } if ticket > 0 => Some(ticket),
                _ => None,
            };
            verdict.in_turn += 1;
            match self.tickets.get(field).copied().or(named) {
                Some(ticket) => {
                    let decided = self.undecided_until(field);
                    self.compare(call, Turn { ticket, decided, at }, verdict);
                }
                // Nothing can be reserved for who comes only now, behind all others.
                None => self.compare(call, Turn { ticket: u64::MAX, decided: at, at }, verdict),
            }
        }
        self.is_with(field, at);
        self.hears(call.client(), at);
    }

    fn compare(&mut self, call: &Call, turn: Turn, verdict: &mut Verdict) {
        let Turn { ticket, decided, at } = turn;
        verdict.waited_behind += self.places.range((ticket, "")..).count() as u64;
        let earlier = self.places.range(..(ticket, "")).filter(|(_, since)| **since < decided);
        let earlier: Vec<(u64, &str)> = earlier.map(|(place, _)| *place).collect();
        for (place, field) in earlier {
            self.places.remove(&(place, field));
            if self.was_silent(client_of(field), at) {
                verdict.passed_over += 1;
                continue;
            }
            let told = if ticket == u64::MAX { "no ticket".to_owned() } else { ticket.to_string() };
            let what = format!(
                "{} with {told} is granted, and overtakes {field} with {place}",
                call.field
            );
            verdict.wrong(at, &call.name, what);
        }
    }
}

/// Of a grant: with which ticket, since when it may have been decided, and when it was made.
struct Turn {
    ticket: u64,
    decided: u64,
    at: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each word is a call: what, who, when, and the ticket.
    fn verdict(calls: &[(&str, &str, u64, u64)]) -> Verdict {
        verdict_but(calls, &[])
    }

    fn verdict_but(calls: &[(&str, &str, u64, u64)], unsure: &[Breach]) -> Verdict {
        let mut history = History { unsure: unsure.to_vec(), ..History::default() };
        for (what, field, ms, ticket) in calls {
            let at = ms * 1_000_000;
            let (field, holder) = ((*field).to_owned(), "h:1".to_owned());
            let lock = |stays| Asks::Lock { ticket: 0, stays };
            let waits = Reply::Refused { at, holder, ticket: Some(*ticket) };
            let (asks, reply) = match *what {
                "waits" => (lock(true), waits),
                "deaf" => (lock(false), waits),
                "granted" => (Asks::Lock { ticket: *ticket, stays: true }, Reply::Granted { at }),
                "leaves" => (Asks::Leave, Reply::Done { at }),
                "error" => (lock(true), Reply::Error { at }),
                other => {
                    let holder = other.strip_prefix("try of ").expect("a known word").to_owned();
                    (lock(false), Reply::Refused { at, holder, ticket: None })
                }
            };
            let (sent, name, reply) = (at - 1_000, "a".to_owned(), Some(reply));
            history.calls.push(Call { sent, name, field, asks, reply });
        }
        let mut verdict = Verdict::default();
        check(&history, &mut verdict);
        verdict
    }

    fn wrong(calls: &[(&str, &str, u64, u64)]) -> usize {
        verdict(calls).violations.len()
    }

    #[test]
    fn grants_in_the_order_of_tickets_are_good() {
        let good = verdict(&[
            ("waits", "a:1", 1, 5),
            ("waits", "b:1", 2, 6),
            ("waits", "a:2", 3, 7),
            ("granted", "a:1", 10, 0),
            ("granted", "b:1", 20, 0),
            ("granted", "a:2", 30, 0),
        ]);
        assert_eq!((good.violations.len(), good.in_turn, good.waited_behind), (0, 3, 3));
    }

    #[test]
    fn overtaking_is_found_whether_with_a_ticket_or_without() {
        let waits = ("waits", "a:1", 1, 5);
        assert_eq!(wrong(&[waits, ("granted", "b:1", 10, 0)]), 1);
        assert_eq!(wrong(&[waits, ("waits", "b:1", 2, 6), ("granted", "b:1", 10, 0)]), 1);
        assert_eq!(wrong(&[waits, ("waits", "c:1", 2, 9), ("granted", "b:1", 10, 6)]), 1);
        assert_eq!(wrong(&[waits, ("granted", "b:1", 10, 4)]), 0);
        // Of the same client as well.
        assert_eq!(wrong(&[waits, ("waits", "a:2", 2, 6), ("granted", "a:2", 10, 0)]), 1);
    }

    #[test]
    fn a_place_that_was_taken_after_the_decision_is_not_overtaken() {
        let (waits, granted) = (("waits", "b:1", 2, 6), ("granted", "b:1", 30, 0));
        let late = ("waits", "a:1", 20, 5);
        // The lock was with another until then, or was reserved already.
        let (held, reserved) = (("try of h:1", "c:1", 25, 0), ("try of b:1", "c:1", 10, 0));
        let early = ("waits", "a:1", 1, 5);
        assert_eq!(wrong(&[early, waits, reserved, granted]), 1);
        assert_eq!(wrong(&[waits, reserved, late, granted]), 0);
        assert_eq!(wrong(&[waits, late, held, granted]), 1);
        assert_eq!(
            wrong(&[("granted", "h:1", 1, 0), waits, late, ("leaves", "h:1", 25, 0), granted]),
            1
        );
    }

    #[test]
    fn who_has_left_is_not_overtaken_and_does_not_come_back() {
        let waits = ("waits", "a:1", 1, 5);
        assert_eq!(wrong(&[waits, ("leaves", "a:1", 2, 0), ("granted", "b:1", 10, 0)]), 0);
        assert_eq!(wrong(&[waits, ("deaf", "a:1", 2, 5), ("granted", "b:1", 10, 0)]), 0);
        // A late copy of its attempt.
        let late = ("waits", "a:1", 3, 5);
        assert_eq!(wrong(&[waits, ("leaves", "a:1", 2, 0), late, ("granted", "b:1", 10, 0)]), 0);
    }

    #[test]
    fn a_client_that_was_silent_may_be_passed_over_until_it_is_told_of_its_place() {
        let waits = ("waits", "a:1", 1, 5);
        let passed = verdict(&[waits, ("granted", "b:1", 1_500, 0)]);
        assert_eq!((passed.violations.len(), passed.passed_over), (0, 1));
        // It was heard of for something else, but not for this place.
        let behind = ("waits", "b:1", 2, 8);
        let other = ("waits", "a:2", 1_550, 9);
        assert_eq!(wrong(&[waits, behind, other, ("granted", "b:1", 1_560, 0)]), 0);
        let again = ("waits", "a:1", 1_550, 5);
        assert_eq!(wrong(&[waits, again, ("granted", "b:1", 1_560, 0)]), 1);
        assert_eq!(wrong(&[waits, ("granted", "b:1", 1_400, 0)]), 1);
    }

    #[test]
    fn where_the_server_may_have_forgotten_the_line_nothing_is_known() {
        let waits = ("waits", "a:1", 1, 5);
        let overtakes = ("granted", "b:1", 30, 0);
        let unsure = |names: &[&str]| Breach {
            from: 10_000_000,
            to: 20_000_000,
            two_servers: false,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        let found = |calls: &[(&str, &str, u64, u64)], names: &[&str]| {
            verdict_but(calls, &[unsure(names)]).violations.len()
        };
        assert_eq!(found(&[waits, overtakes], &["a"]), 0);
        assert_eq!(found(&[waits, overtakes], &["other"]), 1);
        assert_eq!(found(&[("waits", "a:1", 15, 5), overtakes], &["a"]), 0);
        assert_eq!(found(&[waits, ("waits", "a:1", 25, 5), overtakes], &["a"]), 1);
        assert_eq!(wrong(&[waits, ("error", "c:1", 9, 0), overtakes]), 0);
    }
}
