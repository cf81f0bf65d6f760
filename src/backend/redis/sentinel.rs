//! The sentinels: a small connection to each of them, on which changes of the primary are heard and asked about.
//!
//! RESP3, so that a question can be asked on the connection that listens.

pub(crate) mod knowledge;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::interfaces::EventInterface;
use fred::types::CustomCommand;
use fred::types::Message;
use fred::types::Value;
use tokio::sync::Notify;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::redis::classify::failure;
use crate::backend::redis::classify::is_reply;
use crate::backend::redis::client;
use crate::backend::redis::client::once_within;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::exchange;
use crate::backend::redis::handshake;
use crate::backend::redis::link::Pause;
use crate::backend::redis::link::Router;
use crate::backend::redis::link::Stop;
use crate::backend::redis::link::unless_stopped;
use crate::backend::redis::sentinel::knowledge::Address;
use crate::backend::redis::sentinel::knowledge::Knowledge;

const CHANGES: &str = "+switch-master";
/// A sentinel is asked again this often, in case that it, or its message, was lost.
const HEARTBEAT: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(1);

/// What all sentinels have said, and a way to have them asked again.
#[derive(Clone)]
pub(crate) struct Sentinels {
    pub(crate) knowledge: Arc<watch::Sender<Knowledge>>,
    again: Arc<Notify>,
}

impl Sentinels {
    pub(crate) fn new(primary_name: &str, sentinels: &[Address]) -> Self {
        let (knowledge, _) = watch::channel(Knowledge::new(primary_name, sentinels));
        Self { knowledge: Arc::new(knowledge), again: Arc::default() }
    }

    /// Has every sentinel asked that is connected; the others are when they are.
    pub(crate) fn ask_again(&self) {
        self.again.notify_waiters();
    }
}

/// One sentinel, as it is listened to.
pub(crate) struct Listener {
    /// Of this one sentinel.
    pub(crate) config: RedisConfig,
    pub(crate) primary_name: String,
    pub(crate) sentinels: Sentinels,
    /// Which of the sentinels.
    pub(crate) number: usize,
}

/// Listens to one sentinel until told to stop. On return its socket is closed.
pub(crate) async fn listen(listener: Listener, mut stop: Stop) {
    let mut pause = Pause::new();
    loop {
        let client = client::for_sentinel(&listener.config);
        let mut router = Router::start(&client);
        let mut connection = Connection { listener: &listener, client: &client, answered: false };
        let end = unless_stopped(&mut stop, connection.live(&mut router)).await;
        let answered = connection.answered;
        router.end().await;
        let Some(failure) = end else { return };
        listener.sentinels.knowledge.send_modify(|known| known.silent(listener.number, failure));
        if answered {
            // Whatever it would have announced meanwhile, another one may know.
            listener.sentinels.ask_again();
            pause = Pause::new();
        }
        if !stop.sleep(pause.next()).await {
            return;
        }
    }
}

struct Connection<'a> {
    listener: &'a Listener,
    client: &'a Client,
    answered: bool,
}

impl Connection<'_> {
    /// From the first attempt to the end of the connection; says why it ended.
    async fn live(&mut self, router: &mut Router) -> Failure {
        if let Err(error) = router.connected().await {
            return handshake::explain(&error, &self.listener.config);
        }
        tokio::select! {
            failure = self.serve() => failure,
            error = router.ended() => handshake::explain(&error, &self.listener.config),
        }
    }

    async fn serve(&mut self) -> Failure {
        let mut messages = self.client.message_rx();
        // First of all: what is asked afterwards cannot change unheard. Not being allowed to is no obstacle, since
        // every sentinel is asked at intervals.
        if let Err(error) = exchange::subscribe_alone(self.client, CHANGES).await {
            return handshake::explain(&error, &self.listener.config);
        }
        let mut announced = false;
        loop {
            if let Err(failure) = self.ask(announced).await {
                return failure;
            }
            announced = tokio::select! {
                announced = self.announcement(&mut messages) => announced,
                () = self.listener.sentinels.again.notified() => false,
                () = tokio::time::sleep(HEARTBEAT) => false,
            };
        }
    }

    /// Returns when the primary has changed, as this sentinel announces; false when messages were missed.
    async fn announcement(&self, messages: &mut broadcast::Receiver<Message>) -> bool {
        loop {
            let message = match messages.recv().await {
                Ok(message) => message,
                Err(RecvError::Lagged(_)) => return false,
                // The end of the connection is noticed elsewhere.
                Err(RecvError::Closed) => std::future::pending().await,
            };
            let text = message.value.into_string().unwrap_or_default();
            if let Some((old, new)) = change(&text, &self.listener.primary_name) {
                let heard = |known: &mut Knowledge| known.announced(&old, &new);
                self.listener.sentinels.knowledge.send_modify(heard);
                return true;
            }
        }
    }

    /// Asks who the primary is and by which epoch. The error is the end of the connection.
    async fn ask(&mut self, announced: bool) -> Result<(), Failure> {
        // In this order: at a failover between the two the address is newer than the epoch, and not the reverse.
        let (details, address) =
            futures::join!(self.question("MASTER"), self.question("GET-MASTER-ADDR-BY-NAME"));
        let number = self.listener.number;
        let knowledge = &self.listener.sentinels.knowledge;
        let said = match address? {
            Ok(value) => value
                .convert::<Option<(String, u16)>>()
                .ok()
                .flatten()
                .ok_or_else(|| unknown(&self.listener.primary_name)),
            Err(refusal) => Err(refusal),
        };
        match said {
            Ok(address) => {
                let epoch = details?.ok().and_then(epoch);
                knowledge.send_modify(|known| known.answered(number, &address, epoch, announced));
            }
            Err(failure) => knowledge.send_modify(|known| known.silent(number, failure)),
        }
        self.answered = true;
        Ok(())
    }

    /// The outer error is the connection's, the inner one the sentinel's refusal.
    async fn question(&self, word: &'static str) -> Result<Result<Value, Failure>, Failure> {
        let command = CustomCommand::new_static("SENTINEL", None, false);
        let client = self.client.with_options(&once_within(ANSWER));
        match client.custom::<Value, _>(command, vec![word, &self.listener.primary_name]).await {
            Ok(value) => Ok(Ok(value)),
            Err(error) if is_reply(&error) => Ok(Err(failure(&error))),
            Err(error) => Err(failure(&error)),
        }
    }
}

fn unknown(primary_name: &str) -> Failure {
    Failure::new(FailureKind::Unsupported, format!("knows no primary named {primary_name:?}"))
}

fn epoch(details: Value) -> Option<u64> {
    details.convert::<HashMap<String, String>>().ok()?.get("config-epoch")?.parse().ok()
}

/// `<primary name> <old host> <old port> <new host> <new port>`
fn change(text: &str, primary_name: &str) -> Option<(Address, Address)> {
    let mut words = text.strip_prefix(primary_name)?.strip_prefix(' ')?.split(' ');
    let mut address = || Some((words.next()?.to_owned(), words.next()?.parse().ok()?));
    let change = (address()?, address()?);
    words.next().is_none().then_some(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_are_read() {
        let at = |host: &str, port| (host.to_owned(), port);
        let change = |text| change(text, "main");
        assert_eq!(change("main 10.0.0.1 6379 ::1 6380"), Some((at("10.0.0.1", 6379), at("::1", 6380))));
        for other in ["", "main", "main 10.0.0.1 6379", "main a 1 b c", "mainly a 1 b 2", "main a 1 b 2 x"] {
            assert_eq!(change(other), None, "{other}");
        }
    }
}
