//! At which node each channel is subscribed, and how subscriptions follow their slots.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::ClusterBackend;
use super::Node;
use crate::backend::Backend;
use crate::backend::BackendEvent;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::ServerId;
use crate::base::name::slot_of;

/// How often each sharded subscription is repeated. The server ends such a subscription when its
/// slot moves away, and the message about that could be lost.
pub(super) const RENEW_SUBSCRIPTIONS: Duration = Duration::from_secs(10);

/// A channel that the engine has subscribed to.
pub(super) struct ClusterSubscription {
    pub(super) sharded: bool,
    pub(super) generation: u64,
    /// The node where it was subscribed; `None` until a suitable node is connected.
    pub(super) at: Option<ServerId>,
    /// True while it is only repeated to be sure, so that the confirmation is not reported to the
    /// engine.
    pub(super) renewing: bool,
}

impl ClusterBackend {
    /// The node where a channel is subscribed: for a sharded channel the primary of its slot, for
    /// others any connected node with slots.
    pub(super) fn place_of(&self, channel: &str, sharded: bool) -> Option<ServerId> {
        let connected = |id: &ServerId| {
            self.nodes.get(id).is_some_and(|node| node.pubsub_up && node.unused_since.is_none())
        };
        if sharded {
            return self.routes.get(usize::from(slot_of(channel))).copied().filter(connected);
        }
        self.nodes.keys().copied().find(connected)
    }

    /// Subscribes to the channels that are not subscribed anywhere, if a suitable node is connected
    /// now.
    pub(super) fn place_subscriptions(&mut self) {
        let waiting: Vec<Arc<str>> = self
            .subscriptions
            .iter()
            .filter(|(_, subscription)| subscription.at.is_none())
            .map(|(channel, _)| Arc::clone(channel))
            .collect();
        for channel in waiting {
            self.place_subscription(&channel);
        }
    }

    pub(super) fn place_subscription(&mut self, channel: &Arc<str>) {
        let Some(sharded) =
            self.subscriptions.get(channel).map(|subscription| subscription.sharded)
        else {
            return;
        };
        let Some(at) = self.place_of(channel, sharded) else { return };
        let (Some(node), Some(subscription)) =
            (self.nodes.get_mut(&at), self.subscriptions.get_mut(channel))
        else {
            return;
        };
        subscription.at = Some(at);
        node.backend.subscribe(Arc::clone(channel), sharded, subscription.generation);
    }

    /// Unsubscribes at the former node if a repeated request went to another one: otherwise each
    /// message would come from both.
    pub(super) fn leave_place(&mut self, channel: &Arc<str>, before: Option<ClusterSubscription>) {
        let now_at = self.subscriptions.get(channel).and_then(|subscription| subscription.at);
        let Some(ClusterSubscription { at: Some(old), sharded, .. }) = before else { return };
        if let Some(node) = self.nodes.get_mut(&old).filter(|_| now_at != Some(old)) {
            node.backend.unsubscribe(Arc::clone(channel), sharded);
        }
    }

    /// Moves sharded subscriptions along with their slots: reports them as lost, so that the engine
    /// subscribes again.
    pub(super) fn move_subscriptions(&mut self) {
        let routes = Arc::clone(&self.routes);
        self.give_up(|channel, subscription, at, _| {
            subscription.sharded && routes.get(usize::from(slot_of(channel))) != Some(&at)
        });
        self.place_subscriptions();
    }

    /// Moves subscriptions away from nodes without slots. Such a node may have left the cluster,
    /// and then no longer receives what is published there.
    pub(super) fn leave_unused_subscriptions(&mut self) {
        if self.place_of("", false).is_some() {
            self.give_up(|_, subscription, _, node| {
                !subscription.sharded && node.is_some_and(|node| node.unused_since.is_some())
            });
        }
    }

    /// Ends misplaced subscriptions and reports them as lost, so that the engine subscribes again.
    fn give_up(
        &mut self,
        misplaced: impl Fn(&str, &ClusterSubscription, ServerId, Option<&Node>) -> bool,
    ) {
        for (channel, subscription) in &mut self.subscriptions {
            let Some(at) = subscription.at else { continue };
            let node = self.nodes.get_mut(&at);
            if !misplaced(channel, subscription, at, node.as_deref()) {
                continue;
            }
            if let Some(node) = node {
                node.backend.unsubscribe(Arc::clone(channel), subscription.sharded);
            }
            subscription.at = None;
            self.ready.push_back(BackendEvent::SubscriptionLost { channel: Arc::clone(channel) });
        }
    }

    pub(super) fn on_pubsub_up(&mut self, id: ServerId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.pubsub_up = true;
        }
        self.leave_unused_subscriptions();
        self.place_subscriptions();
    }

    pub(super) fn on_pubsub_down(&mut self, id: ServerId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.pubsub_up = false;
        }
        for (channel, subscription) in &mut self.subscriptions {
            if subscription.at == Some(id) {
                subscription.at = None;
                let channel = Arc::clone(channel);
                self.ready.push_back(BackendEvent::SubscriptionLost { channel });
            }
        }
        self.refresh_soon();
    }

    /// The node has given the channel's slot away.
    pub(super) fn on_subscription_lost(&mut self, id: ServerId, channel: Arc<str>) {
        let Some(subscription) = self.subscriptions.get_mut(&channel) else { return };
        if subscription.at == Some(id) {
            subscription.at = None;
            subscription.renewing = false;
            self.ready.push_back(BackendEvent::SubscriptionLost { channel });
            self.refresh_soon();
        }
    }

    pub(super) fn on_subscribed(
        &mut self,
        id: ServerId,
        channel: Arc<str>,
        generation: u64,
        result: Result<(), Failure>,
    ) {
        let Some(subscription) = self.subscriptions.get_mut(&channel) else { return };
        if subscription.at != Some(id) || subscription.generation != generation {
            return;
        }
        let renewed = std::mem::take(&mut subscription.renewing);
        match result {
            Ok(()) if renewed => {}
            Err(failure)
                if failure.kind.is_transient() || failure.kind == FailureKind::Redirected =>
            {
                // The slot belongs to another node now.
                subscription.at = None;
                self.refresh_soon();
                let result = Err(Failure::new(FailureKind::SlotMoving, failure.message));
                self.ready.push_back(if renewed {
                    BackendEvent::SubscriptionLost { channel }
                } else {
                    BackendEvent::Subscribed { channel, generation, result }
                });
            }
            result => {
                self.ready.push_back(BackendEvent::Subscribed { channel, generation, result })
            }
        }
    }

    pub(super) fn renew_subscriptions(&mut self) {
        self.renew_at = Instant::now() + RENEW_SUBSCRIPTIONS;
        for (channel, subscription) in &mut self.subscriptions {
            let Some(at) =
                subscription.at.filter(|_| subscription.sharded && !subscription.renewing)
            else {
                continue;
            };
            if let Some(node) = self.nodes.get_mut(&at) {
                subscription.renewing = true;
                node.backend.subscribe(Arc::clone(channel), true, subscription.generation);
            }
        }
    }
}
