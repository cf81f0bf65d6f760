//! The task of the command connection: it connects, checks the server, watches the connection, and
//! reconnects.

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
use crate::backend::redis::link::BrokenConnection;
use crate::backend::redis::link::StopSignal;
use crate::backend::redis::link::unless_stopped;
use crate::backend::redis::locator::ConnectionKind;
use crate::backend::redis::locator::ConnectionOutcome;
use crate::backend::redis::locator::Destination;
use crate::backend::redis::locator::ServerLocator;
use crate::backend::redis::locator::WorkingAddress;
use crate::backend::redis::login::Relogin;
use crate::backend::redis::names::AddressWatch;
use crate::backend::redis::wire::Wire;
use crate::settings::credentials::Credentials;

/// What the task reports about the command connection.
pub(crate) enum CommandEvent {
    Up(Box<Connection>, ServerInfo),
    Down {
        cause: String,
    },
    Failed(Failure),
    /// New credentials for the connection.
    LogIn(Credentials, oneshot::Sender<Result<(), String>>),
}

/// The sender through which the task reports.
pub(crate) struct Commands(pub(crate) mpsc::UnboundedSender<CommandEvent>);

impl ConnectionKind for Commands {
    // The primary of a moment ago may have been deposed without knowing it.
    const CONFIRMED: bool = true;

    async fn one_connection(
        &self,
        found: Destination,
        locator: &mut ServerLocator,
        stop: &mut StopSignal,
    ) -> ConnectionOutcome {
        let Destination { config, renewal, term } = found;
        let greeting = unless_stopped(stop, greet(&config, locator)).await;
        if let Some(greeting) = &greeting {
            locator.tried(greeting.as_ref().map(|_| ()));
        }
        match greeting {
            Some(Ok(PrimaryConnection {
                wire,
                greeting: Greeting { server, round_trip },
                address,
            })) => {
                let term = term.at(address.clone());
                let (end, (ended, mut broken)) = (Arc::new(Notify::new()), oneshot::channel());
                let asks_again = config.provider().is_some();
                let connection =
                    Connection { wire, ended, end: Arc::clone(&end), round_trip, term, asks_again };
                let _ = self.0.send(CommandEvent::Up(Box::new(connection), server));
                let well = |cause: &str| (cause.to_owned(), ConnectionOutcome::Served);
                let opened = Instant::now();
                let (cause, lived) = tokio::select! {
                    // Polled first, because it says more than that the connection has ended.
                    biased;
                    moved = locator.moved_from(&address) => (moved, ConnectionOutcome::left(opened)),
                    broken = &mut broken => match broken {
                        Ok(BrokenConnection { cause, served }) => (cause, ConnectionOutcome::broken(served)),
                        Err(_) => well("closed"),
                    },
                    () = end.notified() => well("replaced: it did not answer, or the server changed its role"),
                    () = stop.wait() => well("closed"),
                    never = renewal.keep_logged_in(self) => match never {},
                };
                locator.working_address.disconnected();
                let _ = self.0.send(CommandEvent::Down { cause });
                lived
            }
            Some(Err(failure)) => {
                let message = format!("{}: {}", config.address_in_use(), failure.message);
                let _ = self.0.send(CommandEvent::Failed(Failure { message, ..failure }));
                ConnectionOutcome::NeverUsable
            }
            None => ConnectionOutcome::NeverUsable,
        }
    }

    fn failed(&self, failure: Failure) {
        let _ = self.0.send(CommandEvent::Failed(failure));
    }
}

impl Relogin for Commands {
    async fn log_in(&self, credentials: &Credentials) -> Result<(), String> {
        let (answer, answered) = oneshot::channel();
        let _ = self.0.send(CommandEvent::LogIn(credentials.clone(), answer));
        answered.await.unwrap_or_else(|_| Err("Connection closed.".to_owned()))
    }
}

/// A connection to a primary, and the address that it leads to.
struct PrimaryConnection {
    wire: Wire,
    greeting: Greeting,
    address: AddressWatch,
}

async fn greet(
    config: &RedisConfig,
    locator: &mut ServerLocator,
) -> Result<PrimaryConnection, Failure> {
    let working_address = locator.working_address.clone();
    tokio::select! {
        greeted = greet_any(config, &working_address) => greeted,
        moved = locator.moved() => Err(Failure::new(FailureKind::Link, moved)),
    }
}

/// Connects to the first of the server's addresses where a primary answers.
async fn greet_any(
    config: &RedisConfig,
    working_address: &WorkingAddress,
) -> Result<PrimaryConnection, Failure> {
    let tries = working_address.tries(config).await;
    let mut tries = tries.map_err(|error| handshake::explain(&error, config))?;
    while let Some(target) = tries.next() {
        match greet_at(config, &target, tries.count()).await {
            Ok((wire, greeting)) => {
                let address = tries.using(&target);
                working_address.connected(target);
                return Ok(PrimaryConnection { wire, greeting, address });
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
