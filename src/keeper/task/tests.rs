//! In which order a keeper does what, and what it waits for a moment for, instead of sleeping.

use super::*;

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::ServerId;
use crate::backend::Value;
use crate::backend::woken::Woken;
use crate::engine::event::Acquire;
use crate::engine::event::Wait;
use crate::keeper::mailbox::Mailbox;
use crate::keeper::mailbox::mailbox;
use crate::keeper::tests::Nowhere;
use crate::keeper::tests::setup;
use crate::lease::Lease;
use crate::lease::LeaseMs;
use crate::owner::OwnerKey;
use crate::scripts::reentrant::Announce;
use crate::scripts::reentrant::ServerTime;
use crate::slot::slot;

/// A keeper that does look, and how often it has looked.
fn task(keeper: Keeper) -> (Task, Arc<AtomicUsize>) {
    let (task, looks, _) = task_with_mailbox(keeper);
    (task, looks)
}

fn task_with_mailbox(keeper: Keeper) -> (Task, Arc<AtomicUsize>, Mailbox) {
    task_on(Nowhere::default(), keeper)
}

fn task_on(backend: Nowhere, keeper: Keeper) -> (Task, Arc<AtomicUsize>, Mailbox) {
    let looks = Arc::clone(&backend.looks);
    let (mailbox, messages) = mailbox();
    let (directory, counters, left) = <(Arc<Directory>, Arc<Counters>, Arc<Left>)>::default();
    let mut task = Task::new(setup(backend), messages, directory, counters, left, keeper);
    task.for_answers = Watch::with_cores();
    task.for_releases = Watch::with_cores();
    bring_near(&mut task);
    (task, looks, mailbox)
}

/// Its server has answered at once.
fn bring_near(task: &mut Task) {
    task.distance.sent_alone(Moment::NEVER);
    task.distance.settled(Moment::NEVER, true);
}

fn connect(number: u64) -> Message {
    let (_, ticket) = slot();
    Message::Connect { request: RequestId(number), ticket, since: Moment::NEVER, deadline: Moment::NEVER }
}

fn hand_off() -> Command {
    let (from, to) = ("c:1".to_owned(), "c:2".to_owned());
    Command::HandOff {
        name: LockName::new("passed-on").unwrap(),
        from,
        to,
        lease: LeaseMs::checked("lease", Duration::from_secs(1)).unwrap(),
        not_after: ServerTime(1),
        announce: Announce { channel: "channel".into(), sharded: false },
    }
}

/// How often a keeper with these commands on their way has looked after each of so many polls.
fn looks(keeper: Keeper, commands: Vec<Command>, polls: usize) -> Vec<bool> {
    let (mut task, looks) = task(keeper);
    for (number, command) in (1..).zip(commands) {
        task.sent.insert(OpId(number), command);
    }
    let mut poll = || {
        assert!(task.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        looks.load(Ordering::SeqCst) > 0
    };
    (0..polls).map(|_| poll()).collect()
}

#[tokio::test]
async fn answers_to_a_hand_off_or_to_many_are_looked_for_others_are_not() {
    let (many, passed_on) = (vec![Command::Ping; BUSY], vec![Command::Ping, hand_off()]);
    assert_eq!(looks(Keeper::Thread, passed_on.clone(), 1), [true]);
    assert_eq!(looks(Keeper::Thread, many.clone(), 2), [false; 2], "callers need the core");
    for commands in [many, passed_on] {
        assert_eq!(looks(Keeper::Current, commands, 2), [false, true], "others of the thread go first");
    }
    for keeper in [Keeper::Current, Keeper::Thread] {
        assert_eq!(looks(keeper, vec![], 2), [false; 2]);
        assert_eq!(looks(keeper, vec![Command::Ping; BUSY - 1], 2), [false; 2]);
    }
}

#[tokio::test]
async fn answers_that_others_here_wait_for_are_looked_for() {
    let name = LockName::new("passed-on").unwrap();
    let lease = LeaseMs::checked("lease", Duration::from_secs(1)).unwrap();
    let (field, count) = ("c:1".to_owned(), 1);
    let announce = Announce { channel: "channel".into(), sharded: false };
    let not_after = ServerTime(1);
    let acquire = Command::Acquire { name: name.clone(), field: field.clone(), count, lease, not_after };
    let release = Command::Release { name: name.clone(), field, count, announce };
    for (command, enough) in [(acquire, 2), (release, 1)] {
        let (mut task, _) = task(Keeper::Current);
        task.sent.insert(OpId(1), command);
        for number in 0..3 {
            assert_eq!(task.is_awaited(), number >= enough, "{number} wait");
            let (request, owner) = (RequestId(number), OwnerKey::from_test(number));
            let (name, lease) = (name.clone(), Lease::Watched(lease));
            let acquire = Acquire { request, name, owner, lease, wait: Wait::Forever, max_hold: None };
            task.handle(Moment::NEVER, Event::Acquire(acquire));
        }
        (2..=FEW as u64).for_each(|number| drop(task.sent.insert(OpId(number), Command::Ping)));
        assert!(!task.is_awaited(), "there is more to do than that");
    }
}

#[tokio::test]
async fn callers_elsewhere_leave_it_to_a_keeper_that_has_more_than_a_little_to_do() {
    for (keeper, commands, busy) in
        [(Keeper::Thread, FEW - 1, false), (Keeper::Thread, FEW, true), (Keeper::Current, FEW, false)]
    {
        let mut cx = Context::from_waker(Waker::noop());
        let (mut task, _, mailbox) = task_with_mailbox(keeper);
        (0..commands as u64).for_each(|number| drop(task.sent.insert(OpId(number), Command::Ping)));
        assert!(task.poll(&mut cx).is_pending());
        assert_eq!(mailbox.is_busy(), busy);
        task.sent.clear();
        assert!(task.poll_with(&mut Some(connect(1)), &mut cx).is_pending());
        assert!(!mailbox.is_busy());
    }
}

/// How many messages it takes to wake a keeper that sleeps with so many commands on their way.
fn messages_until_woken(task: &mut Task, mailbox: &Mailbox, commands: u64) -> u64 {
    task.sent.clear();
    (0..commands).for_each(|number| drop(task.sent.insert(OpId(number), Command::Ping)));
    let woken = Arc::<Woken>::default();
    assert!(task.poll(&mut Context::from_waker(&Arc::clone(&woken).into())).is_pending());
    (1..=1_000)
        .find(|number| {
            mailbox.send(connect(*number));
            woken.times() > 0
        })
        .unwrap_or(0)
}

#[tokio::test]
async fn while_it_gathers_a_thread_is_woken_for_many_messages_only() {
    let (busy, much) = (BUSY as u64, 400);
    let (mut task, _, mailbox) = task_with_mailbox(Keeper::Thread);
    let mut until_woken = |commands| messages_until_woken(&mut task, &mailbox, commands);
    assert_eq!(until_woken(busy), busy);
    assert_eq!(until_woken(busy - 1), 1);
    assert_eq!(until_woken(much), much / 4, "and once more");
    assert_eq!(until_woken(0), 1);

    task.distance = Distance::unknown();
    assert_eq!(messages_until_woken(&mut task, &mailbox, much), 1, "the answers may take long");
    let (mut task, _, mailbox) = task_with_mailbox(Keeper::Current);
    assert_eq!(messages_until_woken(&mut task, &mailbox, much), 1, "whoever it wakes runs here");
}

#[tokio::test]
async fn a_thread_is_woken_for_each_message_again_once_it_does_not_gather() {
    let mut backend = Nowhere::default();
    backend.first = Some(BackendEvent::Down { server: ServerId::ONLY, cause: "gone".to_owned() });
    let (mut task, _, mailbox) = task_on(backend, Keeper::Thread);
    assert_eq!(messages_until_woken(&mut task, &mailbox, BUSY as u64), 1, "it has heard that in this turn");
}

#[tokio::test(start_paused = true)]
async fn messages_that_wake_nobody_are_looked_at_soon() {
    let (mut task, _, mailbox) = task_with_mailbox(Keeper::Thread);
    (0..BUSY as u64).for_each(|number| drop(task.sent.insert(OpId(number), Command::Ping)));
    let woken = Arc::<Woken>::default();
    let mut cx = Context::from_waker(Waker::noop());
    let waker = Arc::clone(&woken).into();
    assert!(task.poll(&mut Context::from_waker(&waker)).is_pending());
    mailbox.send(connect(7));
    assert_eq!(woken.times(), 0);
    tokio::time::advance(2 * HUSHED).await;
    assert_eq!(woken.times(), 1);
    assert!(task.poll(&mut cx).is_pending());
    assert_eq!(task.connecting.as_ref().map(|connecting| connecting.request), Some(RequestId(7)));
}

/// Sooner for callers who come one by one.
#[tokio::test]
async fn calls_are_gathered_only_while_the_server_is_near() {
    let kinds = [(Keeper::Thread, BUSY), (Keeper::Current, 2 * BUSY)];
    for ((keeper, from), near) in kinds.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let backend = Nowhere::default();
        let gathers = Arc::clone(&backend.gathers);
        let (mut task, ..) = task_on(backend, keeper);
        if !near {
            task.distance = Distance::unknown();
        }
        let reply = || BackendEvent::Replied {
            op: OpId(1),
            server: ServerId::ONLY,
            outcome: Outcome::Done(Value::Text("PONG".to_owned())),
        };
        task.sent.insert(OpId(1), Command::Ping);
        task.on_backend(reply());
        assert_eq!(*gathers.lock().unwrap(), near.then_some(from), "{keeper:?}, near: {near}");
        task.on_backend(BackendEvent::Down { server: ServerId::ONLY, cause: "gone".to_owned() });
        assert_eq!(*gathers.lock().unwrap(), None, "where the next server is nobody knows");
    }
}

#[tokio::test]
async fn callers_who_were_answered_run_first_if_they_run_here() {
    let kinds = [(Keeper::Current, false), (Keeper::Thread, true)];
    // With few on their way they are woken between two events, otherwise at the end of a turn.
    for ((keeper, looks_at_once), event) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let mut backend = Nowhere::default();
        backend.first = event.then_some(BackendEvent::PubSubDown);
        let (mut task, looks, _mailbox) = task_on(backend, keeper);
        task.sent.insert(OpId(1), hand_off());
        let mut cx = Context::from_waker(Waker::noop());
        task.last = true;
        let (slot, ticket) = slot();
        assert!(slot.poll_take(&mut cx).is_pending());
        task.desk.open(RequestId(1), ticket);
        task.desk.answer(RequestId(1), Answer::NotGranted);
        assert!(task.poll(&mut cx).is_pending());
        assert_eq!(looks.load(Ordering::SeqCst) > 0, looks_at_once);
        assert!(task.poll(&mut cx).is_pending());
        assert!(looks.load(Ordering::SeqCst) > 0);
    }
}

#[tokio::test]
async fn who_lets_others_go_first_runs_after_the_keepers_next_turn_and_before_it_looks() {
    let (mut task, looks) = task(Keeper::Current);
    task.sent.insert(OpId(1), hand_off());
    task.last = true;
    let (next, before) = <(Arc<Woken>, Arc<Woken>)>::default();
    let answers = [(1, &next, Answer::NotGranted), (2, &before, Answer::Done)];
    let slots = answers.map(|(number, woken, answer)| {
        let (slot, ticket) = slot();
        assert!(slot.poll_take(&mut Context::from_waker(&Arc::clone(woken).into())).is_pending());
        task.desk.open(RequestId(number), ticket);
        task.desk.answer(RequestId(number), answer);
        slot
    });
    task.let_next_holder_go_first(task.clock.now());
    task.wake_answered(None);
    assert_eq!((next.times(), before.times()), (1, 0));
    task.woke = false;
    let mut cx = Context::from_waker(Waker::noop());
    assert!(task.poll(&mut cx).is_pending());
    assert_eq!((before.times(), looks.load(Ordering::SeqCst)), (1, 0));
    assert!(task.poll(&mut cx).is_pending());
    assert!(looks.load(Ordering::SeqCst) > 0);
    drop(slots);
}

/// They have other things to do than to wait in their place.
#[tokio::test]
async fn callers_who_poll_the_keeper_do_not_look() {
    let (mut task, looks) = task(Keeper::Current);
    task.sent.insert(OpId(1), hand_off());
    let woken = Arc::<Woken>::default();
    let waker = Arc::clone(&woken).into();
    let message = Message::Cancel { request: RequestId(1) };
    assert!(task.poll_with(&mut Some(message), &mut Context::from_waker(&waker)).is_pending());
    assert_eq!(looks.load(Ordering::SeqCst), 0);
    tokio::task::yield_now().await;
    assert_eq!(woken.times(), 1, "its own future is to look");
    assert!(task.poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(looks.load(Ordering::SeqCst) > 0);
}

#[tokio::test]
async fn whoever_was_passed_a_lock_on_a_thread_elsewhere_is_waited_for() {
    for (keeper, command, waited) in [
        (Keeper::Thread, hand_off(), true),
        (Keeper::Current, hand_off(), false),
        (Keeper::Thread, Command::Ping, false),
    ] {
        let (mut task, looks) = task(keeper);
        task.sent.insert(OpId(1), command);
        let outcome = Outcome::Unknown(Failure::new(FailureKind::Link, "lost"));
        task.on_backend(BackendEvent::Replied { op: OpId(1), server: ServerId::ONLY, outcome });
        assert!(!task.keep_watch());
        assert_eq!(task.for_releases.was_in_vain(), waited);
        assert_eq!(looks.load(Ordering::SeqCst), 0, "nothing is on its way");
    }
}

#[tokio::test]
async fn what_is_in_the_mailbox_goes_first() {
    let (mut task, _, mailbox) = task_with_mailbox(Keeper::Current);
    let mut cx = Context::from_waker(Waker::noop());
    let mut last_asked = |before: u64| {
        (0..before).for_each(|number| mailbox.send(connect(number)));
        let mut message = Some(connect(u64::MAX));
        assert!(task.poll_with(&mut message, &mut cx).is_pending());
        (message.is_none(), task.connecting.as_ref().unwrap().request)
    };
    assert_eq!(last_asked(3), (true, RequestId(u64::MAX)));
    let (taken, last) = last_asked(10 * BATCH as u64);
    assert!(!taken && last < RequestId(u64::MAX), "too many to do them all before");
}

#[tokio::test]
async fn only_a_server_that_is_near_is_waited_for() {
    let (mut task, _) = task(Keeper::Current);
    task.sent.insert(OpId(1), hand_off());
    assert!(task.is_awaited());
    task.on_backend(BackendEvent::Down { server: ServerId::ONLY, cause: "gone".to_owned() });
    assert!(!task.is_awaited(), "another may have taken its place");
    task.sent.clear();
    let ping = Effect::Send {
        op: OpId(2),
        to: ServerId::ONLY,
        command: Command::Ping,
        timeout: Duration::from_secs(1),
    };
    task.perform(Moment::NEVER, ping);
    let outcome = Outcome::NotExecuted(Failure::new(FailureKind::Link, "not connected"));
    task.on_backend(BackendEvent::Replied { op: OpId(2), server: ServerId::ONLY, outcome });
    task.sent.insert(OpId(3), hand_off());
    assert!(!task.is_awaited(), "no server has said so");
    bring_near(&mut task);
    assert!(task.is_awaited());
}
