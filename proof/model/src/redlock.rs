//! Redlock: a lock over three independent servers, held by whoever has a majority of them.
//!
//! A client asks all servers at once. Without a majority it releases everywhere and then takes the
//! servers one after the other, in an order that is the same for all. There is one clock, in ticks;
//! the servers' own clocks differ only in the numbers of their tokens. What a script does and what
//! is sent are one step, unless the network delays, loses or doubles something. Clients do not die.

mod client;
mod rules;
mod world;

pub(crate) use rules::model;

use crate::explore::Protocol;
use crate::explore::Step;
use crate::redlock::rules::Switch;

const SERVERS: usize = 3;
const MAJORITY: usize = 2;
/// How long a grant lasts on the server, in ticks.
const LEASE: u8 = 3;
/// How much earlier the client stops to believe in it.
const MARGIN: u8 = 1;
/// How long an attempt may be executed after it was sent.
const TIMEOUT: u8 = 1;
/// After so many failures in a row, with nobody granted, it is a livelock.
const FAILURES: u8 = 5;

/// What may happen, and how often.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// For people.
    pub name: &'static str,
    /// How often each client wants the lock.
    starts: &'static [u8],
    /// The last tick.
    end: u8,
    /// Commands that are lost or delayed.
    faults: u8,
    /// Servers that stop.
    crashes: u8,
    /// Servers that start again at once, without their data.
    losses: u8,
    renewals: u8,
    again: u8,
    /// How often a client starts over.
    rounds: u8,
    /// By how much the servers' clocks are ahead, in the numbers of tokens.
    ahead: [u8; SERVERS],
    tokens: bool,
}

/// The protocol within a scope, with at most one rule broken.
#[derive(Debug, Clone, Copy)]
pub struct Redlock {
    scope: Scope,
    switch: Option<Switch>,
}

/// What a client knows of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Knows {
    Nothing,
    Asked,
    Granted {
        token: u8,
        /// 0: it does not count.
        until: u8,
        hold: u8,
    },
    Refused,
    Unanswered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    /// All servers at once.
    Asking {
        sent: u8,
    },
    /// One server after the other.
    InOrder {
        at: u8,
    },
    Raising {
        token: u8,
        /// Where it was answered, one bit each.
        raised: u8,
        sent: u8,
    },
    Holding {
        token: u8,
    },
}

/// A hold that is over, or may never have been granted, and is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Dead {
    server: u8,
    hold: u8,
    not_after: u8,
    /// When it was last released; 0: not yet.
    sent: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Client {
    phase: Phase,
    hold: u8,
    knows: [Knows; SERVERS],
    dead: Vec<Dead>,
    ids: u8,
    starts: u8,
    rounds: u8,
    /// Its hold has had no majority.
    lost: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Server {
    /// Who has it, and until when.
    lock: Option<(u8, u8)>,
    fence: u8,
    up: bool,
    /// When it was started again, as long as that matters.
    started: u8,
}

/// A command that is still on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Slow {
    client: u8,
    server: u8,
    hold: u8,
    not_after: u8,
    /// An acquire has 0.
    raise: u8,
}

/// One state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    now: u8,
    servers: [Server; SERVERS],
    clients: Vec<Client>,
    slow: Vec<Slow>,
    faults: u8,
    crashes: u8,
    losses: u8,
    renewals: u8,
    again: u8,
    /// The largest token of a hold.
    top: u8,
    /// Failures since the last hold.
    failures: u8,
    flaw: Option<&'static str>,
}

impl Redlock {
    fn breaks(&self, switch: Switch) -> bool {
        self.switch == Some(switch)
    }

    /// Which server a client takes at this place of the order.
    fn server_at(&self, who: usize, place: u8) -> usize {
        let place = usize::from(place);
        let own_order = self.breaks(Switch::EachItsOwnOrder) && who == 1;
        if own_order { SERVERS - 1 - place } else { place }
    }

    /// How many servers are needed to go on believing.
    fn enough(&self) -> usize {
        if self.breaks(Switch::OneIsEnough) { 1 } else { MAJORITY }
    }

    /// Two clients believe in their holds.
    fn is_shared(&self, state: &State) -> bool {
        let believes = |client: &&Client| {
            matches!(client.phase, Phase::Holding { .. })
                && client.valid(state.now) >= self.enough()
        };
        state.clients.iter().filter(believes).count() > 1
    }

    fn is_believed_again(&self, state: &State) -> bool {
        state.clients.iter().any(|client| {
            client.lost
                && matches!(client.phase, Phase::Holding { .. })
                && client.valid(state.now) >= MAJORITY
        })
    }

    /// A server is locked, and nobody will release it.
    fn is_forgotten(&self, state: &State) -> bool {
        state.servers.iter().enumerate().any(|(server, known)| {
            let Some((hold, until)) = known.lock else { return false };
            until > state.now + 1 && !state.is_known(server, hold)
        })
    }

    /// Every client waits for a server that another one has, who waits as well.
    fn is_stuck(&self, state: &State) -> bool {
        (0..state.clients.len()).all(|who| {
            let client = &state.clients[who];
            let Phase::InOrder { at } = client.phase else { return false };
            if usize::from(at) >= SERVERS || client.valid(state.now) >= MAJORITY {
                return false;
            }
            let server = self.server_at(who, at);
            let Some((hold, _)) = state.servers[server].lock else { return false };
            let holder = usize::from(hold / 16);
            let waits = matches!(state.clients[holder].phase, Phase::InOrder { .. });
            let released = |client: &Client| {
                client
                    .dead
                    .iter()
                    .any(|dead| usize::from(dead.server) == server && dead.hold == hold)
            };
            holder != who
                && waits
                && state.servers[server].up
                && client.dead.iter().all(|dead| !state.servers[usize::from(dead.server)].up)
                && !state.clients.iter().any(released)
        })
    }
}

impl Client {
    /// How many servers it may rely on.
    fn valid(&self, now: u8) -> usize {
        let counts = |knows: &&Knows| matches!(knows, Knows::Granted { until, .. } if *until > now);
        self.knows.iter().filter(counts).count()
    }

    fn fresh_hold(&mut self, who: usize) {
        self.ids += 1;
        self.hold = who as u8 * 16 + self.ids;
        self.knows = [Knows::Nothing; SERVERS];
    }

    fn bury(&mut self, server: usize, hold: u8, not_after: u8) {
        self.dead.push(Dead { server: server as u8, hold, not_after, sent: 0 });
        self.dead.sort_unstable();
    }
}

impl State {
    /// Whether somebody holds it, or is about to release it.
    fn is_known(&self, server: usize, hold: u8) -> bool {
        let client = &self.clients[usize::from(hold / 16)];
        let dies = |dead: &Dead| usize::from(dead.server) == server && dead.hold == hold;
        let has = |knows: &Knows| matches!(knows, Knows::Granted { hold: own, .. } if *own == hold);
        let asks = client.hold == hold
            && client.phase != Phase::Idle
            && !matches!(client.knows[server], Knows::Nothing | Knows::Refused);
        asks || client.dead.iter().any(dies) || client.knows.iter().any(has)
    }
}

/// Whether a promise is broken in a state.
type IsBroken = fn(&Redlock, &State) -> bool;

impl Protocol for Redlock {
    type State = State;

    fn start(&self) -> State {
        let Scope { starts, faults, crashes, losses, renewals, again, rounds, .. } = self.scope;
        let client = |starts: &u8| Client {
            phase: Phase::Idle,
            hold: 0,
            knows: [Knows::Nothing; SERVERS],
            dead: Vec::new(),
            ids: 0,
            starts: *starts,
            rounds,
            lost: false,
        };
        let server = Server { lock: None, fence: 0, up: true, started: 0 };
        let clients = starts.iter().map(client).collect();
        let (servers, slow, flaw) = ([server; SERVERS], Vec::new(), None);
        let (now, top, failures) = (1, 0, 0);
        State {
            now,
            servers,
            clients,
            slow,
            faults,
            crashes,
            losses,
            renewals,
            again,
            top,
            failures,
            flaw,
        }
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for who in 0..state.clients.len() {
            self.client_steps(state, who, next);
        }
        self.network_steps(state, next);
        self.server_steps(state, next);
        self.time_steps(state, next);
        for (_, after) in next.iter_mut() {
            self.end_lost_holds(after);
            self.forget_what_is_over(after);
        }
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        if state.flaw.is_some() {
            return state.flaw;
        }
        let promises: [(&'static str, IsBroken); 4] = [
            ("one holder at most", Self::is_shared),
            ("a hold that was lost is never believed in again", Self::is_believed_again),
            ("no server is locked by a hold that nobody releases", Self::is_forgotten),
            ("nobody waits for somebody who waits for it", Self::is_stuck),
        ];
        let broken = promises.into_iter().find(|(_, is_broken)| is_broken(self, state));
        let broken = broken.map(|(words, _)| words);
        broken.or((state.failures >= FAILURES).then_some("somebody gets the lock in the end"))
    }
}
