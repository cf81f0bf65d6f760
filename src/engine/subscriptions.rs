//! Subscriptions: which are wanted, and which the server has confirmed.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::base::name::client_channel;
use crate::engine::context::Context;
use crate::engine::event::Effect;
use crate::engine::event::RequestId;
use crate::engine::timers::TimerKey;

/// How long a subscription without waiters is kept, so that the next waiter needs no second
/// attempt.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// What a channel is subscribed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Listener {
    /// The waiters of a name.
    Name(u64),
    /// This client's own channel.
    Client,
    /// Those who watch a name.
    Watch(u64),
    /// A preflight.
    Probe(RequestId),
}

#[derive(Debug)]
struct Subscription {
    /// More than one where two names share a channel: `x` and `{x}` in Redisson's spelling.
    listeners: BTreeSet<Listener>,
    /// Only the answer to the newest SUBSCRIBE counts.
    generation: u64,
    confirmed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    // Ordered, so that a resubscription is the same in every run.
    channels: BTreeMap<Arc<str>, Subscription>,
    connected: bool,
    generations: u64,
    /// How many of the channels are this client's own: counted, since a gauge is shown after every
    /// event.
    of_client: usize,
}

impl Subscriptions {
    /// Adds a listener to a channel, which is subscribed if it is new.
    pub(super) fn want(&mut self, cx: &mut Context, channel: &Arc<str>, listener: Listener) {
        if let Some(subscription) = self.channels.get_mut(channel) {
            let is_new = subscription.listeners.insert(listener);
            self.of_client += usize::from(is_new && listener == Listener::Client);
            return;
        }
        self.of_client += usize::from(listener == Listener::Client);
        let listeners = BTreeSet::from([listener]);
        self.channels
            .insert(channel.clone(), Subscription { listeners, generation: 0, confirmed: false });
        self.again(cx, channel);
    }

    /// This client's own channel.
    pub(super) fn want_client_channel(&mut self, cx: &mut Context) {
        self.want(cx, &client_channel_of(cx), Listener::Client);
    }

    pub(super) fn has_client_channel(&self, cx: &Context) -> bool {
        self.is_confirmed(&client_channel_of(cx))
    }

    /// Tries the client's channel again, if it is still not confirmed.
    pub(super) fn retry_client_channel(&mut self, cx: &mut Context) {
        let channel = client_channel_of(cx);
        if !self.is_confirmed(&channel) {
            self.again(cx, &channel);
        }
    }

    /// Subscribes once more, under a new generation.
    pub(super) fn again(&mut self, cx: &mut Context, channel: &Arc<str>) {
        let Some(subscription) = self.channels.get_mut(channel) else { return };
        self.generations += 1;
        subscription.generation = self.generations;
        subscription.confirmed = false;
        if !self.connected {
            return;
        }
        // It is asked for now, whatever an earlier refusal has put off.
        for listener in &subscription.listeners {
            match listener {
                Listener::Name(key) => cx.timers.clear(TimerKey::Resubscribe(*key)),
                Listener::Client => cx.timers.clear(TimerKey::ClientChannel),
                Listener::Watch(_) | Listener::Probe(_) => {}
            }
        }
        let sharded = cx.is_sharded() && !subscription.listeners.contains(&Listener::Client);
        let (channel, generation) = (channel.clone(), subscription.generation);
        cx.effects.push(Effect::Subscribe { channel, sharded, generation });
    }

    /// Removes a listener from a channel, which is unsubscribed when it has no other.
    pub(super) fn forget(&mut self, cx: &mut Context, channel: &Arc<str>, listener: Listener) {
        let Some(subscription) = self.channels.get_mut(channel) else { return };
        if !subscription.listeners.remove(&listener) {
            return;
        }
        self.of_client -= usize::from(listener == Listener::Client);
        if !subscription.listeners.is_empty() {
            return;
        }
        self.channels.remove(channel);
        if self.connected {
            let (channel, sharded) = (channel.clone(), cx.is_sharded());
            cx.effects.push(Effect::Unsubscribe { channel, sharded });
        }
    }

    /// The pub/sub connection is new, so that all channels have to be subscribed.
    pub(super) fn connected(&mut self, cx: &mut Context) {
        self.connected = true;
        for channel in self.channels.keys().cloned().collect::<Vec<_>>() {
            self.again(cx, &channel);
        }
        if seeded!(ReconnectWakes) {
            self.channels.values_mut().for_each(|known| known.confirmed = true);
        }
    }

    pub(crate) fn disconnected(&mut self) {
        self.connected = false;
        for subscription in self.channels.values_mut() {
            subscription.confirmed = false;
        }
    }

    /// Notes the answer to a SUBSCRIBE. Returns the listeners, or none if it is not the answer to
    /// the newest SUBSCRIBE.
    pub(crate) fn answered(
        &mut self,
        channel: &Arc<str>,
        generation: u64,
        ok: bool,
    ) -> Vec<Listener> {
        match self.channels.get_mut(channel) {
            Some(known) if seeded!(ReconnectWakes) && known.confirmed => Vec::new(),
            Some(subscription)
                if subscription.generation == generation || seeded!(NewestSubscribeCounts) =>
            {
                subscription.confirmed = ok;
                subscription.listeners.iter().copied().collect()
            }
            _ => Vec::new(),
        }
    }

    pub(crate) fn is_confirmed(&self, channel: &Arc<str>) -> bool {
        self.channels.get(channel).is_some_and(|subscription| subscription.confirmed)
    }

    pub(crate) fn listeners(&self, channel: &Arc<str>) -> Vec<Listener> {
        self.channels
            .get(channel)
            .map_or_else(Vec::new, |known| known.listeners.iter().copied().collect())
    }

    pub(crate) fn listens(&self, channel: &Arc<str>, listener: Listener) -> bool {
        self.channels.get(channel).is_some_and(|known| known.listeners.contains(&listener))
    }

    /// Lock channels that are subscribed or wanted.
    pub(crate) fn lock_channels(&self) -> usize {
        self.channels.len() - self.of_client
    }
}

fn client_channel_of(cx: &Context) -> Arc<str> {
    client_channel(&cx.config.client_id).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::context::testing::context;

    fn subscribed(cx: &mut Context) -> Vec<(Arc<str>, u64)> {
        let made = cx.effects.drain(..).filter_map(|effect| match effect {
            Effect::Subscribe { channel, generation, .. } => Some((channel, generation)),
            _ => None,
        });
        made.collect()
    }

    fn unsubscribed(cx: &mut Context) -> usize {
        cx.effects.drain(..).filter(|effect| matches!(effect, Effect::Unsubscribe { .. })).count()
    }

    #[test]
    fn the_clients_own_channel_is_no_lock_channel() {
        let (own, other): (Arc<str>, Arc<str>) = ("own".into(), "other".into());
        let (mut subscriptions, mut cx) = (Subscriptions::default(), context());
        subscriptions.want(&mut cx, &own, Listener::Client);
        subscriptions.want(&mut cx, &own, Listener::Client);
        subscriptions.want(&mut cx, &other, Listener::Name(1));
        assert_eq!(subscriptions.lock_channels(), 1);
        subscriptions.want(&mut cx, &other, Listener::Client);
        assert_eq!(subscriptions.lock_channels(), 0);
        subscriptions.forget(&mut cx, &other, Listener::Client);
        subscriptions.forget(&mut cx, &own, Listener::Client);
        subscriptions.forget(&mut cx, &own, Listener::Client);
        assert_eq!(subscriptions.lock_channels(), 1);
        subscriptions.forget(&mut cx, &other, Listener::Name(1));
        assert_eq!(subscriptions.lock_channels(), 0);
    }

    #[test]
    fn only_the_newest_answer_counts() {
        let channel: Arc<str> = "c".into();
        let (mut subscriptions, mut cx) = (Subscriptions::default(), context());
        subscriptions.want(&mut cx, &channel, Listener::Name(1));
        assert_eq!(subscribed(&mut cx), [], "not connected: later");
        subscriptions.connected(&mut cx);
        let first = subscribed(&mut cx).pop().unwrap();
        subscriptions.disconnected();
        subscriptions.connected(&mut cx);
        let second = subscribed(&mut cx).pop().unwrap();
        assert_eq!(subscriptions.answered(&channel, first.1, true), [], "a stale confirmation");
        assert!(!subscriptions.is_confirmed(&channel));
        assert_eq!(subscriptions.answered(&channel, second.1, true), [Listener::Name(1)]);
        assert!(subscriptions.is_confirmed(&channel));
        subscriptions.disconnected();
        assert!(!subscriptions.is_confirmed(&channel));
    }

    #[test]
    fn nothing_is_sent_while_there_is_no_connection() {
        let (known, new): (Arc<str>, Arc<str>) = ("known".into(), "new".into());
        let (mut subscriptions, mut cx) = (Subscriptions::default(), context());
        subscriptions.connected(&mut cx);
        subscriptions.want(&mut cx, &known, Listener::Name(1));
        assert_eq!(subscribed(&mut cx).len(), 1);
        subscriptions.disconnected();
        subscriptions.want(&mut cx, &new, Listener::Name(2));
        subscriptions.forget(&mut cx, &known, Listener::Name(1));
        assert!(cx.effects.is_empty(), "{:?}", cx.effects);
        subscriptions.connected(&mut cx);
        assert_eq!(subscribed(&mut cx).len(), 1, "the one that is still wanted");
    }

    #[test]
    fn a_channel_is_subscribed_once() {
        let channel: Arc<str> = "c".into();
        let (mut subscriptions, mut cx) = (Subscriptions::default(), context());
        subscriptions.connected(&mut cx);
        subscriptions.want(&mut cx, &channel, Listener::Name(1));
        subscriptions.want(&mut cx, &channel, Listener::Name(1));
        subscriptions.want(&mut cx, &channel, Listener::Name(2));
        assert_eq!(subscribed(&mut cx).len(), 1);
        subscriptions.forget(&mut cx, &channel, Listener::Name(1));
        assert_eq!(unsubscribed(&mut cx), 0, "another name still listens");
        subscriptions.forget(&mut cx, &channel, Listener::Name(2));
        subscriptions.forget(&mut cx, &channel, Listener::Name(2));
        assert_eq!(unsubscribed(&mut cx), 1);
        assert_eq!(subscriptions.lock_channels(), 0);
    }
}
