//! Where a caller's future waits for its answer, and where the driver puts it.
//!
//! A oneshot whose content can be taken back as long as the future has not taken it. Everything
//! happens under one small mutex, so that exactly one of these is true of a grant: its future took
//! it, it was withdrawn, or it was put into a slot whose future is gone.
//!
//! A future that finds its answer withdrawn was polled too late for it, and asks again.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;

use crate::base::error::Error;
use crate::driver::wakes::Wakes;
use crate::engine::event::Answer;

/// The future's end.
#[derive(Debug)]
pub(crate) struct Slot(Arc<Shelf>);

/// The driver's end. If it is dropped unanswered, it answers `Closed`, so that no caller waits for
/// a driver that has ended.
#[derive(Debug)]
pub(crate) struct Ticket(Arc<Shelf>);

/// The result of putting an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    /// It stays in the slot until the future takes it.
    Waiting,
    /// The future was dropped.
    NobodyThere,
}

/// The result of withdrawing an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Withdrawal {
    /// The slot is empty now.
    TakenBack,
    /// The future has it.
    PickedUp,
}

#[derive(Debug)]
struct Shelf(Mutex<SlotState>);

#[derive(Debug)]
enum SlotState {
    /// → Full, Closed
    Empty(Option<Waker>),
    /// → Withdrawn, Taken, Closed
    Full(Answer),
    /// The driver took the answer back. → Taken
    Withdrawn,
    /// The future has its answer, or knows that it was withdrawn.
    Taken,
    /// The future is gone, and never saw an answer.
    Closed,
}

pub(crate) fn slot() -> (Slot, Ticket) {
    let shelf = Arc::new(Shelf(Mutex::new(SlotState::Empty(None))));
    (Slot(Arc::clone(&shelf)), Ticket(shelf))
}

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, SlotState> {
        // No code of others runs under the lock, so a poisoned state is a whole one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the state. Whom it wakes is woken outside the lock: wakers run code of others.
    fn fill(&self, answer: Answer, wakes: &mut Wakes) -> Put {
        let mut state = self.lock();
        let waker = match &mut *state {
            SlotState::Empty(waker) => waker.take(),
            SlotState::Full(_) => None,
            SlotState::Withdrawn | SlotState::Taken | SlotState::Closed => return Put::NobodyThere,
        };
        let before = std::mem::replace(&mut *state, SlotState::Full(answer));
        drop(state);
        drop(before);
        wakes.add(waker);
        Put::Waiting
    }
}

impl Slot {
    /// Takes the answer once there is one. `None`: it was there, and was withdrawn.
    pub(crate) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<Option<Answer>> {
        let mut state = self.0.lock();
        match &mut *state {
            SlotState::Full(_) | SlotState::Withdrawn => {
                match std::mem::replace(&mut *state, SlotState::Taken) {
                    SlotState::Full(answer) => Poll::Ready(Some(answer)),
                    _ => Poll::Ready(None),
                }
            }
            SlotState::Empty(waker) => {
                let old = match waker {
                    Some(waker) if waker.will_wake(cx.waker()) => None,
                    _ => waker.replace(cx.waker().clone()),
                };
                drop(state);
                drop(old);
                Poll::Pending
            }
            SlotState::Taken | SlotState::Closed => Poll::Pending,
        }
    }

    /// Gives up waiting. True: an answer is still to come or lies there untaken, so the request
    /// must be cancelled.
    pub(crate) fn close(&self) -> bool {
        let mut state = self.0.lock();
        if matches!(*state, SlotState::Withdrawn | SlotState::Taken | SlotState::Closed) {
            return false;
        }
        let before = std::mem::replace(&mut *state, SlotState::Closed);
        drop(state);
        drop(before);
        true
    }
}

impl Ticket {
    pub(crate) fn put(&self, answer: Answer, wakes: &mut Wakes) -> Put {
        self.0.fill(answer, wakes)
    }

    /// Whether the future has its answer.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(*self.0.lock(), SlotState::Taken)
    }

    /// Takes the answer back, if there is one that was not taken.
    pub(crate) fn withdraw(&self) -> Withdrawal {
        let mut state = self.0.lock();
        match &*state {
            SlotState::Taken => return Withdrawal::PickedUp,
            // Closed: the cancellation is under way, and the grant is nobody's.
            SlotState::Empty(_) | SlotState::Withdrawn | SlotState::Closed => {
                return Withdrawal::TakenBack;
            }
            SlotState::Full(_) => {}
        }
        // The future was woken when the answer was put.
        let before = std::mem::replace(&mut *state, SlotState::Withdrawn);
        drop(state);
        drop(before);
        Withdrawal::TakenBack
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let unanswered = match &*self.0.lock() {
            SlotState::Empty(_) => true,
            // A grant that nobody looks after any more is none.
            SlotState::Full(answer) => matches!(answer, Answer::Granted(_)),
            SlotState::Withdrawn | SlotState::Taken | SlotState::Closed => false,
        };
        if unanswered {
            self.0.fill(Answer::Failed(Error::closed()), &mut Wakes::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use futures::task::noop_waker_ref;

    use crate::base::cell::HoldCell;
    use crate::base::clock::Moment;
    use crate::base::name::LockName;

    fn grant() -> Answer {
        let name = LockName::new("slot").unwrap();
        Answer::Granted(Arc::new(HoldCell::new(name, 1, 1, Moment::NEVER)))
    }

    fn take(slot: &Slot) -> Poll<Option<Answer>> {
        slot.poll_take(&mut Context::from_waker(noop_waker_ref()))
    }

    #[test]
    fn an_answer_is_taken_once() {
        let (slot, ticket) = slot();
        assert!(take(&slot).is_pending());
        assert_eq!(ticket.put(grant(), &mut Wakes::default()), Put::Waiting);
        assert!(matches!(take(&slot), Poll::Ready(Some(Answer::Granted(_)))));
        assert!(take(&slot).is_pending());
        assert_eq!(ticket.withdraw(), Withdrawal::PickedUp);
        assert!(!slot.close(), "an answer that was taken is not cancelled");
    }

    #[test]
    fn a_future_hears_that_its_answer_was_withdrawn() {
        let (slot, ticket) = slot();
        ticket.put(grant(), &mut Wakes::default());
        assert_eq!(ticket.withdraw(), Withdrawal::TakenBack);
        drop(ticket);
        assert!(matches!(take(&slot), Poll::Ready(None)));
        assert!(!slot.close(), "the driver has forgotten the request");
    }

    #[test]
    fn a_future_that_is_gone_does_not_cancel_what_was_withdrawn() {
        let (slot, ticket) = slot();
        ticket.put(grant(), &mut Wakes::default());
        assert_eq!(ticket.withdraw(), Withdrawal::TakenBack);
        assert!(!slot.close());
    }

    #[test]
    fn closing_reports_an_answer_that_nobody_took() {
        for answered in [false, true] {
            let (slot, ticket) = slot();
            if answered {
                ticket.put(grant(), &mut Wakes::default());
            }
            assert!(slot.close());
            assert!(!slot.close(), "only once");
            assert_eq!(ticket.put(grant(), &mut Wakes::default()), Put::NobodyThere);
            assert_eq!(ticket.withdraw(), Withdrawal::TakenBack);
        }
    }

    #[test]
    fn a_lost_ticket_answers_closed() {
        for put_before in [false, true] {
            let (slot, ticket) = slot();
            if put_before {
                ticket.put(grant(), &mut Wakes::default());
            }
            drop(ticket);
            assert!(matches!(take(&slot), Poll::Ready(Some(Answer::Failed(Error::Closed { .. })))));
        }
        let (slot, ticket) = slot();
        ticket.put(Answer::Done, &mut Wakes::default());
        drop(ticket);
        assert!(matches!(take(&slot), Poll::Ready(Some(Answer::Done))));
    }

    #[test]
    fn put_wakes_the_future() {
        let (slot, ticket) = slot();
        let waiter = std::thread::spawn(move || {
            futures::executor::block_on(std::future::poll_fn(|cx| slot.poll_take(cx)))
        });
        ticket.put(Answer::Forced(true), &mut Wakes::default());
        assert!(matches!(waiter.join().unwrap(), Some(Answer::Forced(true))));
    }
}
