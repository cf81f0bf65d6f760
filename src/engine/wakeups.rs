//! Subscriptions: which are wanted, and which the server has confirmed.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::event::RequestId;

/// How long a subscription without waiters is kept, so that the next waiter needs no second attempt.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// What a channel is subscribed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Listener {
    /// The waiters of a name.
    Name(u64),
    /// This client's own channel.
    Client,
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

/// A SUBSCRIBE to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Subscribe {
    pub(crate) channel: Arc<str>,
    pub(crate) generation: u64,
    pub(crate) is_client: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    // Ordered, so that a resubscription is the same in every run.
    channels: BTreeMap<Arc<str>, Subscription>,
    connected: bool,
    generations: u64,
    /// How many of the channels are this client's own: counted, since a gauge is shown after every event.
    of_client: usize,
}

impl Wakeups {
    /// Adds a listener to a channel. Returns the SUBSCRIBE to send, if it is new.
    pub(crate) fn want(&mut self, channel: &Arc<str>, listener: Listener) -> Option<Subscribe> {
        if let Some(subscription) = self.channels.get_mut(channel) {
            let is_new = subscription.listeners.insert(listener);
            self.of_client += usize::from(is_new && listener == Listener::Client);
            return None;
        }
        self.of_client += usize::from(listener == Listener::Client);
        let listeners = BTreeSet::from([listener]);
        self.channels.insert(channel.clone(), Subscription { listeners, generation: 0, confirmed: false });
        self.again(channel)
    }

    /// Subscribes once more, under a new generation.
    pub(crate) fn again(&mut self, channel: &Arc<str>) -> Option<Subscribe> {
        let subscription = self.channels.get_mut(channel)?;
        self.generations += 1;
        subscription.generation = self.generations;
        subscription.confirmed = false;
        self.connected.then(|| Subscribe {
            channel: channel.clone(),
            generation: subscription.generation,
            is_client: subscription.listeners.contains(&Listener::Client),
        })
    }

    /// Removes a listener from a channel. True if the channel has to be unsubscribed.
    pub(crate) fn forget(&mut self, channel: &Arc<str>, listener: Listener) -> bool {
        let Some(subscription) = self.channels.get_mut(channel) else { return false };
        if !subscription.listeners.remove(&listener) {
            return false;
        }
        self.of_client -= usize::from(listener == Listener::Client);
        if !subscription.listeners.is_empty() {
            return false;
        }
        self.channels.remove(channel);
        self.connected
    }

    /// The pub/sub connection is new, so that all channels have to be subscribed.
    pub(crate) fn connected(&mut self) -> Vec<Subscribe> {
        self.connected = true;
        let channels: Vec<Arc<str>> = self.channels.keys().cloned().collect();
        let wanted = channels.iter().filter_map(|channel| self.again(channel)).collect();
        if seeded!(ReconnectWakes) {
            self.channels.values_mut().for_each(|known| known.confirmed = true);
        }
        wanted
    }

    pub(crate) fn disconnected(&mut self) {
        self.connected = false;
        for subscription in self.channels.values_mut() {
            subscription.confirmed = false;
        }
    }

    /// Notes the answer to a SUBSCRIBE. Returns the listeners, or none if it is not the answer to the newest SUBSCRIBE.
    pub(crate) fn answered(&mut self, channel: &Arc<str>, generation: u64, ok: bool) -> Vec<Listener> {
        match self.channels.get_mut(channel) {
            Some(known) if seeded!(ReconnectWakes) && known.confirmed => Vec::new(),
            Some(subscription) if subscription.generation == generation => {
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
        self.channels.get(channel).map_or_else(Vec::new, |known| known.listeners.iter().copied().collect())
    }

    pub(crate) fn listens(&self, channel: &Arc<str>, listener: Listener) -> bool {
        self.channels.get(channel).is_some_and(|known| known.listeners.contains(&listener))
    }

    /// Lock channels that are subscribed or wanted.
    pub(crate) fn lock_channels(&self) -> usize {
        self.channels.len() - self.of_client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_own_channel_is_no_lock_channel() {
        let (own, other): (Arc<str>, Arc<str>) = ("own".into(), "other".into());
        let mut wakeups = Wakeups::default();
        wakeups.want(&own, Listener::Client);
        wakeups.want(&own, Listener::Client);
        wakeups.want(&other, Listener::Name(1));
        assert_eq!(wakeups.lock_channels(), 1);
        wakeups.want(&other, Listener::Client);
        assert_eq!(wakeups.lock_channels(), 0);
        wakeups.forget(&other, Listener::Client);
        wakeups.forget(&own, Listener::Client);
        wakeups.forget(&own, Listener::Client);
        assert_eq!(wakeups.lock_channels(), 1);
        wakeups.forget(&other, Listener::Name(1));
        assert_eq!(wakeups.lock_channels(), 0);
    }

    #[test]
    fn only_the_newest_answer_counts() {
        let channel: Arc<str> = "c".into();
        let mut wakeups = Wakeups::default();
        assert_eq!(wakeups.want(&channel, Listener::Name(1)), None, "not connected: later");
        let first = wakeups.connected().pop().unwrap();
        wakeups.disconnected();
        let second = wakeups.connected().pop().unwrap();
        assert_eq!(wakeups.answered(&channel, first.generation, true), [], "a stale confirmation");
        assert!(!wakeups.is_confirmed(&channel));
        assert_eq!(wakeups.answered(&channel, second.generation, true), [Listener::Name(1)]);
        assert!(wakeups.is_confirmed(&channel));
        wakeups.disconnected();
        assert!(!wakeups.is_confirmed(&channel));
    }

    #[test]
    fn nothing_is_sent_while_there_is_no_connection() {
        let (known, new): (Arc<str>, Arc<str>) = ("known".into(), "new".into());
        let mut wakeups = Wakeups::default();
        wakeups.connected();
        wakeups.want(&known, Listener::Name(1));
        wakeups.disconnected();
        assert_eq!(wakeups.want(&new, Listener::Name(2)), None);
        assert!(!wakeups.forget(&known, Listener::Name(1)));
        assert_eq!(wakeups.connected().len(), 1, "the one that is still wanted");
    }

    #[test]
    fn a_channel_is_subscribed_once() {
        let channel: Arc<str> = "c".into();
        let mut wakeups = Wakeups::default();
        wakeups.connected();
        assert!(wakeups.want(&channel, Listener::Name(1)).is_some());
        assert!(wakeups.want(&channel, Listener::Name(1)).is_none());
        assert!(wakeups.want(&channel, Listener::Name(2)).is_none());
        assert!(!wakeups.forget(&channel, Listener::Name(1)), "another name still listens");
        assert!(wakeups.forget(&channel, Listener::Name(2)));
        assert!(!wakeups.forget(&channel, Listener::Name(2)));
        assert_eq!(wakeups.lock_channels(), 0);
    }
}
