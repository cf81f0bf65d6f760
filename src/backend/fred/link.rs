//! One client of fred, for the lifetime of its connection.

use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::ClusterHash;
use fred::types::ConnectHandle;
use fred::types::CustomCommand;
use fred::types::Value as Word;
use fred::types::config::Options;
use futures::FutureExt;

use crate::backend::Failure;
use crate::backend::fred::reply;
use crate::backend::fred::settings::Settings;
use crate::backend::redis::error::ErrorKind;
use crate::backend::redis::error::WireError;
use crate::backend::redis::handshake;
use crate::backend::redis::resp::RespReply;

/// fred treats a shorter timeout as no timeout.
const SHORTEST: Duration = Duration::from_millis(1);

/// A client and its router, as fred calls the task that owns the socket. Dropping the router drops
/// all commands that are not written yet.
pub(super) struct FredLink {
    pub(super) client: Client,
    router: ConnectHandle,
}

impl FredLink {
    /// Connects, runs `questions`, and returns once they are answered.
    pub(super) async fn open<T>(
        settings: &Settings,
        client: Client,
        questions: impl AsyncFnOnce(&Client) -> Result<T, Failure>,
    ) -> Result<(Self, T), Failure> {
        let router = client.connect();
        let mut link = Self { client, router };
        let client = link.client.clone();
        let answers = tokio::time::timeout(settings.attempt(), async {
            tokio::select! {
                biased;
                // Polled first, because its error says why a question was cancelled.
                error = link.ended() => Err(handshake::explain_to(&error, settings.is_encrypted())),
                answers = questions(&client) => answers,
            }
        });
        let late = || {
            let words = format!("no usable connection within {:?}", settings.attempt());
            let late = WireError::new(ErrorKind::Timeout, words);
            Err(handshake::explain_to(&late, settings.is_encrypted()))
        };
        match answers.await.unwrap_or_else(|_| late()) {
            Ok(answers) => Ok((link, answers)),
            Err(failure) => {
                link.end().await;
                let message = format!("{}: {}", settings.address(), failure.message);
                Err(Failure { message, ..failure })
            }
        }
    }

    /// Returns the cause when the connection is gone. Must not be called again after that.
    pub(super) async fn ended(&mut self) -> WireError {
        match (&mut self.router).await {
            Ok(Err(error)) => reply::local_or_reply(&error),
            Ok(Ok(())) | Err(_) => WireError::new(ErrorKind::Io, "Connection closed."),
        }
    }

    /// Closes the connection, and returns once it is closed.
    pub(super) async fn end(mut self) {
        if self.router.is_finished() {
            return;
        }
        self.router.abort();
        let _ = (&mut self.router).await;
        // A client with a credential provider has one more task, which refreshes the login and ends
        // only after a QUIT. This call ends that task; the command itself is not sent, because the
        // router is gone.
        let _ = self.client.quit().now_or_never();
    }
}

impl Drop for FredLink {
    fn drop(&mut self) {
        self.router.abort();
    }
}

/// Sends a command at once, with one attempt and fred's own timeout. The command is passed to fred
/// at the first poll of the future. The future must be polled to its end, or dropped together with
/// the client.
pub(super) async fn ask(
    client: &Client,
    command: &'static str,
    words: Vec<Word>,
    time: Duration,
) -> RespReply {
    send(client, command, words, Options { fail_fast: true, ..once(time) }).await
}

/// The same for a client that may still be connecting.
pub(super) async fn ask_first(
    client: &Client,
    command: &'static str,
    words: Vec<Word>,
    time: Duration,
) -> RespReply {
    send(client, command, words, once(time)).await
}

/// Options for one attempt within this time.
fn once(time: Duration) -> Options {
    Options { max_attempts: Some(1), timeout: Some(time.max(SHORTEST)), ..Options::default() }
}

async fn send(
    client: &Client,
    command: &'static str,
    words: Vec<Word>,
    options: Options,
) -> RespReply {
    let command = CustomCommand::new_static(command, ClusterHash::FirstKey, false);
    reply::reply(client.with_options(&options).custom_raw(command, words).await)
}
