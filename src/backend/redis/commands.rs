//! The task behind the command connection: connects, checks, watches, and connects again.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::mpsc;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::ServerInfo;
use crate::backend::redis::addresses::Target;
use crate::backend::redis::calls::Connection;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::dial::dial;
use crate::backend::redis::handshake;
use crate::backend::redis::handshake::Greeting;
use crate::backend::redis::link::Broken;
use crate::backend::redis::link::Stop;
use crate::backend::redis::link::unless_stopped;
use crate::backend::redis::login::LogsIn;
use crate::backend::redis::names::InUse;
use crate::backend::redis::whereabouts::Connects;
use crate::backend::redis::whereabouts::Destination;
use crate::backend::redis::whereabouts::Lived;
use crate::backend::redis::whereabouts::Reached;
use crate::backend::redis::whereabouts::Whereabouts;
use crate::backend::redis::wire::Wire;
use crate::settings::credentials::Credentials;

/// What happened to the command connection.
pub(crate) enum CommandEvent {
    Up(Box<Connection>, ServerInfo),
    Down {
        cause: String,
    },
    Failed(Failure),
    /// Other credentials are to be used.
    LogIn(Credentials, oneshot::Sender<Result<(), String>>),
}

/// Tells what happens to it.
pub(crate) struct Commands(pub(crate) mpsc::UnboundedSender<CommandEvent>);

impl Connects for Commands {
    // What was the primary a moment ago may be none any more, and not know it.
    const CONFIRMED: bool = true;

    async fn one_connection(
        &self,
        found: Destination,
        whereabouts: &mut Whereabouts,
        stop: &mut Stop,
    ) -> Lived {
        let Destination { config, renewal, mandate } = found;
        let greeting = unless_stopped(stop, greet(&config, whereabouts)).await;
        if let Some(greeting) = &greeting {
            whereabouts.tried(greeting.as_ref().map(|_| ()));
        }
        match greeting {
            Some(Ok(Greeted { wire, greeting: Greeting { server, round_trip }, address })) => {
                let mandate = mandate.at(address.clone());
                let (end, (ended, mut broken)) = (Arc::new(Notify::new()), oneshot::channel());
                let asks_again = config.provider().is_some();
                let connection =
                    Connection { wire, ended, end: Arc::clone(&end), round_trip, mandate, asks_again };
                let _ = self.0.send(CommandEvent::Up(Box::new(connection), server));
                let well = |cause: &str| (cause.to_owned(), Lived::Well);
                let opened = Instant::now();
                let (cause, lived) = tokio::select! {
                    // First, since it says more than that the connection has ended.
                    biased;
                    moved = whereabouts.moved_from(&address) => (moved, Lived::left(opened)),
                    broken = &mut broken => match broken {
                        Ok(Broken { cause, served }) => (cause, Lived::broken(served)),
                        Err(_) => well("closed"),
                    },
                    () = end.notified() => well("replaced: it did not answer, or the server changed its role"),
                    () = stop.wait() => well("closed"),
                    never = renewal.keep_logged_in(self) => match never {},
                };
                whereabouts.reached.disconnected();
                let _ = self.0.send(CommandEvent::Down { cause });
                lived
            }
            Some(Err(failure)) => {
                let message = format!("{}: {}", config.address_in_use(), failure.message);
                let _ = self.0.send(CommandEvent::Failed(Failure { message, ..failure }));
                Lived::Never
            }
            None => Lived::Never,
        }
    }

    fn failed(&self, failure: Failure) {
        let _ = self.0.send(CommandEvent::Failed(failure));
    }
}

impl LogsIn for Commands {
    async fn log_in(&self, credentials: &Credentials) -> Result<(), String> {
        let (answer, answered) = oneshot::channel();
        let _ = self.0.send(CommandEvent::LogIn(credentials.clone(), answer));
        answered.await.unwrap_or_else(|_| Err("Connection closed.".to_owned()))
    }
}

/// A connection to a primary, and the address that it leads to.
struct Greeted {
    wire: Wire,
    greeting: Greeting,
    address: InUse,
}

async fn greet(config: &RedisConfig, whereabouts: &mut Whereabouts) -> Result<Greeted, Failure> {
    let reached = whereabouts.reached.clone();
    tokio::select! {
        greeted = greet_any(config, &reached) => greeted,
        moved = whereabouts.moved() => Err(Failure::new(FailureKind::Link, moved)),
    }
}

/// At the first of the server's addresses where a primary answers.
async fn greet_any(config: &RedisConfig, reached: &Reached) -> Result<Greeted, Failure> {
    let tries = reached.tries(config).await;
    let mut tries = tries.map_err(|error| handshake::explain(&error, config))?;
    while let Some(target) = tries.next() {
        match greet_at(config, &target, tries.count()).await {
            Ok((wire, greeting)) => {
                let address = tries.using(&target);
                reached.connected(target);
                return Ok(Greeted { wire, greeting, address });
            }
            Err(failure) => tries.failed(target, failure),
        }
    }
    Err(tries.failure())
}

async fn greet_at(
    config: &RedisConfig,
    target: &Target,
    addresses: usize,
) -> Result<(Wire, Greeting), Failure> {
    let dialled = dial(config, target, addresses).await;
    let mut wire = dialled.map_err(|error| handshake::explain(&error, config))?;
    let greeting = handshake::greet(&mut wire, config).await?;
    Ok((wire, greeting))
}
