//! The sentinels: a small connection to each of them, on which changes of the primary are heard and asked about.
//!
//! RESP3, so that a question can be asked on the connection that listens.

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
use crate::backend::redis::addresses::Target;
use crate::backend::redis::addresses::Tries;
use crate::backend::redis::classify::failure;
use crate::backend::redis::config::Address;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::dial::dial;
use crate::backend::redis::dial::within;
use crate::backend::redis::error::WireError;
use crate::backend::redis::handshake;
use crate::backend::redis::link::Pause;
use crate::backend::redis::link::Stop;
use crate::backend::redis::link::unless_stopped;
use crate::backend::redis::names::HostNames;
use crate::backend::redis::resp::RespReply;
use crate::backend::redis::sentinel::knowledge::Knowledge;
use crate::backend::redis::subscriber::Heard;
use crate::backend::redis::subscriber::Subscriber;
use crate::backend::redis::subscriber::SubscriptionRequest;

const CHANGES: &str = "+switch-master";
/// A sentinel is asked again this often, in case that it, or its message, was lost.
const HEARTBEAT: Duration = Duration::from_secs(2);

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
pub(crate) struct SentinelListener {
    /// Of this one sentinel.
    pub(crate) config: RedisConfig,
    pub(crate) primary_name: String,
    pub(crate) sentinels: Sentinels,
    pub(crate) names: HostNames,
    /// Which of the sentinels.
    pub(crate) number: usize,
}

/// Listens to one sentinel until told to stop. On return its socket is closed.
pub(crate) async fn listen(listener: SentinelListener, mut stop: Stop) {
    let mut pause = Pause::default();
    loop {
        let mut answered = false;
        let end = unless_stopped(&mut stop, live(&listener, &mut answered)).await;
        let Some(failure) = end else { return };
        listener.sentinels.knowledge.send_modify(|known| known.silent(listener.number, failure));
        if answered {
            // Whatever it would have announced meanwhile, another one may know.
            listener.sentinels.ask_again();
            pause = Pause::default();
        }
        if !stop.sleep(pause.next()).await {
            return;
        }
    }
}

/// From the attempt to connect to the end of the connection; says why it ended, and whether it ever `answered`. Of the
/// addresses of the sentinel's name the first is used where a sentinel answers.
async fn live(listener: &SentinelListener, answered: &mut bool) -> Failure {
    let mut tries = match Tries::begin(&listener.config, &listener.names, None).await {
        Ok(tries) => tries,
        Err(error) => return handshake::explain(&error, &listener.config),
    };
    while let Some(target) = tries.next() {
        let failure = live_at(listener, &target, &tries, answered).await;
        if *answered {
            return failure;
        }
        tries.failed(target, failure);
    }
    tries.failure()
}

async fn live_at(
    listener: &SentinelListener,
    target: &Target,
    tries: &Tries,
    answered: &mut bool,
) -> Failure {
    let config = &listener.config;
    let address = tries.using(target);
    let lived = async {
        let subscriber = Subscriber::new(dial(config, target, tries.count()).await?, config.budgets());
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
    /// The primary has changed since the sentinel was asked, by its own word.
    announced: bool,
}

impl SentinelConnection<'_> {
    async fn serve(&mut self, answered: &mut bool) -> Result<Infallible, WireError> {
        // First of all: what is asked afterwards cannot change unheard. Not being allowed to is no obstacle, since
        // every sentinel is asked at intervals.
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

    /// Returns when the primary has changed, as this sentinel announces.
    async fn announcement(&mut self) -> Result<(), WireError> {
        while !self.announced {
            self.next().await?;
        }
        Ok(())
    }

    /// Asks who the primary is and by which epoch.
    async fn ask(&mut self) -> Result<(), WireError> {
        let announced = std::mem::take(&mut self.announced);
        // In this order: at a failover between the two the address is newer than the epoch, and not the reverse.
        let words = ["MASTER", "GET-MASTER-ADDR-BY-NAME"];
        words.iter().for_each(|word| self.subscriber.ask(&["SENTINEL", word, &self.listener.primary_name]));
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
                known.answered(number, &address, details.ok().and_then(|details| epoch(&details)), announced);
            }
            Err(failure) => known.silent(number, failure),
        });
        Ok(())
    }

    async fn told(&mut self) -> Result<RespReply, WireError> {
        loop {
            if let Heard::Reply(reply) = self.next().await? {
                return Ok(reply);
            }
        }
    }

    /// Whatever the connection brings next. A new primary is made known.
    async fn next(&mut self) -> Result<Heard, WireError> {
        let heard = poll_fn(|cx| self.subscriber.poll(cx)).await?;
        let Heard::Message { payload, .. } = &heard else { return Ok(heard) };
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

/// Of what is said about a primary, in pairs of a word and a text.
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
        let said =
            |words: &[&str]| Value::List(words.iter().map(|word| Value::Text((*word).into())).collect());
        assert_eq!(epoch(&said(&["name", "main", "config-epoch", "7", "flags", "master"])), Some(7));
        for without in [&["name", "7", "flags", "7"][..], &["config-epoch"], &["config-epoch", "x"], &[]] {
            assert_eq!(epoch(&said(without)), None, "{without:?}");
        }
        assert_eq!(epoch(&Value::Nil), None);
    }

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
