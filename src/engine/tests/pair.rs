//! The engine with a kind of lock that two may hold at once, that allows no hand-off and that has
//! an undo script of its own: engines as they are, on the scripts of that kind.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Call;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ScriptCall;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::backend::Value;
use crate::backend::memory::keyspace::Keyspace;
use crate::base::cell::HoldCell;
use crate::base::error::LossReason;
use crate::base::kind::Kind;
use crate::base::name::LockName;
use crate::base::owner::OwnerKey;
use crate::engine::event::Acquire;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Fate;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::reply::Reply;
use crate::kinds::share::Share;

use super::Hand;
use super::LEASE;
use super::watched;

const SECOND: Duration = Duration::from_secs(1);

/// Clients of one server, which answers after 1 ms.
struct World {
    hands: Vec<Hand>,
    keys: Keyspace,
    /// The names of the scripts that were run.
    ran: Vec<&'static str>,
}

fn pair(text: &str) -> LockName {
    LockName::new(text).unwrap().of_kind(Kind::Pair)
}

impl World {
    fn new(clients: usize) -> Self {
        let hand = |number: usize| {
            let mut hand = Hand::of_client(&format!("{number}1111111-2222-4333-8444-555555555555"));
            hand.connect("run-1");
            hand.confirm_subscriptions();
            hand
        };
        Self { hands: (1..=clients).map(hand).collect(), keys: Keyspace::new(), ran: Vec::new() }
    }

    fn ask(&mut self, client: usize, owner: u64, name: LockName, wait: Wait) -> RequestId {
        let owner = OwnerKey::from_test(owner);
        let (request, lease) = (RequestId(0), watched());
        self.hands[client].wish(Acquire {
            request,
            name,
            owner,
            share: Share::ONE,
            lease,
            wait,
            max_hold: None,
            at_least: None,
            upgrades: None,
        })
    }

    /// A grant that its caller has picked up.
    fn hold(&mut self, client: usize, owner: u64) -> (RequestId, Arc<HoldCell>) {
        let request = self.ask(client, owner, pair("n"), Wait::Forever);
        self.settle();
        let cell = self.hands[client].granted(request);
        self.hands[client].event(Event::PickedUp { request });
        (request, cell)
    }

    /// Lets the server answer until nobody asks any more.
    fn settle(&mut self) {
        while self.step() {}
    }

    fn step(&mut self) -> bool {
        let mut sent: Vec<(usize, OpId, Command)> = Vec::new();
        for (client, hand) in self.hands.iter_mut().enumerate() {
            hand.confirm_subscriptions();
            sent.extend(hand.sent.drain(..).map(|(op, command)| (client, op, command)));
        }
        if sent.is_empty() {
            return false;
        }
        self.pass(Duration::from_millis(1));
        for (client, op, command) in sent {
            let outcome = self.execute(client, &command);
            self.hands[client].event(Event::Replied { op, server: ServerId::ONLY, outcome });
        }
        true
    }

    fn execute(&mut self, client: usize, command: &Command) -> Outcome<Reply> {
        let time = self.hands[client].server_time().0;
        let call = match command.to_call() {
            Call::Script(call) => call,
            Call::Time => return command.read(Value::List(vec![Value::Int(time)])),
            other => panic!("{other:?}"),
        };
        self.ran.push(call.script.name);
        let value = self.keys.run(time, &call).unwrap();
        for message in self.keys.take_published() {
            let channel: Arc<str> = message.channel.into();
            for hand in &mut self.hands {
                let payload = message.payload.clone();
                hand.event(Event::Message { channel: Arc::clone(&channel), payload });
            }
        }
        command.read(value)
    }

    fn pass(&mut self, time: Duration) {
        self.hands.iter_mut().for_each(|hand| hand.pass(time));
    }

    /// Time passes, and the server answers.
    fn live(&mut self, time: Duration) {
        let end = self.hands[0].now.plus(time);
        while self.hands[0].now < end {
            self.pass(Duration::from_millis(100));
            self.settle();
        }
    }

    /// Somebody removes a place of the lock.
    fn take_away(&mut self, field: &str) {
        let time = self.hands[0].server_time().0;
        let (keys, args) = (["n"].into(), [field, "0", "nobody", "PUBLISH"].into());
        self.keys
            .run(time, &ScriptCall::new(Kind::Pair.scripts().unwrap().undo, keys, args))
            .unwrap();
        self.keys.take_published();
    }

    fn count(&self, script: &str) -> usize {
        self.ran.iter().filter(|name| **name == script).count()
    }
}

#[test]
fn two_clients_hold_it_at_once_and_the_third_waits_for_one_of_them() {
    let mut world = World::new(3);
    let (first, cell) = world.hold(0, 1);
    world.hold(1, 1);
    let third = world.ask(2, 1, pair("n"), Wait::Forever);
    world.settle();
    world.hands[2].is_open(third);
    world.hands[0].release(&cell, first);
    world.settle();
    assert!(world.hands[2].granted(third).is_held(world.hands[2].now), "woken by the message");
}

#[test]
fn two_tasks_of_a_client_hold_it_and_the_third_does_not_ask_the_server() {
    let mut world = World::new(1);
    let (first, cell) = world.hold(0, 1);
    world.hold(0, 2);
    world.ran.clear();
    let third = world.ask(0, 3, pair("n"), Wait::Forever);
    let tried = world.ask(0, 4, pair("n"), Wait::Once);
    world.settle();
    assert!(matches!(world.hands[0].answer(tried), Answer::NotGranted));
    world.hands[0].is_open(third);
    assert!(world.ran.is_empty(), "{:?}", world.ran);
    world.hands[0].release(&cell, first);
    world.settle();
    world.hands[0].granted(third);
    assert_eq!(world.ran, ["pair/release", "pair/acquire"], "no hand-off");
}

#[test]
fn a_queue_of_one_client_takes_both_places_in_turn() {
    let mut world = World::new(1);
    let wanted: Vec<RequestId> =
        (1..=5).map(|owner| world.ask(0, owner, pair("n"), Wait::Forever)).collect();
    world.settle();
    for (at, request) in wanted.iter().enumerate() {
        let cell = world.hands[0].granted(*request);
        let next = wanted.get(at + 2);
        next.iter().for_each(|next| world.hands[0].is_open(**next));
        world.hands[0].release(&cell, *request);
        world.settle();
    }
    assert_eq!((world.count("pair/acquire"), world.count("reentrant/hand_off")), (5, 0));
    assert!(world.keys.dump(world.hands[0].server_time().0).iter().all(|key| key.key != "n"));
}

#[test]
fn both_places_are_renewed_and_those_of_a_client_that_is_dead_come_free() {
    let mut world = World::new(2);
    let (_, cell) = world.hold(0, 1);
    world.hold(0, 2);
    world.live(100 * SECOND);
    assert!(cell.is_held(world.hands[0].now));
    assert!(world.count("pair/renew") >= 9, "{}", world.count("pair/renew"));
    let waits = world.ask(1, 1, pair("n"), Wait::Forever);
    world.settle();
    // From here on the first client says nothing.
    let dead = world.hands.remove(0);
    world.live(31 * SECOND);
    world.hands[0].granted(waits);
    drop(dead);
}

#[test]
fn an_attempt_without_an_answer_is_undone_by_the_script_of_its_kind() {
    let mut world = World::new(1);
    let request = world.ask(0, 1, pair("n"), Wait::Forever);
    let (op, command) = world.hands[0].take("acquire");
    world.execute(0, &command);
    world.hands[0].unknown(op);
    world.live(2 * SECOND);
    assert!(world.count("pair/undo") >= 1, "{:?}", world.ran);
    assert_eq!(world.count("pair/release"), 0);
    world.hands[0].granted(request);
    // The dead hold id has left nothing: somebody else has room.
    world.hold(0, 2);
}

#[test]
fn a_name_of_another_kind_is_another_name() {
    let mut world = World::new(1);
    let lock = LockName::new("other").unwrap();
    let plain = world.ask(0, 1, lock, Wait::Forever);
    world.hold(0, 1);
    world.settle();
    let plain = world.hands[0].granted(plain);
    assert!(plain.is_held(world.hands[0].now));
    assert_ne!(LockName::new("n").unwrap(), pair("n"));
    // One of each kind: no script is about both.
    world.hands[0].event(Event::PickedUp { request: RequestId(1) });
    world.ran.clear();
    world.live(11 * SECOND);
    assert_eq!(
        (world.count("pair/renew"), world.count("reentrant/renew")),
        (1, 1),
        "{:?}",
        world.ran
    );
}

/// The server may have freed the place that is given up, and nobody can ask it.
#[test]
fn a_try_is_not_told_that_both_are_taken_while_the_release_of_one_has_no_answer() {
    let mut world = World::new(1);
    let (first, cell) = world.hold(0, 1);
    let (second, other) = world.hold(0, 2);
    for (level, cell) in [(second, &other), (first, &cell)] {
        // Whichever of them was there first.
        let tried = world.ask(0, 3, pair("n"), Wait::Once);
        assert!(matches!(world.hands[0].answer(tried), Answer::NotGranted), "both are valid");
        world.hands[0].cut();
        world.hands[0].release(cell, level);
        let tried = world.ask(0, 4, pair("n"), Wait::Once);
        world.pass(2 * SECOND);
        assert!(matches!(world.hands[0].answer(tried), Answer::Failed(_)), "nobody was asked");
        let info = ServerInfo { run_id: "run-1".to_owned(), ..ServerInfo::default() };
        world.hands[0].event(Event::Up(ServerId::ONLY, info));
        world.settle();
        world.hold(0, 5);
    }
}

#[test]
fn a_grant_that_leaves_room_is_no_answer_to_those_behind_it() {
    let mut world = World::new(1);
    let first = world.ask(0, 1, pair("n"), Wait::Forever);
    let behind = world.ask(0, 2, pair("n"), Wait::For(SECOND));
    // The first is granted, the attempt of the second has no answer.
    assert!(world.step());
    world.hands[0].granted(first);
    world.hands[0].sent.clear();
    world.pass(2 * SECOND);
    let answer = world.hands[0].answer(behind);
    assert!(
        matches!(answer, Answer::Failed(_)),
        "no server has said that both places are taken: {answer:?}"
    );
}

/// A release that is still queued goes before any later attempt on its name, and two of one name may
/// be queued.
#[test]
fn all_queued_releases_of_a_name_are_sent_before_an_attempt_on_it() {
    let mut world = World::new(1);
    let holds: Vec<_> = (1..=2).map(|owner| world.hold(0, owner)).collect();
    let others: Vec<_> = (0..4)
        .map(|number| {
            let request = world.ask(0, 1, pair(&format!("other{number}")), Wait::Forever);
            world.settle();
            (request, world.hands[0].granted(request))
        })
        .collect();
    // As many scripts as may be in flight: what is dropped after them is queued.
    for (level, cell) in others.iter().chain(&holds) {
        let (hold, level) = (cell.id, *level);
        world.hands[0].event(Event::Release { hold, level, request: None });
    }
    assert_eq!(world.hands[0].labels(), ["release"; 4]);
    let third = world.ask(0, 3, pair("n"), Wait::Forever);
    assert_eq!(world.hands[0].labels(), ["release"; 6], "both are sent for whoever waits now");
    world.settle();
    world.hands[0].granted(third);
}

/// The attempt came first at the server, and its refusal is heard while the place is given up.
#[test]
fn a_place_that_is_given_up_while_an_attempt_is_on_the_wire_is_tried_for_again() {
    let mut world = World::new(2);
    let (level, cell) = world.hold(0, 1);
    world.hold(1, 1);
    let waits = world.ask(0, 2, pair("n"), Wait::Forever);
    assert_eq!(world.hands[0].labels(), ["acquire"]);
    world.hands[0].release(&cell, level);
    assert_eq!(world.hands[0].labels(), ["acquire", "release"], "no hand-off");
    world.settle();
    world.hands[0].granted(waits);
}

#[test]
fn a_shutdown_gives_up_both_places_and_what_is_granted_meanwhile() {
    let mut world = World::new(2);
    world.hold(0, 1);
    world.hold(0, 2);
    let other = world.ask(0, 1, pair("other"), Wait::Forever);
    let until = world.hands[0].now.plus(SECOND);
    let shutdown = RequestId(900);
    world.hands[0].event(Event::Shutdown { until, request: Some(shutdown) });
    world.settle();
    assert!(matches!(world.hands[0].answer(other), Answer::Failed(_)));
    assert!(world.hands[0].finished);
    let fates = world.hands[0].fates(shutdown);
    let released = |name: &str| (name.to_owned(), Fate::Released);
    assert_eq!(fates, [released("n"), released("other")]);
    let time = world.hands[0].server_time().0;
    let left: Vec<String> = world.keys.dump(time).into_iter().map(|key| key.key).collect();
    assert!(!left.iter().any(|key| ["n", "other"].contains(&key.as_str())), "{left:?}");
}

#[test]
fn a_force_unlock_takes_one_place_and_the_other_is_asked_for_and_kept() {
    let mut world = World::new(2);
    let (_, first) = world.hold(0, 1);
    let (_, second) = world.hold(0, 2);
    world.pass(SECOND);
    let request = RequestId(900);
    world.hands[1].event(Event::ForceUnlock { name: pair("n"), from: None, request });
    world.settle();
    assert!(matches!(world.hands[1].answer(request), Answer::Forced(true)));
    assert_eq!(first.loss(), Some(LossReason::ForceUnlocked), "the place that was taken first");
    assert!(second.is_held(world.hands[0].now) && second.loss().is_none());
    // What becomes of the other one later has nothing to do with it.
    let field = format!("{}:{}", world.hands[0].engine.cx.config.client_id, second.id);
    world.take_away(&field);
    world.live(LEASE / 2);
    assert_eq!(second.loss(), Some(LossReason::Removed));
}

#[test]
fn who_waits_for_two_places_of_its_own_client_follows_the_first_that_is_lost() {
    let mut world = World::new(1);
    let (_, first) = world.hold(0, 1);
    let (_, second) = world.hold(0, 2);
    let waits = world.ask(0, 3, pair("n"), Wait::Forever);
    world.settle();
    world.hands[0].is_open(waits);
    let field = format!("{}:{}", world.hands[0].engine.cx.config.client_id, second.id);
    world.take_away(&field);
    world.live(LEASE / 2);
    assert_eq!(second.loss(), Some(LossReason::Removed));
    assert!(first.is_held(world.hands[0].now));
    world.hands[0].granted(waits);
}

/// Both places were taken during the wait, which ends while the next attempt is on the wire.
#[test]
fn a_refusal_from_before_a_grant_that_leaves_room_is_an_answer_if_the_server_is_well() {
    for is_well in [true, false] {
        let mut world = World::new(2);
        let (level, cell) = world.hold(1, 1);
        world.hold(1, 2);
        let first = world.ask(0, 1, pair("n"), Wait::Forever);
        let behind = world.ask(0, 2, pair("n"), Wait::For(SECOND));
        world.settle();
        world.hands[1].release(&cell, level);
        while !world.hands[0].answers.iter().any(|(request, _)| *request == first) {
            assert!(world.step());
        }
        assert_eq!(world.hands[0].labels(), ["acquire"], "there may be room for another");
        if !is_well {
            world.hands[0].cut();
        }
        world.pass(SECOND);
        let answer = world.hands[0].answer(behind);
        assert_eq!(matches!(answer, Answer::NotGranted), is_well, "{answer:?}");
        assert_eq!(matches!(answer, Answer::Failed(_)), !is_well, "{answer:?}");
    }
}
