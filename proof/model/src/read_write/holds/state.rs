//! Everything that matters: the lock, the network, the clients.

use crate::read_write::holds::Scope;

/// What a client asks for. All counts are absolute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Command {
    /// The first attempt of a hold.
    Take {
        id: u8,
        write: bool,
    },
    /// More of a hold that is there.
    Want {
        id: u8,
        reads: u8,
        writes: u8,
    },
    /// Less of it.
    Keep {
        id: u8,
        reads: u8,
        writes: u8,
    },
    Downgrade {
        id: u8,
        reads: u8,
    },
    /// The last release; or of an id that is over, whatever it may have left.
    End {
        id: u8,
        undo: bool,
    },
    Renew {
        id: u8,
    },
    Upgrade {
        from: u8,
        to: u8,
    },
}

impl Command {
    pub(super) fn id(self) -> u8 {
        match self {
            Self::Take { id, .. }
            | Self::Want { id, .. }
            | Self::Keep { id, .. }
            | Self::Downgrade { id, .. }
            | Self::End { id, .. }
            | Self::Renew { id } => id,
            Self::Upgrade { to, .. } => to,
        }
    }

    /// Whether it is right at any time.
    pub(super) fn is_never_late(self) -> bool {
        matches!(self, Self::Keep { .. } | Self::Downgrade { .. } | Self::End { .. })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Answer {
    Done,
    Refused,
    Late,
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Message {
    pub(super) client: u8,
    pub(super) command: Command,
    pub(super) not_after: u8,
    pub(super) sent: u8,
    /// Its client still waits for the answer.
    pub(super) awaited: bool,
    /// With the time at the server.
    pub(super) answer: Option<(Answer, u8)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Field {
    pub(super) id: u8,
    pub(super) reads: u8,
    pub(super) writes: u8,
}

/// What a client believes to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Hold {
    pub(super) id: u8,
    /// The hold that an upgrade has added, or 0.
    pub(super) upgrade: u8,
    pub(super) reads: u8,
    pub(super) writes: u8,
    pub(super) until: u8,
    /// Its command that is not done yet, and whether it is on the wire.
    pub(super) busy: Option<(Command, bool)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Idle,
    Taking,
    Held(Hold),
    Dead,
}

/// An id that may have left something at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct DeadId {
    pub(super) id: u8,
    pub(super) not_after: u8,
    pub(super) on_wire: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) starts: u8,
    pub(super) phase: Phase,
    pub(super) dead: Vec<DeadId>,
    pub(super) renewing: bool,
}

/// One state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) now: u8,
    /// The hash of the lock, whether its mode is *write*, and when it ends.
    pub(super) fields: Vec<Field>,
    pub(super) writing: bool,
    pub(super) ends: u8,
    /// The timeout keys: id and end.
    pub(super) timeouts: Vec<(u8, u8)>,
    pub(super) wire: Vec<Message>,
    pub(super) clients: Vec<Client>,
    /// The ids of which nothing may be left, as bits.
    pub(super) finished: u32,
    pub(super) next_id: u8,
    pub(super) unknown: u8,
    pub(super) operations: u8,
    pub(super) renewals: u8,
    pub(super) upgrades: u8,
    pub(super) deaths: u8,
    /// The holds of dead clients, each with the last time at which a command of it may be executed.
    pub(super) died: Vec<(u8, u8)>,
    pub(super) broken: Option<&'static str>,
}

impl State {
    pub(super) fn new(scope: &Scope) -> Self {
        let client = |starts: &u8| Client {
            starts: *starts,
            phase: Phase::Idle,
            dead: Vec::new(),
            renewing: false,
        };
        Self {
            now: 0,
            fields: Vec::new(),
            writing: false,
            ends: 0,
            timeouts: Vec::new(),
            wire: Vec::new(),
            clients: scope.starts.iter().map(client).collect(),
            finished: 0,
            next_id: 1,
            unknown: scope.unknown,
            operations: scope.operations,
            renewals: scope.renewals,
            upgrades: scope.upgrades,
            deaths: scope.deaths,
            died: Vec::new(),
            broken: None,
        }
    }

    pub(super) fn field(&self, id: u8) -> Option<Field> {
        self.fields.iter().find(|field| field.id == id).copied()
    }

    pub(super) fn reads(&self, id: u8) -> u8 {
        self.field(id).map_or(0, |field| field.reads)
    }

    pub(super) fn writes(&self, id: u8) -> u8 {
        self.field(id).map_or(0, |field| field.writes)
    }

    /// When the timeout key ends; 0: it is not there.
    pub(super) fn timeout(&self, id: u8) -> u8 {
        self.timeouts.iter().find(|(known, _)| *known == id).map_or(0, |(_, end)| *end)
    }

    /// Without reads and writes the field is gone, and with the last field the lock.
    pub(super) fn set(&mut self, id: u8, reads: u8, writes: u8) {
        self.fields.retain(|field| field.id != id);
        if reads + writes > 0 {
            self.fields.push(Field { id, reads, writes });
            self.fields.sort();
        }
        if self.fields.is_empty() {
            (self.ends, self.writing) = (0, false);
        }
    }

    /// 0 removes it.
    pub(super) fn set_timeout(&mut self, id: u8, end: u8) {
        self.timeouts.retain(|(known, _)| *known != id);
        if end > 0 {
            self.timeouts.push((id, end));
            self.timeouts.sort_unstable();
        }
    }

    pub(super) fn send(&mut self, client: u8, command: Command, not_after: u8) {
        let sent = self.now;
        let message = Message { client, command, not_after, sent, awaited: true, answer: None };
        self.wire.push(message);
        self.wire.sort();
    }

    pub(super) fn client(&mut self, client: u8) -> &mut Client {
        &mut self.clients[usize::from(client)]
    }

    pub(super) fn hold(&mut self, client: u8) -> Option<&mut Hold> {
        match &mut self.client(client).phase {
            Phase::Held(hold) => Some(hold),
            _ => None,
        }
    }
}
