//! A client's end of its connections to the server.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use tokio::time::Sleep;

use crate::backend::Backend;
use crate::backend::BackendEvent;
use crate::backend::Call;
use crate::backend::OpId;
use crate::backend::ServerId;
use crate::backend::memory::InMemoryServer;
use crate::backend::memory::link::NextEvent;

/// One client's connection to an [`InMemoryServer`].
pub(crate) struct MemoryBackend {
    server: InMemoryServer,
    client: u64,
    /// For the next reply, message or timeout that is due later.
    timer: Option<Pin<Box<Sleep>>>,
}

impl MemoryBackend {
    /// For a registered client. Must be called within the runtime whose clock and timers the client
    /// uses.
    pub(crate) fn new(server: &InMemoryServer, client: u64) -> Self {
        server.with(|hub| hub.connect(client));
        Self { server: server.clone(), client, timer: None }
    }

    /// Arms the timer for `at`, and returns true once it has expired.
    fn poll_timer(&mut self, at: Instant, cx: &mut Context<'_>) -> bool {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx).is_ready()
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Drop for MemoryBackend {
    fn drop(&mut self) {
        self.server.with(|hub| hub.disconnect(self.client));
    }
}

impl Backend for MemoryBackend {
    fn submit(&mut self, op: OpId, _to: ServerId, call: Call, timeout: Duration) {
        self.server.with(|hub| hub.submit(self.client, op, &call, timeout));
    }

    fn subscribe(&mut self, channel: Arc<str>, sharded: bool, generation: u64) {
        self.server.with(|hub| hub.subscribe(self.client, channel, sharded, generation));
    }

    fn unsubscribe(&mut self, channel: Arc<str>, sharded: bool) {
        self.server.with(|hub| hub.unsubscribe(self.client, &channel, sharded));
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<BackendEvent> {
        loop {
            match self.server.with(|hub| hub.next(self.client, cx.waker())) {
                NextEvent::Event(event) => return Poll::Ready(event),
                NextEvent::At(instant) if self.poll_timer(instant, cx) => self.timer = None,
                NextEvent::At(_) | NextEvent::Nothing => return Poll::Pending,
            }
        }
    }

    fn reconnect(&mut self, _server: ServerId) {
        self.server.with(|hub| hub.reconnect(self.client));
    }

    fn close(&mut self) {
        self.server.with(|hub| hub.close(self.client));
    }
}
