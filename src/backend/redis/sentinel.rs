//! The sentinels: one connection to each of them, which is subscribed to changes of the primary and
//! on which the sentinel is asked for the primary.
//!
//! It uses RESP3, so that questions are possible on a connection with subscriptions.

pub(crate) mod knowledge;

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::watch;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::Value;
use crate::backend::redis::addresses::AddressTries;
use crate::backend::redis::addresses::Target;
use crate::backend::redis::classify::failure;
use crate::backend::redis::config::Address;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::dial::dial;
use crate::backend::redis::dial::within;
use crate::backend::redis::error::WireError;
use crate::backend::redis::handshake;
use crate::backend::redis::link::RetryPause;
use crate::backend::redis::link::StopSignal;
use crate::backend::redis::link::unless_stopped;
use crate::backend::redis::names::HostNames;
use crate::backend::redis::resp::RespReply;
use crate::backend::redis::sentinel::knowledge::SentinelKnowledge;
use crate::backend::redis::subscriber::Subscriber;
use crate::backend::redis::subscriber::SubscriberEvent;
use crate::backend::redis::subscriber::SubscriptionRequest;

const CHANGES: &str = "+switch-master";
/// How often a sentinel is asked again, in case its connection or its message was lost.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// What all sentinels have said, and a way to ask them again.
#[derive(Clone)]
pub(crate) struct Sentinels {
    pub(crate) knowledge: Arc<watch::Sender<SentinelKnowledge>>,
    again: Arc<Notify>,
}

impl Sentinels {
    pub(crate) fn new(primary_name: &str, sentinels: &[Address]) -> Self {
        let (knowledge, _) = watch::channel(SentinelKnowledge::new(primary_name, sentinels));
        Self { knowledge: Arc::new(knowledge), again: Arc::default() }
    }

    /// Asks every connected sentinel again. The others are asked when they connect.
    pub(crate) fn ask_again(&self) {
        self.again.notify_waiters();
    }
}

/// The connection to one sentinel.
pub(crate) struct SentinelListener {
    /// The settings for this sentinel.
    pub(crate) config: RedisConfig,
    pub(crate) primary_name: String,
    pub(crate) sentinels: Sentinels,
    pub(crate) names: HostNames,
    /// Which of the sentinels it is.
    pub(crate) number: usize,
}

/// Keeps a connection to one sentinel until told to stop. When it returns, the socket is closed.
pub(crate) async fn listen(listener: SentinelListener, mut stop: StopSignal) {
    let mut pause = RetryPause::default();
    loop {
        let mut answered = false;
        let end = unless_stopped(&mut stop, run_connection(&listener, &mut answered)).await;
        let Some(failure) = end else { return };
        listener.sentinels.knowledge.send_modify(|known| known.silent(listener.number, failure));
        if answered {
            // Another sentinel may know what this one would have announced meanwhile.
            listener.sentinels.ask_again();
            pause = RetryPause::default();
        }
        if !stop.sleep(pause.next()).await {
            return;
        }
    }
}

/// One connection, from the attempt to connect to its end. Returns why it ended, and sets
/// `answered` if the sentinel ever answered. If the sentinel's name has several addresses, the
/// first one is used where a sentinel answers.
async fn run_connection(listener: &SentinelListener, answered: &mut bool) -> Failure {
    let mut tries = match AddressTries::begin(&listener.config, &listener.names, None).await {
        Ok(tries) => tries,
        Err(error) => return handshake::explain(&error, &listener.config),
    };
    while let Some(target) = tries.next() {
        let failure = run_connection_at(listener, &target, &tries, answered).await;
        if *answered {
            return failure;
        }
        tries.failed(target, failure);
    }
    tries.failure()
}

async fn run_connection_at(
    listener: &SentinelListener,
    target: &Target,
    tries: &AddressTries,
    answered: &mut bool,
) -> Failure {
    let config = &listener.config;
    let address = tries.using(target);
    let lived = async {
        let subscriber =
            Subscriber::new(dial(config, target, tries.count()).await?, config.budgets());
        SentinelConnection { listener, subscriber, announced: false }.serve(answered).await
    };
    let lived = tokio::select! {
        lived = lived => lived,
        gone = address.gone() => return Failure::new(FailureKind::Link, gone),
    };
    match lived {
        Err(error) if *answered => failure(&error),
        Err(error) => handshake::explain(&error, config),
        Ok(never) => match never {},
    }
}

struct SentinelConnection<'a> {
    listener: &'a SentinelListener,
    subscriber: Subscriber,
    /// True if the sentinel has announced a change of the primary since it was last asked.
    announced: bool,
}

impl SentinelConnection<'_> {
    async fn serve(&mut self, answered: &mut bool) -> Result<Infallible, WireError> {
        // Subscribes first, so that no change after the first answer is missed. If that is not
        // permitted, the connection is still of use, since every sentinel is asked at intervals.
        self.subscriber.request(SubscriptionRequest {
            channel: CHANGES.into(),
            sharded: false,
            generation: Some(0),
        });
        loop {
            self.ask().await?;
            *answered = true;
            let again = Arc::clone(&self.listener.sentinels.again);
            tokio::select! {
                announced = self.announcement() => announced?,
                () = again.notified() => {}
                () = tokio::time::sleep(HEARTBEAT) => {}
            }
        }
    }

    /// Returns when this sentinel announces a change of the primary.
    async fn announcement(&mut self) -> Result<(), WireError> {
        while !self.announced {
            self.next().await?;
        }
        Ok(())
    }

    /// Asks for the address of the primary and its epoch.
    async fn ask(&mut self) -> Result<(), WireError> {
        let announced = std::mem::take(&mut self.announced);
        // In this order: after a failover between the two, the address is newer than the epoch,
        // never older.
        let words = ["MASTER", "GET-MASTER-ADDR-BY-NAME"];
        words
            .iter()
            .for_each(|word| self.subscriber.ask(&["SENTINEL", word, &self.listener.primary_name]));
        let budget = self.listener.config.budgets().one_of_several();
        let answers = async { Ok((self.told().await?, self.told().await?)) };
        let (details, address) = within("no answer to SENTINEL", budget, answers).await?;
        let said = match address {
            Ok(value) => address_in(&value).ok_or_else(|| unknown(&self.listener.primary_name)),
            Err(refusal) => Err(failure(&refusal)),
        };
        let number = self.listener.number;
        self.listener.sentinels.knowledge.send_modify(|known| match said {
            Ok(address) => {
                known.answered(
                    number,
                    &address,
                    details.ok().and_then(|details| epoch(&details)),
                    announced,
                );
            }
            Err(failure) => known.silent(number, failure),
        });
        Ok(())
    }

    async fn told(&mut self) -> Result<RespReply, WireError> {
        loop {
            if let SubscriberEvent::Reply(reply) = self.next().await? {
                return Ok(reply);
            }
        }
    }

    /// The next event of the connection. An announced primary is recorded.
    async fn next(&mut self) -> Result<SubscriberEvent, WireError> {
        let heard = poll_fn(|cx| self.subscriber.poll(cx)).await?;
        let SubscriberEvent::Message { payload, .. } = &heard else { return Ok(heard) };
        if let Some((old, new)) = change(payload, &self.listener.primary_name) {
            self.listener.sentinels.knowledge.send_modify(|known| known.announced(&old, &new));
            self.announced = true;
        }
        Ok(heard)
    }
}

fn unknown(primary_name: &str) -> Failure {
    Failure::new(FailureKind::Unsupported, format!("knows no primary named {primary_name:?}"))
}

/// Host and port.
fn address_in(value: &Value) -> Option<Address> {
    match texts(value)[..] {
        [host, port] => Some((host.to_owned(), port.parse().ok()?)),
        _ => None,
    }
}

/// The epoch in a list of names and values that describes a primary.
fn epoch(details: &Value) -> Option<u64> {
    texts(details).chunks(2).find(|pair| pair[0] == "config-epoch")?.get(1)?.parse().ok()
}

fn texts(value: &Value) -> Vec<&str> {
    let Value::List(items) = value else { return Vec::new() };
    items.iter().map(|item| if let Value::Text(text) = item { text.as_str() } else { "" }).collect()
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
    fn the_epoch_is_read_from_among_what_is_said_of_a_primary() {
        let said = |words: &[&str]| {
            Value::List(words.iter().map(|word| Value::Text((*word).into())).collect())
        };
        assert_eq!(
            epoch(&said(&["name", "main", "config-epoch", "7", "flags", "master"])),
            Some(7)
        );
        for without in
            [&["name", "7", "flags", "7"][..], &["config-epoch"], &["config-epoch", "x"], &[]]
        {
            assert_eq!(epoch(&said(without)), None, "{without:?}");
        }
        assert_eq!(epoch(&Value::Nil), None);
    }

    #[test]
    fn announcements_are_read() {
        let at = |host: &str, port| (host.to_owned(), port);
        let change = |text| change(text, "main");
        assert_eq!(
            change("main 10.0.0.1 6379 ::1 6380"),
            Some((at("10.0.0.1", 6379), at("::1", 6380)))
        );
        for other in
            ["", "main", "main 10.0.0.1 6379", "main a 1 b c", "mainly a 1 b 2", "main a 1 b 2 x"]
        {
            assert_eq!(change(other), None, "{other}");
        }
    }
}
