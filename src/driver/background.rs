//! What a client does behind its callers, besides the engine.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::process::OwnProcessOnly;
use crate::driver::Message;
use crate::driver::shared::Shared;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::unexpected;

/// A future that nobody waits for.
pub(super) struct Background(pub(super) Pin<Box<dyn Future<Output = ()> + Send>>);

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").finish_non_exhaustive()
    }
}

impl Shared {
    /// Runs a future where the driver runs. It is dropped with the runtime of the driver, and at
    /// once if the driver has ended.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let future = Background(Box::pin(OwnProcessOnly::new(future)));
        self.mailbox.send(Message::Spawn { future });
    }

    /// Waits so long. Needs no timer of the caller's executor.
    pub(crate) async fn sleep(self: &Arc<Self>, length: Duration) -> Result<(), Error> {
        match self.ask_cancellable(|request| Event::Pause { length, request }).await {
            Answer::Done => Ok(()),
            answer => Err(unexpected(answer)),
        }
    }
}
