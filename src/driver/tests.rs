//! The ends of a driver, on backends that do not behave.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::thread::ThreadId;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::unbounded_channel;

use crate::backend::BUSY;
use crate::backend::Backend;
use crate::backend::BackendEvent;
use crate::backend::Call;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::backend::Value;
use crate::backend::woken::Woken;
use crate::base::cell::HoldCell;
use crate::base::clock::Clock;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::lease::Lease;
use crate::base::lease::LeaseMs;
use crate::base::log::tests::broken_log;
use crate::base::name::LockName;
use crate::base::name::WireProfile;
use crate::base::owner::OwnerKey;
use crate::base::process::Process;
use crate::driver::wakes::Wakes;
use crate::driver::wakes::tests::runs;
use crate::engine::event::Acquire;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::reentrant::RELEASE;
use crate::kinds::share::Share;
use crate::settings::config::Config;
use crate::settings::config::Driver;
use crate::settings::config::Sharding;

use super::Message;
use super::Setup;
use super::Shared;
use super::shared::PendingRequest;
use super::start;

/// No server is there, and none will be.
#[derive(Default)]
pub(super) struct Nowhere {
    pub(super) first: Option<BackendEvent>,
    panics: Arc<AtomicBool>,
    polls: Arc<AtomicUsize>,
    /// Polls by one thread.
    polls_by: Option<(ThreadId, Arc<AtomicUsize>)>,
    /// How often it was asked what the runtime had not told of.
    pub(super) looks: Arc<AtomicUsize>,
    /// Arrives when it is asked that.
    pub(super) comes: Option<BackendEvent>,
    /// What it was last told of gathering calls.
    pub(super) gathers: Arc<Mutex<Option<usize>>>,
    closes: bool,
    closing: Arc<AtomicBool>,
    gone: Option<Gone>,
    socket: Option<Socket>,
    /// Whether it grants what is asked, and with which answers still to come.
    pub(super) grants: bool,
    answers: VecDeque<BackendEvent>,
}

/// Like a socket at which there is always something to read. Counts how often Tokio said otherwise.
struct Socket {
    data: UnboundedReceiver<()>,
    refused: Arc<AtomicUsize>,
}

/// Says when its backend is dropped.
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Backend for Nowhere {
    fn submit(&mut self, op: OpId, server: ServerId, call: Call, _: Duration) {
        let answer = match call {
            Call::Time => vec![Value::Int(1)],
            Call::Script(call) => {
                let lowers = call.script == &*RELEASE && call.args.iter().nth(1) != Some("0");
                if lowers {
                    [2, 1].map(Value::Int).to_vec()
                } else {
                    [1, 1, 7].map(Value::Int).to_vec()
                }
            }
            Call::Ping | Call::Info => return,
        };
        let outcome = Outcome::Done(Value::List(answer));
        self.answers.extend(self.grants.then_some(BackendEvent::Replied { op, server, outcome }));
    }

    fn subscribe(&mut self, _: Arc<str>, _: bool, _: u64) {}

    fn unsubscribe(&mut self, _: Arc<str>, _: bool) {}

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<BackendEvent> {
        // What a backend may do only with its runtime around it.
        drop(tokio::time::sleep(Duration::ZERO));
        self.polls.fetch_add(1, Ordering::SeqCst);
        if let Some((thread, polls)) = &self.polls_by {
            polls.fetch_add(usize::from(*thread == std::thread::current().id()), Ordering::SeqCst);
        }
        assert!(!self.panics.load(Ordering::SeqCst), "a bug");
        if let Some(socket) = &mut self.socket {
            let refused = socket.data.poll_recv(cx).is_pending();
            socket.refused.fetch_add(usize::from(refused), Ordering::SeqCst);
        }
        match self.first.take().or_else(|| self.answers.pop_front()) {
            Some(event) => Poll::Ready(event),
            None if self.closing.load(Ordering::SeqCst) && self.closes => {
                Poll::Ready(BackendEvent::Closed)
            }
            None => Poll::Pending,
        }
    }

    fn looks_for_more(&mut self) -> bool {
        self.looks.fetch_add(1, Ordering::SeqCst);
        let comes = self.comes.take();
        let came = comes.is_some();
        self.first = comes.or(self.first.take());
        came
    }

    fn gather(&mut self, from: Option<usize>) {
        *self.gathers.lock().expect("nobody panicked") = from;
    }

    fn reconnect(&mut self, _: ServerId) {}

    fn close(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
    }
}

fn driver(driver: Driver, backend: Nowhere) -> Arc<Shared> {
    start(driver, setup(backend)).unwrap()
}

pub(super) fn setup(backend: Nowhere) -> Setup {
    let address = "redis://nowhere:1".to_owned();
    let backend = Box::new(move || Box::new(backend) as Box<dyn Backend>);
    Setup { config: config(), clock: Clock::Boot, address, backend }
}

fn config() -> Config {
    Config {
        client_id: uuid::Uuid::new_v4().to_string(),
        lease: LeaseMs::checked("lease", Config::DEFAULT_LEASE).unwrap(),
        command_timeout: Config::DEFAULT_COMMAND_TIMEOUT,
        outage_limit: Config::DEFAULT_OUTAGE_LIMIT,
        redisson_watchdog: LeaseMs::checked("redisson_watchdog", Config::DEFAULT_REDISSON_WATCHDOG)
            .unwrap(),
        fallback: Config::FALLBACK,
        profile: WireProfile::Redisson,
        sharding: Sharding::Auto,
        hand_off: true,
        max_waiters: Config::MAX_WAITERS,
        address: String::new(),
        deployment: String::new(),
        max_hold_count: Config::MAX_HOLD_COUNT,
    }
}

fn closing() -> Nowhere {
    Nowhere { closes: true, ..Nowhere::default() }
}

#[test]
fn callers_of_a_driver_that_panicked_hear_that_it_is_closed() {
    let shared = driver(
        Driver::Thread,
        Nowhere { panics: Arc::new(AtomicBool::new(true)), ..Nowhere::default() },
    );
    for _ in 0..3 {
        let answer = futures::executor::block_on(shared.ask(|request| Event::Ping { request }));
        assert!(matches!(answer, Answer::Failed(Error::Closed { .. })), "{answer:?}");
    }
    let answer = futures::executor::block_on(shared.ask_shutdown(Duration::from_secs(5)));
    assert!(matches!(answer, Answer::Failed(Error::Closed { .. })), "{answer:?}");
}

#[test]
fn connecting_ends_in_time_with_what_was_tried() {
    let failure = Failure::new(FailureKind::Link, "Connection refused");
    let first = Some(BackendEvent::ConnectFailed { server: ServerId::ONLY, failure });
    let shared = driver(Driver::Thread, Nowhere { first, ..closing() });
    let answer = futures::executor::block_on(shared.ask_ready(Duration::from_millis(20)));
    let Answer::Failed(error) = answer else { panic!("{answer:?}") };
    assert!(
        matches!(&error, Error::Unavailable { waited, .. } if *waited >= Duration::from_millis(20))
    );
    assert!(error.to_string().contains("tried redis://nowhere:1: Connection refused"), "{error}");
}

#[test]
fn connecting_ends_with_what_was_not_answered() {
    for (first, words) in [
        (
            None,
            "no connection and no error so far: no server has answered, perhaps not even the resolver",
        ),
        (
            Some(BackendEvent::Up(ServerId::ONLY, ServerInfo::default())),
            "connected, but TIME has not been answered",
        ),
    ] {
        let shared = driver(Driver::Thread, Nowhere { first, ..closing() });
        let answer = futures::executor::block_on(shared.ask_ready(Duration::from_millis(20)));
        let Answer::Failed(error) = answer else { panic!("{answer:?}") };
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// Nothing wakes the driver but its own alarm.
#[tokio::test]
async fn connecting_ends_in_time_although_nothing_is_heard() {
    for place in [Driver::Thread, Driver::Current] {
        let shared = driver(place, closing());
        let asked = shared.ask_ready(Duration::from_millis(20));
        let answer = tokio::time::timeout(Duration::from_secs(30), asked).await.expect("an answer");
        assert!(matches!(answer, Answer::Failed(Error::Unavailable { .. })), "{answer:?}");
    }
}

#[test]
fn connections_that_do_not_close_do_not_hold_up_a_shutdown() {
    let dropped = Arc::new(AtomicBool::new(false));
    let backend = Nowhere { gone: Some(Gone(Arc::clone(&dropped))), ..Nowhere::default() };
    assert!(backend.gone.is_some());
    let shared = driver(Driver::Thread, backend);
    let answer = futures::executor::block_on(shared.ask_shutdown(Duration::ZERO));
    assert!(matches!(&answer, Answer::ShutDown(fates) if fates.is_empty()), "{answer:?}");
    assert!(dropped.load(Ordering::SeqCst), "answered while something was left");
}

#[tokio::test]
async fn every_shutdown_is_answered_and_nothing_is_taken_afterwards() {
    for place in [Driver::Thread, Driver::Current] {
        let shared = driver(place, closing());
        let waiting = shared.ask(|request| Event::Ping { request });
        let first = shared.ask_shutdown(Duration::from_secs(5));
        let second = shared.ask_shutdown(Duration::from_secs(5));
        assert!(matches!(waiting.await, Answer::Failed(Error::Closed { .. })));
        assert!(matches!(first.await, Answer::ShutDown { .. }));
        assert!(matches!(
            second.await,
            Answer::ShutDown { .. } | Answer::Failed(Error::Closed { .. })
        ));
        assert!(matches!(
            shared.ask(|request| Event::Ping { request }).await,
            Answer::Failed(Error::Closed { .. })
        ));
    }
}

#[test]
fn a_shutdown_that_comes_while_connections_are_closed_waits_for_the_end_too() {
    let (dropped, closing) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let gone = Some(Gone(Arc::clone(&dropped)));
    let shared = driver(
        Driver::Thread,
        Nowhere { gone, closing: Arc::clone(&closing), ..Nowhere::default() },
    );
    let first = shared.ask_shutdown(Duration::ZERO);
    while !closing.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    let second = futures::executor::block_on(shared.ask_shutdown(Duration::from_secs(5)));
    assert!(matches!(second, Answer::ShutDown { .. }), "{second:?}");
    assert!(dropped.load(Ordering::SeqCst), "answered while something was left");
    assert!(matches!(futures::executor::block_on(first), Answer::ShutDown { .. }));
}

#[tokio::test]
async fn dropping_the_last_handle_ends_the_driver() {
    for place in [Driver::Thread, Driver::Current] {
        let dropped = Arc::new(AtomicBool::new(false));
        let shared = driver(place, Nowhere { gone: Some(Gone(Arc::clone(&dropped))), ..closing() });
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
        tokio::time::timeout(Duration::from_secs(10), ended).await.expect("the driver lives on");
    }
}

fn ping(shared: &Arc<Shared>) -> PendingRequest {
    shared.ask(|request| Event::Ping { request })
}

/// Gives every task of this runtime its turn.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_caller_on_the_drivers_runtime_polls_it_and_wakes_no_task() {
    let polls = Arc::<AtomicUsize>::default();
    let shared = driver(Driver::Current, Nowhere { polls: Arc::clone(&polls), ..closing() });
    let early = ping(&shared);
    assert_eq!(polls.load(Ordering::SeqCst), 0, "the driver has no waker yet");
    settle().await;
    let before = polls.load(Ordering::SeqCst);
    assert!(before > 0);
    let asked = ping(&shared);
    let at_once = polls.load(Ordering::SeqCst);
    assert!(at_once > before);
    settle().await;
    assert_eq!(polls.load(Ordering::SeqCst), at_once, "its task was woken as well");
    drop((early, asked));
}

#[tokio::test]
async fn a_caller_does_the_drivers_work_as_long_as_there_is_little() {
    let by_caller = Arc::<AtomicUsize>::default();
    let polls_by = Some((std::thread::current().id(), Arc::clone(&by_caller)));
    let number = || by_caller.load(Ordering::SeqCst);
    // Nobody is connected, so that nothing is sent.
    let shared = driver(Driver::Thread, Nowhere { polls_by: polls_by.clone(), ..closing() });
    let mut asked = Vec::new();
    while number() == 0 {
        asked.push(ping(&shared));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Nothing is answered, so that there is more and more to do.
    let first = Some(BackendEvent::Up(ServerId::ONLY, ServerInfo::default()));
    let shared = driver(Driver::Thread, Nowhere { first, polls_by, ..closing() });
    while !shared.mailbox.is_busy() {
        asked.push(ping(&shared));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let before = number();
    asked.extend((0..100).map(|_| ping(&shared)));
    assert_eq!(number(), before);
}

/// The server has something to do, and never answers.
#[tokio::test]
async fn what_is_asked_of_a_busy_server_goes_together_behind_the_other_tasks() {
    let polls = Arc::<AtomicUsize>::default();
    let first = Some(BackendEvent::Up(ServerId::ONLY, ServerInfo::default()));
    let shared = driver(Driver::Current, Nowhere { first, polls: Arc::clone(&polls), ..closing() });
    settle().await;
    let task = async move {
        let number = || polls.load(Ordering::SeqCst);
        let mut asked: Vec<_> = (0..BUSY).map(|_| ping(&shared)).collect();
        assert!(number() > BUSY, "whoever is among few waits for nobody");
        for _ in 0..2 {
            let before = number();
            asked.extend((0..BUSY / 2).map(|_| ping(&shared)));
            assert_eq!(number(), before);
            settle().await;
            assert!((1..BUSY / 2).contains(&(number() - before)), "{}", number() - before);
        }
        let before = number();
        asked.extend((0..10 * BUSY).map(|_| ping(&shared)));
        let polls = number() - before;
        assert!(
            (1..5 * BUSY).contains(&polls),
            "a task that goes on and on is no reason not to begin: {polls}"
        );
    };
    tokio::spawn(task).await.expect("no panic");
}

/// Tokio lets a task do 128 things in one poll; what is left over would be done before anything is
/// read or written.
#[tokio::test]
async fn many_messages_do_not_keep_the_driver_from_its_connections() {
    let (polls, refused) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let (more, data) = unbounded_channel();
    (0..1_000).for_each(|_| more.send(()).unwrap());
    let socket = Some(Socket { data, refused: Arc::clone(&refused) });
    let shared =
        driver(Driver::Current, Nowhere { polls: Arc::clone(&polls), socket, ..closing() });
    for level in 0..10_000 {
        shared.release(1, RequestId(level));
    }
    settle().await;
    assert!(polls.load(Ordering::SeqCst) > 10);
    assert_eq!(refused.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_log_that_panics_is_not_the_drivers_end() {
    let (_log, told) = broken_log();
    let first = Some(BackendEvent::Up(ServerId::ONLY, ServerInfo::default()));
    let shared = driver(Driver::Current, Nowhere { first, ..closing() });
    settle().await;
    assert_eq!(told.load(Ordering::SeqCst), 1, "it is connected");
    assert!(matches!(shared.ask_shutdown(Duration::from_secs(5)).await, Answer::ShutDown { .. }));
}

/// While it unwinds, another panic would end the process.
#[tokio::test]
async fn holders_hear_of_a_driver_that_panics_although_the_log_does_too() {
    let (_log, told) = broken_log();
    a_driver_that_panics_ends_alone().await;
    assert_eq!(told.load(Ordering::SeqCst), 4, "it is connected, two grants, and its end");
}

#[tokio::test]
async fn a_driver_that_panics_while_a_caller_polls_it_ends_alone() {
    a_driver_that_panics_ends_alone().await;
}

async fn a_driver_that_panics_ends_alone() {
    let (panics, dropped) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let gone = Some(Gone(Arc::clone(&dropped)));
    let first = Some(BackendEvent::Up(ServerId::ONLY, ServerInfo::default()));
    let backend = Nowhere { first, grants: true, panics: Arc::clone(&panics), gone, ..closing() };
    let shared = driver(Driver::Current, backend);
    settle().await;
    let cells =
        [lock(&shared, OwnerKey::once()).await, lock(&shared, OwnerKey::from_test(1)).await];
    let waiting = ping(&shared);
    panics.store(true, Ordering::SeqCst);
    let asked = ping(&shared);
    assert!(dropped.load(Ordering::SeqCst), "it lives on");
    assert!(cells.iter().all(|cell| cell.loss() == Some(LossReason::ClientShutdown)), "{cells:?}");
    assert!(shared.left.get().is_some());
    for asked in [waiting, asked, ping(&shared), shared.ask_shutdown(Duration::from_secs(5))] {
        assert!(matches!(asked.await, Answer::Failed(Error::Closed { .. })));
    }
}

/// Takes a lock that nobody else wants.
async fn lock(shared: &Arc<Shared>, owner: OwnerKey) -> Arc<HoldCell> {
    let name = LockName::new(&format!("{owner:?}")).unwrap();
    let lease = Lease::Watched(shared.config().lease);
    let acquire = |request| {
        Event::Acquire(Acquire {
            request,
            name,
            owner,
            share: Share::ONE,
            lease,
            wait: Wait::Forever,
            max_hold: None,
            at_least: None,
            upgrades: None,
        })
    };
    match shared.ask(acquire).await {
        Answer::Granted(cell) => cell,
        other => panic!("{other:?}"),
    }
}

#[test]
fn callers_on_other_runtimes_and_on_none_are_served_and_told_of_its_end() {
    let (polls, dropped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let gone = Some(Gone(Arc::clone(&dropped)));
    let backend = Nowhere { polls: Arc::clone(&polls), gone, ..closing() };
    let own = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let shared = own.block_on(async {
        let shared = driver(Driver::Current, backend);
        settle().await;
        shared
    });
    // Without timers: the backend needs those of the driver's runtime.
    let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let before = polls.load(Ordering::SeqCst);
    let inside = other.enter();
    let from_other = ping(&shared);
    drop(inside);
    assert!(polls.load(Ordering::SeqCst) > before);
    let from_none = ping(&shared);
    drop(own);
    assert!(dropped.load(Ordering::SeqCst), "it outlives its runtime");
    for asked in [from_other, from_none, ping(&shared)] {
        assert!(matches!(other.block_on(asked), Answer::Failed(Error::Closed { .. })));
    }
    let late = other.block_on(async { ping(&shared).await });
    assert!(matches!(late, Answer::Failed(Error::Closed { .. })));
}

/// Another who was answered is woken by it, before it goes on.
#[tokio::test]
async fn whoever_gets_its_answer_helps_to_wake_the_others() {
    let shared = driver(Driver::Thread, closing());
    let answer = shared.ask_shutdown(Duration::from_secs(5)).await;
    assert!(matches!(answer, Answer::ShutDown { .. }), "{answer:?}");
    let (other, seen) = (Arc::<Woken>::default(), Arc::<AtomicUsize>::default());
    let (caller, woken, seen_by_caller) =
        (Arc::clone(&shared), Arc::clone(&other), Arc::clone(&seen));
    let answered = runs(move || {
        // The client is closed: it has its answer at once.
        assert!(ping(&caller).now_or_never().is_some());
        seen_by_caller.store(woken.times(), Ordering::SeqCst);
    });
    let mut wakes = Wakes::default();
    [answered, other.into()].into_iter().for_each(|waker| wakes.add(Some(waker)));
    shared.pending_wakes.wake_all(&mut wakes);
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

/// What says to a process that it is the one which counts its descriptors.
#[cfg(target_os = "linux")]
const COUNTS: &str = "COUNTS_THE_DESCRIPTORS_OF_A_DRIVER";

/// In a process of its own: tests beside it have descriptors, too.
#[cfg(target_os = "linux")]
#[test]
fn a_handle_keeps_no_descriptor_of_a_runtime_that_has_ended() {
    if std::env::var_os(COUNTS).is_some() {
        return descriptors_go_with_the_runtime();
    }
    let test = "driver::tests::a_handle_keeps_no_descriptor_of_a_runtime_that_has_ended";
    let mut itself = std::process::Command::new(std::env::current_exe().unwrap());
    let done = itself.args(["--exact", test, "--nocapture"]).env(COUNTS, "1").output().unwrap();
    let said = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(done.status.success(), "{said:?}");
}

#[cfg(target_os = "linux")]
fn descriptors_go_with_the_runtime() {
    let open = || std::fs::read_dir("/proc/self/fd").expect("descriptors").count();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Some are opened once and for all.
    drop(runtime());
    let before = open();
    for (place, orderly) in
        [(Driver::Thread, true), (Driver::Current, true), (Driver::Current, false)]
    {
        let callers = runtime();
        let shared = callers.block_on(async {
            let shared = driver(place, closing());
            settle().await;
            let _ = tokio::time::timeout(Duration::from_millis(20), ping(&shared)).await;
            if orderly {
                let answer = shared.ask_shutdown(Duration::from_secs(5)).await;
                assert!(matches!(answer, Answer::ShutDown { .. }), "{answer:?}");
            }
            shared
        });
        drop(callers);
        // The driver's thread may still be busy waking the caller, whose runtime goes then.
        let (_waits, never) = std::sync::mpsc::channel::<()>();
        for _ in 0..1_000 {
            if open() == before {
                break;
            }
            let _ = never.recv_timeout(Duration::from_millis(10));
        }
        assert_eq!(open(), before, "{place:?}, orderly: {orderly}");
        assert!(matches!(runtime().block_on(ping(&shared)), Answer::Failed(Error::Closed { .. })));
    }
}

/// What handles without a driver behind them have sent.
pub(crate) struct Unread(UnboundedReceiver<Message>);

impl Unread {
    /// The hold and level of the next message, which is a release that nobody waits for.
    pub(crate) fn release(&mut self) -> (u64, RequestId) {
        match self.0.try_recv() {
            Ok(Message::Release { hold, level, waiting: None }) => (hold, level),
            other => panic!("{other:?}"),
        }
    }

    /// Nothing was sent, and something may still be.
    pub(crate) fn is_silent(&mut self) -> bool {
        matches!(self.0.try_recv(), Err(TryRecvError::Empty))
    }
}

/// A client's handle without a driver behind it.
pub(crate) fn handle(clock: Clock, thread: Option<ThreadId>) -> (Arc<Shared>, Unread) {
    let (shared, messages) = not_shared(clock, thread);
    (Arc::new(shared), messages)
}

/// The same of a client that this process has made.
pub(crate) fn handle_of(process: Process) -> (Arc<Shared>, Unread) {
    // Some other thread's.
    let driver = std::thread::spawn(|| ()).thread().id();
    let (mut shared, messages) = not_shared(Clock::Boot, Some(driver));
    shared.process = process;
    (Arc::new(shared), messages)
}

fn not_shared(clock: Clock, thread: Option<ThreadId>) -> (Shared, Unread) {
    let (mailbox, messages) = super::mailbox::mailbox();
    let shared = Shared::new(
        mailbox,
        clock,
        config(),
        Arc::default(),
        Arc::default(),
        Arc::default(),
        thread,
    );
    (shared, Unread(messages.receiver))
}

#[test]
fn the_last_handle_waits_until_what_is_queued_has_been_dealt_with() {
    let (sender, receiver) = std::sync::mpsc::channel::<Unread>();
    let dealt_with = Arc::new(AtomicBool::new(false));
    let (inside, until) = (Arc::clone(&dealt_with), Arc::new(Barrier::new(2)));
    let start = Arc::clone(&until);
    let driver = std::thread::spawn(move || {
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
    let (shared, messages) = handle(Clock::Boot, Some(driver.thread().id()));
    sender.send(messages).unwrap();
    until.wait();
    drop(shared);
    assert!(dealt_with.load(Ordering::SeqCst));
    driver.join().unwrap();
}
