//! The ends of a keeper, on backends that do not behave.

use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::thread::ThreadId;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::unbounded_channel;

use crate::backend::Backend;
use crate::backend::BackendEvent;
use crate::backend::Call;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::ServerId;
use crate::clock::Clock;
use crate::config::Config;
use crate::config::Keeper;
use crate::config::Sharding;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::error::Error;
use crate::lease::LeaseMs;
use crate::name::WireProfile;

use super::Message;
use super::Setup;
use super::Shared;
use super::start;

/// No server is there, and none will be.
#[derive(Default)]
struct Nowhere {
    failed: Option<Failure>,
    panics: bool,
    closes: bool,
    closing: bool,
    gone: Option<Gone>,
}

/// Says when its backend is dropped.
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Backend for Nowhere {
    fn submit(&mut self, _: OpId, _: ServerId, _: Call, _: Duration) {}

    fn subscribe(&mut self, _: Arc<str>, _: bool, _: u64) {}

    fn unsubscribe(&mut self, _: Arc<str>, _: bool) {}

    fn poll_event(&mut self, _: &mut Context<'_>) -> Poll<BackendEvent> {
        assert!(!self.panics, "a bug");
        match self.failed.take() {
            Some(failure) => Poll::Ready(BackendEvent::ConnectFailed { server: ServerId::ONLY, failure }),
            None if self.closing && self.closes => Poll::Ready(BackendEvent::Closed),
            None => Poll::Pending,
        }
    }

    fn reconnect(&mut self, _: ServerId) {}

    fn close(&mut self) {
        self.closing = true;
    }
}

fn keeper(keeper: Keeper, backend: Nowhere) -> Arc<Shared> {
    let config = config();
    let address = "redis://nowhere:1".to_owned();
    let backend = Box::new(move || Box::new(backend) as Box<dyn Backend>);
    start(keeper, Setup { config, clock: Clock::Boot, address, backend }).unwrap()
}

fn config() -> Config {
    Config {
        client_id: uuid::Uuid::new_v4().to_string(),
        lease: LeaseMs::checked("lease", Config::DEFAULT_LEASE).unwrap(),
        command_timeout: Config::DEFAULT_COMMAND_TIMEOUT,
        outage_limit: Config::DEFAULT_OUTAGE_LIMIT,
        fallback: Config::FALLBACK,
        profile: WireProfile::Default,
        sharding: Sharding::Auto,
        hand_off: true,
        max_waiters: Config::MAX_WAITERS,
        max_hold_count: Config::MAX_HOLD_COUNT,
    }
}

fn closing() -> Nowhere {
    Nowhere { closes: true, ..Nowhere::default() }
}

#[test]
fn callers_of_a_keeper_that_panicked_hear_that_it_is_closed() {
    let shared = keeper(Keeper::Thread, Nowhere { panics: true, ..Nowhere::default() });
    for _ in 0..3 {
        let answer = futures::executor::block_on(shared.ask(|request| Event::Ping { request }));
        assert!(matches!(answer, Answer::Failed(Error::Closed)), "{answer:?}");
    }
    let answer = futures::executor::block_on(shared.ask_shutdown(Duration::from_secs(5)));
    assert!(matches!(answer, Answer::Failed(Error::Closed)), "{answer:?}");
}

#[test]
fn connecting_ends_in_time_with_what_was_tried() {
    let failure = Failure::new(FailureKind::Link, "Connection refused");
    let shared = keeper(Keeper::Thread, Nowhere { failed: Some(failure), ..closing() });
    let answer = futures::executor::block_on(shared.ask_ready(Duration::from_millis(20)));
    let Answer::Failed(error) = answer else { panic!("{answer:?}") };
    assert!(matches!(&error, Error::Unavailable { waited, .. } if *waited >= Duration::from_millis(20)));
    assert!(error.to_string().contains("tried redis://nowhere:1: Connection refused"), "{error}");
}

#[test]
fn connections_that_do_not_close_do_not_hold_up_a_shutdown() {
    let dropped = Arc::new(AtomicBool::new(false));
    let backend = Nowhere { gone: Some(Gone(Arc::clone(&dropped))), ..Nowhere::default() };
    assert!(backend.gone.is_some());
    let shared = keeper(Keeper::Thread, backend);
    let answer = futures::executor::block_on(shared.ask_shutdown(Duration::ZERO));
    assert!(matches!(&answer, Answer::ShutDown { unreleased } if unreleased.is_empty()), "{answer:?}");
    assert!(dropped.load(Ordering::SeqCst), "answered while something was left");
}

#[tokio::test]
async fn every_shutdown_is_answered_and_nothing_is_taken_afterwards() {
    for place in [Keeper::Thread, Keeper::Current] {
        let shared = keeper(place, closing());
        let waiting = shared.ask(|request| Event::Ping { request });
        let first = shared.ask_shutdown(Duration::from_secs(5));
        let second = shared.ask_shutdown(Duration::from_secs(5));
        assert!(matches!(waiting.await, Answer::Failed(Error::Closed)));
        assert!(matches!(first.await, Answer::ShutDown { .. }));
        assert!(matches!(second.await, Answer::ShutDown { .. } | Answer::Failed(Error::Closed)));
        assert!(matches!(shared.ask(|request| Event::Ping { request }).await, Answer::Failed(Error::Closed)));
    }
}

#[tokio::test]
async fn dropping_the_last_handle_ends_the_keeper() {
    for place in [Keeper::Thread, Keeper::Current] {
        let dropped = Arc::new(AtomicBool::new(false));
        let shared = keeper(place, Nowhere { gone: Some(Gone(Arc::clone(&dropped))), ..closing() });
        // A future is a handle too.
        let waiting = shared.ask_ready(Duration::from_secs(60));
        drop(shared);
        tokio::task::yield_now().await;
        assert!(!dropped.load(Ordering::SeqCst));
        drop(waiting);
        let ended = async {
            while !dropped.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), ended).await.expect("the keeper lives on");
    }
}

/// What handles without a keeper behind them have sent.
pub(crate) struct Mailbox(UnboundedReceiver<Message>);

impl Mailbox {
    /// The hold and level of the next message, which is a release that nobody waits for.
    pub(crate) fn release(&mut self) -> (u64, RequestId) {
        match self.0.try_recv() {
            Ok(Message::Release { hold, level, waiting: None }) => (hold, level),
            other => panic!("{other:?}"),
        }
    }
}

/// A client's handle without a keeper behind it.
pub(crate) fn handle(clock: Clock, thread: Option<ThreadId>) -> (Arc<Shared>, Mailbox) {
    let (mailbox, messages) = unbounded_channel();
    let shared =
        Shared::new(mailbox, clock, config(), Arc::default(), Arc::default(), Arc::default(), thread);
    (Arc::new(shared), Mailbox(messages))
}

#[test]
fn the_last_handle_waits_until_what_is_queued_has_been_dealt_with() {
    let (sender, receiver) = std::sync::mpsc::channel::<Mailbox>();
    let dealt_with = Arc::new(AtomicBool::new(false));
    let (inside, until) = (Arc::clone(&dealt_with), Arc::new(Barrier::new(2)));
    let start = Arc::clone(&until);
    let keeper = std::thread::spawn(move || {
        let mut messages = receiver.recv().unwrap();
        start.wait();
        while let Some(message) = messages.0.blocking_recv() {
            if let Message::LastHandle { done } = message {
                inside.store(done.is_some(), Ordering::SeqCst);
                drop(done);
                return;
            }
        }
    });
    let (shared, messages) = handle(Clock::Boot, Some(keeper.thread().id()));
    sender.send(messages).unwrap();
    until.wait();
    drop(shared);
    assert!(dealt_with.load(Ordering::SeqCst));
    keeper.join().unwrap();
}
