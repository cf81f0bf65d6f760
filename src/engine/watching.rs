//! Watching: waiting until the holder of a lock is gone, or the count of a latch is 0, without
//! acquiring anything.
//!
//! A watcher stands in no line and never holds anything. Its wait is over when the key is absent,
//! or names another holder than the one that the watcher found first. All watchers of a name share
//! one watch, which has a subscription and asks the server one thing at a time: a look.
//!
//! A watch subscribes, waits for the confirmation, looks and sleeps. It looks again after each
//! message, when the time to live that it was told ends, and after the longest sleep at the latest.
//! A message is a reason to look; only a look ends a wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::map::Map;
use crate::base::name::LockName;
use crate::engine::Engine;
use crate::engine::context::Context;
use crate::engine::context::back_off;
use crate::engine::event::Answer;
use crate::engine::event::RequestId;
use crate::engine::pending::Op;
use crate::engine::servers::Server;
use crate::engine::standing::fallback_of;
use crate::engine::subscriptions::LINGER;
use crate::engine::subscriptions::Listener;
use crate::engine::subscriptions::Subscriptions;
use crate::engine::timers::TimerKey;
use crate::engine::waiter::Trouble;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::conflict::conflict_words;
use crate::kinds::reply::Reply;
use crate::kinds::sight::Sight;

/// After a refusal that passes, a channel is subscribed again after this time.
const RESUBSCRIBE: Duration = Duration::from_millis(200);

/// One call that waits.
#[derive(Debug)]
struct Watcher {
    since: Moment,
    /// The look on the wire, or the last one, was sent after the call.
    asked: bool,
    /// The holder that its first look has found.
    found: Option<String>,
}

/// The watchers of one name.
#[derive(Debug)]
struct Watch {
    name: LockName,
    channel: Arc<str>,
    /// Without watchers it is kept for a short time, with its subscription.
    watchers: BTreeMap<RequestId, Watcher>,
    /// A look is on the wire.
    looking: bool,
    /// When the next look is due. What is a reason to look during a look is one for the next.
    look_at: Moment,
    /// When to subscribe again after a refusal, or when to forget a watch without watchers.
    other_at: Moment,
    failures: u32,
    /// The failures of its looks since the last good answer.
    trouble: Option<Box<Trouble>>,
}

#[derive(Debug, Default)]
pub(super) struct Watching {
    watches: BTreeMap<u64, Watch>,
    of_name: BTreeMap<LockName, u64>,
    of_request: Map<RequestId, u64>,
}

impl Watch {
    fn new(cx: &Context, name: LockName) -> Self {
        let channel = name.channel(cx.config.profile);
        Self {
            name,
            channel,
            watchers: BTreeMap::new(),
            looking: false,
            look_at: Moment::NEVER,
            other_at: Moment::NEVER,
            failures: 0,
            trouble: None,
        }
    }

    /// Takes in what a look has found. Returns those whose wait is over.
    fn see(&mut self, sight: &Sight) -> Vec<RequestId> {
        let is_over = |watcher: &mut Watcher| match (sight, &watcher.found) {
            (Sight::Over, _) => true,
            (Sight::There { what, .. }, None) => {
                watcher.found = Some(what.clone());
                false
            }
            (Sight::There { what, .. }, Some(found)) => {
                what != found && !seeded!(WatchEndsWithHolder)
            }
        };
        let counts = |watcher: &Watcher| watcher.asked || seeded!(LookAfterCall);
        let asked = self.watchers.iter_mut().filter(|(_, watcher)| counts(watcher));
        asked.filter_map(|(request, watcher)| is_over(watcher).then_some(*request)).collect()
    }

    /// The next look is due at `at` or earlier.
    fn due_by(&mut self, at: Moment) {
        self.look_at = self.look_at.min(at);
    }
}

impl Watching {
    /// How many calls wait.
    pub(super) fn len(&self) -> usize {
        self.of_request.len()
    }

    /// The names that are watched.
    pub(super) fn names(&self) -> impl Iterator<Item = &LockName> {
        self.of_name.keys()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    pub(super) fn begin(
        &mut self,
        cx: &mut Context,
        subscriptions: &mut Subscriptions,
        request: RequestId,
        name: LockName,
    ) {
        let id = self.watch_of(cx, subscriptions, &name);
        let Some(watch) = self.watches.get_mut(&id) else { return };
        if watch.watchers.len() >= cx.config.max_waiters {
            let (name, limit) = (name.to_string(), cx.config.max_waiters);
            return cx.fail(request, Error::TooManyWaiters { name, limit });
        }
        watch.watchers.insert(request, Watcher { since: cx.now, asked: false, found: None });
        watch.other_at = Moment::NEVER;
        if subscriptions.is_confirmed(&watch.channel) {
            watch.look_at = cx.now;
        } else {
            // The confirmation is followed by a look. Should none come, this is.
            watch.due_by(cx.now.plus(fallback_of(&cx.config, &name)));
        }
        self.of_request.insert(request, id);
        if self.trouble_since(cx, id).is_some() {
            cx.set_outage_timer(cx.now);
        }
        self.go_on(cx, id);
    }

    fn watch_of(
        &mut self,
        cx: &mut Context,
        subscriptions: &mut Subscriptions,
        name: &LockName,
    ) -> u64 {
        if let Some(id) = self.of_name.get(name) {
            return *id;
        }
        let (id, watch) = (cx.fresh_id(), Watch::new(cx, name.clone()));
        subscriptions.want(cx, &watch.channel, Listener::Watch(id));
        self.of_name.insert(name.clone(), id);
        self.watches.insert(id, watch);
        id
    }

    /// Sends the look that is due, or sets the timer for it.
    fn go_on(&mut self, cx: &mut Context, id: u64) {
        let Some(watch) = self.watches.get_mut(&id) else { return };
        let to = cx.servers.id_of(&watch.name);
        let waits = !watch.watchers.is_empty() && !watch.looking;
        if waits && watch.look_at <= cx.now && cx.servers.is_up_at(to) {
            watch.looking = true;
            watch.look_at = Moment::NEVER;
            watch.watchers.values_mut().for_each(|watcher| watcher.asked = true);
            let command = Command::look_at(watch.name.clone(), cx.config.profile);
            cx.send(Op::Look { watch: id }, to, command, cx.attempt_deadline(), ServerTime(0));
        }
        // While the server is away, a look that is due waits for the connection.
        let look_at = Some(watch.look_at).filter(|at| waits && *at > cx.now);
        let at = look_at.unwrap_or(Moment::NEVER).min(watch.other_at);
        cx.timers.set(TimerKey::Watch(id), at);
    }

    pub(super) fn on_timer(
        &mut self,
        cx: &mut Context,
        subscriptions: &mut Subscriptions,
        id: u64,
    ) {
        let Some(watch) = self.watches.get_mut(&id) else { return };
        if watch.other_at <= cx.now {
            watch.other_at = Moment::NEVER;
            if watch.watchers.is_empty() {
                return self.forget(cx, subscriptions, id);
            }
            if !subscriptions.is_confirmed(&watch.channel) {
                subscriptions.again(cx, &watch.channel);
            }
        }
        self.go_on(cx, id);
    }

    fn forget(&mut self, cx: &mut Context, subscriptions: &mut Subscriptions, id: u64) {
        let Some(watch) = self.watches.remove(&id) else { return };
        self.of_name.remove(&watch.name);
        subscriptions.forget(cx, &watch.channel, Listener::Watch(id));
        cx.timers.clear(TimerKey::Watch(id));
    }

    /// Takes a call out. Without others the watch lingers, for whoever watches the name next.
    pub(super) fn cancel(&mut self, cx: &mut Context, request: RequestId) -> bool {
        self.take(cx, request).is_some()
    }

    fn take(&mut self, cx: &mut Context, request: RequestId) -> Option<Watcher> {
        let id = self.of_request.remove(&request)?;
        let watch = self.watches.get_mut(&id)?;
        let watcher = watch.watchers.remove(&request);
        if watch.watchers.is_empty() {
            watch.look_at = Moment::NEVER;
            watch.other_at = cx.now.plus(LINGER);
            cx.timers.set(TimerKey::Watch(id), watch.other_at);
        }
        watcher
    }

    // ---- what is a reason to look

    fn look_now(&mut self, cx: &mut Context, id: u64) {
        if let Some(watch) = self.watches.get_mut(&id) {
            watch.look_at = cx.now;
        }
        self.go_on(cx, id);
    }

    /// Messages from before the confirmation were not received.
    pub(super) fn subscribed(&mut self, cx: &mut Context, id: u64, result: Result<(), Failure>) {
        match result {
            Ok(()) if seeded!(LookOnceSubscribed) => {}
            Ok(()) => self.look_now(cx, id),
            Err(failure) if failure.kind.is_transient() => {
                if let Some(watch) = self.watches.get_mut(&id)
                    && !seeded!(WatchSubscribesAgain)
                {
                    watch.other_at = cx.now.plus(RESUBSCRIBE);
                }
                self.go_on(cx, id);
            }
            Err(failure) => self.fail(cx, id, &failure),
        }
    }

    pub(super) fn heard(&mut self, cx: &mut Context, id: u64) {
        let looking = self.watches.get(&id).is_some_and(|watch| watch.looking);
        if !(looking && seeded!(MessageDuringLook)) {
            self.look_now(cx, id);
        }
    }

    /// It is unknown what has happened to the name while there was no connection.
    pub(super) fn resume(&mut self, cx: &mut Context, name: &LockName) {
        if let Some(id) = self.of_name.get(name)
            && !seeded!(WatchLooksAfterOutage)
        {
            self.look_now(cx, *id);
        }
    }

    // ---- answers

    /// Returns the name if somebody's wait is over.
    pub(super) fn on_reply(
        &mut self,
        cx: &mut Context,
        id: u64,
        sent: Moment,
        outcome: Outcome<Reply>,
    ) -> Option<LockName> {
        let watch = self.watches.get_mut(&id)?;
        watch.looking = false;
        let name = watch.name.clone();
        let mut over = Vec::new();
        match outcome {
            Outcome::Done(reply) => match reply.body.sight(name.kind()) {
                Some(Ok(sight)) => {
                    (watch.failures, watch.trouble) = (0, None);
                    over = watch.see(&sight);
                    if let Sight::There { left, .. } = sight {
                        let sleep = left.min(fallback_of(&cx.config, &name));
                        watch.due_by(cx.now.plus(sleep));
                    }
                    if seeded!(WatchSleepEnds) {
                        watch.look_at = Moment::NEVER;
                    }
                }
                Some(Err(found)) => self.on_conflict(cx, id, found),
                None => {}
            },
            Outcome::NotExecuted(failure) if !failure.kind.is_transient() => {
                self.fail(cx, id, &failure);
            }
            Outcome::NotExecuted(failure) | Outcome::Unknown(failure) => {
                if !seeded!(LookIsRepeated) {
                    watch.look_at = cx.now.plus(back_off(watch.failures));
                }
                watch.failures += 1;
                Trouble::note(&mut watch.trouble, sent, failure.message);
                cx.set_outage_timer(sent);
            }
        }
        for request in &over {
            self.take(cx, *request);
            cx.answer(*request, Answer::Done);
        }
        self.go_on(cx, id);
        (!over.is_empty()).then_some(name)
    }

    fn on_conflict(&mut self, cx: &mut Context, id: u64, found: &str) {
        let Some(watch) = self.watches.get(&id) else { return };
        let (name, found) = (watch.name.to_string(), conflict_words(found, &watch.name));
        self.fail_all(cx, id, |_, _| Error::KeyConflict {
            name: name.clone(),
            found: found.clone(),
        });
    }

    fn fail(&mut self, cx: &mut Context, id: u64, failure: &Failure) {
        self.fail_all(cx, id, |cx, since| cx.error_of(failure, since));
    }

    fn fail_all(&mut self, cx: &mut Context, id: u64, error: impl Fn(&Context, Moment) -> Error) {
        let Some(watch) = self.watches.get(&id) else { return };
        for request in watch.watchers.keys().copied().collect::<Vec<_>>() {
            if let Some(watcher) = self.take(cx, request) {
                let error = error(cx, watcher.since);
                cx.fail(request, error);
            }
        }
    }

    /// Trying again would not help with this server.
    pub(super) fn fail_at(&mut self, cx: &mut Context, server: ServerId, failure: &Failure) {
        let here = self.watches.iter().filter(|(_, watch)| cx.servers.id_of(&watch.name) == server);
        for id in here.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.fail(cx, id, failure);
        }
    }

    /// The client is shut down.
    pub(super) fn close(&mut self, cx: &mut Context, subscriptions: &mut Subscriptions) {
        for id in self.watches.keys().copied().collect::<Vec<_>>() {
            self.fail_all(cx, id, |_, _| Error::closed());
            self.forget(cx, subscriptions, id);
        }
    }

    // ---- outages

    /// Since when there has been no good answer, either from the server or to the looks.
    fn trouble_since(&self, cx: &Context, id: u64) -> Option<Moment> {
        let watch = self.watches.get(&id)?;
        let of_server = cx.servers.of(&watch.name).and_then(Server::outage_since);
        let own = watch.trouble.as_ref().map(|trouble| trouble.since);
        [of_server, own].into_iter().flatten().min()
    }

    /// Ends the waits that have gone on for `outage_limit` without a good answer. Returns when the
    /// next one does.
    pub(super) fn end_by_outage(&mut self, cx: &mut Context) -> Option<Moment> {
        let (mut over, mut next) = (Vec::new(), None::<Moment>);
        for (id, watch) in &self.watches {
            let Some(trouble) = self.trouble_since(cx, *id) else { continue };
            let server = cx.servers.id_of(&watch.name);
            let words = watch.trouble.as_ref().map(|trouble| trouble.words.clone());
            let cause = words.unwrap_or_else(|| cx.servers.last_trouble(server));
            for (request, watcher) in &watch.watchers {
                let end = match seeded!(WatchHasAnOutageLimit) {
                    true => Moment::NEVER,
                    false => trouble.max(watcher.since).plus(cx.config.outage_limit),
                };
                if end > cx.now {
                    next = Some(next.map_or(end, |next| next.min(end)));
                } else {
                    over.push((*request, watcher.since, cause.clone()));
                }
            }
        }
        for (request, since, cause) in over {
            self.take(cx, request);
            let waited = cx.now.since(since);
            cx.fail(request, Error::Unavailable { name: None, waited, cause });
        }
        next
    }
}

impl Engine {
    pub(super) fn on_watch(&mut self, request: RequestId, name: LockName) {
        if self.stopping.is_some() {
            return self.cx.fail(request, Error::closed());
        }
        // What was released before is to be free for whoever looks.
        self.release_before();
        self.watching.begin(&mut self.cx, &mut self.subscriptions, request, name);
    }

    pub(super) fn on_look_reply(&mut self, watch: u64, sent: Moment, outcome: Outcome<Reply>) {
        let Some(lock) = self.watching.on_reply(&mut self.cx, watch, sent, outcome) else { return };
        let Some(name) = self.queues.names.find(&lock) else { return };
        // If this client believes to hold it, others are refused here without asking the server.
        for id in name.holds().collect::<Vec<_>>() {
            self.watchdog.verify(&self.cx, &mut self.holds, id);
        }
    }
}
