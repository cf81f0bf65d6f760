//! Holds the driver's task, so that a caller can poll it in place of the task's own future (a
//! combiner).
//!
//! A driver with a thread of its own has to be woken, and on a runtime with several threads waking
//! a task may wake a thread, too. A caller that polls the driver itself saves that. Whoever polls
//! has taken the task out of the seat, and holds no lock, because what is woken, dropped or logged
//! to meanwhile is code of others.
//!
//! | state | who has the task | who wants to poll meanwhile |
//! |---|---|---|
//! | `Idle` | the seat | takes it; callers only after its own future's first poll |
//! | `Busy` | whoever makes it or polls it | callers give up; its own future too, and is woken when the poll is over |
//! | `Done` | the seat, for its own future, which is woken | callers give up |
//! | `Gone` | its own future, or nobody any more | callers give up; its own future ends |
//!
//! Callers that give up use the mailbox. Whatever wakes the task wakes its own future, and never a
//! caller. When its own future is dropped, so is the task, at the latest when the caller that polls
//! it is done.
//!
//! **Naps.** Tasks that hand a lock off to each other read the answers from the socket themselves.
//! The same socket would wake the thread of the task's own future each time, in vain. A thread that
//! does nothing else therefore blocks on a condition variable meanwhile, instead of waiting for
//! sockets and timers:
//!
//! | what wakes the task | what follows |
//! |---|---|
//! | another thread, while a caller polls | the caller polls again before it leaves, `STEPS` times at most |
//! | its own thread, while a caller polls | the same, and its own future comes to nap |
//! | anything, while nobody polls | its own future is called |
//!
//! It is called, too, when a caller leaves that expects no further caller, and the nap ends by
//! itself after `NAP`. If callers have polled meanwhile, it then looks at sockets and timers once
//! and naps again; otherwise it polls the task itself.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::task::Context;
use std::task::Poll;
use std::task::Wake;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use tokio::task::yield_now;

/// The longest time in which its thread looks at neither sockets nor timers.
const NAP: Duration = Duration::from_millis(1);
/// How often a caller polls in a row at most.
const STEPS: usize = 4;
/// Of this many callers in a row that each expect another, the second calls its own future to nap.
const CALLERS: usize = 4;

pub(super) struct Seat<T> {
    seating: Mutex<Seating<T>>,
    /// Ends a nap.
    called: Condvar,
    /// The thread of its own future does nothing else.
    naps: bool,
}

struct Seating<T> {
    state: SeatState<T>,
    /// None before its own future's first poll.
    own: Option<Own>,
    /// Since the last poll the task was woken, or its own future wanted to poll it.
    rung: bool,
    napping: bool,
    /// How many callers in a row expected another.
    callers: usize,
}

/// Its own future, as of its last poll.
struct Own {
    waker: Waker,
    thread: thread::ThreadId,
}

enum SeatState<T> {
    /// → Busy, Gone
    Idle { task: Box<T>, expects: bool },
    /// → Idle, Done, Gone
    Busy { by_caller: bool },
    /// The driver has ended, and its own future does not know yet. → Gone
    Done(Box<T>),
    /// The end: taken by its own future, dropped with that, or dropped because it panicked.
    Gone,
}

/// What a caller found when it polled the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// There is more to do now.
    Again,
    /// Nothing is left to do for now. Another caller is expected, or none.
    Pending { expects: bool },
    /// What is left to do is for its own future.
    Left,
    /// The driver has ended.
    Over,
}

impl<T: Send + 'static> Seat<T> {
    /// A seat without a task yet. With `naps` the thread of its own future does nothing else.
    pub(super) fn new(naps: bool) -> Self {
        let state = SeatState::Busy { by_caller: false };
        let seating = Seating { state, own: None, rung: false, napping: false, callers: 0 };
        Self { seating: Mutex::new(seating), called: Condvar::new(), naps }
    }

    /// Puts the task in. Its own future begins with this.
    pub(super) fn sit(&self, task: T) {
        self.lock().state = SeatState::Idle { task: Box::new(task), expects: false };
    }

    /// Called by its own future. Ready with the task after the last poll, or without it if it
    /// panicked while a caller polled.
    pub(super) fn poll(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut T, &mut Context<'_>) -> Poll<()>,
    ) -> Poll<Option<Box<T>>> {
        let mut own = Some(Own { waker: cx.waker().clone(), thread: thread::current().id() });
        let mut seating = self.lock();
        // The waker stored before is dropped outside the lock.
        std::mem::swap(&mut seating.own, &mut own);
        if self.naps && seating.is_own_in_the_way() {
            let callers = seating.callers;
            seating = self.nap(seating);
            // `call` clears `napping`; it is still set if the time of the nap is over.
            if std::mem::take(&mut seating.napping) && seating.callers != callers {
                drop(seating);
                // Polled again once its thread has looked at sockets and timers.
                let _ = pin!(yield_now()).poll(cx);
                return Poll::Pending;
            }
        }
        match std::mem::replace(&mut seating.state, SeatState::Gone) {
            SeatState::Idle { task, .. } => {
                seating.state = SeatState::Busy { by_caller: false };
                seating.rung = false;
                drop(seating);
                self.take_turn(task, poll)
            }
            SeatState::Busy { by_caller } => {
                seating.state = SeatState::Busy { by_caller };
                seating.rung = true;
                Poll::Pending
            }
            SeatState::Done(task) => Poll::Ready(Some(task)),
            SeatState::Gone => Poll::Ready(None),
        }
    }

    /// A poll by its own future.
    fn take_turn(
        self: &Arc<Self>,
        task: Box<T>,
        poll: impl FnOnce(&mut T, &mut Context<'_>) -> Poll<()>,
    ) -> Poll<Option<Box<T>>> {
        let waker = Waker::from(Arc::clone(self));
        let mut turn = BusyGuard::new(self);
        // Declared after the guard, so that a panic drops it first.
        let mut task = task;
        if poll(&mut task, &mut Context::from_waker(&waker)).is_ready() {
            return Poll::Ready(Some(task));
        }
        turn.after = SeatState::Idle { task, expects: false };
        Poll::Pending
    }

    fn nap<'a>(&'a self, mut seating: MutexGuard<'a, Seating<T>>) -> MutexGuard<'a, Seating<T>> {
        seating.napping = true;
        let woken = self.called.wait_timeout(seating, NAP);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Called by callers. Does nothing while the task is being polled, and after its end.
    pub(super) fn poll_for_it(
        self: &Arc<Self>,
        poll: impl FnMut(&mut T, &mut Context<'_>) -> Step,
    ) {
        let mut seating = self.lock();
        if seating.own.is_none() {
            return;
        }
        match std::mem::replace(&mut seating.state, SeatState::Busy { by_caller: true }) {
            SeatState::Idle { task, .. } => {
                seating.rung = false;
                drop(seating);
                self.take_steps(task, poll);
            }
            other => seating.state = other,
        }
    }

    fn take_steps(
        self: &Arc<Self>,
        task: Box<T>,
        mut poll: impl FnMut(&mut T, &mut Context<'_>) -> Step,
    ) {
        let waker = Waker::from(Arc::clone(self));
        let mut turn = BusyGuard::new(self);
        let mut task = task;
        let mut step = poll(&mut task, &mut Context::from_waker(&waker));
        for _ in 1..if self.naps { STEPS } else { 1 } {
            if !self.is_to_look_again(step) {
                break;
            }
            step = poll(&mut task, &mut Context::from_waker(&waker));
        }
        turn.after = match step {
            Step::Over => SeatState::Done(task),
            Step::Pending { expects } => SeatState::Idle { task, expects },
            Step::Again | Step::Left => {
                self.lock().rung = true;
                SeatState::Idle { task, expects: false }
            }
        };
    }

    fn is_to_look_again(&self, step: Step) -> bool {
        let rung = std::mem::take(&mut self.lock().rung);
        match step {
            Step::Again => true,
            Step::Pending { .. } => rung,
            Step::Left | Step::Over => false,
        }
    }

    /// Called when its own future is dropped. Drops the task.
    pub(super) fn close(&self) {
        let mut seating = self.lock();
        let before = (std::mem::replace(&mut seating.state, SeatState::Gone), seating.own.take());
        drop(seating);
        drop(before);
    }
}

impl<T> Seat<T> {
    fn lock(&self) -> MutexGuard<'_, Seating<T>> {
        // No code of others runs under the lock, so a poisoned state is a whole one.
        self.seating.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has its own future polled.
    fn call(&self, mut seating: MutexGuard<'_, Seating<T>>) {
        if std::mem::take(&mut seating.napping) {
            drop(seating);
            self.called.notify_one();
        } else if let Some(waker) = seating.own.as_ref().map(|own| own.waker.clone()) {
            drop(seating);
            waker.wake();
        }
    }
}

impl<T> Seating<T> {
    /// Whether callers poll the task often enough, so that a poll by its own future would be in
    /// vain.
    fn is_own_in_the_way(&self) -> bool {
        match self.state {
            SeatState::Busy { by_caller } => by_caller,
            SeatState::Idle { expects, .. } => expects && !self.rung,
            SeatState::Done(_) | SeatState::Gone => false,
        }
    }
}

/// The waker of the task.
impl<T: Send + 'static> Wake for Seat<T> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let thread = self.naps.then(|| thread::current().id());
        let mut seating = self.lock();
        if self.naps {
            let by_caller = matches!(seating.state, SeatState::Busy { by_caller: true });
            seating.rung |= by_caller || matches!(seating.state, SeatState::Idle { .. });
            let elsewhere = seating.own.as_ref().is_some_and(|own| Some(own.thread) != thread);
            if by_caller && (seating.napping || elsewhere) {
                // The caller sees `rung` before it leaves.
                return;
            }
        }
        self.call(seating);
    }
}

/// Exists while the seat is `Busy`, and ends that when it is dropped.
struct BusyGuard<'a, T> {
    seat: &'a Seat<T>,
    /// The next state of the seat.
    after: SeatState<T>,
}

impl<'a, T> BusyGuard<'a, T> {
    fn new(seat: &'a Seat<T>) -> Self {
        Self { seat, after: SeatState::Gone }
    }
}

impl<T> Drop for BusyGuard<'_, T> {
    fn drop(&mut self) {
        let after = std::mem::replace(&mut self.after, SeatState::Gone);
        let (over, expects) = match &after {
            SeatState::Idle { expects, .. } => (false, *expects),
            _ => (true, false),
        };
        let mut seating = self.seat.lock();
        let SeatState::Busy { by_caller } = seating.state else {
            // Its own future was dropped meanwhile, so the task is dropped, too, outside the lock.
            drop(seating);
            return drop(after);
        };
        seating.state = after;
        seating.callers = if expects { seating.callers + 1 } else { 0 };
        let is_to_nap = self.seat.naps && !seating.napping && seating.callers % CALLERS == 2;
        let is_to_end_its_nap = seating.napping && !expects;
        if over && by_caller || seating.rung || is_to_nap || is_to_end_its_nap {
            self.seat.call(seating);
        }
    }
}

impl<T> fmt::Debug for Seat<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use futures::task::noop_waker_ref;
    use std::panic::AssertUnwindSafe;
    use std::panic::catch_unwind;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering;

    use crate::backend::woken::Woken;

    const NOBODY: Step = Step::Pending { expects: false };
    const ANOTHER: Step = Step::Pending { expects: true };

    /// Kept by somebody else as well, who sees when it is dropped.
    #[expect(dead_code, reason = "only counted")]
    struct Task(Arc<()>);

    /// A seat whose own future has been polled, and how often that has been woken since.
    fn seated(naps: bool, task: &Arc<()>) -> (Arc<Seat<Task>>, Arc<Woken>) {
        let (seat, woken) = (Arc::new(Seat::new(naps)), Arc::<Woken>::default());
        seat.sit(Task(Arc::clone(task)));
        assert!(poll(&seat, &woken).is_pending());
        (seat, woken)
    }

    fn poll(seat: &Arc<Seat<Task>>, woken: &Arc<Woken>) -> Poll<Option<Box<Task>>> {
        seat.poll(&mut Context::from_waker(&Arc::clone(woken).into()), |_, _| Poll::Pending)
    }

    /// Whether its own future's poll gets to the task.
    fn gets_polled(seat: &Arc<Seat<Task>>, woken: &Arc<Woken>) -> bool {
        let mut polled = false;
        let _ = seat.poll(&mut Context::from_waker(&Arc::clone(woken).into()), |_, _| {
            polled = true;
            Poll::Pending
        });
        polled
    }

    fn polls_for_it(seat: &Arc<Seat<Task>>) -> bool {
        let mut polled = false;
        seat.poll_for_it(|_, _| {
            polled = true;
            NOBODY
        });
        polled
    }

    #[test]
    fn what_wakes_the_task_wakes_its_own_future() {
        for naps in [false, true] {
            let seat = Arc::new(Seat::new(naps));
            assert!(!polls_for_it(&seat));
            seat.sit(Task(Arc::default()));
            assert!(!polls_for_it(&seat), "nothing would wake it later");

            let (seat, woken) = seated(naps, &Arc::default());
            let mut waker = Waker::noop().clone();
            seat.poll_for_it(|_, cx| {
                waker = cx.waker().clone();
                NOBODY
            });
            assert_eq!(woken.times(), 0);
            waker.wake();
            assert_eq!(woken.times(), 1);
            let _ = seat.poll(&mut Context::from_waker(&Arc::clone(&woken).into()), |_, cx| {
                cx.waker().wake_by_ref();
                Poll::Pending
            });
            assert_eq!(woken.times(), 2);
        }
    }

    #[test]
    fn one_polls_at_a_time_and_its_own_future_is_woken_when_it_came_in_vain() {
        let (seat, woken) = seated(false, &Arc::default());
        seat.poll_for_it(|_, _| {
            assert!(!polls_for_it(&seat));
            NOBODY
        });
        assert_eq!(woken.times(), 0);
        seat.poll_for_it(|_, _| {
            assert!(!gets_polled(&seat, &woken));
            assert_eq!(woken.times(), 0, "it would come in vain again");
            NOBODY
        });
        assert_eq!(woken.times(), 1);
        let mut meanwhile = false;
        let _ = seat.poll(&mut Context::from_waker(noop_waker_ref()), |_, _| {
            meanwhile = polls_for_it(&seat);
            Poll::Pending
        });
        assert!(!meanwhile && polls_for_it(&seat));
    }

    #[test]
    fn its_own_future_gets_it_after_the_last_poll_whoever_made_it() {
        for (naps, by_a_caller) in [(false, false), (false, true), (true, false), (true, true)] {
            let (seat, woken) = seated(naps, &Arc::default());
            let ended = if by_a_caller {
                seat.poll_for_it(|_, _| Step::Over);
                assert!(!polls_for_it(&seat), "polled after its end");
                assert_eq!(woken.times(), 1);
                poll(&seat, &woken)
            } else {
                seat.poll(&mut Context::from_waker(noop_waker_ref()), |_, _| Poll::Ready(()))
            };
            assert!(matches!(ended, Poll::Ready(Some(_))));
            assert!(!polls_for_it(&seat));
            assert!(matches!(poll(&seat, &woken), Poll::Ready(None)));
        }
    }

    #[test]
    fn a_panic_is_its_end() {
        for naps in [false, true] {
            let task = Arc::new(());
            let (seat, woken) = seated(naps, &task);
            let polled =
                catch_unwind(AssertUnwindSafe(|| seat.poll_for_it(|_, _| panic!("a bug"))));
            assert!(polled.is_err());
            assert_eq!(Arc::strong_count(&task), 1);
            assert_eq!(woken.times(), 1, "its own future does not know");
            assert!(!polls_for_it(&seat));
            assert!(matches!(poll(&seat, &woken), Poll::Ready(None)));
        }
    }

    #[test]
    fn it_goes_with_its_own_future_although_a_caller_polls_it() {
        let task = Arc::new(());
        let (seat, _) = seated(true, &task);
        seat.close();
        assert_eq!(Arc::strong_count(&task), 1);

        let (seat, woken) = seated(true, &task);
        seat.poll_for_it(|_, _| {
            seat.close();
            NOBODY
        });
        assert_eq!(Arc::strong_count(&task), 1);
        assert!(!polls_for_it(&seat));
        assert_eq!(Arc::strong_count(&woken), 1, "its waker is kept");
    }

    /// From another thread than that of its own future.
    fn wake_from_elsewhere(cx: &Context<'_>) {
        let waker = cx.waker();
        thread::scope(|threads| threads.spawn(|| waker.wake_by_ref()).join().unwrap());
    }

    #[test]
    fn a_caller_looks_again_when_it_was_woken_meanwhile() {
        let (seat, woken) = seated(true, &Arc::default());
        let mut steps = 0;
        seat.poll_for_it(|_, cx| {
            steps += 1;
            if steps == 1 {
                wake_from_elsewhere(cx);
            }
            NOBODY
        });
        assert_eq!((steps, woken.times()), (2, 0), "nothing is left to do for its own future");

        // Where others are polled on the same thread, what wakes it is dealt with behind them.
        let (seat, woken) = seated(false, &Arc::default());
        seat.poll_for_it(|_, cx| {
            wake_from_elsewhere(cx);
            NOBODY
        });
        assert_eq!(woken.times(), 1);
    }

    #[test]
    fn a_caller_does_not_stay_for_ever() {
        let (seat, woken) = seated(true, &Arc::default());
        let mut steps = 0;
        seat.poll_for_it(|_, _| {
            steps += 1;
            Step::Again
        });
        assert_eq!((steps, woken.times()), (STEPS, 1));
        assert!(gets_polled(&seat, &woken));

        let (seat, woken) = seated(true, &Arc::default());
        let mut steps = 0;
        seat.poll_for_it(|_, cx| {
            steps += 1;
            wake_from_elsewhere(cx);
            Step::Left
        });
        assert_eq!((steps, woken.times()), (1, 1));
        assert!(gets_polled(&seat, &woken));

        let (seat, woken) = seated(true, &Arc::default());
        seat.poll_for_it(|_, cx| {
            wake_from_elsewhere(cx);
            ANOTHER
        });
        assert_eq!(woken.times(), 1);
        assert!(gets_polled(&seat, &woken), "it naps although there is something to do");
    }

    #[test]
    fn its_own_future_is_called_to_nap_while_callers_expect_each_other() {
        for (naps, calls) in [(false, 0), (true, 2)] {
            let (seat, woken) = seated(naps, &Arc::default());
            (0..2 * CALLERS).for_each(|_| seat.poll_for_it(|_, _| ANOTHER));
            assert_eq!(woken.times(), calls);
        }
    }

    #[test]
    fn while_callers_come_it_naps_and_looks_at_sockets_in_between() {
        let (seat, woken) = seated(true, &Arc::default());
        let over = AtomicBool::new(false);
        thread::scope(|threads| {
            threads.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    seat.poll_for_it(|_, _| ANOTHER);
                }
            });
            // Others may take their turn between two of its own.
            let naps = || {
                let before = woken.times();
                !gets_polled(&seat, &woken) && woken.times() > before
            };
            while !naps() {}
            over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn who_was_expected_and_does_not_come_is_not_waited_for() {
        let (seat, woken) = seated(true, &Arc::default());
        seat.poll_for_it(|_, _| ANOTHER);
        assert!(gets_polled(&seat, &woken), "after a nap");
    }

    #[test]
    fn who_napped_beside_a_caller_is_called_when_that_goes() {
        let (seat, woken) = seated(true, &Arc::default());
        seat.poll_for_it(|_, _| {
            // Its own thread is woken by what this caller waits for.
            let got = thread::scope(|threads| {
                threads.spawn(|| gets_polled(&seat, &woken)).join().unwrap()
            });
            assert!(!got, "a caller has it");
            NOBODY
        });
        assert_eq!(woken.times(), 1, "it came in vain");
    }
}
