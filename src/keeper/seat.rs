//! Where the keeper's task sits, so that a caller can poll it in the place of the task's own future.
//!
//! A keeper with a thread of its own has to be woken, and on a runtime with several threads a task that is woken may wake a
//! thread, too. A caller who polls the keeper itself spares that. Whoever polls has taken the task out, and no lock is held:
//! what is woken, dropped or logged to meanwhile is code of others.
//!
//! | state | who has the task | who comes meanwhile |
//! |---|---|---|
//! | `Idle` | the seat | takes it; callers only after its own future's first poll, whose waker they poll it with |
//! | `Busy` | whoever makes it or polls it | callers go away; its own future too, and is woken when the poll is over |
//! | `Done` | the seat, for its own future, which is woken | callers go away |
//! | `Gone` | its own future, or nobody any more | callers go away; its own future ends |
//!
//! Callers who go away use the mailbox. Since they poll with the waker of its own future, whatever happens later wakes
//! that, and never a caller. The seat keeps nothing alive: when its own future is dropped, so is the task, at the
//! latest when the caller who polls it is done.

use std::fmt;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;

pub(super) struct Seat<T>(Mutex<State<T>>);

enum State<T> {
    /// → Busy, Gone
    Idle { task: Box<T>, waker: Option<Waker> },
    /// `turned_away` came in vain. → Idle, Done, Gone
    Busy { turned_away: Option<Waker> },
    /// It is over, and its own future is to be told. → Gone
    Done(Box<T>),
    /// The end: taken by its own future, dropped with that, or dropped because it panicked.
    Gone,
}

impl<T> Seat<T> {
    /// Nobody sits there yet.
    pub(super) fn new() -> Self {
        Self(Mutex::new(State::Busy { turned_away: None }))
    }

    /// What its own future begins with.
    pub(super) fn sit(&self, task: T) {
        *self.lock() = State::Idle { task: Box::new(task), waker: None };
    }

    /// For its own future. Ready: with the task after the last poll; without it if it panicked in a caller's hands.
    pub(super) fn poll(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut T, &mut Context<'_>) -> Poll<()>,
    ) -> Poll<Option<Box<T>>> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Gone) {
            State::Idle { task, .. } => {
                *state = State::Busy { turned_away: None };
                drop(state);
                if Turn::new(self, cx.waker().clone()).poll(task, poll).is_pending() {
                    return Poll::Pending;
                }
                match std::mem::replace(&mut *self.lock(), State::Gone) {
                    State::Done(task) => Poll::Ready(Some(task)),
                    _ => Poll::Ready(None),
                }
            }
            State::Busy { .. } => {
                *state = State::Busy { turned_away: Some(cx.waker().clone()) };
                Poll::Pending
            }
            State::Done(task) => Poll::Ready(Some(task)),
            State::Gone => Poll::Ready(None),
        }
    }

    /// For callers. Does nothing while somebody else polls the task, and after its end.
    pub(super) fn poll_for_it(&self, poll: impl FnOnce(&mut T, &mut Context<'_>) -> Poll<()>) {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Busy { turned_away: None }) {
            State::Idle { task, waker: Some(waker) } => {
                drop(state);
                let _ = Turn::new(self, waker).poll(task, poll);
            }
            other => *state = other,
        }
    }

    /// Its own future is dropped, and the task with it.
    pub(super) fn close(&self) {
        let before = std::mem::replace(&mut *self.lock(), State::Gone);
        drop(before);
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No code of others runs under the lock, so a poisoned state is a whole one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time in which the seat is `Busy`.
struct Turn<'a, T> {
    seat: &'a Seat<T>,
    waker: Waker,
    /// What the seat becomes.
    after: State<T>,
}

impl<'a, T> Turn<'a, T> {
    fn new(seat: &'a Seat<T>, waker: Waker) -> Self {
        Self { seat, waker, after: State::Gone }
    }

    fn poll(mut self, task: Box<T>, poll: impl FnOnce(&mut T, &mut Context<'_>) -> Poll<()>) -> Poll<()> {
        // Declared here, so that a panic drops it first, and then ends the turn.
        let mut task = task;
        let polled = poll(&mut task, &mut Context::from_waker(&self.waker));
        self.after = match polled {
            Poll::Ready(()) => State::Done(task),
            Poll::Pending => State::Idle { task, waker: Some(self.waker.clone()) },
        };
        polled
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let after = std::mem::replace(&mut self.after, State::Gone);
        let over = !matches!(after, State::Idle { .. });
        let mut state = self.seat.lock();
        let State::Busy { turned_away } = &mut *state else {
            // Its own future was dropped meanwhile: so is the task, outside the lock.
            drop(state);
            return drop(after);
        };
        let turned_away = turned_away.take();
        *state = after;
        drop(state);
        match turned_away {
            Some(waker) => waker.wake(),
            None if over => self.waker.wake_by_ref(),
            None => {}
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
    use std::sync::Arc;

    use crate::backend::woken::Woken;

    /// Kept by somebody else as well, who sees when it is dropped.
    #[expect(dead_code, reason = "only counted")]
    struct Task(Arc<()>);

    /// A seat whose own future has been polled, and how often that has been woken since.
    fn seated(task: &Arc<()>) -> (Seat<Task>, Arc<Woken>) {
        let (seat, woken) = (Seat::new(), Arc::<Woken>::default());
        seat.sit(Task(Arc::clone(task)));
        assert!(poll(&seat, &woken).is_pending());
        (seat, woken)
    }

    fn poll(seat: &Seat<Task>, woken: &Arc<Woken>) -> Poll<Option<Box<Task>>> {
        seat.poll(&mut Context::from_waker(&Arc::clone(woken).into()), |_, _| Poll::Pending)
    }

    fn polls_for_it(seat: &Seat<Task>) -> bool {
        let mut polled = false;
        seat.poll_for_it(|_, _| {
            polled = true;
            Poll::Pending
        });
        polled
    }

    #[test]
    fn callers_poll_it_with_the_waker_of_its_own_future() {
        let seat = Seat::new();
        assert!(!polls_for_it(&seat));
        seat.sit(Task(Arc::default()));
        assert!(!polls_for_it(&seat), "nothing would wake it later");

        let (seat, woken) = seated(&Arc::default());
        seat.poll_for_it(|_, cx| {
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        assert_eq!(woken.times(), 1);
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
            assert!(poll(&seat, &woken).is_pending());
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
