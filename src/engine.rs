//! All lock logic, without I/O, clock or randomness of its own.
//!
//! The caller passes in what happened and when; the engine says what is to be done. Every decision
//! of the client about a lock is made here, so that every interleaving can be tested without a
//! server, a runtime or a clock.
//!
//! Parts that own their state. What needs only that state is a method of the part; the rest of its
//! file, if there is more, is methods of the engine:
//!
//! | part            | what it owns                                                     |
//! |-----------------|------------------------------------------------------------------|
//! | `context`       | time, settings, timers, servers, commands on the wire, effects   |
//! | `queues`        | names (`name_record`) and waiters (`waiter`)                     |
//! | `holds`         | holds: levels, validity, what each still has to send             |
//! | `watchdog`      | renewals, and verifications                                      |
//! | `dead_ids`      | dead hold ids, released until no attempt can be granted          |
//! | `kept`          | names that stay taken after their holds                          |
//! | `drops`         | releases that nobody waits for, sent together                    |
//! | `subscriptions` | channels                                                         |
//! | `queries`       | queries, force-unlocks, the probes of a preflight                |
//! | `operations`    | what is done once, whatever becomes of its commands              |
//! | `watching`      | those who wait until a holder is gone, and acquire nothing       |
//! | `outage_deadlines` | waiters without a limit, while there is an outage             |
//!
//! What concerns several parts is a method of the engine:
//!
//! | file            | what it decides                                                  |
//! |-----------------|------------------------------------------------------------------|
//! | `requests`      | re-entry instead of a wait, the ends of waits                    |
//! | `acquiring`     | attempts (when: `name_record`), grants, refusals                 |
//! | `holding`       | levels, re-entry, validity, loss                                 |
//! | `releasing`     | the last release, hand-off, grants that nobody took              |
//! | `listening`     | messages, and what a confirmed subscription wakes                |
//! | `connections`   | servers that come and go, readiness                              |
//! | `clocks`        | the servers' clocks, what an answer says about its server        |
//! | `outages`       | how long waiters bear a server that does not answer              |
//! | `shutdown`      | the end of the client                                            |
//!
//! What the parts are made of:
//!
//! | file            | what it is                                                       |
//! |-----------------|------------------------------------------------------------------|
//! | `event`         | what the engine is told and what it answers: plain values        |
//! | `hold`          | one hold, and the table of its states                            |
//! | `waiter`        | one acquisition that waits                                       |
//! | `name_record`   | one name: who its contender is, and when that tries next         |
//! | `standing`      | the place in the line, and when a waiter tries untold            |
//! | `wait_queue`    | the order of the waiters of a name                               |
//! | `pending`       | commands on the wire                                             |
//! | `servers`       | servers, routes; with `server_clock`, the clock of each          |
//! | `schedule`      | when each hold is renewed                                        |
//! | `timers`        | when to look again, and at what                                  |
//! | `touched`       | names to look at before `handle` returns                         |
//! | `agenda`, `by_id`, `names` | tables                                                |

mod acquiring;
mod agenda;
mod by_id;
mod clocks;
mod connections;
mod context;
mod dead_ids;
mod drops;
pub(crate) mod event;
mod hold;
mod holding;
mod holds;
mod kept;
mod listening;
mod name_record;
mod names;
mod operations;
mod outage_deadlines;
mod outages;
mod pending;
mod queries;
mod queues;
mod releasing;
mod requests;
mod schedule;
mod server_clock;
mod servers;
mod shutdown;
mod standing;
mod subscriptions;
#[cfg(test)]
mod tests;
mod timers;
mod touched;
mod wait_queue;
mod waiter;
mod watchdog;
mod watching;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::base::cell::Directory;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::name::LockName;
use crate::base::stats::Counters;
use crate::base::stats::set;
use crate::engine::context::Context;
use crate::engine::dead_ids::DeadIds;
use crate::engine::drops::BackgroundReleases;
use crate::engine::event::Effect;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::holds::Holds;
use crate::engine::kept::KeptHolds;
use crate::engine::name_record::NameRecord;
use crate::engine::operations::Operations;
use crate::engine::outage_deadlines::OutageDeadlines;
use crate::engine::pending::Answered;
use crate::engine::pending::Op;
use crate::engine::pending::PendingOp;
use crate::engine::queries::Asking;
use crate::engine::queries::ForceTarget;
use crate::engine::queries::Queries;
use crate::engine::queues::Queues;
use crate::engine::shutdown::ShutdownState;
use crate::engine::subscriptions::Subscriptions;
use crate::engine::timers::TimerKey;
use crate::engine::watchdog::Watchdog;
use crate::engine::watching::Watching;
use crate::kinds::command::Announce;
use crate::kinds::reply::Reply;
use crate::settings::config::Config;

/// The state machine of one client.
#[derive(Debug)]
pub(crate) struct Engine {
    cx: Context,

    queues: Queues,
    holds: Holds,
    queries: Queries,
    ready: Vec<RequestId>,
    subscriptions: Subscriptions,
    watching: Watching,
    operations: Operations,
    /// Callers that wait for a time to pass.
    pauses: BTreeSet<RequestId>,
    watchdog: Watchdog,
    dead_ids: DeadIds,
    kept: KeptHolds,
    drops: BackgroundReleases,
    outage_deadlines: OutageDeadlines,
    /// Not confirmed in time, noticed during this `handle`.
    overdue: Option<(LockName, u64, usize)>,
    stopping: Option<ShutdownState>,
}

impl Engine {
    pub(crate) fn new(config: Config, directory: Arc<Directory>, counters: Arc<Counters>) -> Self {
        let mut engine = Self {
            cx: Context::new(config, counters),
            queues: Queues::default(),
            holds: Holds::new(directory),
            queries: Queries::default(),
            ready: Vec::new(),
            subscriptions: Subscriptions::default(),
            watching: Watching::default(),
            operations: Operations::default(),
            pauses: BTreeSet::new(),
            watchdog: Watchdog::default(),
            dead_ids: DeadIds::default(),
            kept: KeptHolds::default(),
            drops: BackgroundReleases::default(),
            outage_deadlines: OutageDeadlines::default(),
            overdue: None,
            stopping: None,
        };
        engine.subscriptions.want_client_channel(&mut engine.cx);
        engine
    }

    /// Takes in what happened and says what is to be done, in order.
    ///
    /// `now` must have been read before whatever the effects lead to: validity is counted from it.
    pub(crate) fn handle(&mut self, now: Moment, event: Event, effects: &mut Vec<Effect>) {
        if self.is_finished() {
            return;
        }
        self.cx.now = self.cx.now.max(now);
        std::mem::swap(&mut self.cx.effects, effects);
        self.cx.servers.grow_old(self.cx.now);
        // What has run out has run out before the event: a late reply must not revive it.
        self.fire_timers();
        if !self.is_finished() {
            self.on(event);
            // What is over wakes the waiters of its name.
            self.enqueue_due();
            self.drive_touched();
            self.release_queued();
            self.watchdog.send_queued(&mut self.cx, &mut self.holds);
            self.finish_if_done();
        }
        self.report_overdue();
        self.show_gauges();
        std::mem::swap(&mut self.cx.effects, effects);
    }

    /// When `Event::Tick` is due next.
    pub(crate) fn next_timeout(&self) -> Option<Moment> {
        if self.is_finished() {
            return None;
        }
        [self.cx.timers.next(), self.watchdog.schedule.next()].into_iter().flatten().min()
    }

    /// Whether anything depends on the clock that counts suspend.
    pub(crate) fn has_holds(&self) -> bool {
        !self.holds.is_empty()
    }

    /// How many here wait for it.
    pub(crate) fn waiters_for(&self, lock: &LockName) -> usize {
        self.queues.names.find(lock).map_or(0, NameRecord::len)
    }

    /// How many here watch, whatever it is.
    #[cfg(test)]
    pub(crate) fn watchers(&self) -> usize {
        self.watching.len()
    }

    /// Whether no second caller has asked for the lock here since it was last at rest, and no other
    /// client is known to want it.
    pub(crate) fn is_uncontended(&self, lock: &LockName) -> bool {
        self.queues.names.find(lock).is_none_or(NameRecord::is_uncontended)
    }

    /// Nothing is remembered of what is over.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.queues.names.is_empty()
            && self.holds.is_empty()
            && self.queues.waiters.is_empty()
            && self.holds.granted.is_empty()
            && self.queries.is_empty()
            && self.watching.is_empty()
            && self.operations.is_empty()
            && self.pauses.is_empty()
            && self.watchdog.is_idle()
            && self.holds.unsent.is_empty()
            && self.cx.ops.is_empty()
            && self.drops.is_empty()
            && self.kept.is_empty()
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Ready { request } => self.on_ready(request),
            Event::Acquire(acquire) => self.on_acquire(acquire),
            Event::Cancel { request } => self.on_cancel(request),
            Event::Release { hold, level, request } => self.on_release(hold, level, request),
            Event::Leave { hold, level } => self.on_leave(hold, level),
            Event::Downgrade { hold, level, request } => self.on_downgrade(hold, level, request),
            Event::Verify { hold, request } => self.on_verify(hold, request),
            Event::Inspect { name, request } => self.on_query(request, Asking::Inspect(name)),
            Event::ForceUnlock { name, from, request } => {
                let from = from.map_or(ForceTarget::Whoever, ForceTarget::Named);
                self.on_query(request, Asking::Force { name, from });
            }
            Event::Watch { name, request } => self.on_watch(request, name),
            Event::Operate { name, change, request } => self.on_operate(request, name, change),
            Event::Ping { request } => self.on_query(request, Asking::Ping),
            Event::Pause { length, request } => self.on_pause(request, length),
            Event::Probe { probe, request } => self.on_query(request, Asking::Probe(probe)),
            Event::Shutdown { until, request } => self.on_shutdown(until, request),
            Event::PickedUp { request } => self.on_picked_up(request),
            Event::Withdrawn { request } => self.on_withdrawn(request),
            Event::Replied { op, server, outcome } => self.on_replied(op, server, outcome),
            Event::Up(server, info) => self.on_up(server, info),
            Event::Down { server, cause } => self.on_down(server, &cause),
            Event::Routes(routes) => self.on_routes(routes),
            Event::PubSubUp => self.on_pubsub_up(),
            Event::PubSubDown => self.subscriptions.disconnected(),
            Event::ConnectFailed { server, failure } => self.on_connect_failed(server, failure),
            Event::Subscribed { channel, generation, result } => {
                self.on_subscribed(&channel, generation, result);
            }
            Event::SubscriptionLost { channel } => self.on_subscription_lost(&channel),
            Event::Message { channel, payload } => self.on_message(&channel, &payload),
            Event::Tick => {}
        }
    }

    fn on_pause(&mut self, request: RequestId, length: Duration) {
        if self.stopping.is_some() {
            return self.cx.fail(request, Error::closed());
        }
        self.pauses.insert(request);
        self.cx.timers.set(TimerKey::Request(request), self.cx.now.plus(length));
    }

    fn on_query(&mut self, request: RequestId, asking: Asking) {
        if self.stopping.is_some() {
            return self.cx.fail(request, Error::closed());
        }
        // What was released before is to be free for whoever asks.
        self.release_before();
        self.queries.begin(&mut self.cx, &mut self.subscriptions, request, asking);
    }

    fn fire_timers(&mut self) {
        self.enqueue_due();
        while let Some(key) = self.cx.timers.pop(self.cx.now) {
            match key {
                TimerKey::HoldClock(hold) => self.check_validity(hold),
                TimerKey::Offer(hold) => self.on_offer_over(hold),
                TimerKey::HoldRetry(hold) => self.on_hold_retry(hold),
                TimerKey::Cleanup(id) => self.send_cleanup(id),
                TimerKey::Kept(id) => self.on_kept_over(id),
                TimerKey::Try(name) => self.queues.touch(name),
                TimerKey::Linger(name) => self.on_linger_over(name),
                TimerKey::Watch(id) => {
                    self.watching.on_timer(&mut self.cx, &mut self.subscriptions, id);
                }
                TimerKey::Resubscribe(name) => self.on_resubscribe(name),
                TimerKey::SelfWait(name) => self.on_self_wait(name),
                TimerKey::Request(request) => self.on_request_over(request),
                TimerKey::Outage => self.on_outage_timer(),
                TimerKey::ClientChannel => self.subscriptions.retry_client_channel(&mut self.cx),
                TimerKey::Clock(server) => self.on_clock_timer(server),
                // Nothing follows, whatever else is due or has just come.
                TimerKey::Shutdown => return self.finish(),
            }
        }
    }

    fn on_replied(&mut self, op: OpId, server: ServerId, outcome: Outcome<Reply>) {
        let Some(op) = self.cx.ops.remove(&op) else { return };
        let PendingOp { kind, to, slot, sent, not_after, cut_short } = op;
        let time = if let Outcome::Done(reply) = &outcome { reply.time } else { None };
        let by = if seeded!(TimesOfOneServer) { to } else { server };
        let answered = Answered { by, sent, time, not_after, cut_short };
        // What was sent on to another server was sent to that one later, and who knows when.
        let asked = if server == to { sent } else { self.cx.now };
        self.note_outcome(answered, asked, &outcome);
        if let (Some(slot), Outcome::Done(_)) = (slot, &outcome) {
            self.cx.servers.answered_for(slot, server);
        }
        match kind {
            Op::Clock => self.on_clock_reply(to, &outcome),
            Op::Acquire { hold, lease, hurry } => {
                self.on_acquire_reply(hold, lease, hurry, answered, outcome);
            }
            Op::Reenter { hold, lease } => self.on_reenter_reply(hold, lease, answered, outcome),
            Op::LowerCount { hold } => self.on_lower_count_reply(hold, outcome),
            Op::Release { hold } => self.on_release_reply(hold, outcome),
            Op::ReleaseMany(holds) => self.on_release_many_reply(&holds, outcome),
            Op::HandOff { from, to, lease, line_first } => {
                self.on_hand_off_reply(from, to, lease, line_first, answered, outcome);
            }
            Op::Renew(holds) => {
                self.watchdog.schedule.answered(to, holds.len());
                self.on_renew_reply(holds, server, sent, outcome);
            }
            Op::Cleanup { id } => self.on_cleanup_reply(id, &outcome),
            Op::Look { watch } => self.on_look_reply(watch, sent, outcome),
            Op::Operate { request } => self.operations.on_reply(&mut self.cx, request, outcome),
            Op::Query { request } => {
                self.queries.on_reply(&mut self.cx, &mut self.subscriptions, request, outcome);
            }
        }
    }

    // ---- small things that the parts share

    fn announce(&self, name_id: Option<u64>, name: &LockName) -> Announce {
        // Where there are waiters it has been spelled out.
        let known = name_id.and_then(|id| self.queues.listener_of(id));
        let profile = self.cx.config.profile;
        let channel =
            known.map_or_else(|| name.channel(profile), |name| name.channel(&self.cx.config));
        Announce::on(channel, name, profile, self.cx.is_sharded())
    }

    fn show_gauges(&self) {
        let counters = &self.cx.counters;
        set(&counters.holds, self.holds.len() - self.holds.unsent.len());
        set(&counters.waiters, self.queues.waiters.len() + self.watching.len());
        set(&counters.registered_renewals, self.watchdog.schedule.len());
        set(&counters.subscriptions, self.subscriptions.lock_channels());
        set(&counters.clean_ups, self.dead_ids.len());
    }
}
