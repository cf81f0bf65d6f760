//! What is explored of the model of the line: its scopes, and its rules, each of which can be
//! broken alone.

use crate::explore::explore;
use crate::line::Line;
use crate::line::Scope;
use crate::line::state::NEVER;
use crate::table::LIMIT;
use crate::table::Model;

/// A rule, broken. What is done instead is in `RULES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    // The scripts.
    PickUpKeepsTimeToLive,
    KeepsPlaceOfReserved,
    ReleaseReservesNobody,
    LeavingReservesNobody,
    LeavingPassesOnHeldLock,
    RepairOnlyByFirst,
    ForceReservesNobody,
    EntersLate,
    TicketMoves,
    AgainTakesFreeLock,
    AgainDoesNotPassOn,
    InsertsAfterPassOn,
    StaysAfterGrant,
    LineIsNotRenewed,
    TryTakesReservation,
    NoZero,
    DeafEnters,
    DeafGetsNoTicket,
    DeafHeirEnters,
    LateHandOffKeepsLock,
    RefusalGrantsNobody,
    ReservationIsNotTold,
    // The slot.
    AcquiresWhileSlotMoves,
    PickUpWaitsForSlot,
    NothingOwed,
    OwedForgotten,
    LeavesByLockAlone,
    // The clients.
    PlaceLostOnCancel,
    NotLeaving,
    TicketKeptAfterGrant,
    TicketKeptAfterLeaving,
    NoTicketAfterUnknown,
    FirstAfterUnknown,
    OneReleaseOfDead,
    DeadUntilEqualTime,
    HeirIsNotReleased,
    HandOffsUnbounded,
    MessageIsAGrant,
    MessageDuringAttemptDropped,
    MessageDuringHandOffDropped,
    NoTryAfterConfirmation,
    ValidityFromReply,
    NamesNoTicket,
    ZeroIsIgnored,
    OneRelease,
    GiverIsNotReleased,
    NoFallback,
    AnnouncementPostponesFallback,
    NoTimer,
    DeadIdSetsNoTimer,
    AnswerReplacesTimer,
    RanksStay,
    WatcherHasNoFallback,
}

const TWO: Scope = Scope { name: "two clients", arrivals: &[3, 2], end: 6, ..Scope::PLAIN };
const THREE: Scope = Scope { name: "three clients", arrivals: &[2, 1, 1], ..Scope::PLAIN };
const CANCELS: Scope = Scope { name: "cancels", arrivals: &[2, 1], cancels: 2, ..Scope::PLAIN };
const CANCELS_3: Scope =
    Scope { name: "cancels, three", arrivals: &[1, 2, 1], cancels: 1, ..Scope::PLAIN };
const UNKNOWN: Scope =
    Scope { name: "unknown", arrivals: &[1, 1], unknown: 1, end: 4, ..Scope::PLAIN };
const UNKNOWN_TIMER: Scope = Scope { name: "unknown, timer", end: 5, idle: Some(1), ..UNKNOWN };
const UNKNOWN_2: Scope =
    Scope { name: "two unknown", arrivals: &[1, 1], unknown: 2, ..Scope::PLAIN };
const UNKNOWN_3: Scope = Scope { name: "unknown, three", unknown: 1, end: 3, ..Scope::PLAIN };
const UNKNOWN_HEIR: Scope =
    Scope { name: "unknown heir", arrivals: &[3, 1], unknown: 1, end: 2, ..Scope::PLAIN };
const UNKNOWN_LEAVES: Scope = Scope {
    name: "unknown, cancel",
    arrivals: &[1, 2],
    unknown: 1,
    cancels: 1,
    end: 5,
    ..Scope::PLAIN
};
const UNKNOWN_DELETED: Scope =
    Scope { name: "unknown, deleted", unknown: 1, deletions: 1, end: 2, ..Scope::PLAIN };
const MESSAGES: Scope = Scope { name: "messages", lost_messages: 1, end: 7, ..Scope::PLAIN };
const MESSAGES_4: Scope = Scope {
    name: "messages, more",
    arrivals: &[2, 1, 1],
    lost_messages: 1,
    end: 7,
    ..Scope::PLAIN
};
const CUTS: Scope = Scope { name: "cuts", cuts: 1, end: 6, ..Scope::PLAIN };
const CUTS_2: Scope =
    Scope { name: "cuts, two", arrivals: &[2, 2], cuts: 1, end: 6, ..Scope::PLAIN };
const DEATHS: Scope = Scope { name: "deaths", deaths: 1, end: 9, ..Scope::PLAIN };
const DEATHS_2: Scope = Scope { name: "two deaths", deaths: 2, end: 10, ..Scope::PLAIN };
const DEATHS_SHORT: Scope =
    Scope { name: "deaths, short lease", deaths: 1, lease: 3, end: 9, ..Scope::PLAIN };
const LONG_HOLD: Scope = Scope { name: "long hold", lease: 9, end: 8, ..Scope::PLAIN };
const DELETED: Scope = Scope { name: "deleted", deletions: 1, end: 6, ..Scope::PLAIN };
const FORCED: Scope = Scope { name: "forced", forces: 1, end: 3, ..Scope::PLAIN };
const LINE_LOST: Scope =
    Scope { name: "line lost", line_losses: 1, end: 7, idle: Some(0), ..Scope::PLAIN };
const TRIES: Scope =
    Scope { name: "tries", arrivals: &[1, 1, 0], tries: 1, end: 4, ..Scope::PLAIN };
const SLOW: Scope =
    Scope { name: "slow subscription", slow_subscription: true, end: 6, ..Scope::PLAIN };
const SLOW_HEIR: Scope = Scope {
    name: "slow heir",
    arrivals: &[3, 1],
    slow_subscription: true,
    wasted: Some(0),
    end: 6,
    ..Scope::PLAIN
};
const SLOT: Scope = Scope { name: "slot", moves: 1, end: 3, ..Scope::PLAIN };
const SLOT_HEIR: Scope =
    Scope { name: "slot, heir", arrivals: &[3, 1], moves: 1, end: 4, ..Scope::PLAIN };
const SLOT_CANCEL: Scope =
    Scope { name: "slot, cancel", arrivals: &[1, 1], moves: 1, cancels: 1, end: 4, ..Scope::PLAIN };
const SLOT_ZERO: Scope = Scope {
    name: "slot, lost `0`",
    arrivals: &[1, 1],
    moves: 1,
    lost_messages: 1,
    only_zero_is_lost: true,
    idle: Some(0),
    end: 5,
    ..Scope::PLAIN
};
const SLOT_ZERO_2: Scope = Scope { name: "slot twice", arrivals: &[2, 1], moves: 2, ..SLOT_ZERO };
const CLOCK: Scope = Scope { name: "clock", arrivals: &[2, 1], jumps: 1, end: 5, ..Scope::PLAIN };
const CLOCK_HEIR: Scope =
    Scope { name: "clock, heir", arrivals: &[3, 1], jumps: 1, end: 3, ..Scope::PLAIN };
const CLOCK_3: Scope = Scope { name: "clock, three", jumps: 1, end: 3, ..Scope::PLAIN };
const CLOCK_UNKNOWN: Scope = Scope {
    name: "clock, unknown",
    arrivals: &[1, 1],
    jumps: 1,
    unknown: 1,
    end: 2,
    ..Scope::PLAIN
};
const REFUSED: Scope = Scope { name: "refused", refusals: 1, end: 6, ..Scope::PLAIN };
const REFUSED_HEIR: Scope =
    Scope { name: "refused, heir", arrivals: &[3, 1], refusals: 2, ..Scope::PLAIN };
const REFUSED_DEATH: Scope =
    Scope { name: "refused, death", refusals: NEVER, deaths: 1, end: 9, ..Scope::PLAIN };
const RANKS: Scope =
    Scope { name: "ranks", timers: Some(1), deaths: 1, end: 5, idle: Some(1), ..Scope::PLAIN };
const RANKS_LONG: Scope = Scope { name: "ranks, longer", idle: None, end: 8, ..RANKS };
const RANKS_2: Scope = Scope {
    name: "ranks, messages",
    timers: Some(2),
    lost_messages: 1,
    end: 7,
    idle: Some(1),
    idle_of: 2,
    ..Scope::PLAIN
};
const WATCHER: Scope =
    Scope { name: "watcher", arrivals: &[2, 1], watcher: true, end: 6, ..Scope::PLAIN };
const WATCHER_LOST: Scope = Scope {
    name: "watcher, faults",
    arrivals: &[1, 1],
    watcher: true,
    lost_messages: 1,
    deaths: 1,
    end: 10,
    ..Scope::PLAIN
};
const SHORT_LEASE: Scope = Scope {
    name: "short lease",
    arrivals: &[1, 2],
    lease: 2,
    reservation: 3,
    fallback: 4,
    line_lives: 6,
    end: 6,
    ..Scope::PLAIN
};
const TIMERS: Scope =
    Scope { name: "timers", lost_messages: 1, end: 7, idle: Some(1), idle_of: 2, ..Scope::PLAIN };
const DELAYS: Scope = Scope {
    name: "delays",
    arrivals: &[1, 1],
    prompt: false,
    lease: 3,
    fallback: 2,
    line_lives: 3,
    end: 3,
    ..Scope::PLAIN
};
const DELAYS_UNKNOWN: Scope =
    Scope { name: "delays, unknown", unknown: 1, end: 2, lease: 2, ..DELAYS };
const DELAYS_DEATH: Scope = Scope { name: "delays, death", deaths: 1, ..DELAYS };

const FAILOVER: Scope =
    Scope { name: "failover", arrivals: &[2, 1], failovers: 1, end: 10, ..Scope::PLAIN };
const FAILOVER_3: Scope = Scope { name: "failover, three", failovers: 1, end: 8, ..Scope::PLAIN };
const SLOT_UNKNOWN: Scope = Scope {
    name: "slot, unknown",
    arrivals: &[2, 1],
    moves: 1,
    unknown: 1,
    end: 3,
    ..Scope::PLAIN
};
const SLOT_3: Scope =
    Scope { name: "slot, three", arrivals: &[2, 1, 1], moves: 1, end: 4, ..Scope::PLAIN };
const SLOT_DEATH: Scope =
    Scope { name: "slot, death", moves: 1, deaths: 1, end: 5, ..Scope::PLAIN };
const SLOT_CUT: Scope = Scope { name: "slot, cut", moves: 1, cuts: 1, end: 3, ..Scope::PLAIN };
const SLOT_FORCED: Scope =
    Scope { name: "slot, forced", moves: 1, forces: 1, end: 2, ..Scope::PLAIN };
const SLOT_CLOCK: Scope =
    Scope { name: "slot, clock", arrivals: &[2, 1], moves: 1, jumps: 1, end: 4, ..Scope::PLAIN };
const SLOT_REFUSED: Scope =
    Scope { name: "slot, refused", moves: 1, refusals: 1, end: 4, ..Scope::PLAIN };
const REFUSED_MESSAGES: Scope =
    Scope { name: "refused, messages", refusals: 1, lost_messages: 1, end: 6, ..Scope::PLAIN };
const WATCHER_SLOT: Scope = Scope {
    name: "watcher, slot",
    arrivals: &[2, 1],
    watcher: true,
    moves: 1,
    end: 5,
    ..Scope::PLAIN
};
const SLOW_UNKNOWN: Scope = Scope {
    name: "slow heir, unknown",
    arrivals: &[3, 1],
    slow_subscription: true,
    unknown: 1,
    end: 5,
    ..Scope::PLAIN
};
const DELAYS_LONG: Scope = Scope { name: "delays, longer", arrivals: &[2, 1], end: 4, ..DELAYS };
const DELAYS_3: Scope = Scope { name: "delays, three", arrivals: &[1, 1, 1], end: 3, ..DELAYS };

/// In each of these the correct protocol is explored to the end.
const SCOPES: &[Scope] = &[
    TWO,
    THREE,
    CANCELS,
    UNKNOWN,
    UNKNOWN_TIMER,
    UNKNOWN_HEIR,
    MESSAGES,
    CUTS_2,
    DEATHS,
    DEATHS_2,
    DEATHS_SHORT,
    LONG_HOLD,
    DELETED,
    FORCED,
    LINE_LOST,
    TRIES,
    SLOW,
    SLOW_HEIR,
    SLOT,
    SLOT_HEIR,
    SLOT_CANCEL,
    SLOT_ZERO,
    SLOT_ZERO_2,
    CLOCK,
    CLOCK_HEIR,
    REFUSED,
    REFUSED_HEIR,
    REFUSED_DEATH,
    RANKS,
    RANKS_LONG,
    RANKS_2,
    WATCHER,
    WATCHER_LOST,
    SHORT_LEASE,
    TIMERS,
    DELAYS,
    DELAYS_DEATH,
    DELAYS_UNKNOWN,
];

/// Larger ones, for a machine with time.
const LARGE: &[Scope] = &[
    CANCELS_3,
    UNKNOWN_2,
    UNKNOWN_3,
    UNKNOWN_LEAVES,
    UNKNOWN_DELETED,
    MESSAGES_4,
    CUTS,
    CLOCK_3,
    CLOCK_UNKNOWN,
    FAILOVER,
    FAILOVER_3,
    SLOT_UNKNOWN,
    SLOT_3,
    SLOT_DEATH,
    SLOT_CUT,
    SLOT_FORCED,
    SLOT_CLOCK,
    SLOT_REFUSED,
    REFUSED_MESSAGES,
    WATCHER_SLOT,
    SLOW_UNKNOWN,
    DELAYS_LONG,
    DELAYS_3,
];

/// More states than any larger scope has.
const LARGE_LIMIT: usize = 30_000_000;

/// What is done instead of what the rule says, and a scope in which that shows.
const RULES: &[(Switch, &str, Scope)] = &[
    (Switch::LineIsNotRenewed, "an attempt that waits does not renew the line's key", LONG_HOLD),
    (Switch::PickUpWaitsForSlot, "a pick-up waits for a slot that moves", SLOT),
    (Switch::NamesNoTicket, "an attempt does not name its ticket", MESSAGES),
    (Switch::ZeroIsIgnored, "a waiter does not try after `0`", LINE_LOST),
    (Switch::OneRelease, "a release without an answer is not repeated", UNKNOWN),
    (Switch::GiverIsNotReleased, "the giver of an unknown hand-off is not released", UNKNOWN_HEIR),
    (Switch::PickUpKeepsTimeToLive, "picking up keeps a longer time to live", SHORT_LEASE),
    (Switch::KeepsPlaceOfReserved, "who has a reservation keeps its place", DEATHS),
    (Switch::ReleaseReservesNobody, "a release reserves for nobody", THREE),
    (Switch::LeavingReservesNobody, "leaving reserves for nobody", CANCELS_3),
    (Switch::LeavingPassesOnHeldLock, "leaving passes on a lock that is held", CANCELS_3),
    (Switch::RepairOnlyByFirst, "release(0) passes on only for the first in line", SLOT_ZERO),
    (Switch::ForceReservesNobody, "a force-release reserves for nobody", FORCED),
    (Switch::EntersLate, "an attempt past its not_after enters the line", UNKNOWN_3),
    (Switch::TicketMoves, "an attempt takes a new ticket", THREE),
    (Switch::AgainTakesFreeLock, "a waiter takes a free lock past the line", DELETED),
    (
        Switch::AgainDoesNotPassOn,
        "a waiter leaves a free lock to the first in line, unannounced",
        DEATHS_SHORT,
    ),
    (Switch::InsertsAfterPassOn, "a waiter enters the line after pass_on", MESSAGES),
    (Switch::StaysAfterGrant, "a grant leaves the place in the line", DELETED),
    (Switch::TryTakesReservation, "a try takes what is reserved for another", TRIES),
    (Switch::NoZero, "nothing is published if there is no line", LINE_LOST),
    (Switch::DeafEnters, "a waiter that does not hear enters the line", SLOW_HEIR),
    (Switch::DeafGetsNoTicket, "a waiter that does not hear gets no ticket", CUTS),
    (
        Switch::DeafHeirEnters,
        "an heir enters the line although its client does not hear",
        SLOW_HEIR,
    ),
    (Switch::LateHandOffKeepsLock, "a late hand-off leaves the lock with the giver", CLOCK_HEIR),
    (
        Switch::RefusalGrantsNobody,
        "after a refused command nobody is granted the free lock",
        REFUSED_DEATH,
    ),
    (Switch::ReservationIsNotTold, "waiters are not told when a reservation ends", TIMERS),
    (
        Switch::AcquiresWhileSlotMoves,
        "an absent lock is acquired without the line while its slot moves",
        SLOT,
    ),
    (Switch::NothingOwed, "a release of the lock alone is not repeated with the line", SLOT_ZERO),
    (
        Switch::OwedForgotten,
        "a repeat on the wire counts for later releases of the lock alone",
        SLOT_ZERO_2,
    ),
    (Switch::LeavesByLockAlone, "leaving is done by a release of the lock alone", SLOT_CANCEL),
    (Switch::PlaceLostOnCancel, "the place does not pass on with the role", CANCELS_3),
    (Switch::NotLeaving, "the last waiter does not leave the line", CANCELS),
    (Switch::TicketKeptAfterGrant, "a ticket is kept after a grant", TWO),
    (
        Switch::TicketKeptAfterLeaving,
        "a ticket is kept after the last waiter has left",
        UNKNOWN_LEAVES,
    ),
    (Switch::NoTicketAfterUnknown, "a ticket is forgotten after an unknown attempt", UNKNOWN_3),
    (Switch::FirstAfterUnknown, "an unknown attempt is followed by a first one", UNKNOWN_DELETED),
    (Switch::OneReleaseOfDead, "an id that is over is released only once", UNKNOWN_3),
    (
        Switch::DeadUntilEqualTime,
        "an id counts as over at a TIME equal to not_after",
        DELAYS_UNKNOWN,
    ),
    (Switch::HeirIsNotReleased, "the heir of an unknown hand-off is not released", UNKNOWN_HEIR),
    (Switch::HandOffsUnbounded, "hand-offs in a row have no bound", TWO),
    (Switch::MessageIsAGrant, "an announcement is taken for a grant", THREE),
    (Switch::MessageDuringAttemptDropped, "an announcement during an attempt is dropped", THREE),
    (Switch::MessageDuringHandOffDropped, "an announcement during a hand-off is dropped", TWO),
    (Switch::NoTryAfterConfirmation, "a waiter does not try once it hears", THREE),
    (Switch::ValidityFromReply, "the validity of a grant is counted from its answer", DELAYS),
    (Switch::NoFallback, "there is no fallback", MESSAGES),
    (Switch::AnnouncementPostponesFallback, "an announcement postpones the fallback", MESSAGES_4),
    (Switch::NoTimer, "no timer runs at the end of a reservation that was heard of", TIMERS),
    (
        Switch::DeadIdSetsNoTimer,
        "a reservation for an id that is over sets no timer",
        UNKNOWN_TIMER,
    ),
    (Switch::AnswerReplacesTimer, "an answer replaces the timer that a message has set", TIMERS),
    (Switch::RanksStay, "ranks do not fall with announcements", RANKS),
    (Switch::WatcherHasNoFallback, "who only listens has no fallback", WATCHER_LOST),
];

/// The model, with all that is explored of it.
pub(crate) fn model() -> Model {
    let within = |scope, switch| explore(&Line { scope, switch }, LIMIT);
    Model::of("line", SCOPES, RULES, |scope| scope.name, within)
}

/// The model in larger scopes.
pub(crate) fn large() -> Model {
    let within = |scope, switch| explore(&Line { scope, switch }, LARGE_LIMIT);
    Model::of("line", LARGE, &[], |scope| scope.name, within)
}
