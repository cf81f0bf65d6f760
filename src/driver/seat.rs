//! Holds the driver's task, so that a caller can poll it in place of the task's own future: the
//! driver is a combiner.
//!
//! The own future is the one that a runtime polls. To wake it costs time: its thread may sleep, and
//! on a runtime with several threads waking a task may wake another thread. A caller that polls the
//! driver itself saves that. While the task is polled it is out of the seat, and the seat is not
//! locked, because the poll wakes wakers, drops values and calls loggers that are code of others.
//!
//! | state | where the task is | a caller that wants to poll it | its own future |
//! |---|---|---|---|
//! | `Idle` | in the seat | polls it, once the own future was polled before | polls it |
//! | `Busy` | being made or polled | uses the mailbox | is woken after that poll |
//! | `Done` | in the seat, after its last poll | uses the mailbox | takes it and ends |
//! | `Gone` | with its own future, or dropped | uses the mailbox | ends |
//!
//! The waker of the task wakes its own future, never a caller; during a poll it waits until that
//! poll is over. When the own future is dropped, so is the task, at the latest when the caller that
//! polls it is done.

use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::task::Context;
use std::task::Poll;
use std::task::Wake;
use std::task::Waker;

pub(super) struct Seat<T>(Mutex<Seating<T>>);

struct Seating<T> {
    state: SeatState<T>,
    /// Wakes its own future. None before that future's first poll.
    own: Option<Waker>,
    /// Since the last poll began, the task was woken, or its own future wanted to poll it.
    woken: bool,
}

enum SeatState<T> {
    /// → Busy, Gone
    Idle(Box<T>),
    /// → Idle, Done, Gone
    Busy { by_caller: bool },
    /// The driver has ended, and its own future does not know yet. → Gone
    Done(Box<T>),
    /// The end: taken by its own future, dropped with that, or dropped because it panicked.
    Gone,
}

impl<T: Send + 'static> Seat<T> {
    /// A seat without a task yet.
    pub(super) fn new() -> Self {
        let state = SeatState::Busy { by_caller: false };
        Self(Mutex::new(Seating { state, own: None, woken: false }))
    }

    /// Puts the task in. Its own future begins with this.
    pub(super) fn put(&self, task: T) {
        self.lock().state = SeatState::Idle(Box::new(task));
    }

    /// Called by its own future. Ready with the task after the last poll, or without it if it
    /// panicked while a caller polled.
    pub(super) fn poll(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut T, &mut Context<'_>) -> Poll<()>,
    ) -> Poll<Option<Box<T>>> {
        let mut own = Some(cx.waker().clone());
        let mut seating = self.lock();
        // The waker stored before is dropped outside the lock.
        std::mem::swap(&mut seating.own, &mut own);
        match std::mem::replace(&mut seating.state, SeatState::Gone) {
            SeatState::Idle(task) => {
                seating.state = SeatState::Busy { by_caller: false };
                seating.woken = false;
                drop(seating);
                self.poll_task(task, poll);
                self.take_done()
            }
            SeatState::Busy { by_caller } => {
                seating.state = SeatState::Busy { by_caller };
                seating.woken = true;
                Poll::Pending
            }
            SeatState::Done(task) => Poll::Ready(Some(task)),
            SeatState::Gone => Poll::Ready(None),
        }
    }

    /// The task, if it has ended and its own future has not taken it yet.
    fn take_done(&self) -> Poll<Option<Box<T>>> {
        let mut seating = self.lock();
        match std::mem::replace(&mut seating.state, SeatState::Gone) {
            SeatState::Done(task) => Poll::Ready(Some(task)),
            other => {
                seating.state = other;
                Poll::Pending
            }
        }
    }

    /// Called by callers. Does nothing while the task is being polled, and after its end. If this
    /// is the last poll, the task stays in the seat for its own future.
    pub(super) fn poll_for_it(
        self: &Arc<Self>,
        poll: impl FnOnce(&mut T, &mut Context<'_>) -> Poll<()>,
    ) {
        let mut seating = self.lock();
        if seating.own.is_none() {
            return;
        }
        match std::mem::replace(&mut seating.state, SeatState::Busy { by_caller: true }) {
            SeatState::Idle(task) => {
                seating.woken = false;
                drop(seating);
                self.poll_task(task, poll);
            }
            other => seating.state = other,
        }
    }

    /// Polls the task while the seat is `Busy`, and puts it back.
    fn poll_task(
        self: &Arc<Self>,
        task: Box<T>,
        poll: impl FnOnce(&mut T, &mut Context<'_>) -> Poll<()>,
    ) {
        let waker = Waker::from(Arc::clone(self));
        let mut busy = BusyGuard { seat: self, after: SeatState::Gone };
        // Declared after the guard, so that a panic drops it first.
        let mut task = task;
        busy.after = match poll(&mut task, &mut Context::from_waker(&waker)) {
            Poll::Ready(()) => SeatState::Done(task),
            Poll::Pending => SeatState::Idle(task),
        };
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has its own future polled, outside the lock.
fn wake_own<T>(seating: MutexGuard<'_, Seating<T>>) {
    let own = seating.own.clone();
    drop(seating);
    own.into_iter().for_each(Waker::wake);
}

/// The waker of the task.
impl<T: Send + 'static> Wake for Seat<T> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut seating = self.lock();
        if matches!(seating.state, SeatState::Busy { .. }) {
            // `BusyGuard` wakes its own future when the poll is over.
            seating.woken = true;
        } else {
            wake_own(seating);
        }
    }
}

/// Exists while the seat is `Busy`, and ends that when it is dropped.
struct BusyGuard<'a, T> {
    seat: &'a Seat<T>,
    /// The next state of the seat.
    after: SeatState<T>,
}

impl<T> Drop for BusyGuard<'_, T> {
    fn drop(&mut self) {
        let after = std::mem::replace(&mut self.after, SeatState::Gone);
        let over = matches!(after, SeatState::Done(_) | SeatState::Gone);
        let mut seating = self.seat.lock();
        let SeatState::Busy { by_caller } = seating.state else {
            // Its own future was dropped meanwhile, so the task is dropped, too, outside the lock.
            drop(seating);
            return drop(after);
        };
        seating.state = after;
        if over && by_caller || seating.woken {
            wake_own(seating);
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

    use crate::backend::woken::Woken;

    /// Kept by somebody else as well, who sees when it is dropped.
    #[expect(dead_code, reason = "only counted")]
    struct Task(Arc<()>);

    /// A seat whose own future has been polled, and how often that has been woken since.
    fn seated(task: &Arc<()>) -> (Arc<Seat<Task>>, Arc<Woken>) {
        let (seat, woken) = (Arc::new(Seat::new()), Arc::<Woken>::default());
        seat.put(Task(Arc::clone(task)));
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
            Poll::Pending
        });
        polled
    }

    #[test]
    fn what_wakes_the_task_wakes_its_own_future() {
        let seat = Arc::new(Seat::new());
        assert!(!polls_for_it(&seat));
        seat.put(Task(Arc::default()));
        assert!(!polls_for_it(&seat), "nothing would wake it later");

        let (seat, woken) = seated(&Arc::default());
        let mut waker = Waker::noop().clone();
        seat.poll_for_it(|_, cx| {
            waker = cx.waker().clone();
            Poll::Pending
        });
        assert_eq!(woken.times(), 0);
        waker.wake();
        assert_eq!(woken.times(), 1);
        let _ = seat.poll(&mut Context::from_waker(&Arc::clone(&woken).into()), |_, cx| {
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        assert_eq!(woken.times(), 2);
        seat.poll_for_it(|_, cx| {
            cx.waker().wake_by_ref();
            assert_eq!(woken.times(), 2, "it would come in vain");
            Poll::Pending
        });
        assert_eq!(woken.times(), 3);
    }

    #[test]
    fn one_polls_at_a_time_and_its_own_future_is_woken_when_it_came_in_vain() {
        let (seat, woken) = seated(&Arc::default());
        seat.poll_for_it(|_, _| {
            assert!(!polls_for_it(&seat));
            Poll::Pending
        });
        assert_eq!(woken.times(), 0);
        seat.poll_for_it(|_, _| {
            assert!(!gets_polled(&seat, &woken));
            assert_eq!(woken.times(), 0, "it would come in vain again");
            Poll::Pending
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
        for by_a_caller in [false, true] {
            let (seat, woken) = seated(&Arc::default());
            let ended = if by_a_caller {
                seat.poll_for_it(|_, _| Poll::Ready(()));
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
        let task = Arc::new(());
        let (seat, woken) = seated(&task);
        let polled = catch_unwind(AssertUnwindSafe(|| seat.poll_for_it(|_, _| panic!("a bug"))));
        assert!(polled.is_err());
        assert_eq!(Arc::strong_count(&task), 1);
        assert_eq!(woken.times(), 1, "its own future does not know");
        assert!(!polls_for_it(&seat));
        assert!(matches!(poll(&seat, &woken), Poll::Ready(None)));
    }

    #[test]
    fn it_goes_with_its_own_future_although_a_caller_polls_it() {
        let task = Arc::new(());
        let (seat, _) = seated(&task);
        seat.close();
        assert_eq!(Arc::strong_count(&task), 1);

        let (seat, woken) = seated(&task);
        seat.poll_for_it(|_, _| {
            seat.close();
            Poll::Pending
        });
        assert_eq!(Arc::strong_count(&task), 1);
        assert!(!polls_for_it(&seat));
        assert_eq!(Arc::strong_count(&woken), 1, "its waker is kept");
    }
}
