//! A `connect` that waits for the first connection, and why it has no answer yet.

use crate::backend::Outcome;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::driver::slot::Ticket;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::kinds::reply::Reply;

use super::Task;

/// A `connect` that waits for its first connection.
#[derive(Debug)]
pub(super) struct Connecting {
    pub(super) request: RequestId,
    pub(super) since: Moment,
    pub(super) deadline: Moment,
}

impl Task {
    pub(super) fn on_connect(&mut self, now: Moment, connecting: Connecting, ticket: Ticket) {
        let request = connecting.request;
        self.desk.open(request, ticket);
        self.connecting = Some(connecting);
        self.handle(now, Event::Ready { request });
    }

    /// Remembers why `connect` has no answer yet.
    pub(super) fn note_trouble(&mut self, outcome: &Outcome<Reply>) {
        let (Outcome::NotExecuted(failure) | Outcome::Unknown(failure)) = outcome else { return };
        if self.connecting.is_some() {
            self.trouble = Some(failure.message.clone());
        }
    }

    /// Answers `connect` once its time is over.
    pub(super) fn give_up_connecting(&mut self, now: Moment) {
        let Some(connecting) = self.connecting.take() else { return };
        let last = self.trouble.as_deref().unwrap_or_else(|| self.engine.missing_to_be_ready());
        let error = Error::Unavailable {
            name: None,
            waited: now.since(connecting.since),
            cause: if last.starts_with(&self.address) {
                format!("tried {last}")
            } else {
                format!("tried {}: {last}", self.address)
            },
        };
        let request = connecting.request;
        if self.desk.is_open(request) {
            self.desk.answer(request, Answer::Failed(error));
            self.handle(now, Event::Cancel { request });
        }
    }
}
