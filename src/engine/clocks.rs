//! What replies say about the servers: their clocks, and whether they work.

use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::base::clock::Moment;
use crate::engine::Engine;
use crate::engine::event::Effect;
use crate::engine::event::Report;
use crate::engine::pending::Answered;
use crate::engine::timers::TimerKey;
use crate::kinds::command::ServerTime;
use crate::kinds::reply::Reply;

impl Engine {
    /// Records what every reply says about its server: the clock, the round trip, and whether there
    /// is an outage. `asked`: the latest time at which the command was sent.
    pub(super) fn note_outcome(
        &mut self,
        answered: Answered,
        asked: Moment,
        outcome: &Outcome<Reply>,
    ) {
        let Answered { by, sent, .. } = answered;
        match outcome {
            Outcome::Done(reply) => {
                self.cx.servers.get_mut(by).answered(self.cx.now, self.cx.now.since(sent));
                if let Some(time) = reply.time {
                    self.note_server_time(by, sent, time);
                }
            }
            Outcome::NotExecuted(failure) | Outcome::Unknown(failure) => {
                if answered.tells_of_server(failure) {
                    self.note_failure(by, asked, failure);
                }
            }
        }
    }

    fn note_failure(&mut self, server: ServerId, asked: Moment, failure: &Failure) {
        if failure.kind == FailureKind::ReadOnly {
            self.cx.effects.push(Effect::Reconnect(server));
        }
        // A slot that is moving to another server is not an outage of this one.
        if failure.kind.is_transient() && failure.kind != FailureKind::SlotMoving {
            self.cx.begin_outage(server, asked, &failure.message);
        }
    }

    /// Asks for the clock if it is not known. During an outage also if no other command is in
    /// flight that would show its end.
    pub(super) fn on_clock_timer(&mut self, id: ServerId) {
        self.cx.ask_clock(id);
        let Some(server) = self.cx.servers.get(id) else { return };
        if !server.is_up() || server.outage_since().is_none() || server.asking_clock {
            return;
        }
        if self.cx.ops.values().any(|op| op.to == id) {
            self.cx.timers.set(TimerKey::Clock(id), self.cx.now.plus(self.cx.trouble_pause()));
        } else {
            self.cx.send_clock(id);
        }
    }

    pub(super) fn on_clock_reply(&mut self, id: ServerId, outcome: &Outcome<Reply>) {
        self.cx.servers.get_mut(id).asking_clock = false;
        if let Outcome::NotExecuted(failure) | Outcome::Unknown(failure) = outcome {
            if !failure.kind.is_transient() {
                self.refuse_clock(id, failure);
                if !self.holds.at(&self.cx, id).is_empty() {
                    // TIME may be allowed again while there is still something to renew.
                    self.cx
                        .timers
                        .set(TimerKey::Clock(id), self.cx.now.plus(self.cx.trouble_pause()));
                }
                return;
            }
            let known = self.cx.servers.get(id).is_some_and(|server| server.clock.is_known());
            let pause = if known { self.cx.trouble_pause() } else { Duration::from_millis(50) };
            self.cx.timers.set(TimerKey::Clock(id), self.cx.now.plus(pause));
        }
    }

    pub(super) fn note_server_time(&mut self, id: ServerId, sent: Moment, time: ServerTime) {
        let now = self.cx.now;
        let clock = &mut self.cx.servers.get_mut(id).clock;
        let was_known = clock.is_known();
        if clock.observe(sent, now, time) {
            self.cx.report(Report::ClockJump);
            for hold in self.holds.at(&self.cx, id) {
                self.doubt(hold);
                self.watchdog.verify(&self.cx, &mut self.holds, hold);
            }
        }
        if !was_known {
            self.on_clock_known(id);
        }
    }

    /// Continues everything that waited for the server's clock.
    fn on_clock_known(&mut self, server: ServerId) {
        self.watchdog.unpark(&self.cx, &mut self.holds, server);
        self.resume_kept(server);
        for id in self.holds.at(&self.cx, server) {
            self.advance(id);
        }
        for name_id in self.queues.at(&self.cx, server) {
            self.queues.touch(name_id);
        }
        self.queries.resume(&mut self.cx, &self.subscriptions);
        self.operations.resume(&mut self.cx);
        self.check_ready();
    }
}
