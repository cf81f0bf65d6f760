//! The tickets of pending requests: of callers that wait for an answer, and of grants that may
//! still be withdrawn.

use std::collections::VecDeque;

use crate::base::map::Map;
use crate::driver::slot::Put;
use crate::driver::slot::Ticket;
use crate::driver::slot::Withdrawal;
use crate::driver::wakes::PendingWakes;
use crate::driver::wakes::Wakes;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;

/// With more grants than this, the desk itself checks which were picked up. Most are released
/// before.
const UNASKED: usize = 256;

/// A ticket stays here until it is answered, that of a grant until the grant was picked up,
/// cancelled or released.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    tickets: Map<RequestId, Ticket>,
    /// Grants in order. Some of their tickets may be gone.
    granted: VecDeque<RequestId>,
    /// Answered callers that are not woken yet.
    wakes: Wakes,
}

impl Desk {
    pub(crate) fn open(&mut self, request: RequestId, ticket: Ticket) {
        self.tickets.insert(request, ticket);
    }

    /// Puts the answer into the caller's slot. If the caller of a grant is gone, the grant is
    /// cancelled.
    pub(crate) fn answer(&mut self, request: RequestId, answer: Answer) -> Option<Event> {
        let granted = matches!(answer, Answer::Granted(_));
        let put = self.tickets.get(&request)?.put(answer, &mut self.wakes);
        if !granted || put == Put::NobodyThere {
            self.tickets.remove(&request);
        } else {
            self.granted.push_back(request);
        }
        (granted && put == Put::NobodyThere).then_some(Event::Cancel { request })
    }

    /// Checks the two oldest grants for one that was picked up. Called for each request, this keeps
    /// the tickets few however many locks are held.
    pub(crate) fn picked_up(&mut self) -> Option<Event> {
        for _ in 0..2 {
            if self.granted.len() <= UNASKED {
                return None;
            }
            let request = self.granted.pop_front()?;
            match self.tickets.get(&request) {
                Some(ticket) if ticket.is_taken() => {
                    self.tickets.remove(&request);
                    return Some(Event::PickedUp { request });
                }
                Some(_) => self.granted.push_back(request),
                None => {}
            }
        }
        None
    }

    /// Withdraws a grant if it was not picked up. Its ticket is gone in either case.
    pub(crate) fn withdraw(&mut self, request: RequestId) -> Event {
        match self.tickets.remove(&request).as_ref().map(Ticket::withdraw) {
            Some(Withdrawal::TakenBack) => Event::Withdrawn { request },
            Some(Withdrawal::PickedUp) | None => Event::PickedUp { request },
        }
    }

    /// The caller is gone. `None` if the engine knows already, or has given its final answer.
    pub(crate) fn cancel(&mut self, request: RequestId) -> Option<Event> {
        self.tickets.remove(&request).map(|_| Event::Cancel { request })
    }

    /// The grant is being released, so it was picked up.
    pub(crate) fn forget(&mut self, request: RequestId) {
        self.tickets.remove(&request);
    }

    /// How many answered callers are still to be woken. A caller that has not gone to sleep is not
    /// counted: it finds its answer by itself.
    pub(crate) fn answered(&self) -> usize {
        self.wakes.len()
    }

    /// Wakes the answered callers.
    pub(crate) fn wake_answered(&mut self) {
        self.wakes.wake_all();
    }

    /// The same for a driver with a thread of its own: the callers that already run help.
    pub(crate) fn wake_with_help(&mut self, pending: &PendingWakes) {
        pending.wake_all(&mut self.wakes);
    }

    /// Moves the wakers of the answered callers to `wakes`.
    pub(crate) fn leave_answered_to(&mut self, wakes: &mut Wakes) {
        self.wakes.leave_all_to(wakes);
    }

    pub(crate) fn is_open(&self, request: RequestId) -> bool {
        self.tickets.contains_key(&request)
    }

    /// Drops all tickets: every caller that still waits is answered that the client is closed.
    pub(crate) fn close(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Arc;
    use std::task::Context;
    use std::task::Poll;

    use futures::task::noop_waker_ref;

    use crate::base::cell::HoldCell;
    use crate::base::clock::Moment;
    use crate::base::name::LockName;
    use crate::driver::slot::Slot;
    use crate::driver::slot::slot;

    const REQUEST: RequestId = RequestId(7);

    fn desk() -> (Desk, Slot) {
        let (slot, ticket) = slot();
        let mut desk = Desk::default();
        desk.open(REQUEST, ticket);
        (desk, slot)
    }

    fn grant() -> Answer {
        let name = LockName::new("desk").unwrap();
        Answer::Granted(Arc::new(HoldCell::new(name, 1, 1, Moment::NEVER)))
    }

    fn take(slot: &Slot) -> Poll<Option<Answer>> {
        slot.poll_take(&mut Context::from_waker(noop_waker_ref()))
    }

    #[test]
    fn a_grant_for_nobody_is_cancelled_exactly_once() {
        let (mut desk, slot) = desk();
        assert!(slot.close());
        assert!(matches!(desk.answer(REQUEST, grant()), Some(Event::Cancel { request: REQUEST })));
        assert!(desk.cancel(REQUEST).is_none(), "the future's own cancellation comes second");

        let (mut desk, slot) = self::desk();
        assert!(desk.answer(REQUEST, grant()).is_none());
        assert!(slot.close());
        assert!(matches!(desk.cancel(REQUEST), Some(Event::Cancel { request: REQUEST })));
        assert!(desk.cancel(REQUEST).is_none());
    }

    #[test]
    fn nothing_stays_behind() {
        let (mut desk, slot) = desk();
        desk.answer(REQUEST, grant());
        assert!(desk.is_open(REQUEST), "the grant may still be withdrawn");
        assert!(matches!(desk.withdraw(REQUEST), Event::Withdrawn { .. }));
        assert!(!desk.is_open(REQUEST));
        assert!(matches!(take(&slot), Poll::Ready(None)), "the future asks again");

        let (mut desk, slot) = self::desk();
        desk.answer(REQUEST, grant());
        assert!(take(&slot).is_ready());
        assert!(matches!(desk.withdraw(REQUEST), Event::PickedUp { .. }));
        assert!(!desk.is_open(REQUEST));
    }

    #[test]
    fn of_many_grants_those_that_were_picked_up_leave() {
        let mut desk = Desk::default();
        let untaken = |number: u64| number % 10 == 0;
        let mut slots = Vec::new();
        let mut told = Vec::new();
        for number in 0..2_000 {
            let (slot, ticket) = slot();
            desk.open(RequestId(number), ticket);
            desk.answer(RequestId(number), grant());
            if !untaken(number) {
                assert!(take(&slot).is_ready());
            }
            slots.push(slot);
            match desk.picked_up() {
                Some(Event::PickedUp { request }) => told.push(request.0),
                None => {}
                Some(other) => panic!("{other:?}"),
            }
        }
        assert!(desk.tickets.len() <= UNASKED + 200 + 10, "{}", desk.tickets.len());
        assert!(told.iter().all(|number| !untaken(*number)));
        for number in 0..2_000 {
            let open = desk.is_open(RequestId(number));
            assert!(open != told.contains(&number), "told of it, or still here: {number}");
            assert!(open || !untaken(number), "{number} may still be withdrawn");
        }
    }

    #[test]
    fn what_was_released_leaves_nothing_behind() {
        let mut desk = Desk::default();
        for number in 0..2_000 {
            let (slot, ticket) = slot();
            desk.open(RequestId(number), ticket);
            desk.answer(RequestId(number), grant());
            assert!(take(&slot).is_ready());
            desk.forget(RequestId(number));
            assert!(desk.picked_up().is_none());
            assert!(desk.tickets.is_empty() && desk.granted.len() <= UNASKED);
        }
    }

    #[test]
    fn an_answer_other_than_a_grant_is_final() {
        let (mut desk, slot) = desk();
        assert!(desk.answer(REQUEST, Answer::NotGranted).is_none());
        assert!(!desk.is_open(REQUEST));
        assert!(matches!(take(&slot), Poll::Ready(Some(Answer::NotGranted))));
    }
}
