//! Bringing a keeper to life, on a thread of its own or on the caller's runtime.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::runtime::Handle;

use crate::backend::Backend;
use crate::cell::Directory;
use crate::clock::Clock;
use crate::config::Config;
use crate::config::Keeper;
use crate::error::Error;
use crate::stats::Counters;

use super::Shared;
use super::task::Task;

/// Makes the backend; called where the keeper runs, inside its runtime.
pub(crate) type MakeBackend = Box<dyn FnOnce() -> Box<dyn Backend> + Send>;

/// What a keeper is made of.
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    /// The server as the user named it, without credentials; for messages.
    pub(crate) address: String,
    pub(crate) backend: MakeBackend,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Starts a keeper. It runs until it is shut down or its last handle is dropped.
pub(crate) fn start(keeper: Keeper, setup: Setup) -> Result<Arc<Shared>, Error> {
    let (mailbox, messages) = tokio::sync::mpsc::unbounded_channel();
    let directory = Arc::new(Directory::default());
    let counters = Arc::new(Counters::default());
    let (clock, config) = (setup.clock, setup.config.clone());
    let left = Arc::default();
    let (holds, numbers, unreleased) = (Arc::clone(&directory), Arc::clone(&counters), Arc::clone(&left));
    let make = move || Task::new(setup, messages, holds, numbers, unreleased);
    let thread = match keeper {
        Keeper::Thread => Some(on_a_thread(make)?),
        Keeper::Current => {
            on_this_runtime(make)?;
            None
        }
    };
    Ok(Arc::new(Shared::new(mailbox, clock, config, directory, counters, left, thread)))
}

fn on_this_runtime(make: impl FnOnce() -> Task + Send + 'static) -> Result<(), Error> {
    let runtime = Handle::try_current().map_err(|_| Error::InvalidOption {
        option: "keeper",
        given: "Keeper::Current outside a Tokio runtime".to_owned(),
        allowed: "Keeper::Thread there".to_owned(),
    })?;
    runtime.spawn(async move { make().run().await.deliver() });
    Ok(())
}

fn on_a_thread(make: impl FnOnce() -> Task + Send + 'static) -> Result<std::thread::ThreadId, Error> {
    let (started, result) = mpsc::sync_channel(1);
    let body = move || {
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = started.send(Err(error));
                return;
            }
        };
        let _ = started.send(Ok(()));
        let farewell = runtime.block_on(async move { make().run().await });
        // Whatever still lives in the runtime goes before anybody is told that nothing is left.
        drop(runtime);
        farewell.deliver();
    };
    let thread =
        std::thread::Builder::new().name("redis-lock-keeper".to_owned()).spawn(body).map_err(cannot_start)?;
    match result.recv() {
        Ok(Ok(())) => Ok(thread.thread().id()),
        Ok(Err(error)) => Err(cannot_start(error)),
        Err(_) => Err(cannot_start("its thread ended at once")),
    }
}

fn cannot_start(cause: impl fmt::Display) -> Error {
    Error::Unavailable { waited: Duration::ZERO, cause: format!("the keeper cannot be started: {cause}") }
}
