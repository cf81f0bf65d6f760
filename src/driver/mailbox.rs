//! The mailbox: the messages of callers that do not poll the driver themselves.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::UnboundedSender;

use super::Message;

pub(super) fn mailbox() -> (Mailbox, Inbox) {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let busy = Arc::new(AtomicBool::new(false));
    (Mailbox { sender, busy: Arc::clone(&busy) }, Inbox { receiver, busy })
}

/// Where callers put their messages.
#[derive(Debug)]
pub(super) struct Mailbox {
    sender: UnboundedSender<Message>,
    busy: Arc<AtomicBool>,
}

impl Mailbox {
    /// Whether callers put their requests here instead of polling the driver.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    /// If the driver has ended, the message is dropped. A ticket dropped with it answers `Closed`.
    pub(super) fn send(&self, message: Message) {
        let _ = self.sender.send(message);
    }

    /// For a forked child: the drop of the last sender would wake a driver that is not in it.
    pub(super) fn leak(&self) {
        std::mem::forget(self.sender.clone());
    }
}

/// The end of the mailbox from which the driver takes messages.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) receiver: UnboundedReceiver<Message>,
    busy: Arc<AtomicBool>,
}

impl Inbox {
    /// Sets what [`Mailbox::is_busy`] says to callers.
    pub(super) fn tell_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        self.receiver.poll_recv(cx)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }

    /// From here on no message is taken in.
    pub(super) fn close(&mut self) {
        self.receiver.close();
    }

    /// The messages that are left, after `close`.
    pub(super) async fn take_rest(&mut self) -> Option<Message> {
        self.receiver.recv().await
    }
}
