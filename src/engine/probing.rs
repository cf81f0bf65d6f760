//! What a preflight asks: single commands, and whether a message comes through.

use std::sync::Arc;

use crate::backend::Failure;
use crate::engine::Engine;
use crate::engine::event::Answer;
use crate::engine::event::Effect;
use crate::engine::event::Probe;
use crate::engine::event::Probed;
use crate::engine::event::RequestId;
use crate::engine::requests::Asking;
use crate::engine::wakeups::Listener;
use crate::kinds::reply::Reply;

impl Engine {
    pub(super) fn on_probe(&mut self, request: RequestId, probe: Probe) {
        let channel = probe.listen.as_ref().map(|listen| Arc::clone(&listen.channel));
        self.on_query(request, Asking::Probe(Box::new(probe)));
        if let Some(channel) = channel.filter(|_| self.queries.contains_key(&request)) {
            let wanted = self.wakeups.want(&channel, Listener::Probe(request));
            self.subscribe(wanted);
            self.send_query(request);
        }
    }

    /// What is listened for has to be subscribed first.
    pub(super) fn may_probe(&self, probe: &Probe) -> bool {
        probe.listen.as_ref().is_none_or(|listen| self.wakeups.is_confirmed(&listen.channel))
    }

    pub(super) fn on_probe_subscribed(&mut self, request: RequestId, result: Result<(), Failure>) {
        match result {
            Ok(()) => self.send_query(request),
            Err(failure) => {
                let Some(query) = self.end_query(request) else { return };
                let error = self.cx.error_of(&failure, query.since);
                self.cx.fail(request, error);
            }
        }
    }

    pub(super) fn on_probe_heard(&mut self, request: RequestId) {
        let Some(query) = self.queries.get_mut(&request) else { return };
        query.heard = true;
        if let Some(reply) = query.reply.take() {
            self.end_probe(request, reply, true);
        }
    }

    /// Answered: done, unless a message is still to come.
    pub(super) fn on_probe_answered(&mut self, request: RequestId, probe: &Probe, reply: Reply) {
        let Some(query) = self.queries.get_mut(&request) else { return };
        if probe.listen.as_ref().is_some_and(|listen| listen.awaited) && !query.heard {
            query.reply = Some(reply);
        } else {
            let heard = query.heard;
            self.end_probe(request, reply, heard);
        }
    }

    pub(super) fn end_probe(&mut self, request: RequestId, reply: Reply, heard: bool) {
        self.end_query(request);
        let sharded = self.is_sharded();
        self.cx.answer(request, Answer::Probed(Probed { reply, heard, sharded }));
    }

    pub(super) fn stop_listening(&mut self, request: RequestId, probe: &Probe) {
        let Some(listen) = &probe.listen else { return };
        if self.wakeups.forget(&listen.channel, Listener::Probe(request)) {
            let (channel, sharded) = (Arc::clone(&listen.channel), self.is_sharded());
            self.cx.effects.push(Effect::Unsubscribe { channel, sharded });
        }
    }
}
