//! The mailbox, and when the driver is woken for the messages in it.
//!
//! While the server has much to do, requests are gathered until it answers, or until there are many
//! (`Backend::gather`). A driver with a thread of its own need not be woken for each message then:
//! it would only sleep again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;

use futures::task::AtomicWaker;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::UnboundedSender;

use super::Message;

pub(super) fn mailbox() -> (Mailbox, Inbox) {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let hush = Arc::new(Hush {
        left: AtomicUsize::new(0),
        driver: AtomicWaker::new(),
        busy: AtomicBool::new(false),
    });
    (Mailbox { sender, hush: Arc::clone(&hush) }, Inbox { receiver, hush, hushed: None })
}

/// Where callers put their messages.
#[derive(Debug)]
pub(super) struct Mailbox {
    sender: UnboundedSender<Message>,
    hush: Arc<Hush>,
}

impl Mailbox {
    /// Whether callers put their requests here instead of polling the driver.
    pub(super) fn is_busy(&self) -> bool {
        self.hush.busy.load(Ordering::Relaxed)
    }

    /// If the driver has ended, the message is dropped. A ticket dropped with it answers `Closed`.
    pub(super) fn send(&self, message: Message) {
        let _ = self.sender.send(message);
        self.hush.came();
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
    hush: Arc<Hush>,
    /// `Some`: the driver is woken for the last of this many messages only.
    hushed: Option<usize>,
}

impl Inbox {
    /// `Some`: after the next poll that finds the mailbox empty, the poller is woken for the last
    /// of this many messages, and for none before. It has to set a timer to look earlier.
    pub(super) fn hush(&mut self, messages: Option<usize>) {
        if self.hushed.is_some() && messages.is_none() {
            self.hush.end();
        }
        self.hushed = messages;
    }

    /// Sets what [`Mailbox::is_busy`] says to callers.
    pub(super) fn tell_busy(&self, busy: bool) {
        self.hush.busy.store(busy, Ordering::Relaxed);
    }

    pub(super) fn is_hushed(&self) -> bool {
        self.hushed.is_some()
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        let Some(messages) = self.hushed else { return self.receiver.poll_recv(cx) };
        let silent = &mut Context::from_waker(Waker::noop());
        let next = self.receiver.poll_recv(silent);
        if next.is_ready() {
            return next;
        }
        self.hush.begin(messages, cx.waker());
        // Messages that came before `begin` woke nobody.
        self.receiver.poll_recv(silent)
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

#[derive(Debug)]
struct Hush {
    /// The last of this many messages wakes the driver, and none before it. Zero: each message
    /// wakes it.
    left: AtomicUsize,
    driver: AtomicWaker,
    /// Callers put their requests into the mailbox.
    busy: AtomicBool,
}

impl Hush {
    /// Messages are counted from here on.
    fn begin(&self, messages: usize, driver: &Waker) {
        self.driver.register(driver);
        self.left.store(messages, Ordering::SeqCst);
    }

    fn end(&self) {
        self.left.store(0, Ordering::SeqCst);
    }

    fn came(&self) {
        let one_less = |left: usize| left.checked_sub(1);
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) == Ok(1) {
            self.driver.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::backend::woken::Woken;
    use crate::engine::event::RequestId;

    fn send(mailbox: &Mailbox, messages: usize) {
        (0..messages).for_each(|_| mailbox.send(Message::Cancel { request: RequestId(1) }));
    }

    /// Takes what is there, and waits for more.
    fn take_all(inbox: &mut Inbox, woken: &Arc<Woken>) -> usize {
        let waker = Arc::clone(woken).into();
        let mut taken = 0;
        while inbox.poll_next(&mut Context::from_waker(&waker)).is_ready() {
            taken += 1;
        }
        taken
    }

    #[test]
    fn the_last_of_so_many_wakes_and_then_each() {
        let (mailbox, mut inbox) = mailbox();
        let woken = Arc::<Woken>::default();
        inbox.hush(Some(3));
        assert_eq!(take_all(&mut inbox, &woken), 0);
        send(&mailbox, 2);
        assert_eq!(woken.times(), 0);
        send(&mailbox, 3);
        assert_eq!(woken.times(), 1, "once");
        assert_eq!(take_all(&mut inbox, &woken), 5);
        send(&mailbox, 2);
        assert_eq!(
            (woken.times(), take_all(&mut inbox, &woken)),
            (1, 2),
            "from now on three again"
        );
        inbox.hush(None);
        assert_eq!(take_all(&mut inbox, &woken), 0);
        send(&mailbox, 1);
        assert_eq!(woken.times(), 2);
    }

    #[test]
    fn who_waited_before_is_not_woken_for_the_first() {
        let (mailbox, mut inbox) = mailbox();
        let woken = Arc::<Woken>::default();
        assert_eq!(take_all(&mut inbox, &woken), 0);
        inbox.hush(Some(2));
        assert_eq!(take_all(&mut inbox, &woken), 0);
        send(&mailbox, 1);
        assert_eq!(woken.times(), 0);
        send(&mailbox, 1);
        assert_eq!(woken.times(), 1);
    }

    #[test]
    fn all_wake_up_at_once_when_they_are_not_counted_any_more() {
        let (mailbox, mut inbox) = mailbox();
        let woken = Arc::<Woken>::default();
        inbox.hush(Some(2));
        assert_eq!(take_all(&mut inbox, &woken), 0);
        send(&mailbox, 1);
        inbox.hush(None);
        assert_eq!(take_all(&mut inbox, &woken), 1);
        send(&mailbox, 1);
        assert_eq!(woken.times(), 1, "and not once more for the second that was counted");
    }
}
