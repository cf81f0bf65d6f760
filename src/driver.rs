//! The driver: one task that owns connections and timers, and the one place where the engine meets
//! the world.
//!
//! ```text
//! mailbox ─┐
//! backend ─┼─► engine.handle(now, event) ─► effects ─► backend, callers' slots, log
//! timer   ─┘
//! ```
//!
//! Callers only ever see [`Shared`]: they send messages, wait on a slot and read cells and
//! counters. On a runtime's thread sending may mean that the driver is polled there and then: see
//! [`seat`].

mod alarm;
mod background;
mod desk;
mod drive;
mod last;
mod mailbox;
mod pacing;
mod seat;
mod settle;
mod shared;
pub(crate) mod slot;
mod start;
mod task;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod trace;
pub(crate) mod wakes;

pub(crate) use shared::Shared;
pub(crate) use start::DriverPlace;
pub(crate) use start::MakeBackend;
pub(crate) use start::Setup;
pub(crate) use start::start;

use std::sync::mpsc;
use std::time::Duration;

use crate::base::clock::Moment;
use crate::driver::background::Background;
use crate::driver::slot::Ticket;
use crate::engine::event::Event;
use crate::engine::event::RequestId;

/// How long the end of a thread, or the drop of the last handle, waits for releases that are under
/// way.
const LAST_RELEASES: Duration = Duration::from_millis(200);

/// What callers send.
#[derive(Debug)]
enum Message {
    /// A request of the engine's, with the place for its answer.
    Ask { request: RequestId, ticket: Ticket, event: Event },
    /// The first connection is wanted until `deadline`.
    Connect { request: RequestId, ticket: Ticket, since: Moment, deadline: Moment },
    /// The future of a request was dropped without an answer.
    Cancel { request: RequestId },
    /// A guard's level ends; `level` is the request that was granted it.
    Release { hold: u64, level: RequestId, waiting: Option<(RequestId, Ticket)> },
    /// A guard's level ends, and its hold is left to its lease.
    Leave { hold: u64, level: RequestId },
    /// `LockClient::shutdown`; answered by the driver's last act.
    Shutdown { request: RequestId, ticket: Ticket, until: Moment },
    /// Something that goes on in the runtime of the driver.
    Spawn { future: Background },
    /// A thread that ends waits for the end of what was given up before. The sender is dropped
    /// then.
    Settle { done: mpsc::Sender<()> },
    /// Nobody can send anything any more. The sender is dropped when what was queued has been dealt
    /// with.
    LastHandle { done: Option<mpsc::Sender<()>> },
}
