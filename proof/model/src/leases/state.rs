//! What there is: the key, the clients, what is on the wire; and what only the checks look at.

use crate::leases::LEASE;
use crate::leases::Scope;

/// Hold ids: `8 * client + number`, numbers from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Ids(u32);

impl Ids {
    pub(crate) fn has(self, id: u8) -> bool {
        self.0 & (1 << id) != 0
    }

    pub(crate) fn add(&mut self, id: u8) {
        self.0 |= 1 << id;
    }

    pub(crate) fn remove(&mut self, id: u8) {
        self.0 &= !(1 << id);
    }

    pub(crate) fn keep(&mut self, others: Self) {
        self.0 &= others.0;
    }
}

/// The lock's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) id: u8,
    pub(crate) count: u8,
    pub(crate) expires: u8,
    /// Checks only: no later may it expire once nobody has a guard.
    pub(crate) bound: u8,
    /// Checks only: the end of its longest duration; 0 without one.
    pub(crate) max_end: u8,
}

/// What a client has with the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// A refused attempt's id may be used again: its answer said that nothing of it is left.
    Idle {
        kept: u8,
        stale: u8,
    },
    Acquiring {
        id: u8,
        wanted: bool,
        stale: u8,
    },
    Held(Hold),
    HandingOff {
        from: u8,
        to: u8,
        stale: u8,
    },
    Releasing {
        id: u8,
        on_wire: bool,
        stale: u8,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Hold {
    pub(crate) id: u8,
    pub(crate) until: u8,
    pub(crate) count: u8,
    /// A re-entry or a lower count is on the wire.
    pub(crate) busy: bool,
    pub(crate) max_end: u8,
    /// Checks only: its validity has ended once.
    pub(crate) ended: bool,
    /// Only with an id that is used again after an unknown attempt: that attempt's `not_after`.
    pub(crate) stale: u8,
}

/// The id of an unknown attempt, being cleaned up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Dead {
    pub(crate) id: u8,
    pub(crate) not_after: u8,
    pub(crate) on_wire: bool,
    pub(crate) answered: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    pub(crate) dead: Vec<Dead>,
    /// A renewal whose answer counts is on the wire.
    pub(crate) renewing: bool,
    pub(crate) ids: u8,
    pub(crate) starts: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Command {
    Acquire {
        id: u8,
        count: u8,
        lease: u8,
        max_end: u8,
    },
    /// `own`: what the owner believes the server's count to be.
    Release {
        id: u8,
        count: u8,
        own: u8,
        cleanup: bool,
    },
    /// `guarded`: there was a guard when it was sent.
    Renew {
        id: u8,
        lease: u8,
        guarded: bool,
    },
    HandOff {
        from: u8,
        to: u8,
        max_end: u8,
    },
    Force {
        id: u8,
    },
}

impl Command {
    /// The holds that it is about.
    pub(crate) fn ids(self) -> [u8; 2] {
        match self {
            Self::HandOff { from, to, .. } => [from, to],
            Self::Acquire { id, .. }
            | Self::Release { id, .. }
            | Self::Renew { id, .. }
            | Self::Force { id } => [id, id],
        }
    }

    /// The same operation: its answer ends the same wait.
    pub(crate) fn is_same_operation(self, other: Self) -> bool {
        match (self, other) {
            (Self::Renew { id, .. }, Self::Renew { id: other, .. }) => id == other,
            _ => self == other,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Answer {
    Granted,
    /// Held by another.
    Refused,
    Late,
    Gone,
    Foreign,
    Done,
}

/// Something on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Message {
    pub(crate) client: u8,
    pub(crate) command: Command,
    pub(crate) sent: u8,
    pub(crate) not_after: u8,
    /// The client still waits for the answer.
    pub(crate) awaited: bool,
    /// On its way back, with the server's time.
    pub(crate) answer: Option<(Answer, u8)>,
}

impl Message {
    /// What its receiver does not look at.
    fn forget_details(&mut self) {
        let last_release = matches!(self.command, Command::Release { count: 0, .. });
        if matches!(self.command, Command::Release { .. }) {
            self.sent = 0;
        }
        if let Some((answer, time)) = &mut self.answer {
            if last_release {
                *answer = Answer::Done;
            } else {
                *time = 0;
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    pub(crate) unknown: u8,
    pub(crate) copies: u8,
    pub(crate) cancels: u8,
    pub(crate) reentries: u8,
    pub(crate) renewals: u8,
    pub(crate) hand_offs: u8,
    pub(crate) forces: u8,
    pub(crate) data_losses: u8,
}

/// One state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) now: u8,
    pub(crate) key: Option<Key>,
    pub(crate) fence: u8,
    pub(crate) clients: Vec<Client>,
    /// Sorted: the order of what is on its way means nothing.
    pub(crate) wire: Vec<Message>,
    pub(crate) left: Left,
    /// Checks only: holds of which their client says that nothing is left.
    pub(crate) finished: Ids,
    /// Checks only: holds whose key was taken by force or lost with the data.
    pub(crate) breached: Ids,
    /// Checks only: the highest token that was granted.
    pub(crate) top: u8,
    /// Checks only: what the server did that it must never do.
    pub(crate) flaw: Option<&'static str>,
}

impl State {
    pub(crate) fn new(scope: &Scope) -> Self {
        let client = |starts: &u8| Client {
            phase: Phase::Idle { kept: 0, stale: 0 },
            dead: Vec::new(),
            renewing: false,
            ids: 0,
            starts: *starts,
        };
        Self {
            now: 1,
            key: None,
            fence: 0,
            clients: scope.starts.iter().map(client).collect(),
            wire: Vec::new(),
            left: Left {
                unknown: scope.unknown,
                copies: scope.copies,
                cancels: scope.cancels,
                reentries: scope.reentries,
                renewals: scope.renewals,
                hand_offs: scope.hand_offs,
                forces: scope.forces,
                data_losses: scope.data_losses,
            },
            finished: Ids::default(),
            breached: Ids::default(),
            top: 0,
            flaw: None,
        }
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

    /// Nobody waits for the answer any more. Requests stay on their way.
    pub(crate) fn abandon(&mut self, client: u8, is_it: impl Fn(Command) -> bool) {
        for message in &mut self.wire {
            message.awaited &= message.client != client || !is_it(message.command);
        }
        self.wire.retain(|message| message.awaited || message.answer.is_none());
        self.wire.sort_unstable();
    }

    /// Requests that came too late and that nobody waits for.
    pub(crate) fn drop_what_can_do_nothing(&mut self) {
        let now = self.now;
        self.wire.retain(|message| {
            let releases =
                matches!(message.command, Command::Release { .. } | Command::HandOff { .. });
            releases || message.awaited || now <= message.not_after
        });
    }

    /// Forgets what makes no difference any more, so that states with the same future are the same.
    /// `exact`: a broken rule may make a difference of what else makes none.
    pub(crate) fn tidy_up(&mut self, exact: bool) {
        if !exact {
            self.drop_what_finds_nothing();
            for message in &mut self.wire {
                message.forget_details();
            }
        }
        for message in self.wire.iter_mut().filter(|message| !message.awaited) {
            message.sent = 0;
        }
        self.wire.sort_unstable();
        let mut named = Ids::default();
        for message in &self.wire {
            message.command.ids().into_iter().for_each(|id| named.add(id));
        }
        self.key.iter().for_each(|key| named.add(key.id));
        self.finished.keep(named);
        for client in &self.clients {
            if let Phase::Held(hold) = client.phase {
                named.add(hold.id);
            }
        }
        self.breached.keep(named);
    }

    /// Commands that nobody waits for, of holds that are not on the server and cannot get there any
    /// more.
    fn drop_what_finds_nothing(&mut self) {
        let mut alive = Ids::default();
        self.key.iter().for_each(|key| alive.add(key.id));
        for message in self.wire.iter().filter(|message| message.answer.is_none()) {
            match message.command {
                Command::Acquire { id, count: 1, .. } | Command::HandOff { to: id, .. } => {
                    alive.add(id)
                }
                _ => {}
            }
        }
        for client in &self.clients {
            if let Phase::Idle { kept, .. } = client.phase {
                alive.add(kept);
            }
        }
        let in_key = self.key.map(|key| key.id);
        self.wire.retain(|message| match message.command {
            Command::Acquire { count: 1, .. } | Command::Force { .. } => true,
            Command::HandOff { from, to, .. } => {
                message.awaited || alive.has(from) || in_key == Some(to)
            }
            command => message.awaited || command.ids().into_iter().any(|id| alive.has(id)),
        });
    }

    /// The guard of a hold is gone, or may no longer be believed in.
    pub(crate) fn guard_ends(&mut self, id: u8) {
        let end = self.now + LEASE;
        if let Some(key) = &mut self.key {
            if key.id == id {
                key.bound = key.bound.max(end);
            }
        }
    }
}
