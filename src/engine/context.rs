//! What every part of the engine needs: the instant, the settings, the timers, the servers, the
//! commands on the wire, and the list of what is to be done.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::ServerId;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::lease::LeaseMs;
use crate::base::map::Map;
use crate::base::name::LockName;
use crate::base::stats::Counters;
use crate::engine::event::Answer;
use crate::engine::event::Effect;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::hold::Hold;
use crate::engine::pending::Op;
use crate::engine::pending::PendingOp;
use crate::engine::servers::Server;
use crate::engine::servers::Servers;
use crate::engine::timers::TimerKey;
use crate::engine::timers::Timers;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::share::Share;
use crate::settings::config::Config;

/// Passed to all parts. It knows nothing of names or holds.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: Config,
    pub(super) counters: Arc<Counters>,
    pub(super) now: Moment,
    pub(super) effects: Vec<Effect>,
    pub(super) timers: Timers,
    pub(super) ops: Map<OpId, PendingOp>,
    pub(super) servers: Servers,
    next_id: u64,
}

impl Context {
    pub(super) fn new(config: Config, counters: Arc<Counters>) -> Self {
        Self {
            config,
            counters,
            now: Moment::ZERO,
            effects: Vec::new(),
            timers: Timers::default(),
            ops: Map::default(),
            servers: Servers::default(),
            next_id: 0,
        }
    }

    pub(super) fn send(
        &mut self,
        kind: Op,
        to: ServerId,
        command: Command,
        deadline: Moment,
        not_after: ServerTime,
    ) -> OpId {
        let op = OpId(self.fresh_id());
        let (slot, cut_short) = (command.slot(), deadline < self.attempt_deadline());
        self.ops.insert(op, PendingOp { kind, to, slot, sent: self.now, not_after, cut_short });
        let timeout = deadline.since(self.now).max(Duration::from_millis(1));
        self.effects.push(Effect::Send { op, to, command, timeout });
        op
    }

    pub(super) fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn attempt_deadline(&self) -> Moment {
        self.now.plus(self.config.command_timeout)
    }

    pub(super) fn answer(&mut self, request: RequestId, answer: Answer) {
        self.timers.clear(TimerKey::Request(request));
        self.effects.push(Effect::Answer { request, answer });
    }

    pub(super) fn fail(&mut self, request: RequestId, error: Error) {
        self.answer(request, Answer::Failed(error));
    }

    pub(super) fn report(&mut self, report: Report) {
        self.effects.push(Effect::Report(report));
    }

    /// What a hold is called in Redis.
    pub(super) fn field_of(&self, hold: &Hold) -> String {
        self.field(hold.id, &hold.lock, hold.share)
    }

    /// The same for a hold with this id and share.
    pub(super) fn field(&self, hold: u64, lock: &LockName, share: Share) -> String {
        let mut field = self.id(hold);
        lock.kind().add_share_to(&mut field, share);
        field
    }

    /// An id that no other client uses.
    pub(super) fn id(&self, hold: u64) -> String {
        let hold = if seeded!(HoldIdIsNew) { hold % 8 } else { hold };
        [&*self.config.client_id, ":", itoa::Buffer::new().format(hold)].concat()
    }

    /// The error of a request that a failure ends. Its caller adds the name of the lock.
    pub(super) fn error_of(&self, failure: &Failure, since: Moment) -> Error {
        let (name, message) = (None, failure.message.clone());
        match failure.kind {
            FailureKind::Auth => Error::Auth { name, message },
            FailureKind::Denied => Error::Denied { name, message },
            FailureKind::Unsupported => Error::Unsupported { name, reason: message },
            FailureKind::Redirected => Error::Unsupported {
                name,
                reason: format!(
                    "the server is a node of a cluster, which has the key elsewhere ({message}); connect to it as a cluster"
                ),
            },
            FailureKind::Tls => Error::Tls { name, message },
            FailureKind::Refused => Error::Refused { name, message },
            FailureKind::Link
            | FailureKind::NoListener
            | FailureKind::Busy
            | FailureKind::SlotMoving
            | FailureKind::OutOfMemory
            | FailureKind::ReadOnly => {
                Error::Unavailable { name, waited: self.now.since(since), cause: message }
            }
        }
    }

    // ---- servers

    /// The address of a server; before the first connection, the one that the user gave.
    pub(super) fn address_of(&self, server: ServerId) -> String {
        let known = self.servers.address_of(server);
        if known.is_empty() { self.config.address.clone() } else { known }
    }

    /// `since`: when the command was sent that failed; now if none was.
    pub(super) fn begin_outage(&mut self, server: ServerId, since: Moment, cause: &str) {
        let known = self.servers.get_mut(server);
        let before = known.outage_since();
        let since = known.failed(since, cause);
        if before != Some(since) {
            self.set_outage_timer(since);
        }
        if before.is_none() {
            self.timers.set(TimerKey::Clock(server), self.now.plus(self.trouble_pause()));
        }
    }

    /// How soon after trouble the server is asked whether it is well: several times within
    /// `outage_limit`.
    pub(super) fn trouble_pause(&self) -> Duration {
        (self.config.outage_limit / 4).min(Duration::from_secs(1))
    }

    /// For trouble since `since`.
    pub(super) fn set_outage_timer(&mut self, since: Moment) {
        // Waiters with a later limit are sorted out when it fires.
        let due = since.plus(self.config.outage_limit);
        if self.timers.of(TimerKey::Outage).is_none_or(|at| at > due) {
            self.timers.set(TimerKey::Outage, due);
        }
    }

    pub(super) fn ask_clock(&mut self, server: ServerId) {
        let unknown =
            |server: &Server| server.is_up() && !server.clock.is_known() && !server.asking_clock;
        if self.servers.get(server).is_some_and(unknown) {
            self.send_clock(server);
        }
    }

    pub(super) fn send_clock(&mut self, server: ServerId) {
        self.servers.get_mut(server).asking_clock = true;
        self.send(Op::Clock, server, Command::Time, self.attempt_deadline(), ServerTime(0));
    }

    /// Whether those who wait for a lock stand in a line that the server keeps.
    pub(super) fn has_line(&self, lock: &LockName) -> bool {
        lock.kind().has_line(self.config.profile)
    }

    /// The lease of a hold with this share, which is not longer than what clients of Redisson leave of
    /// it.
    pub(super) fn lease_beside_redisson(
        &self,
        lock: &LockName,
        share: Share,
        lease: LeaseMs,
    ) -> LeaseMs {
        let shares = !self.config.profile.has_lines();
        match shares && lock.kind().is_shortened_by_redisson(share) {
            true => lease.min(self.config.redisson_watchdog),
            false => lease,
        }
    }

    pub(super) fn is_sharded(&self) -> bool {
        self.servers.is_sharded(self.config.sharding)
    }

    pub(super) fn unavailable(&self, since: Moment, server: ServerId) -> Error {
        Error::Unavailable {
            name: None,
            waited: self.now.since(since),
            cause: self.servers.last_trouble(server),
        }
    }
}

/// 20 ms, doubled with each failure in a row, at most 500 ms.
pub(super) fn back_off(failures: u32) -> Duration {
    Duration::from_millis((20_u64 << failures.min(5)).min(500))
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use crate::engine::tests::CLIENT;
    use crate::engine::tests::config;

    /// For the tests of a part by itself.
    pub(in crate::engine) fn context() -> Context {
        Context::new(config(CLIENT), Arc::default())
    }
}
