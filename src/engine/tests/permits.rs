//! Permits: each acquisition waits for itself, under a field that says how many it wants.

use std::time::Duration;

use crate::backend::OpId;
use crate::base::error::Error;
use crate::base::kind::Kind;
use crate::base::name::LockName;
use crate::base::name::WireProfile;
use crate::base::owner::OwnerKey;
use crate::engine::event::Acquire;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::operation::Change;
use crate::kinds::operation::Operated;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::Renewed;
use crate::kinds::share::Share;

use super::Hand;
use super::field;
use super::freed;
use super::grant;
use super::held;
use super::watched;

fn semaphore() -> LockName {
    LockName::new("n").unwrap().of_kind(Kind::Semaphore)
}

/// Where messages of the channel of the semaphore are heard.
fn hand() -> Hand {
    Hand { channel: semaphore().channel(WireProfile::Native), ..Hand::new() }
}

impl Hand {
    /// So many permits of ten.
    fn want_permits(&mut self, permits: u32, wait: Wait) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.event(Event::Acquire(Acquire {
            request,
            name: semaphore(),
            owner: OwnerKey::once(),
            share: Share::permits(permits, 10),
            lease: watched(),
            wait,
            max_hold: None,
            at_least: None,
            upgrades: None,
        }));
        request
    }

    /// Two that wait in line, with their fields.
    fn two_in_line(&mut self) -> [(RequestId, String); 2] {
        let requests = [self.want_permits(5, Wait::Forever), self.want_permits(1, Wait::Forever)];
        self.all_are_refused();
        self.confirm_subscriptions();
        let fields = self.all_are_refused();
        self.nothing_sent();
        let [five, one] = fields.try_into().unwrap();
        let [first, second] = requests;
        [(first, five), (second, one)]
    }

    /// Every attempt that was sent is refused, which has it wait; their fields.
    fn all_are_refused(&mut self) -> Vec<String> {
        let sent = std::mem::take(&mut self.sent);
        let mut fields = Vec::new();
        for (op, command) in sent {
            fields.push(field(&command));
            self.done(op, held(20_000));
        }
        fields
    }
}

fn too_many(permits: u32) -> Body {
    Body::Acquire(Acquired::TooMany { permits })
}

#[test]
fn a_field_says_how_many_are_wanted_and_how_many_there_are_for_this_client() {
    let mut hand = hand();
    let request = hand.want_permits(3, Wait::Once);
    let (op, command) = hand.take("acquire");
    assert!(field(&command).ends_with(":3:10"), "{command:?}");
    hand.done(op, grant(1));
    let cell = hand.granted(request);
    hand.release(&cell, request);
    let (op, release) = hand.take("release");
    assert_eq!(field(&release), field(&command));
    hand.done(op, freed());
    hand.nothing_sent();
    assert!(hand.directory.is_empty(), "no owner comes back");
}

#[test]
fn each_acquisition_waits_for_itself_and_tries_when_its_own_field_is_told() {
    let mut hand = hand();
    let [(first, five), (second, one)] = hand.two_in_line();
    assert!(five.ends_with(":5:10") && one.ends_with(":1:10"), "{five} {one}");
    hand.reserved(&one);
    let (op, command) = hand.take("acquire");
    assert_eq!(field(&command), one);
    hand.done(op, grant(1));
    hand.granted(second);
    hand.is_open(first);
    hand.reserved(&five);
    let (op, command) = hand.take("acquire");
    assert_eq!(field(&command), five);
    hand.done(op, grant(2));
    hand.granted(first);
    hand.nothing_sent();
}

#[test]
fn who_is_refused_after_another_has_subscribed_tries_once_more() {
    let mut hand = hand();
    hand.want_permits(1, Wait::Forever);
    hand.want_permits(1, Wait::Forever);
    // Neither hears messages yet, so neither takes a place in the line.
    let sent: [(OpId, Command); 2] = std::mem::take(&mut hand.sent).try_into().unwrap();
    let [(first, _), (second, command)] = sent;
    hand.done(first, held(20_000));
    hand.confirm_subscriptions();
    assert_eq!(hand.all_are_refused().len(), 1);
    hand.done(second, held(20_000));
    assert_eq!(hand.all_are_refused(), [field(&command)]);
    hand.nothing_sent();
}

#[test]
fn who_wants_more_than_there_are_hears_it_and_others_wait_on() {
    let mut hand = hand();
    let [(first, _), (second, one)] = hand.two_in_line();
    // The number was set: everybody tries.
    hand.message();
    for (op, command) in std::mem::take(&mut hand.sent) {
        let body = if field(&command) == one { held(20_000) } else { too_many(4) };
        hand.done(op, body);
    }
    let answer = hand.answer(first);
    assert!(
        matches!(&answer, Answer::Failed(Error::TooManyPermits { wanted: 5, permits: 4, .. })),
        "{answer:?}"
    );
    hand.is_open(second);
    hand.event(Event::Cancel { request: second });
    // It leaves the line, and nothing is known of the one that was told.
    let (op, command) = hand.take("release");
    assert_eq!(field(&command), one);
    hand.done(op, freed());
    hand.pass(Duration::from_secs(2));
    assert!(hand.engine.is_idle());
}

/// The caller has gone while its attempt was on the way.
#[test]
fn a_grant_that_comes_late_is_given_back_whole() {
    let mut hand = hand();
    let request = hand.want_permits(3, Wait::Forever);
    let (op, command) = hand.take("acquire");
    hand.event(Event::Cancel { request });
    hand.done(op, grant(1));
    let (op, release) = hand.take("release");
    assert_eq!(field(&release), field(&command));
    hand.done(op, freed());
    assert!(hand.engine.is_idle());
}

/// An attempt that may have been executed is undone, and the next one has another id.
#[test]
fn permits_of_an_attempt_without_an_answer_come_back() {
    let mut hand = hand();
    let request = hand.want_permits(3, Wait::Forever);
    let (op, command) = hand.take("acquire");
    let unknown = field(&command);
    hand.unknown(op);
    let mut undone = 0;
    for _ in 0..50 {
        for (op, command) in std::mem::take(&mut hand.sent) {
            match &command {
                Command::Acquire { .. } if field(&command) != unknown => hand.done(op, grant(2)),
                Command::Acquire { .. } => hand.unknown(op),
                Command::Release { share: Share::NOTHING, .. } => {
                    assert_eq!(field(&command), unknown);
                    undone += 1;
                    hand.done(op, freed());
                }
                Command::Time => hand.done(op, Body::Pong),
                other => panic!("{other:?}"),
            }
        }
        hand.pass(Duration::from_millis(100));
    }
    assert!(undone > 0);
    let cell = hand.granted(request);
    assert_eq!(cell.token(), 2);
    assert!(cell.is_held(hand.now));
}

#[test]
fn holds_of_one_name_are_renewed_together_each_by_its_field() {
    let mut hand = hand();
    let mut cells = Vec::new();
    for permits in [2, 3] {
        let request = hand.want_permits(permits, Wait::Forever);
        let (op, _) = hand.take("acquire");
        hand.done(op, grant(1));
        cells.push(hand.granted(request));
        hand.event(Event::PickedUp { request });
    }
    hand.pass(Duration::from_secs(10));
    let (op, command) = hand.take("renew");
    let Command::Renew { holds, .. } = command else { panic!("{command:?}") };
    assert_eq!(holds.len(), 2);
    assert!(holds[0].field.ends_with(":2:10") && holds[1].field.ends_with(":3:10"), "{holds:?}");
    // One permit of the second is gone: all of that hold are lost, and the first stays.
    hand.done(op, Body::Renew(Some(vec![Renewed::Yes, Renewed::Gone])));
    assert_eq!(cells.iter().map(|cell| cell.is_held(hand.now)).collect::<Vec<_>>(), [true, false]);
}

/// A script that renews looks at a hundred permits, or at those of one hold.
#[test]
fn many_permits_are_renewed_in_scripts_that_do_not_take_long() {
    let mut hand = hand();
    for permits in [60, 40, 1, 300, 100, 5] {
        let request = hand.want_permits(permits, Wait::Forever);
        let (op, _) = hand.take("acquire");
        hand.done(op, grant(1));
        hand.granted(request);
        hand.event(Event::PickedUp { request });
    }
    hand.pass(Duration::from_secs(10));
    let of_each = |command: &Command| match command {
        Command::Renew { holds, .. } => holds.len(),
        other => panic!("{other:?}"),
    };
    let sent: Vec<_> = hand.sent.iter().map(|(_, command)| of_each(command)).collect();
    assert_eq!(sent, [2, 1, 1, 1, 1]);
}

#[test]
fn too_many_permits_are_not_added() {
    let mut hand = hand();
    let request = RequestId(70);
    let change = Change::AddPermits { permits: 999_999, own: 10 };
    hand.event(Event::Operate { name: semaphore(), change, request });
    let (op, _): (OpId, _) = hand.take("add_permits");
    hand.done(op, Body::Operated(Operated::TooMany { permits: 10 }));
    let answer = hand.answer(request);
    let Answer::Failed(error @ Error::InvalidOption { .. }) = answer else { panic!("{answer:?}") };
    let words = "permits 999999 is not allowed: it must be at most 999990, because there are 10";
    assert_eq!(error.words(), words);
}
