//! The task behind the command connection: connects, checks, watches, and connects again.

use std::sync::Arc;

use fred::clients::Client;
use tokio::sync::Notify;
use tokio::sync::mpsc;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::ServerInfo;
use crate::backend::redis::calls::Connection;
use crate::backend::redis::client;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::handshake;
use crate::backend::redis::handshake::Greeting;
use crate::backend::redis::link::Router;
use crate::backend::redis::link::Stop;
use crate::backend::redis::link::unless_stopped;
use crate::backend::redis::whereabouts::Connects;
use crate::backend::redis::whereabouts::Found;
use crate::backend::redis::whereabouts::Whereabouts;

/// What happened to the command connection.
pub(crate) enum CommandEvent {
    Up(Connection, ServerInfo),
    Down { cause: String },
    Failed(Failure),
}

/// Tells what happens to it.
pub(crate) struct Commands(pub(crate) mpsc::UnboundedSender<CommandEvent>);

impl Connects for Commands {
    // What was the primary a moment ago may be none any more, and not know it.
    const CONFIRMED: bool = true;

    async fn one_connection(&self, found: Found, whereabouts: &mut Whereabouts, stop: &mut Stop) -> bool {
        let Found { config, renewal, mandate } = found;
        let client = client::for_commands(&config);
        let mut router = Router::start(&client);
        let greeting = unless_stopped(stop, greet(&client, &config, &mut router, whereabouts)).await;
        let usable = matches!(greeting, Some(Ok(_)));
        if let Some(greeting) = &greeting {
            whereabouts.tried(greeting.as_ref().map(|_| ()));
        }
        match greeting {
            Some(Ok(Greeting { server, loaded })) => {
                let end = Arc::new(Notify::new());
                let watcher = router.watcher();
                let (end_of, logged_in) = (Arc::clone(&end), client.clone());
                let asks_again = config.provider().is_some();
                let connection =
                    Connection { client, router: watcher, end: end_of, loaded, mandate, asks_again };
                let _ = self.0.send(CommandEvent::Up(connection, server));
                let cause = tokio::select! {
                    error = router.ended() => error.details().to_owned(),
                    moved = whereabouts.moved() => moved,
                    () = end.notified() => "replaced: it did not answer, or the server changed its role".to_owned(),
                    () = stop.wait() => "closed".to_owned(),
                    never = renewal.keep_logged_in(&logged_in) => match never {},
                };
                router.end().await;
                let _ = self.0.send(CommandEvent::Down { cause });
            }
            Some(Err(failure)) => {
                router.end().await;
                let message = format!("{}: {}", config.address(), failure.message);
                let _ = self.0.send(CommandEvent::Failed(Failure { message, ..failure }));
            }
            None => router.end().await,
        }
        usable
    }

    fn failed(&self, failure: Failure) {
        let _ = self.0.send(CommandEvent::Failed(failure));
    }
}

async fn greet(
    client: &Client,
    config: &RedisConfig,
    router: &mut Router,
    whereabouts: &mut Whereabouts,
) -> Result<Greeting, Failure> {
    let greeting = async {
        router.connected().await.map_err(|error| handshake::explain(&error, config))?;
        tokio::select! {
            greeting = handshake::greet(client, config) => greeting,
            error = router.ended() => Err(handshake::explain(&error, config)),
        }
    };
    tokio::select! {
        greeting = greeting => greeting,
        moved = whereabouts.moved() => Err(Failure::new(FailureKind::Link, moved)),
    }
}
