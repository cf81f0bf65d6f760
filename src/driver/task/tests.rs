//! In which order a driver does things, and for which answers it spins instead of sleeping.

use super::*;

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::task::Waker;

use crate::backend::BackendEvent;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::backend::Value;
use crate::backend::woken::Woken;
use crate::base::cell::HoldCell;
use crate::base::lease::Lease;
use crate::base::lease::LeaseMs;
use crate::base::owner::OwnerKey;
use crate::driver::LAST_RELEASES;
use crate::driver::mailbox::Mailbox;
use crate::driver::mailbox::mailbox;
use crate::driver::slot::Slot;
use crate::driver::slot::slot;
use crate::driver::tests::Nowhere;
use crate::driver::tests::setup;
use crate::driver::wakes::tests::runs;
use crate::engine::event::Acquire;
use crate::engine::event::Answer;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Announce;
use crate::kinds::command::ServerTime;
use crate::kinds::command::WaitMode;
use crate::kinds::share::Share;

/// A driver that spins, and how often it has looked for an answer meanwhile.
fn task(driver: Driver) -> (Task, Arc<AtomicUsize>) {
    let (task, looks, _) = task_with_mailbox(driver);
    (task, looks)
}

fn task_with_mailbox(driver: Driver) -> (Task, Arc<AtomicUsize>, Mailbox) {
    task_on(Nowhere::default(), driver)
}

fn task_on(backend: Nowhere, driver: Driver) -> (Task, Arc<AtomicUsize>, Mailbox) {
    let looks = Arc::clone(&backend.looks);
    let (mailbox, messages) = mailbox();
    let (directory, counters, left) = <(Arc<Directory>, Arc<Counters>, Arc<Left>)>::default();
    let mut task =
        Task::new(setup(backend), messages, directory, counters, left, Arc::default(), driver);
    task.pacing = Pacing::with_cores(driver == Driver::Current);
    task.pacing.bring_near();
    (task, looks, mailbox)
}

/// Whether a driver spins that has nothing else to do.
fn spins(task: &Task) -> bool {
    task.load().when_idle(Poller::OwnAfterOthers, task.is_awaited()) == WhenIdle::Spin
}

fn connect(number: u64) -> Message {
    let (_, ticket) = slot();
    Message::Connect {
        request: RequestId(number),
        ticket,
        since: Moment::NEVER,
        deadline: Moment::NEVER,
    }
}

const CANCEL: Message = Message::Cancel { request: RequestId(1) };

fn poll_with(task: &mut Task, message: &mut Option<Message>, cx: &mut Context<'_>) -> Poll<()> {
    task.poll_with(message, &mut Wakes::default(), cx)
}

/// Somebody who waits is answered, and not yet woken.
fn answered(task: &mut Task, request: RequestId, answer: Answer, waiting: &Waker) -> Slot {
    let (slot, ticket) = slot();
    assert!(slot.poll_take(&mut Context::from_waker(waiting)).is_pending());
    task.desk.open(request, ticket);
    task.desk.answer(request, answer);
    slot
}

fn hand_off() -> Command {
    let (from, to) = ("c:1".to_owned(), "c:2".to_owned());
    Command::HandOff {
        name: name(),
        from,
        to,
        lease: lease(),
        not_after: ServerTime(1),
        announce: Announce { channel: "channel".into(), sharded: false, line: false, alone: false },
        line_first: false,
        hears: false,
    }
}

/// Whether a driver with these commands in flight has spun, after each of so many polls.
fn looks(driver: Driver, commands: Vec<Command>, polls: usize) -> Vec<bool> {
    let (mut task, looks) = task(driver);
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
async fn the_driver_spins_for_a_hand_off_or_for_many_answers_and_for_no_others() {
    let (many, passed_on) = (vec![Command::Ping; BUSY], vec![Command::Ping, hand_off()]);
    let after_others = [false, true];
    assert_eq!(looks(Driver::Thread, many.clone(), 2), [false; 2], "callers need the core");
    assert_eq!(looks(Driver::Current, many, 2), after_others);
    for driver in [Driver::Current, Driver::Thread] {
        assert_eq!(looks(driver, passed_on.clone(), 2), after_others);
    }
    for driver in [Driver::Current, Driver::Thread] {
        assert_eq!(looks(driver, vec![], 2), [false; 2]);
        assert_eq!(looks(driver, vec![Command::Ping; BUSY - 1], 2), [false; 2]);
    }
}

fn name() -> LockName {
    LockName::new("passed-on").unwrap()
}

fn lease() -> LeaseMs {
    LeaseMs::checked("lease", Duration::from_secs(1)).unwrap()
}

/// An acquire and a release.
fn attempts() -> [Command; 2] {
    let field = "c:1".to_owned();
    let announce =
        Announce { channel: "channel".into(), sharded: false, line: false, alone: false };
    let not_after = ServerTime(1);
    let acquire = Command::Acquire {
        name: name(),
        field: field.clone(),
        share: Share::ONE,
        lease: lease(),
        not_after,
        line: false,
        wait: WaitMode::Try,
        announce: None,
        told: Box::default(),
    };
    [
        acquire,
        Command::Release { name: name(), field, share: Share::NOTHING, announce, undo: false },
    ]
}

/// A caller asks for the lock.
fn ask(task: &mut Task, number: u64) {
    let (request, owner) = (RequestId(number), OwnerKey::from_test(number));
    let (name, lease) = (name(), Lease::Watched(lease()));
    let acquire = Acquire {
        request,
        name,
        owner,
        share: Share::ONE,
        lease,
        wait: Wait::Forever,
        max_hold: None,
        at_least: None,
        upgrades: None,
    };
    task.handle(Moment::NEVER, Event::Acquire(acquire));
}

#[tokio::test]
async fn the_driver_spins_for_answers_that_other_callers_wait_for() {
    let [acquire, release] = attempts();
    for (command, enough) in [(acquire, 2), (release, 1)] {
        let (mut task, _) = task(Driver::Current);
        task.sent.insert(OpId(1), command);
        for number in 0..3 {
            assert_eq!(task.is_awaited(), number >= enough, "{number} wait");
            ask(&mut task, number);
        }
        (2..=FEW as u64).for_each(|number| drop(task.sent.insert(OpId(number), Command::Ping)));
        assert!(!task.is_awaited(), "several commands are in flight");
    }
}

#[tokio::test]
async fn callers_on_other_threads_use_the_mailbox_while_several_commands_are_in_flight() {
    for (driver, commands, busy) in [
        (Driver::Thread, FEW - 1, false),
        (Driver::Thread, FEW, true),
        (Driver::Current, FEW, false),
    ] {
        let mut cx = Context::from_waker(Waker::noop());
        let (mut task, _, mailbox) = task_with_mailbox(driver);
        (0..commands as u64).for_each(|number| drop(task.sent.insert(OpId(number), Command::Ping)));
        assert!(task.poll(&mut cx).is_pending());
        assert_eq!(mailbox.is_busy(), busy);
        task.sent.clear();
        assert_eq!(poll_with(&mut task, &mut Some(connect(1)), &mut cx), Poll::Pending);
        assert!(!mailbox.is_busy());
    }
}

#[tokio::test]
async fn the_driver_spins_for_a_command_that_is_expected_to_be_alone() {
    for command in attempts() {
        let (mut task, _) = task(Driver::Current);
        let mut send = |number: usize, beside: bool| {
            task.sent.clear();
            if beside {
                task.sent.insert(OpId(0), Command::Ping);
            }
            let op = OpId(number as u64);
            let (to, timeout) = (ServerId::ONLY, Duration::from_secs(1));
            task.perform(Moment::NEVER, Effect::Send { op, to, command: command.clone(), timeout });
            task.is_awaited()
        };
        let mut alone =
            |times: usize| (1..=times).map(|number| send(number, false)).collect::<Vec<_>>();
        assert_eq!(alone(FEW + 1), [[false; FEW - 1].as_slice(), &[true; 2]].concat());
        assert!(!send(1, true), "another is in flight");
        assert!(!send(2, false), "another was in flight before");
    }
}

/// From fewer commands on for callers on other threads, who come one by one.
#[tokio::test]
async fn calls_are_gathered_only_while_the_server_is_near() {
    let kinds = [(Driver::Thread, BUSY), (Driver::Current, 2 * BUSY)];
    for ((driver, from), near) in kinds.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let backend = Nowhere::default();
        let gathers = Arc::clone(&backend.gathers);
        let (mut task, ..) = task_on(backend, driver);
        if !near {
            task.pacing.note_disconnected();
        }
        let reply = || BackendEvent::Replied {
            op: OpId(1),
            server: ServerId::ONLY,
            outcome: Outcome::Done(Value::Text("PONG".to_owned())),
        };
        task.sent.insert(OpId(1), Command::Ping);
        task.on_backend(reply());
        assert_eq!(*gathers.lock().unwrap(), near.then_some(from), "{driver:?}, near: {near}");
        task.on_backend(BackendEvent::Down { server: ServerId::ONLY, cause: "gone".to_owned() });
        assert_eq!(*gathers.lock().unwrap(), None, "the next server may be far away");
    }
}

#[tokio::test]
async fn callers_who_were_answered_run_before_the_driver_spins() {
    let drivers = [Driver::Current, Driver::Thread];
    // With few on their way they are woken between two events, otherwise at the end of a turn.
    for (driver, event) in drivers.into_iter().flat_map(|driver| [(driver, false), (driver, true)])
    {
        let mut backend = Nowhere::default();
        backend.first = event.then_some(BackendEvent::PubSubDown);
        let (mut task, looks, _mailbox) = task_on(backend, driver);
        task.sent.insert(OpId(1), hand_off());
        let mut cx = Context::from_waker(Waker::noop());
        task.after_others = true;
        let _slot = answered(&mut task, RequestId(1), Answer::NotGranted, Waker::noop());
        assert!(task.poll(&mut cx).is_pending());
        assert_eq!(looks.load(Ordering::SeqCst), 0, "{driver:?}");
        assert!(task.poll(&mut cx).is_pending());
        assert!(looks.load(Ordering::SeqCst) > 0);
    }
}

/// It comes after the other tasks of their thread.
#[tokio::test]
async fn callers_on_the_drivers_runtime_leave_spinning_to_its_own_future() {
    let (mut task, looks) = task(Driver::Current);
    task.sent.insert(OpId(1), hand_off());
    let woken = Arc::<Woken>::default();
    let waker = Arc::clone(&woken).into();
    let mut cx = Context::from_waker(&waker);
    assert_eq!(poll_with(&mut task, &mut Some(CANCEL), &mut cx), Poll::Pending);
    assert_eq!(looks.load(Ordering::SeqCst), 0);
    tokio::task::yield_now().await;
    assert_eq!(woken.times(), 1, "its own future is to spin");
    assert!(task.poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(looks.load(Ordering::SeqCst) > 0);
}

#[tokio::test]
async fn callers_on_other_threads_spin_while_few_commands_are_in_flight() {
    for (commands, looked) in [(1, true), (FEW, false)] {
        let (mut task, looks) = task(Driver::Thread);
        task.sent.insert(OpId(1), hand_off());
        (2..=commands as u64)
            .for_each(|number| drop(task.sent.insert(OpId(number), Command::Ping)));
        let step = poll_with(&mut task, &mut Some(CANCEL), &mut Context::from_waker(Waker::noop()));
        assert!(step.is_pending());
        assert_eq!(looks.load(Ordering::SeqCst) > 0, looked);
    }
    let (mut task, looks) = task(Driver::Thread);
    task.sent.insert(OpId(1), hand_off());
    let _slot = answered(&mut task, RequestId(7), Answer::NotGranted, Waker::noop());
    let step = poll_with(&mut task, &mut Some(CANCEL), &mut Context::from_waker(Waker::noop()));
    assert_eq!(
        (step, looks.load(Ordering::SeqCst)),
        (Poll::Pending, 0),
        "the answered caller is woken first"
    );
}

#[tokio::test]
async fn a_caller_wakes_the_others_that_it_has_answered_when_the_seat_is_free() {
    for driver in [Driver::Thread, Driver::Current] {
        let mut backend = Nowhere::default();
        // The driver's own future would wake them after this event.
        backend.first = Some(BackendEvent::PubSubDown);
        let (mut task, _, _mailbox) = task_on(backend, driver);
        let woken = Arc::<Woken>::default();
        let waker = Arc::clone(&woken).into();
        let _slot = answered(&mut task, RequestId(7), Answer::NotGranted, &waker);
        let mut wakes = Wakes::default();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(task.poll_with(&mut Some(CANCEL), &mut wakes, &mut cx).is_pending());
        assert_eq!((wakes.len(), woken.times()), (1, 0));
        drop(wakes);
        assert_eq!(woken.times(), 1);
    }
}

#[tokio::test]
async fn an_answer_for_which_the_driver_has_spun_is_handled_in_the_same_poll() {
    let mut cx = Context::from_waker(Waker::noop());
    for (driver, by_caller) in
        [(Driver::Current, false), (Driver::Thread, false), (Driver::Thread, true)]
    {
        let outcome = Outcome::Unknown(Failure::new(FailureKind::Link, "lost"));
        let reply = BackendEvent::Replied { op: OpId(1), server: ServerId::ONLY, outcome };
        let mut backend = Nowhere::default();
        backend.comes = Some(reply);
        let (mut task, ..) = task_on(backend, driver);
        task.sent.insert(OpId(1), hand_off());
        task.after_others = true;
        let polled = if by_caller {
            poll_with(&mut task, &mut Some(CANCEL), &mut cx)
        } else {
            task.poll(&mut cx)
        };
        assert!(polled.is_pending() && task.sent.is_empty(), "{driver:?}, by caller: {by_caller}");
    }
}

#[tokio::test]
async fn what_is_in_the_mailbox_goes_first() {
    let (mut task, _, mailbox) = task_with_mailbox(Driver::Current);
    let mut cx = Context::from_waker(Waker::noop());
    let mut last_asked = |before: u64| {
        (0..before).for_each(|number| mailbox.send(connect(number)));
        let mut message = Some(connect(u64::MAX));
        assert_eq!(poll_with(&mut task, &mut message, &mut cx), Poll::Pending);
        (message.is_none(), task.connecting.as_ref().unwrap().request)
    };
    assert_eq!(last_asked(3), (true, RequestId(u64::MAX)));
    let (taken, last) = last_asked(10 * BATCH as u64);
    assert!(!taken && last < RequestId(u64::MAX), "too many to do them all before");
}

#[tokio::test]
async fn the_driver_spins_only_for_a_near_server() {
    let (mut task, _) = task(Driver::Current);
    task.sent.insert(OpId(1), hand_off());
    assert!(spins(&task));
    task.on_backend(BackendEvent::Down { server: ServerId::ONLY, cause: "gone".to_owned() });
    assert!(!spins(&task), "another may have taken its place");
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
    assert!(!spins(&task), "no server has said so");
    task.pacing.bring_near();
    assert!(spins(&task));
}

/// Only callers on other threads help.
#[tokio::test]
async fn a_caller_that_a_driver_thread_has_woken_helps_to_wake_the_others() {
    for (driver, helped) in [(Driver::Thread, 1), (Driver::Current, 0)] {
        let (mut task, _) = task(driver);
        let (other, seen) = (Arc::<Woken>::default(), Arc::<AtomicUsize>::default());
        let (pending, woken, seen_by_first) =
            (Arc::clone(&task.pending_wakes), Arc::clone(&other), Arc::clone(&seen));
        let first = runs(move || {
            pending.help();
            seen_by_first.store(woken.times(), Ordering::SeqCst);
        });
        let answers = [(1, first), (2, Arc::clone(&other).into())];
        let _slots = answers
            .map(|(number, waker)| answered(&mut task, RequestId(number), Answer::Done, &waker));
        task.wake_answered();
        assert_eq!((seen.load(Ordering::SeqCst), other.times()), (helped, 1), "{driver:?}");
    }
}

/// A driver whose server grants everything and tells seven others of each release.
fn granting(driver: Driver) -> Task {
    let mut backend = Nowhere::default();
    backend.first = Some(BackendEvent::Up(ServerId::ONLY, ServerInfo::default()));
    backend.grants = true;
    let (mut task, ..) = task_on(backend, driver);
    assert!(task.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    task
}

/// Asks for the lock once, and is granted it.
fn take(task: &mut Task, number: u64) -> Arc<HoldCell> {
    let (slot, ticket) = slot();
    let (request, owner) = (RequestId(number), OwnerKey::from_test(1));
    let (name, lease) = (name(), Lease::Watched(lease()));
    let event = Event::Acquire(Acquire {
        request,
        name,
        owner,
        share: Share::ONE,
        lease,
        wait: Wait::Once,
        max_hold: None,
        at_least: None,
        upgrades: None,
    });
    let mut cx = Context::from_waker(Waker::noop());
    task.on_message(Message::Ask { request, ticket, event });
    assert!(task.poll(&mut cx).is_pending());
    match slot.poll_take(&mut cx) {
        Poll::Ready(Some(Answer::Granted(cell))) => cell,
        other => panic!("{other:?}"),
    }
}

/// In an outage threads come and go, and no release is answered.
#[tokio::test]
async fn a_thread_that_has_stopped_waiting_for_its_releases_is_forgotten() {
    let mut task = granting(Driver::Thread);
    let cell = take(&mut task, 1);
    task.on_message(Message::Release { hold: cell.id, level: RequestId(1), waiting: None });
    let (done, settled) = mpsc::channel();
    task.on_message(Message::Settle { done });
    task.let_threads_end();
    assert_eq!(settled.try_recv(), Err(mpsc::TryRecvError::Empty), "the release is on its way");
    task.settling.iter_mut().for_each(|thread| {
        assert!(thread.end <= task.clock.now().plus(LAST_RELEASES));
        thread.end = task.clock.now();
    });
    task.let_threads_end();
    assert!(task.settling.is_empty() && task.engine.is_given_up(cell.id));
    assert_eq!(settled.try_recv(), Err(mpsc::TryRecvError::Disconnected));
}
