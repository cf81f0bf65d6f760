//! The pace of the driver: when it gathers calls, wakes callers, spins for an answer, and sleeps.
//!
//! A server on the same machine answers in about the time in which an idle core falls asleep and
//! wakes up. So there it pays to wait for some answers without letting the thread sleep, and to
//! wait with some calls until they can be sent together. [`Load`] is what this depends on. It
//! answers four questions:
//!
//! | moment | question |
//! |---|---|
//! | a caller has a request | [`Load::for_caller`] |
//! | a reply has come | [`Load::gathers_from`] |
//! | an event of the backend was handled | [`Load::after_event`] |
//! | nothing is left to do | [`Load::when_idle`] |

use std::thread::available_parallelism;
use std::time::Duration;
use std::time::Instant;

use crate::backend::BUSY;
use crate::base::clock::Moment;

/// With fewer commands in flight than this, callers are woken after each answer, because the next
/// answer may be long in coming.
pub(super) const FEW: usize = 4;
/// How long the driver spins for an answer: twice what a server on the same machine takes to wake
/// up and answer. No other task of the thread runs meanwhile; Tokio advises to yield after 10 to
/// 100 µs.
const SPIN: Duration = Duration::from_micros(80);
/// After n spins in vain in a row, the next 2^n - 1 opportunities to spin are left out; n is at
/// most this.
const MOST_IN_VAIN: u32 = 10;
/// A server that has answered within this time is on the same machine or next to it. The time
/// includes that both sides wake up.
const NEAR: Duration = Duration::from_micros(200);

/// What the driver has to do, as far as its pace depends on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// Callers run on the threads of the driver's runtime.
    pub(super) here: bool,
    /// The server has answered within `NEAR`.
    pub(super) near: bool,
    /// How many commands are in flight.
    pub(super) in_flight: usize,
    /// How many callers have their answer and are still to be woken. A caller that polls the driver
    /// itself and finds its answer there is not one of them.
    pub(super) answered: usize,
    /// The last spins were in vain, so that this opportunity is left out.
    pub(super) backs_off: bool,
}

/// Who is polling the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Poller {
    /// A caller, in place of the driver's own future.
    Caller,
    /// Its own future, or a caller that has spun once already. Other tasks of the thread may be
    /// ready, among them callers that were woken.
    Own,
    /// Its own future, which let those tasks run first.
    OwnAfterOthers,
}

/// What a caller does with its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForCaller {
    /// It polls the driver.
    Poll,
    /// It has the driver take the request, and leaves the rest to the driver's own future, so that
    /// the requests of several callers are sent together.
    HandOver,
    /// It uses the mailbox, because the driver's own thread is busy anyway.
    UseMailbox,
}

/// What the driver does after an event of the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterEvent {
    ReadOn,
    /// It wakes the answered callers, and reads on.
    Wake,
    /// It wakes the answered callers and lets them run, so that the server works on what they send
    /// while the next answers are read.
    EndTurn,
}

/// What the driver does when nothing is left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenIdle {
    Sleep,
    /// It sleeps where it would spin if that had not been in vain lately.
    SleepThisTime,
    Spin,
    /// Its own future is polled again after the other tasks of its thread, and spins then.
    SpinAfterOthers,
}

impl Load {
    pub(super) fn for_caller(&self) -> ForCaller {
        match self.here {
            true if self.in_flight >= BUSY => ForCaller::HandOver,
            false if self.in_flight >= FEW => ForCaller::UseMailbox,
            _ => ForCaller::Poll,
        }
    }

    /// From how many commands in flight on calls are gathered into batches. `None`: they are sent
    /// one by one.
    ///
    /// With `Driver::Current` it is twice as many: the tasks of the thread have sent their requests
    /// before the driver's own future is polled, so that with fewer in flight no further request
    /// may come, and the server would be idle while calls are gathered.
    pub(super) fn gathers_from(&self) -> Option<usize> {
        self.near.then_some(if self.here { 2 * BUSY } else { BUSY })
    }

    pub(super) fn after_event(&self) -> AfterEvent {
        // Waking a caller on another thread costs more, so more are woken together. With larger
        // numbers server and client would wait for each other in turn.
        let together =
            if self.here { (self.in_flight / 64).max(2) } else { (self.in_flight / 2).max(8) };
        match self.answered {
            0 => AfterEvent::ReadOn,
            answered if answered >= together => AfterEvent::EndTurn,
            _ if self.in_flight < FEW => AfterEvent::Wake,
            _ => AfterEvent::ReadOn,
        }
    }

    /// Spinning pays where callers wait for an answer of a near server, or where many commands are
    /// in flight and callers run on the same threads. Callers on other threads need the cores in
    /// the second case.
    ///
    /// `awaited`: few commands are in flight, and callers of this client wait for one of them to go
    /// on. It is asked here alone, because the answer takes a look at each of those commands.
    pub(super) fn when_idle(&self, poller: Poller, awaited: bool) -> WhenIdle {
        let expects = awaited || self.here && self.in_flight >= BUSY;
        if !self.near || !expects {
            return WhenIdle::Sleep;
        }
        match poller {
            _ if self.backs_off => WhenIdle::SleepThisTime,
            Poller::OwnAfterOthers => WhenIdle::Spin,
            // The answered callers are woken first. The answer wakes the driver's thread.
            Poller::Caller if !self.here && self.answered > 0 => WhenIdle::Sleep,
            Poller::Caller if !self.here => WhenIdle::Spin,
            Poller::Caller | Poller::Own => WhenIdle::SpinAfterOthers,
        }
    }
}

/// What the driver remembers for its pace.
#[derive(Debug)]
pub(super) struct Pacing {
    pub(super) here: bool,
    distance: Distance,
    /// How many commands in a row were sent while no other was in flight.
    alone: usize,
    spins: Spins,
}

impl Pacing {
    pub(super) fn new(here: bool) -> Self {
        let cores = available_parallelism().map_or(1, |cores| cores.get());
        Self { here, distance: Distance::default(), alone: 0, spins: Spins::new(cores > 1) }
    }

    pub(super) fn is_near(&self) -> bool {
        self.distance.is_near()
    }

    pub(super) fn backs_off(&self) -> bool {
        self.spins.backs_off()
    }

    /// Whether the last commands were each alone in flight, so that the next is expected to be.
    pub(super) fn is_alone(&self) -> bool {
        self.alone >= FEW
    }

    /// A command is sent while so many others are in flight.
    pub(super) fn note_sent(&mut self, now: Moment, in_flight: usize) {
        if in_flight == 0 {
            self.distance.sent_alone(now);
            self.alone = self.alone.saturating_add(1);
        } else {
            self.alone = 0;
        }
    }

    /// A command has ended, by an answer of the server or without one.
    pub(super) fn note_ended(&mut self, now: Moment, answered: bool) {
        self.distance.note_ended(now, answered);
    }

    /// A connection has ended. Another server may take the place of this one.
    pub(super) fn note_disconnected(&mut self) {
        self.distance = Distance::default();
    }

    /// An opportunity to spin is not used.
    pub(super) fn leave_out(&mut self) {
        self.spins.leave_out();
    }

    /// Spins for a moment, and says whether `is_there` became true.
    pub(super) fn spin(&mut self, is_there: impl FnMut() -> bool) -> bool {
        self.spins.spin(is_there)
    }
}

/// Spinning, with exponential back-off while it is in vain.
#[derive(Debug)]
struct Spins {
    /// With a single core, what this waits for could not run meanwhile.
    has_cores: bool,
    /// Spins in vain in a row.
    in_vain: u32,
    /// How many of the next opportunities are left out.
    left_out: u32,
}

impl Spins {
    fn new(has_cores: bool) -> Self {
        Self { has_cores, in_vain: 0, left_out: 0 }
    }

    fn backs_off(&self) -> bool {
        !self.has_cores || self.left_out > 0
    }

    fn leave_out(&mut self) {
        self.left_out = self.left_out.saturating_sub(1);
    }

    fn spin(&mut self, is_there: impl FnMut() -> bool) -> bool {
        let came = comes(is_there);
        self.in_vain = if came { 0 } else { (self.in_vain + 1).min(MOST_IN_VAIN) };
        self.left_out = (1 << self.in_vain) - 1;
        came
    }
}

/// Whether `is_there` becomes true within `SPIN`.
fn comes(mut is_there: impl FnMut() -> bool) -> bool {
    #[expect(clippy::disallowed_methods, reason = "it only says how long this thread has spun")]
    let begin = Instant::now();
    while !is_there() {
        if begin.elapsed() >= SPIN {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

/// How far the server is, by its quickest answer: others may have waited behind those before them.
#[derive(Debug)]
struct Distance {
    /// When the oldest command in flight was sent, if no other was in flight then.
    sent_at: Option<Moment>,
    quickest: Duration,
}

impl Default for Distance {
    /// Nothing is known.
    fn default() -> Self {
        Self { sent_at: None, quickest: Duration::MAX }
    }
}

impl Distance {
    fn sent_alone(&mut self, now: Moment) {
        self.sent_at = Some(now);
    }

    /// What was refused by the client itself, or given up, says nothing about the server.
    fn note_ended(&mut self, now: Moment, answered: bool) {
        if let Some(sent_at) = self.sent_at.take().filter(|_| answered) {
            self.quickest = self.quickest.min(now.since(sent_at));
        }
    }

    fn is_near(&self) -> bool {
        self.quickest <= NEAR
    }
}

#[cfg(test)]
impl Pacing {
    /// As on a machine with several cores.
    pub(super) fn with_cores(here: bool) -> Self {
        Self { spins: Spins::new(true), ..Self::new(here) }
    }

    /// The server has answered at once.
    pub(super) fn bring_near(&mut self) {
        self.distance.quickest = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing to do on a near server.
    const fn idle(here: bool) -> Load {
        Load { here, near: true, in_flight: 0, answered: 0, backs_off: false }
    }

    const HERE: Load = idle(true);
    const ELSEWHERE: Load = idle(false);

    #[test]
    fn what_a_caller_does_with_its_request() {
        for (load, in_flight, expected) in [
            (HERE, 0, ForCaller::Poll),
            (HERE, BUSY - 1, ForCaller::Poll),
            (HERE, BUSY, ForCaller::HandOver),
            (ELSEWHERE, 0, ForCaller::Poll),
            (ELSEWHERE, FEW - 1, ForCaller::Poll),
            (ELSEWHERE, FEW, ForCaller::UseMailbox),
            (ELSEWHERE, BUSY, ForCaller::UseMailbox),
        ] {
            for near in [true, false] {
                let load = Load { in_flight, near, ..load };
                assert_eq!(load.for_caller(), expected, "{load:?}");
            }
        }
    }

    #[test]
    fn calls_are_gathered_only_for_a_near_server() {
        assert_eq!(HERE.gathers_from(), Some(2 * BUSY));
        assert_eq!(ELSEWHERE.gathers_from(), Some(BUSY));
        for load in [HERE, ELSEWHERE] {
            assert_eq!(Load { near: false, ..load }.gathers_from(), None);
        }
    }

    #[test]
    fn when_answered_callers_are_woken() {
        for (load, in_flight, answered, expected) in [
            (HERE, 0, 0, AfterEvent::ReadOn),
            (HERE, 0, 1, AfterEvent::Wake),
            (HERE, FEW - 1, 1, AfterEvent::Wake),
            (HERE, FEW, 1, AfterEvent::ReadOn),
            (HERE, FEW, 2, AfterEvent::EndTurn),
            (HERE, 1_000, 14, AfterEvent::ReadOn),
            (HERE, 1_000, 15, AfterEvent::EndTurn),
            (ELSEWHERE, 0, 0, AfterEvent::ReadOn),
            (ELSEWHERE, FEW - 1, 7, AfterEvent::Wake),
            (ELSEWHERE, FEW, 7, AfterEvent::ReadOn),
            (ELSEWHERE, FEW, 8, AfterEvent::EndTurn),
            (ELSEWHERE, 1_000, 499, AfterEvent::ReadOn),
            (ELSEWHERE, 1_000, 500, AfterEvent::EndTurn),
        ] {
            let load = Load { in_flight, answered, ..load };
            assert_eq!(load.after_event(), expected, "{load:?}");
        }
    }

    #[test]
    fn what_the_driver_does_when_it_is_idle() {
        use Poller::Caller;
        use Poller::Own;
        use Poller::OwnAfterOthers;
        use WhenIdle::Sleep;
        use WhenIdle::SleepThisTime;
        use WhenIdle::Spin;
        use WhenIdle::SpinAfterOthers;

        let waits = |load: Load| (Load { in_flight: 1, ..load }, true);
        let much = |load: Load| (Load { in_flight: BUSY, ..load }, false);
        for ((load, awaited), [caller, own, after_others]) in [
            ((HERE, false), [Sleep, Sleep, Sleep]),
            ((ELSEWHERE, false), [Sleep, Sleep, Sleep]),
            (waits(HERE), [SpinAfterOthers, SpinAfterOthers, Spin]),
            (waits(ELSEWHERE), [Spin, SpinAfterOthers, Spin]),
            // Callers on other threads need the cores.
            (much(HERE), [SpinAfterOthers, SpinAfterOthers, Spin]),
            (much(ELSEWHERE), [Sleep, Sleep, Sleep]),
            (waits(Load { answered: 1, ..HERE }), [SpinAfterOthers, SpinAfterOthers, Spin]),
            (waits(Load { answered: 1, ..ELSEWHERE }), [Sleep, SpinAfterOthers, Spin]),
            (waits(Load { near: false, ..HERE }), [Sleep, Sleep, Sleep]),
            (waits(Load { near: false, ..ELSEWHERE }), [Sleep, Sleep, Sleep]),
            (much(Load { near: false, ..HERE }), [Sleep, Sleep, Sleep]),
            (waits(Load { backs_off: true, ..HERE }), [SleepThisTime; 3]),
            (waits(Load { backs_off: true, ..ELSEWHERE }), [SleepThisTime; 3]),
            ((Load { backs_off: true, ..HERE }, false), [Sleep, Sleep, Sleep]),
        ] {
            let decided =
                [Caller, Own, OwnAfterOthers].map(|poller| load.when_idle(poller, awaited));
            assert_eq!(decided, [caller, own, after_others], "{load:?}");
        }
    }

    #[test]
    fn the_next_command_is_expected_to_be_alone_after_some_that_were() {
        let mut pacing = Pacing::new(true);
        let mut is_alone = |others: usize| {
            pacing.note_sent(Moment(1), others);
            pacing.is_alone()
        };
        assert_eq!([0; FEW].map(&mut is_alone), [false, false, false, true]);
        assert!(is_alone(0) && !is_alone(1) && !is_alone(0));
    }

    /// How many of so many opportunities are used, all of them in vain.
    fn spins_in_vain(spins: &mut Spins, opportunities: usize) -> usize {
        let mut use_one = || {
            let used = !spins.backs_off();
            if used {
                spins.spin(|| false);
            } else {
                spins.leave_out();
            }
            used
        };
        (0..opportunities).filter(|_| use_one()).count()
    }

    #[test]
    fn what_never_comes_is_waited_for_less_and_less() {
        let mut spins = Spins::new(true);
        assert_eq!(spins_in_vain(&mut spins, 1 << 10), 10);
        assert_eq!(spins_in_vain(&mut spins, 10 << 10), 10, "it never gives up");
        assert!(spins.spin(|| true) && !spins.backs_off(), "it is worth it again");
        assert_eq!(spins_in_vain(&mut spins, 3), 2, "once in vain is by chance");
    }

    #[test]
    fn with_one_core_it_does_not_spin() {
        assert_eq!(spins_in_vain(&mut Spins::new(false), 100), 0);
    }

    #[test]
    fn it_sees_what_comes_later() {
        let mut looks = 0;
        let later = || {
            looks += 1;
            looks == 3
        };
        assert!(Spins::new(true).spin(later));
        assert_eq!(looks, 3);
    }

    #[test]
    fn only_what_the_server_has_answered_says_how_far_it_is() {
        let begin = Moment(1);
        let mut distance = Distance::default();
        let mut near = |after: Duration, answered: bool| {
            distance.sent_alone(begin);
            distance.note_ended(begin.plus(after), answered);
            distance.is_near()
        };
        assert!(!near(Duration::ZERO, false), "no server has said so");
        assert!(!near(2 * NEAR, true));
        assert!(near(NEAR, true));
        assert!(near(9 * NEAR, true), "once is enough: others may have been before it");
    }
}
