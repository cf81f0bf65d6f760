//! Two or three threads each, doing to the shipped code what callers and the driver do to it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;
use std::time::Duration;

use crate::clock::Clock;
use crate::clock::Moment;
use crate::config::Config;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::error::Error;
use crate::error::LossReason;
use crate::good::cell::HoldCell;
use crate::good::driver::Message;
use crate::good::driver::desk::Desk;
use crate::good::driver::ending::Ending;
use crate::good::driver::ending::Farewell;
use crate::good::driver::mailbox::mailbox;
use crate::good::driver::seat::Seat;
use crate::good::driver::shared::Shared;
use crate::good::slot::slot;
use crate::good::wakes::PendingWakes;
use crate::good::wakes::Wakes;
use crate::name::LockName;
use crate::sync::Mutex;
use crate::sync::block_on;
use crate::sync::thread;

/// When the hold of a model runs out.
const END: Moment = Moment(100);
const BEFORE: Moment = Moment(99);
const RENEWED: Moment = Moment(500);

fn cell() -> Arc<HoldCell> {
    Arc::new(HoldCell::new(LockName, 1, 7, END))
}

/// A caller sees the end while the driver, whose clock it read before, handles a confirmed renewal:
/// one of them wins.
pub(crate) fn what_ran_out_is_not_revived() {
    let cell = cell();
    let driver = {
        let cell = Arc::clone(&cell);
        thread::spawn(move || cell.extend(BEFORE, RENEWED))
    };
    cell.lose_if_past(END);
    let lost = cell.loss().is_some();
    let extended = driver.join().unwrap();
    assert!(extended != lost, "extended: {extended}, lost: {lost}");
    assert_eq!(cell.is_held(END), extended);
}

/// A caller asks twice, and hears "no" and "yes" never in that order.
pub(crate) fn a_no_is_final() {
    let cell = cell();
    let driver = {
        let cell = Arc::clone(&cell);
        thread::spawn(move || cell.extend(BEFORE, RENEWED))
    };
    let first = cell.is_still_held(END);
    let second = cell.is_still_held(END);
    assert!(first || !second, "held again");
    driver.join().unwrap();
}

/// Everybody who learns why a hold was lost learns the same.
pub(crate) fn the_first_cause_stays() {
    let cell = cell();
    let driver = {
        let cell = Arc::clone(&cell);
        thread::spawn(move || {
            cell.lose(LossReason::Removed);
            cell.loss()
        })
    };
    cell.lose_if_past(END);
    let seen = cell.loss();
    let said = driver.join().unwrap();
    let last = cell.loss();
    assert!(said.is_some() && said == last, "{said:?}, then {last:?}");
    assert!(seen.is_none() || seen == last, "{seen:?}, then {last:?}");
    assert!(!cell.is_held(Moment(1)));
}

/// `Guard::lost` without its timer: takes its place, looks, waits.
pub(crate) fn whoever_waits_for_a_loss_hears_of_it() {
    let cell = cell();
    let driver = {
        let cell = Arc::clone(&cell);
        thread::spawn(move || cell.lose(LossReason::TakenOver))
    };
    let reason = loop {
        let ended = cell.ended();
        let ended = ended.notified();
        match cell.loss() {
            Some(reason) => break reason,
            None => ended.wait(),
        }
    };
    assert_eq!(reason, LossReason::TakenOver);
    driver.join().unwrap();
}

/// A driver without engine and backend, and a client's handle.
fn client() -> (Arc<Shared>, Ending) {
    let (mailbox, messages) = mailbox();
    let shared = Shared::new(
        mailbox,
        Clock,
        Config { client_id: 1 },
        Arc::default(),
        Arc::default(),
        Arc::default(),
        None,
    );
    (Arc::new(shared), Ending { messages, desk: Desk::default(), farewell: Farewell::default() })
}

fn look(shared_future: &mut (impl Future<Output = Answer> + Unpin)) -> Poll<Answer> {
    pin!(shared_future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A future is dropped, polled once or never, while the driver answers it: guard or cancellation,
/// and only one.
pub(crate) fn a_grant_is_taken_or_given_back() {
    let (shared, mut driver) = client();
    let granting = thread::spawn(move || {
        let mut given_back = 0;
        while let Some(message) = block_on(driver.messages.take_rest()) {
            let event = match message {
                Message::Ask { request, ticket, .. } => {
                    driver.desk.open(request, ticket);
                    driver.desk.answer(request, Answer::Granted(1))
                }
                Message::Cancel { request } => driver.desk.cancel(request),
                Message::LastHandle { .. } => break,
                other => panic!("{other:?}"),
            };
            given_back += u32::from(matches!(event, Some(Event::Cancel { .. })));
        }
        given_back
    });
    let mut asked = shared.ask_cancellable(|request| Event::Ping { request });
    let taken = look(&mut asked).is_ready();
    drop(asked);
    drop(shared);
    let given_back = granting.join().unwrap();
    assert_eq!(u32::from(taken) + given_back, 1, "taken: {taken}, given back: {given_back}");
}

/// The driver takes an answer back while its future looks for it.
pub(crate) fn a_grant_is_withdrawn_or_taken() {
    let (slot, ticket) = slot();
    let request = RequestId(1);
    let mut desk = Desk::default();
    desk.open(request, ticket);
    let driver = thread::spawn(move || {
        let event = desk.answer(request, Answer::Granted(1));
        assert!(event.is_none(), "somebody is there");
        matches!(desk.withdraw(request), Event::Withdrawn { .. })
    });
    let mut context = Context::from_waker(Waker::noop());
    let first = slot.poll_take(&mut context);
    let second = if first.is_pending() { slot.poll_take(&mut context) } else { Poll::Pending };
    let withdrawn = driver.join().unwrap();
    let last = slot.poll_take(&mut context);
    let taken = [first, second, last].iter().any(|poll| matches!(poll, Poll::Ready(Some(_))));
    assert!(taken != withdrawn, "taken: {taken}, withdrawn: {withdrawn}");
}

/// A future that was polled before its answer came is woken by it.
pub(crate) fn whoever_waits_for_an_answer_gets_it() {
    let (shared, mut driver) = client();
    let answering = thread::spawn(move || {
        if let Some(Message::Ask { request, ticket, .. }) = block_on(driver.messages.take_rest()) {
            driver.desk.open(request, ticket);
            assert!(driver.desk.answer(request, Answer::Granted(1)).is_none());
            driver.desk.wake_answered();
        }
        driver
    });
    let asked = shared.ask(|request| Event::Ping { request });
    assert!(matches!(block_on(asked), Answer::Granted(_)));
    // The desk lives on: a grant whose ticket is gone would be none.
    drop(answering.join().unwrap());
}

/// A driver wakes two, and somebody who runs meanwhile helps.
pub(crate) fn whom_a_driver_wakes_with_help_are_all_woken() {
    let rest = Arc::new(PendingWakes::default());
    let woken = Arc::<Mutex<u32>>::new(Mutex::new(0));
    let helper = {
        let rest = Arc::clone(&rest);
        thread::spawn(move || rest.help())
    };
    let mut wakes = Wakes::default();
    for _ in 0..2 {
        wakes.add(Some(Waker::from(Arc::new(Counts(Arc::clone(&woken))))));
    }
    rest.wake_all(&mut wakes);
    helper.join().unwrap();
    assert_eq!(*woken.lock().unwrap(), 2);
}

/// A task that only counts how often it is woken.
struct Counts(Arc<Mutex<u32>>);

impl std::task::Wake for Counts {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() += 1;
    }
}

/// A driver ends while a caller asks: with an answer or not, before, during or after, nobody waits
/// for ever.
pub(crate) fn a_driver_that_ends_answers_everybody() {
    let (shared, mut driver) = client();
    let ending = thread::spawn(move || {
        if let Some(Message::Ask { request, ticket, .. }) = driver.messages.receiver.try_recv() {
            driver.desk.open(request, ticket);
        }
        driver.desk.close();
        block_on(driver.turn_callers_away());
        driver.farewell.deliver();
    });
    let asked = shared.ask(|request| Event::Ping { request });
    assert!(matches!(block_on(asked), Answer::Failed(Error::Closed { .. })));
    ending.join().unwrap();
}

/// A shutdown is asked for while the driver ends: if it was taken, it hears what became of the
/// locks.
pub(crate) fn a_shutdown_that_was_taken_is_told_the_outcome() {
    let (shared, mut driver) = client();
    let ending = thread::spawn(move || {
        block_on(driver.turn_callers_away());
        let Ending { messages, farewell, .. } = driver;
        // Whoever sends from here on is refused, or was let down.
        let left = {
            let mut messages = messages;
            std::iter::from_fn(|| messages.receiver.try_recv()).count()
        };
        farewell.deliver();
        left
    });
    let told = matches!(block_on(shared.ask_shutdown(Duration::ZERO)), Answer::ShutDown { .. });
    OUTCOMES.fetch_or(if told { 1 } else { 2 }, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(ending.join().unwrap(), 0, "taken after the end");
    let late = block_on(shared.ask_shutdown(Duration::ZERO));
    assert!(matches!(late, Answer::Failed(Error::Closed { .. })), "{late:?}");
}

/// What the shutdowns of all schedules heard: 1 the outcome, 2 that the client is closed.
static OUTCOMES: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Some of those shutdowns came in time and some too late; nothing else has outcomes.
pub(crate) fn check_outcomes() {
    let seen = OUTCOMES.swap(0, std::sync::atomic::Ordering::SeqCst);
    assert!(seen == 0 || seen == 3, "only one of both outcomes: {seen}");
}

/// A driver's task: what there is to do, and whom to tell that there is more.
struct Worker {
    todo: Arc<Todo>,
    done: u32,
    all: u32,
}

type Todo = Mutex<(u32, Option<Waker>)>;

impl Worker {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut todo = self.todo.lock().unwrap();
        self.done += std::mem::take(&mut todo.0);
        todo.1 = Some(cx.waker().clone());
        if self.done >= self.all { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// As `Shared` does it: at once if that goes, else left there, and whoever waits for it woken.
fn hand_over(seat: &Arc<Seat<Worker>>, todo: &Todo) {
    let mut taken = false;
    seat.poll_for_it(|worker, cx| {
        worker.done += u32::from(!std::mem::replace(&mut taken, true));
        worker.poll(cx)
    });
    if !taken {
        leave(todo);
    }
}

fn leave(todo: &Todo) {
    let mut todo = todo.lock().unwrap();
    todo.0 += 1;
    let waker = todo.1.take();
    drop(todo);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// A seat with a worker in it.
fn seated(all: u32) -> (Arc<Seat<Worker>>, Arc<Todo>) {
    let seat = Arc::new(Seat::new());
    let todo = Arc::new(Mutex::new((0, None)));
    seat.put(Worker { todo: Arc::clone(&todo), done: 0, all });
    (seat, todo)
}

/// What has been done when its own future ends.
fn done(seat: &Arc<Seat<Worker>>) -> Option<u32> {
    block_on(poll_fn(|cx| seat.poll(cx, Worker::poll))).map(|worker| worker.done)
}

/// A caller, twice, and the task's own future poll it, in turns or at once: it gets to its end, and
/// its own future hears.
pub(crate) fn whoever_polls_it_nothing_is_left_lying() {
    let (seat, todo) = seated(2);
    let caller = {
        let seat = Arc::clone(&seat);
        thread::spawn(move || {
            hand_over(&seat, &todo);
            hand_over(&seat, &todo);
        })
    };
    assert_eq!(done(&seat), Some(2));
    caller.join().unwrap();
}

/// Somebody leaves something to do while a caller polls it.
pub(crate) fn what_comes_while_a_caller_polls_it_is_done() {
    let (seat, todo) = seated(1);
    let caller = {
        let seat = Arc::clone(&seat);
        thread::spawn(move || {
            let mut left = false;
            seat.poll_for_it(|worker, cx| {
                assert!(worker.poll(cx).is_pending());
                leave(&todo);
                left = true;
                Poll::Pending
            });
            if !left {
                leave(&todo);
            }
        })
    };
    assert_eq!(done(&seat), Some(1));
    caller.join().unwrap();
}

/// A caller leaves what follows to the task's own future, which is woken once for that.
pub(crate) fn what_a_caller_leaves_to_its_own_future_is_done() {
    let (seat, todo) = seated(1);
    let defer = |seat: &Arc<Seat<Worker>>, wakes: bool| {
        let mut deferred = false;
        seat.poll_for_it(|_, cx| {
            if wakes {
                cx.waker().wake_by_ref();
            }
            deferred = true;
            Poll::Pending
        });
        deferred
    };
    let caller = {
        let seat = Arc::clone(&seat);
        thread::spawn(move || {
            todo.lock().unwrap().0 = 1;
            if !defer(&seat, true) {
                return leave(&todo);
            }
            defer(&seat, false);
        })
    };
    assert!(done(&seat).is_some_and(|done| done > 0));
    caller.join().unwrap();
}

/// Its own future is dropped while a caller polls the task.
pub(crate) fn a_task_goes_with_its_future() {
    let (seat, todo) = seated(9);
    assert!(seat.poll(&mut Context::from_waker(Waker::noop()), Worker::poll).is_pending());
    let caller = {
        let (seat, todo) = (Arc::clone(&seat), Arc::clone(&todo));
        thread::spawn(move || hand_over(&seat, &todo))
    };
    seat.close();
    caller.join().unwrap();
    assert_eq!(Arc::strong_count(&todo), 1, "it lives on");
}

/// Every model.
pub(crate) const MODELS: &[(&str, fn())] = &[
    ("what_ran_out_is_not_revived", what_ran_out_is_not_revived),
    ("a_no_is_final", a_no_is_final),
    ("the_first_cause_stays", the_first_cause_stays),
    ("whoever_waits_for_a_loss_hears_of_it", whoever_waits_for_a_loss_hears_of_it),
    ("a_grant_is_taken_or_given_back", a_grant_is_taken_or_given_back),
    ("a_grant_is_withdrawn_or_taken", a_grant_is_withdrawn_or_taken),
    ("whoever_waits_for_an_answer_gets_it", whoever_waits_for_an_answer_gets_it),
    ("whom_a_driver_wakes_with_help_are_all_woken", whom_a_driver_wakes_with_help_are_all_woken),
    ("a_driver_that_ends_answers_everybody", a_driver_that_ends_answers_everybody),
    ("whoever_polls_it_nothing_is_left_lying", whoever_polls_it_nothing_is_left_lying),
    ("what_comes_while_a_caller_polls_it_is_done", what_comes_while_a_caller_polls_it_is_done),
    (
        "what_a_caller_leaves_to_its_own_future_is_done",
        what_a_caller_leaves_to_its_own_future_is_done,
    ),
    ("a_task_goes_with_its_future", a_task_goes_with_its_future),
    (
        "a_shutdown_that_was_taken_is_told_the_outcome",
        a_shutdown_that_was_taken_is_told_the_outcome,
    ),
];
