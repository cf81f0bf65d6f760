//! Subscriptions and messages, and what happens to them on the way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::base::clock::Moment;
use crate::base::name::LockName;
use crate::base::name::slot_of;
use crate::engine::event::Event;
use crate::sim::client::Inbound;
use crate::sim::client::Listening;
use crate::sim::client::Subscribing;
use crate::sim::client::Subscription;
use crate::sim::world::Happening;
use crate::sim::world::World;

impl World {
    // ---- connections

    pub(super) fn listen_later(&mut self, wait: Duration, client: usize, process: usize) {
        let listening = self.clients[client].listens.entry(process).or_default();
        if !std::mem::replace(&mut listening.connecting, true) {
            self.after(wait, Happening::Listen(client, process));
        }
    }

    /// A client of a single server follows it to another process.
    pub(super) fn forsake_listening(&mut self, client: usize, process: usize) {
        let old: Vec<usize> = self.clients[client].listens.keys().copied().collect();
        for other in old {
            self.cut_listening(client, other, true);
            self.clients[client].listens.remove(&other);
        }
        let wait = self.chance.time(1_000, 300_000);
        self.listen_later(wait, client, process);
    }

    pub(super) fn listen(&mut self, client: usize, process: usize) {
        let Some(listening) = self.clients[client].listens.get_mut(&process) else { return };
        listening.connecting = false;
        let up = listening.up;
        if up || !self.clients[client].serves() {
            return;
        }
        if !self.processes[process].alive
            && self.places.cluster
            && !self.places.owners().contains(&process)
        {
            self.clients[client].listens.remove(&process);
            return;
        }
        if !self.accepts(process) || self.clients[client].frozen {
            let wait = self.chance.time(5_000, 300_000);
            return self.listen_later(wait, client, process);
        }
        if self.clients[client]
            .login_trouble(self.now, process)
            .is_some_and(|login| login.connecting)
        {
            if !self.places.cluster || self.clients[client].routes.contains(&process) {
                self.refuse_login(client, self.places.server_id(process));
            }
            let wait = self.chance.time(5_000, 300_000);
            return self.listen_later(wait, client, process);
        }
        if let Some(listening) = self.clients[client].listens.get_mut(&process) {
            listening.up = true;
            listening.epoch += 1;
        }
        self.disturb(client, None);
        if self.places.cluster {
            self.place_subscriptions(client);
        } else {
            self.send_to_client(Duration::ZERO, client, Inbound::Backend(None, Event::PubSubUp));
        }
    }

    /// All of a client's connections.
    pub(super) fn deafen(&mut self, client: usize) {
        let processes: Vec<usize> = self.clients[client].listens.keys().copied().collect();
        processes.into_iter().for_each(|process| self.cut_listening(client, process, false));
    }

    pub(super) fn cut_listening(&mut self, client: usize, process: usize, for_good: bool) {
        let Some(listening) = self.clients[client].listens.get_mut(&process) else { return };
        if !listening.up {
            return;
        }
        *listening = Listening {
            epoch: listening.epoch + 1,
            connecting: listening.connecting,
            ..Listening::default()
        };
        self.say(|| format!("the pub/sub connection of {client} to s{process} is cut"));
        self.disturb(client, None);
        self.unsubscribe_all(client, process);
        if self.clients[client].serves() {
            self.tell_of_lost_subscriptions(client, process);
        }
        if !for_good {
            let wait = self.chance.time(1_000, 400_000);
            self.listen_later(wait, client, process);
        }
    }

    fn tell_of_lost_subscriptions(&mut self, client: usize, process: usize) {
        if !self.places.cluster {
            return self.send_to_client(
                Duration::ZERO,
                client,
                Inbound::Backend(None, Event::PubSubDown),
            );
        }
        let lost: Vec<Arc<str>> = self.clients[client]
            .subscriptions
            .iter_mut()
            .filter(|(_, subscription)| subscription.at == Some(process))
            .map(|(channel, subscription)| {
                subscription.at = None;
                Arc::clone(channel)
            })
            .collect();
        for channel in lost {
            let event = Event::SubscriptionLost { channel };
            self.send_to_client(Duration::ZERO, client, Inbound::Backend(None, event));
        }
    }

    // ---- subscriptions

    pub(super) fn subscribe(
        &mut self,
        client: usize,
        channel: Arc<str>,
        sharded: bool,
        generation: u64,
    ) {
        let subscription = Subscription { sharded, generation, at: None };
        let before = self.clients[client].subscriptions.insert(Arc::clone(&channel), subscription);
        self.place_subscription(client, &channel);
        let now_at = self.clients[client].subscriptions.get(&channel).and_then(|known| known.at);
        if let Some(Subscription { at: Some(old), sharded, .. }) = before {
            if now_at != Some(old) {
                self.write_subscribe(client, old, channel, sharded, None);
            }
        }
    }

    pub(super) fn unsubscribe(&mut self, client: usize, channel: Arc<str>) {
        let Some(subscription) = self.clients[client].subscriptions.remove(&channel) else {
            return;
        };
        if let Some(process) = subscription.at {
            self.write_subscribe(client, process, channel, subscription.sharded, None);
        }
    }

    fn place_subscriptions(&mut self, client: usize) {
        let waiting: Vec<Arc<str>> = self.clients[client]
            .subscriptions
            .iter()
            .filter(|(_, subscription)| subscription.at.is_none())
            .map(|(channel, _)| Arc::clone(channel))
            .collect();
        for channel in waiting {
            self.place_subscription(client, &channel);
        }
    }

    /// A sharded channel belongs to whoever has its slot, any other to whichever is connected.
    fn place_subscription(&mut self, client: usize, channel: &Arc<str>) {
        let to = &mut self.clients[client];
        let Some(subscription) = to.subscriptions.get_mut(channel) else { return };
        let connected =
            |process: &usize| to.listens.get(process).is_some_and(|listening| listening.up);
        let process = if subscription.sharded {
            to.routes.get(usize::from(slot_of(channel))).copied().filter(connected)
        } else {
            let mut up = to.listens.keys().copied().filter(connected);
            // Of a crowd not all at the same one: PUBLISH counts those only that listen where it is
            // executed.
            if self.plan.crowd { up.cycle().nth(client) } else { up.next() }
        };
        let Some(process) = process else { return };
        subscription.at = Some(process);
        // What stands still there confirms nothing before it goes on.
        to.undisturbed = to.undisturbed.max(self.processes[process].paused_until);
        let (sharded, generation) = (subscription.sharded, subscription.generation);
        self.write_subscribe(client, process, Arc::clone(channel), sharded, Some(generation));
    }

    /// Sharded subscriptions follow their slots.
    pub(super) fn move_subscriptions(&mut self, client: usize) {
        let to = &mut self.clients[client];
        let mut moved = Vec::new();
        for (channel, subscription) in &mut to.subscriptions {
            let Some(at) = subscription.at.filter(|_| subscription.sharded) else { continue };
            if to.routes.get(usize::from(slot_of(channel))) != Some(&at) {
                subscription.at = None;
                moved.push((Arc::clone(channel), at));
            }
        }
        for (channel, at) in moved {
            self.write_subscribe(client, at, Arc::clone(&channel), true, None);
            let event = Event::SubscriptionLost { channel };
            self.send_to_client(Duration::ZERO, client, Inbound::Backend(None, event));
        }
        self.place_subscriptions(client);
    }

    /// A slot has moved: its server ends the sharded subscriptions, and the backend asks for them
    /// anew.
    pub(super) fn end_sharded_subscriptions(&mut self, process: usize, slot: u16) {
        let ended: Vec<(String, Vec<usize>)> = self
            .subscribers
            .iter()
            .filter(|((at, sharded, channel), _)| {
                *at == process && *sharded && slot_of(channel) == slot
            })
            .map(|((_, _, channel), clients)| (channel.clone(), clients.iter().copied().collect()))
            .collect();
        for (channel, clients) in ended {
            for client in clients {
                self.note_subscriber(client, process, true, &channel, false);
                let mine = self.clients[client].subscriptions.get_mut(channel.as_str());
                let Some(subscription) = mine.filter(|mine| mine.at == Some(process)) else {
                    continue;
                };
                subscription.at = None;
                let event = Event::SubscriptionLost { channel: channel.as_str().into() };
                self.send_to_client(Duration::ZERO, client, Inbound::Backend(None, event));
            }
        }
    }

    fn write_subscribe(
        &mut self,
        client: usize,
        process: usize,
        channel: Arc<str>,
        sharded: bool,
        generation: Option<u64>,
    ) {
        let wait = self.way(client);
        let at = self.now.plus(wait);
        let Some(listening) = self.clients[client].listens.get_mut(&process) else { return };
        if !listening.up {
            return;
        }
        let at = at.max(listening.last_subscribe);
        listening.last_subscribe = at;
        let epoch = listening.epoch;
        let subscribing = Subscribing { client, process, epoch, channel, sharded, generation };
        self.at(at, Happening::Subscribe(subscribing));
    }

    pub(super) fn on_subscribe(&mut self, subscribing: Subscribing) {
        let Subscribing { client, process, epoch, channel, sharded, generation } = subscribing;
        let lives = self.clients[client]
            .listens
            .get(&process)
            .is_some_and(|listening| listening.epoch == epoch);
        let Some(generation) = generation else {
            if lives {
                self.note_subscriber(client, process, sharded, &channel, false);
            }
            return;
        };
        if !lives {
            if self.fault(self.plan.faults.stale_confirmation) {
                let wait = self.chance.time(10, 500_000);
                let stale = Event::Subscribed { channel, generation, result: Ok(()) };
                self.send_to_client(wait, client, Inbound::Backend(None, stale));
            }
            return;
        }
        let elsewhere = sharded && self.places.owner(slot_of(&channel)) != process;
        let result = if elsewhere {
            let known = self.clients[client].subscriptions.get_mut(&channel);
            let asked =
                known.filter(|known| known.at == Some(process) && known.generation == generation);
            let Some(subscription) = asked else { return };
            subscription.at = None;
            Err(Failure::new(FailureKind::SlotMoving, "MOVED"))
        } else if self.fault(self.plan.faults.subscribe_refused) {
            Err(Failure::new(FailureKind::Busy, "not now"))
        } else {
            self.note_subscriber(client, process, sharded, &channel, true);
            Ok(())
        };
        if result.is_err() {
            self.disturb(client, None);
        }
        self.hear(
            client,
            process,
            Duration::ZERO,
            Event::Subscribed { channel, generation, result },
        );
    }

    /// A server sends this client what is published about a name.
    pub(super) fn is_subscribed(&self, client: usize, name: &LockName) -> bool {
        let own = name.channel(self.plan.profile);
        let has = |((_, _, channel), clients): (&(usize, bool, String), &BTreeSet<usize>)| {
            **channel == *own && clients.contains(&client)
        };
        self.subscribers.iter().any(has)
    }

    fn note_subscriber(
        &mut self,
        client: usize,
        process: usize,
        sharded: bool,
        channel: &str,
        on: bool,
    ) {
        let set = self.subscribers.entry((process, sharded, channel.to_owned())).or_default();
        if on {
            set.insert(client);
        } else {
            set.remove(&client);
        }
        let number = i64::try_from(set.len() + self.plan.idle_listeners).unwrap_or(i64::MAX);
        self.processes[process].keys.set_subscribers(channel, sharded, number);
    }

    fn unsubscribe_all(&mut self, client: usize, process: usize) {
        let channels: Vec<(bool, String)> = self
            .subscribers
            .iter()
            .filter(|((at, _, _), clients)| *at == process && clients.contains(&client))
            .map(|((_, sharded, channel), _)| (*sharded, channel.clone()))
            .collect();
        for (sharded, channel) in channels {
            self.note_subscriber(client, process, sharded, &channel, false);
        }
    }

    // ---- messages

    /// What the last command of a process published goes to its subscribers; in a cluster to those
    /// of the others too.
    pub(super) fn deliver_published(&mut self, process: usize) {
        for message in self.processes[process].keys.take_published() {
            let receivers: Vec<(usize, usize)> = self
                .subscribers
                .iter()
                .filter(|((at, sharded, channel), _)| {
                    *channel == message.channel
                        && *sharded == message.sharded
                        && (*at == process || self.places.cluster && !*sharded)
                })
                .flat_map(|((at, _, _), clients)| clients.iter().map(|client| (*client, *at)))
                .collect();
            let channel: Arc<str> = message.channel.as_str().into();
            for (client, at) in receivers {
                let bus = if at == process {
                    Duration::ZERO
                } else {
                    self.chance.time(20, self.plan.latency)
                };
                self.publish(client, at, bus, &channel, &message.payload);
            }
        }
    }

    fn publish(
        &mut self,
        client: usize,
        process: usize,
        bus: Duration,
        channel: &Arc<str>,
        payload: &str,
    ) {
        if self.clients[client].lagging || self.fault(self.plan.faults.silent_loss) {
            return self.say(|| format!("{client} does not hear {channel}"));
        }
        let message =
            || Event::Message { channel: Arc::clone(channel), payload: payload.to_owned() };
        if self.fault(self.plan.faults.message_twice) {
            self.hear(client, process, bus, message());
        }
        let overtaken = if self.fault(self.plan.faults.message_overtaken) {
            self.disturb(client, None);
            self.chance.time(100, 50_000)
        } else {
            Duration::ZERO
        };
        self.hear(client, process, bus + overtaken, message());
    }

    /// Over the pub/sub connection, in order but for what is held up.
    fn hear(&mut self, client: usize, process: usize, held_up: Duration, event: Event) {
        let at = self.now.plus(self.way(client));
        let Some(listening) = self.clients[client].listens.get_mut(&process) else { return };
        let at = at.max(listening.last_message);
        listening.last_message = at;
        let gate = (process, listening.epoch);
        let paused = self.processes[process].paused_until;
        let late =
            self.plan.late.filter(|(late, _)| *late == client).map_or(Duration::ZERO, |(_, by)| by);
        let at: Moment = at.max(paused).plus(held_up + late);
        self.at(at, Happening::To(client, Inbound::Backend(Some(gate), event)));
    }
}
