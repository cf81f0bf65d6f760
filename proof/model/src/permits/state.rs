//! What there is: permits, the line, the clients, and what is on the wire.

use crate::permits::Scope;

/// A time that never comes.
pub(crate) const NEVER: u8 = u8::MAX;

/// In place of a hold id in a message: all that wait try.
pub(crate) const ALL: u8 = 0;

/// The client of a hold id: ids are `8 * client + number`, with numbers from 1.
pub(crate) fn owner(id: u8) -> usize {
    usize::from(id / 8)
}

/// The permits of one hold, or what is reserved for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Taken {
    pub(crate) id: u8,
    pub(crate) permits: u8,
    pub(crate) end: u8,
}

/// A place in the line. The lowest ticket is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) ticket: u8,
    pub(crate) id: u8,
    pub(crate) want: u8,
    /// Until then it counts as alive.
    pub(crate) heard: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Command {
    Acquire { id: u8, want: u8, ticket: u8 },
    Release { id: u8 },
    ReleaseOfDead { id: u8 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Answer {
    Granted,
    /// With its ticket, and the end of what others have.
    Waits {
        ticket: u8,
        end: u8,
    },
    TooMany,
    Late,
    Released,
}

/// A command on its way, or its answer with the server's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Message {
    pub(crate) client: u8,
    pub(crate) command: Command,
    pub(crate) sent: u8,
    pub(crate) not_after: u8,
    pub(crate) awaited: bool,
    pub(crate) answer: Option<(Answer, u8)>,
}

/// A hold that its client believes in until a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) id: u8,
    pub(crate) want: u8,
    pub(crate) until: u8,
}

/// An id that its client no longer uses, until nothing can remain of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Dead {
    pub(crate) id: u8,
    pub(crate) not_after: u8,
    pub(crate) on_wire: bool,
    pub(crate) answered: bool,
}

/// The attempts of a client, on behalf of the first of its callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Contender {
    /// 0 before its first attempt.
    pub(crate) id: u8,
    pub(crate) ticket: u8,
    pub(crate) on_wire: bool,
    /// Its caller has gone.
    pub(crate) given_up: bool,
    /// It has a reason to try now.
    pub(crate) duty: bool,
    pub(crate) fallback: u8,
    pub(crate) timer: u8,
    /// Checks only: for how long it has slept.
    pub(crate) asleep: u8,
}

impl Contender {
    pub(crate) const NEW: Self = Self {
        id: 0,
        ticket: 0,
        on_wire: false,
        given_up: false,
        duty: true,
        fallback: NEVER,
        timer: NEVER,
        asleep: 0,
    };
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) alive: bool,
    /// How many of its callers have come.
    pub(crate) came: usize,
    /// What those want that wait.
    pub(crate) waiting: Vec<u8>,
    pub(crate) contender: Contender,
    pub(crate) holds: Vec<Held>,
    /// Holds whose release has no answer, and whether it is on the wire.
    pub(crate) releasing: Vec<(u8, bool)>,
    pub(crate) dead: Vec<Dead>,
    pub(crate) ids: u8,
}

/// What may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    pub(crate) unknown: u8,
    pub(crate) lost_messages: u8,
    pub(crate) cancels: u8,
    pub(crate) deaths: u8,
}

/// One state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) now: u8,
    /// How many permits there are for everybody.
    pub(crate) number: u8,
    pub(crate) numbers_set: usize,
    /// Sorted.
    pub(crate) taken: Vec<Taken>,
    /// Sorted.
    pub(crate) line: Vec<Place>,
    pub(crate) clients: Vec<Client>,
    /// Sorted: the order of what is on its way means nothing.
    pub(crate) wire: Vec<Message>,
    /// On their way to these clients: the ids for which something was reserved. Sorted.
    pub(crate) words: Vec<(u8, u8)>,
    pub(crate) left: Left,
    /// Checks only: ids of which their clients say that nothing is left.
    pub(crate) finished: Vec<u8>,
    /// Checks only: ids whose message was lost.
    pub(crate) missed: Vec<u8>,
    /// Checks only: the ticket of the first that waits, and for how many ticks it would have had its
    /// permits.
    pub(crate) idle: (u8, u8),
    pub(crate) flaw: Option<&'static str>,
}

impl State {
    pub(crate) fn new(scope: &Scope) -> Self {
        let client = |_: &&[u8]| Client {
            alive: true,
            came: 0,
            waiting: Vec::new(),
            contender: Contender::NEW,
            holds: Vec::new(),
            releasing: Vec::new(),
            dead: Vec::new(),
            ids: 0,
        };
        Self {
            now: 1,
            number: scope.permits,
            numbers_set: 0,
            taken: Vec::new(),
            line: Vec::new(),
            clients: scope.callers.iter().map(client).collect(),
            wire: Vec::new(),
            words: Vec::new(),
            left: Left {
                unknown: scope.unknown,
                lost_messages: scope.lost_messages,
                cancels: scope.cancels,
                deaths: scope.deaths,
            },
            finished: Vec::new(),
            missed: Vec::new(),
            idle: (0, 0),
            flaw: None,
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
        let sent = if matches!(command, Command::Acquire { .. }) { self.now } else { 0 };
        self.put(Message { client, command, sent, not_after, awaited: true, answer: None });
    }

    pub(crate) fn put(&mut self, message: Message) {
        let at = self.wire.partition_point(|other| *other < message);
        self.wire.insert(at, message);
    }

    /// How many permits are held or reserved, with those that have run out and were not taken back.
    pub(crate) fn permits_taken(&self) -> u8 {
        self.taken.iter().map(|taken| taken.permits).sum()
    }

    /// The ids that are over are told apart only while something names them.
    pub(crate) fn finish(&mut self, id: u8) {
        if let Err(at) = self.finished.binary_search(&id) {
            self.finished.insert(at, id);
        }
    }

    /// Higher than every ticket that there is, as the server's time would be.
    pub(crate) fn new_ticket(&self) -> u8 {
        let places = self.line.iter().map(|place| place.ticket);
        let clients = self.clients.iter().map(|client| client.contender.ticket);
        let wire = self.wire.iter().map(|message| match (message.command, message.answer) {
            (_, Some((Answer::Waits { ticket, .. }, _))) | (Command::Acquire { ticket, .. }, _) => {
                ticket
            }
            _ => 0,
        });
        places.chain(clients).chain(wire).max().unwrap_or(0) + 1
    }
}
