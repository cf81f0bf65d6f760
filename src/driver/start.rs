//! Starts a driver, on a thread of its own or on the caller's runtime.

use std::fmt;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::ThreadId;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::runtime::Handle;
use tokio::runtime::Runtime;
use tokio::runtime::RuntimeFlavor;

use crate::backend::Backend;
#[cfg(feature = "in-memory")]
use crate::backend::memory::ClientProcess;
use crate::base::cell::Directory;
use crate::base::clock::Clock;
use crate::base::error::Error;
use crate::base::process::OwnProcessOnly;
use crate::base::stats::Counters;
use crate::driver::wakes::PendingWakes;
use crate::driver::wakes::Wakes;
use crate::settings::config::Config;
use crate::settings::config::Driver;

use super::Message;
use super::Shared;
use super::drive::Drive;
use super::mailbox::mailbox;
use super::seat::Seat;
use super::shared::AtOnce;
use super::task::Farewell;
use super::task::Task;

/// How long the end of the driver's runtime waits for threads that are blocked and cannot be
/// stopped.
const BLOCKED: Duration = Duration::from_millis(100);

/// After this many polls of tasks in a row the driver's runtime checks sockets and timers, which it
/// otherwise does when there is nothing to do.
const TURNS: u32 = 8;

/// Makes the backend. Called where the driver runs, inside its runtime.
pub(crate) type MakeBackend = Box<dyn FnOnce() -> Box<dyn Backend> + Send>;

/// What a driver is started with.
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    /// The server as the user named it, without credentials, for messages.
    pub(crate) address: String,
    pub(crate) backend: MakeBackend,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Where a driver runs.
#[derive(Debug)]
pub(crate) enum DriverPlace {
    /// Where the user chose.
    Chosen(Driver),
    /// In a process that a test can freeze and kill: on the current runtime, or on a thread if
    /// there is none.
    #[cfg(feature = "in-memory")]
    Process(Arc<ClientProcess>),
}

impl From<Driver> for DriverPlace {
    fn from(driver: Driver) -> Self {
        Self::Chosen(driver)
    }
}

#[cfg(feature = "in-memory")]
impl From<Arc<ClientProcess>> for DriverPlace {
    fn from(process: Arc<ClientProcess>) -> Self {
        Self::Process(process)
    }
}

impl DriverPlace {
    /// Where the driver assumes that it runs, which tells it whether callers run on the same
    /// threads.
    fn driver(&self) -> Driver {
        match self {
            Self::Chosen(driver) => *driver,
            #[cfg(feature = "in-memory")]
            Self::Process(_) if Handle::try_current().is_ok() => Driver::Current,
            #[cfg(feature = "in-memory")]
            Self::Process(_) => Driver::Thread,
        }
    }
}

/// Starts a driver. It runs until it is shut down or its last handle is dropped.
pub(crate) fn start(place: impl Into<DriverPlace>, setup: Setup) -> Result<Arc<Shared>, Error> {
    let place = place.into();
    let driver = place.driver();
    let (mailbox, messages) = mailbox();
    let directory = Arc::new(Directory::default());
    let counters = Arc::new(Counters::default());
    let (clock, config) = (setup.clock, setup.config.clone());
    let (left, pending_wakes) = <(Arc<_>, Arc<PendingWakes>)>::default();
    let (holds, numbers, fates) =
        (Arc::clone(&directory), Arc::clone(&counters), Arc::clone(&left));
    let to_wake = Arc::clone(&pending_wakes);
    let make = move || Task::new(setup, messages, holds, numbers, fates, to_wake, driver);
    let (thread, at_once, drive) = match place {
        DriverPlace::Chosen(Driver::Thread) => {
            let (thread, at_once) = on_a_thread(make)?;
            (Some(thread), Some(at_once), None)
        }
        DriverPlace::Chosen(Driver::Current) => {
            let (at_once, drive) = on_this_runtime(make, config.outage_limit)?;
            (None, Some(at_once), drive)
        }
        #[cfg(feature = "in-memory")]
        DriverPlace::Process(process) => (in_process(make, process)?, None, None),
    };
    let shared = Shared::new(mailbox, clock, config, directory, counters, left, thread);
    let shared = Arc::new(shared.with(at_once, pending_wakes, drive));
    shared.settle_at_end();
    Ok(shared)
}

/// Spawns the driver on the current runtime. Where that is possible, the driver gets a watch that
/// notices when nobody drives the runtime.
fn on_this_runtime(
    make: impl FnOnce() -> Task + Send + 'static,
    outage_limit: Duration,
) -> Result<(AtOnce, Option<Arc<Drive>>), Error> {
    let runtime = Handle::try_current().map_err(|_| Error::InvalidOption {
        option: "driver",
        given: "Driver::Current outside a Tokio runtime".to_owned(),
        allowed: "Driver::Thread there".to_owned(),
    })?;
    let seat = Arc::new(Seat::new());
    let one_thread = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
    let drive = one_thread.then(|| Drive::new(&seat, outage_limit));
    let task = PolledTask { seat: Arc::clone(&seat), drive: drive.clone() }.run(make);
    runtime.spawn(OwnProcessOnly::new(async move {
        task.await.into_iter().for_each(Farewell::deliver)
    }));
    Ok((Box::new(move |message| poll_at_once(&seat, message)), drive))
}

/// Spawns the driver in a process for tests, and returns its thread if it needed one. Callers
/// always use the mailbox: in memory nothing is gained if they poll the driver themselves, and so
/// tasks run in the order that tests expect.
#[cfg(feature = "in-memory")]
fn in_process(
    make: impl FnOnce() -> Task + Send + 'static,
    process: Arc<ClientProcess>,
) -> Result<Option<ThreadId>, Error> {
    let driver = async move {
        let mut task = make();
        poll_fn(|cx| task.poll(cx)).await;
        task.end().await.deliver();
    };
    let driver = async move { process.run(driver).await };
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(OwnProcessOnly::new(driver));
        return Ok(None);
    }
    let thread = spawn_with_runtime(move |runtime| runtime.block_on(driver))?;
    Ok(Some(thread))
}

/// The driver's own future. It polls the task in the seat when no caller does.
struct PolledTask {
    seat: Arc<Seat<Task>>,
    drive: Option<Arc<Drive>>,
}

impl PolledTask {
    /// Runs the task. `None`: it panicked.
    async fn run(self, make: impl FnOnce() -> Task) -> Option<Farewell> {
        self.seat.put(make());
        let task = poll_fn(|cx| {
            self.drive.iter().for_each(|drive| drive.note_poll());
            self.seat.poll(cx, Task::poll)
        })
        .await?;
        Some(task.end().await)
    }
}

impl Drop for PolledTask {
    fn drop(&mut self) {
        self.seat.close();
    }
}

/// Polls the driver on the caller's thread with this message. The message stays in `message` if it
/// has to go through the mailbox.
fn poll_at_once(seat: &Arc<Seat<Task>>, message: &mut Option<Message>) {
    if Handle::try_current().is_err() {
        // Outside a runtime nothing is gained, and a thread that is ending cannot enter a runtime.
        return;
    }
    // Callers are woken after the seat is free, because they may send their next request at once.
    let mut answered = Wakes::default();
    // If the driver panics, the driver ends, as it does when its own task polls it; the caller must
    // not panic.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        seat.poll_for_it(|task, cx| {
            let runtime = task.runtime();
            let _inside = runtime.enter();
            task.poll_with(message, &mut answered, cx)
        });
    }));
}

fn on_a_thread(make: impl FnOnce() -> Task + Send + 'static) -> Result<(ThreadId, AtOnce), Error> {
    let seat = Arc::new(Seat::new());
    let task = PolledTask { seat: Arc::clone(&seat), drive: None };
    let thread = spawn_with_runtime(move |runtime| {
        // Spawned as a task, because the main future of a runtime writes to a pipe to wake itself
        // after each turn.
        let Ok(Some(farewell)) = runtime.block_on(runtime.spawn(task.run(make))) else { return };
        // Everything in the runtime is dropped before callers are told that nothing is left. A
        // thread that is blocked by a resolver or a credential provider ends later.
        runtime.shutdown_timeout(BLOCKED);
        farewell.deliver();
    })?;
    let at_once: AtOnce = Box::new(move |message| poll_at_once(&seat, message));
    Ok((thread, at_once))
}

/// Starts a thread with a runtime for one driver.
fn spawn_with_runtime(body: impl FnOnce(Runtime) + Send + 'static) -> Result<ThreadId, Error> {
    let (started, result) = mpsc::sync_channel(1);
    let body =
        move || match Builder::new_current_thread().enable_all().event_interval(TURNS).build() {
            Ok(runtime) => {
                let _ = started.send(Ok(()));
                body(runtime);
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        };
    let thread = std::thread::Builder::new()
        .name("redis-lock-driver".to_owned())
        .spawn(body)
        .map_err(cannot_start)?;
    match result.recv() {
        Ok(Ok(())) => Ok(thread.thread().id()),
        Ok(Err(error)) => Err(cannot_start(error)),
        Err(_) => Err(cannot_start("its thread ended at once")),
    }
}

fn cannot_start(cause: impl fmt::Display) -> Error {
    Error::Unavailable {
        name: None,
        waited: Duration::ZERO,
        cause: format!("the driver cannot be started: {cause}"),
    }
}
