//! What there is: the lock, the line, the clients, what is on the wire; and what only the checks
//! look at.

use crate::line::Scope;

/// A time that never comes.
pub(crate) const NEVER: u8 = u8::MAX;
/// The one who listens without a place, as a receiver of messages.
pub(crate) const WATCHER: u8 = 7;

/// The client of a hold id: ids are `8 * client + number`, with numbers from 1.
pub(crate) fn owner(id: u8) -> usize {
    usize::from(id / 8)
}

/// A set of clients, or of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Set(u32);

impl Set {
    pub(crate) fn has(self, number: impl Into<usize>) -> bool {
        self.0 & (1 << number.into()) != 0
    }

    pub(crate) fn add(&mut self, number: impl Into<usize>) {
        self.0 |= 1 << number.into();
    }

    pub(crate) fn remove(&mut self, number: impl Into<usize>) {
        self.0 &= !(1 << number.into());
    }

    pub(crate) fn keep(&mut self, others: Self) {
        self.0 &= others.0;
    }
}

/// The lock's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    pub(crate) id: u8,
    /// Its count is 0: nobody holds it yet.
    pub(crate) reserved: bool,
    pub(crate) expires: u8,
}

/// A place in the line. The lowest ticket is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) ticket: u8,
    pub(crate) id: u8,
}

/// What is in Redis.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Data {
    pub(crate) lock: Option<Lock>,
    pub(crate) line: Vec<Place>,
    pub(crate) line_expires: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Mode {
    Try,
    First,
    Again,
}

/// The keys that an acquire or a release declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Keys {
    LockAndLine,
    LockAlone,
}

/// What a release is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// A hold ends.
    Hold,
    /// Nothing may remain of an id that its client no longer uses.
    Dead,
    /// A release of the lock alone is owed a release with the line.
    Owed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Command {
    Acquire { id: u8, mode: Mode, ticket: u8, hears: bool, keys: Keys },
    Release { id: u8, keys: Keys, purpose: Purpose },
    HandOff { from: u8, to: u8, line_first: bool, hears: bool },
    ForceRelease { id: u8 },
}

/// What a waiter is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Told {
    /// Ticks until the lock runs out; `NEVER` if that is not before the fallback.
    pub(crate) time_to_live: u8,
    pub(crate) ticket: u8,
    pub(crate) rank: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Answer {
    Granted,
    Waits(Told),
    /// The end of a `try_lock`.
    Refused,
    Late,
    Freed,
    /// By a release of the lock alone.
    FreedAlone,
    NotOwn,
    /// The slot is on its way to another server; nothing was done.
    TryAgain,
}

/// A command on its way, or its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Message {
    pub(crate) client: u8,
    pub(crate) command: Command,
    pub(crate) sent: u8,
    pub(crate) not_after: u8,
    pub(crate) awaited: bool,
    /// With the server's time.
    pub(crate) answer: Option<(Answer, u8)>,
}

/// What is said on the lock channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Word {
    /// `0`: try.
    Zero,
    /// The lock was reserved for this id.
    Reserved(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Hold {
    None,
    Held { id: u8, until: u8 },
    Releasing { id: u8, on_wire: bool },
    HandingOff { from: u8, to: u8 },
}

/// An id that its client no longer uses, until nothing can remain of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Dead {
    pub(crate) id: u8,
    pub(crate) not_after: u8,
    pub(crate) on_wire: bool,
    /// A release of it was answered, but not past `not_after`.
    pub(crate) answered: bool,
    /// It waits for a slot that moves.
    pub(crate) slot: bool,
}

/// A release with the line that is owed after releases of the lock alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Owed {
    pub(crate) id: u8,
    pub(crate) on_wire: bool,
    /// Another release of the lock alone was answered while it was on the wire.
    pub(crate) again: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Subscription {
    None,
    Wanted,
    Confirmed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) alive: bool,
    /// Its connection for messages.
    pub(crate) linked: bool,
    pub(crate) subscription: Subscription,
    pub(crate) arrivals: u8,
    pub(crate) waiting: u8,
    /// The id with which the contender tries; 0 before its first attempt.
    pub(crate) id: u8,
    pub(crate) ticket: u8,
    pub(crate) rank: u8,
    /// Its next attempt is an *again*.
    pub(crate) again: bool,
    pub(crate) attempt_on_wire: bool,
    /// It has a reason to try now.
    pub(crate) duty: bool,
    /// Its attempt waits for a slot that moves.
    pub(crate) slot: bool,
    pub(crate) fallback: u8,
    pub(crate) timer: u8,
    pub(crate) hold: Hold,
    pub(crate) dead: Vec<Dead>,
    pub(crate) owed: Option<Owed>,
    pub(crate) ids: u8,
    /// Hand-offs in a row that did not look at the line.
    pub(crate) hand_offs: u8,
    /// Checks only: when its last attempt was answered; 0 while it has a reason to try.
    pub(crate) asleep_since: u8,
}

/// One who listens without a place, and wants to know when the lock is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Watcher {
    pub(crate) looks_at: u8,
    /// When it last looked, somebody had the lock.
    pub(crate) believes_taken: bool,
    /// Checks only: for how long it has believed that of a lock that is free.
    pub(crate) wrong_for: u8,
}

/// What may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    pub(crate) unknown: u8,
    pub(crate) lost_messages: u8,
    pub(crate) cuts: u8,
    pub(crate) cancels: u8,
    pub(crate) deaths: u8,
    pub(crate) forces: u8,
    pub(crate) deletions: u8,
    pub(crate) line_losses: u8,
    pub(crate) moves: u8,
    pub(crate) tries: u8,
    pub(crate) refusals: u8,
    pub(crate) jumps: u8,
    pub(crate) failovers: u8,
}

/// A command inside `pass_on` that Redis refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    Publish,
    Write,
}

/// What only the checks look at.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Checks {
    /// The clients that have been told a ticket, or will be: tickets and clients. So the lock must
    /// go.
    pub(crate) order: Vec<(u8, u8)>,
    /// Clients of these that may be passed over until their next attempt, because something of
    /// theirs was lost.
    pub(crate) excused: Set,
    /// Clients that could not hear a message.
    pub(crate) missed: Set,
    /// The lock got free without a script that looks at the line.
    pub(crate) newcomers_may_overtake: bool,
    /// Ids of which their client says that nothing is left.
    pub(crate) finished: Set,
    /// Ids whose hold was taken away from them.
    pub(crate) breached: Set,
    /// Ids that came back with a replica.
    pub(crate) restored: Set,
    /// Ticks for which nobody has held the lock while somebody waited.
    pub(crate) idle: u8,
    pub(crate) faulty: bool,
    /// Clients that cannot hear, or places that nobody will pick up.
    pub(crate) gone: u8,
    /// Reservations of living clients that ran out.
    pub(crate) wasted: u8,
    pub(crate) flaw: Option<&'static str>,
}

/// One state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) now: u8,
    pub(crate) data: Data,
    /// What a replica has got, in scopes with a failover.
    pub(crate) replica: Option<Data>,
    /// The slot is on its way to another server.
    pub(crate) moving: bool,
    /// The command that is refused in the script that runs now.
    pub(crate) refusal: Option<Refusal>,
    pub(crate) clients: Vec<Client>,
    pub(crate) watcher: Option<Watcher>,
    /// Sorted: the order of what is on its way means nothing.
    pub(crate) wire: Vec<Message>,
    /// On their way to these clients. Sorted.
    pub(crate) words: Vec<(u8, Word)>,
    pub(crate) left: Left,
    pub(crate) checks: Checks,
}

impl Client {
    fn new(arrivals: u8) -> Self {
        Self {
            alive: true,
            linked: true,
            subscription: Subscription::None,
            arrivals,
            waiting: 0,
            id: 0,
            ticket: 0,
            rank: 0,
            again: false,
            attempt_on_wire: false,
            duty: false,
            slot: false,
            fallback: NEVER,
            timer: NEVER,
            hold: Hold::None,
            dead: Vec::new(),
            owed: None,
            ids: 0,
            hand_offs: 0,
            asleep_since: 0,
        }
    }

    /// What remains of a client that died: nothing that could act.
    pub(crate) fn dead(ids: u8) -> Self {
        Self { alive: false, linked: false, ids, ..Self::new(0) }
    }

    pub(crate) fn hears(&self) -> bool {
        self.alive && self.linked && self.subscription == Subscription::Confirmed
    }

    /// Whether it is waiting now, rather than holding or giving back.
    pub(crate) fn contends(&self) -> bool {
        self.alive && self.waiting > 0 && self.hold == Hold::None
    }
}

impl State {
    pub(crate) fn new(scope: &Scope) -> Self {
        let watcher = Watcher { looks_at: scope.fallback + 1, believes_taken: false, wrong_for: 0 };
        Self {
            now: 1,
            data: Data { lock: None, line: Vec::new(), line_expires: 0 },
            replica: None,
            moving: false,
            refusal: None,
            clients: scope.arrivals.iter().map(|arrivals| Client::new(*arrivals)).collect(),
            watcher: scope.watcher.then_some(watcher),
            wire: Vec::new(),
            words: Vec::new(),
            left: Left {
                unknown: scope.unknown,
                lost_messages: scope.lost_messages,
                cuts: scope.cuts,
                cancels: scope.cancels,
                deaths: scope.deaths,
                forces: scope.forces,
                deletions: scope.deletions,
                line_losses: scope.line_losses,
                moves: scope.moves,
                tries: scope.tries,
                refusals: scope.refusals,
                jumps: scope.jumps,
                failovers: scope.failovers,
            },
            checks: Checks { faulty: scope.slow_subscription, ..Checks::default() },
        }
    }

    pub(crate) fn client(&mut self, who: u8) -> &mut Client {
        &mut self.clients[usize::from(who)]
    }

    /// All clients with their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u8, &Client)> {
        (0..).zip(&self.clients)
    }

    pub(crate) fn send(&mut self, client: u8, command: Command, not_after: u8) {
        let message =
            Message { client, command, sent: self.now, not_after, awaited: true, answer: None };
        self.put(message);
    }

    pub(crate) fn put(&mut self, message: Message) {
        let at = self.wire.partition_point(|other| *other < message);
        self.wire.insert(at, message);
    }

    /// Puts a word on its way to one client. Two equal ones have the effect of one.
    pub(crate) fn say(&mut self, to: u8, word: Word) {
        if let Err(at) = self.words.binary_search(&(to, word)) {
            self.words.insert(at, (to, word));
        }
    }

    /// Nobody waits for these answers any more. Requests stay on their way.
    pub(crate) fn abandon(&mut self, is_it: impl Fn(&Message) -> bool) {
        for message in &mut self.wire {
            message.awaited &= !is_it(message);
        }
        self.wire.retain(|message| message.awaited || message.answer.is_none());
        self.wire.sort_unstable();
    }

    /// Higher than every ticket that there is, as the server's time would be.
    pub(crate) fn new_ticket(&mut self) -> u8 {
        let mut highest = 0;
        self.each_ticket(|ticket| highest = highest.max(*ticket));
        highest + 1
    }

    fn each_ticket(&mut self, mut f: impl FnMut(&mut u8)) {
        self.data.line.iter_mut().for_each(|place| f(&mut place.ticket));
        for place in self.replica.iter_mut().flat_map(|data| &mut data.line) {
            f(&mut place.ticket);
        }
        self.checks.order.iter_mut().for_each(|(ticket, _)| f(ticket));
        self.clients.iter_mut().for_each(|client| f(&mut client.ticket));
        for message in &mut self.wire {
            if let Command::Acquire { ticket, .. } = &mut message.command {
                f(ticket);
            }
            if let Some((Answer::Waits(told), _)) = &mut message.answer {
                f(&mut told.ticket);
            }
        }
    }

    /// Whether a client has a ticket, or will have one when it reads its answer.
    pub(crate) fn has_ticket(&self, who: usize) -> bool {
        let told = |message: &Message| {
            usize::from(message.client) == who
                && message.awaited
                && matches!(message.answer, Some((Answer::Waits(told), _)) if told.ticket != 0)
        };
        self.clients[who].ticket != 0 || self.wire.iter().any(told)
    }

    /// Forgets what makes no difference any more, so that states with the same future are the same.
    pub(crate) fn tidy_up(&mut self) {
        for message in &mut self.wire {
            if matches!(message.command, Command::Release { .. }) || !message.awaited {
                message.sent = 0;
            }
        }
        self.only_the_order_of_tickets_counts();
        self.wire.sort_unstable();
        self.forget_ids();
        for (who, client) in self.clients.iter_mut().enumerate() {
            if client.waiting == 0 {
                client.subscription = Subscription::None;
                self.checks.missed.remove(who);
            }
            if !self.checks.order.iter().any(|(_, other)| usize::from(*other) == who) {
                self.checks.excused.remove(who);
            }
        }
    }

    fn only_the_order_of_tickets_counts(&mut self) {
        let mut seen = 0_u64;
        self.each_ticket(|ticket| seen |= 1 << *ticket);
        self.each_ticket(|ticket| {
            let lower = (seen & !1) & ((1 << *ticket) - 1);
            if *ticket != 0 {
                *ticket = u8::try_from(lower.count_ones()).unwrap_or(u8::MAX) + 1;
            }
        });
    }

    /// What is remembered of ids that nothing names any more.
    fn forget_ids(&mut self) {
        let mut named = Set::default();
        for data in [Some(&self.data), self.replica.as_ref()].into_iter().flatten() {
            data.lock.iter().for_each(|lock| named.add(lock.id));
            data.line.iter().for_each(|place| named.add(place.id));
        }
        for message in &self.wire {
            match message.command {
                Command::Acquire { id, .. }
                | Command::Release { id, .. }
                | Command::ForceRelease { id } => {
                    named.add(id);
                }
                Command::HandOff { from, to, .. } => {
                    named.add(from);
                    named.add(to);
                }
            }
        }
        self.checks.finished.keep(named);
        self.checks.restored.keep(named);
        for client in &self.clients {
            if let Hold::Held { id, .. } = client.hold {
                named.add(id);
            }
        }
        self.checks.breached.keep(named);
    }
}
