//! The task behind the command connection: connects, checks, watches, and connects again.

use std::sync::Arc;

use fred::clients::Client;
use tokio::sync::Notify;
use tokio::sync::mpsc;

use crate::backend::Failure;
use crate::backend::ServerInfo;
use crate::backend::redis::calls::Connection;
use crate::backend::redis::client;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::handshake;
use crate::backend::redis::handshake::Greeting;
use crate::backend::redis::link::Pause;
use crate::backend::redis::link::Router;
use crate::backend::redis::link::Stop;
use crate::backend::redis::link::unless_stopped;

/// What happened to the command connection.
pub(crate) enum CommandEvent {
    Up(Connection, ServerInfo),
    Down { cause: String },
    Failed(Failure),
}

/// Keeps a command connection until told to stop. On return its socket is closed.
pub(crate) async fn run(config: RedisConfig, events: mpsc::UnboundedSender<CommandEvent>, mut stop: Stop) {
    let mut pause = Pause::new();
    let mut go_on = true;
    while go_on {
        if one_connection(&config, &events, &mut stop).await {
            pause = Pause::new();
        }
        go_on = stop.sleep(pause.next()).await;
    }
}

/// From an attempt to connect to the end of the connection; says whether it was usable.
async fn one_connection(
    config: &RedisConfig,
    events: &mpsc::UnboundedSender<CommandEvent>,
    stop: &mut Stop,
) -> bool {
    let client = client::for_commands(config);
    let mut router = Router::start(&client);
    let greeting = unless_stopped(stop, greet(&client, config, &mut router)).await;
    let usable = matches!(greeting, Some(Ok(_)));
    match greeting {
        Some(Ok(Greeting { server, loaded })) => {
            let end = Arc::new(Notify::new());
            let watcher = router.watcher();
            let connection = Connection { client, router: watcher, end: Arc::clone(&end), loaded };
            let _ = events.send(CommandEvent::Up(connection, server));
            let cause = tokio::select! {
                error = router.ended() => error.details().to_owned(),
                () = end.notified() => "replaced: it did not answer, or the server changed its role".to_owned(),
                () = stop.wait() => "closed".to_owned(),
            };
            router.end().await;
            let _ = events.send(CommandEvent::Down { cause });
        }
        Some(Err(failure)) => {
            router.end().await;
            let message = format!("{}: {}", config.address(), failure.message);
            let _ = events.send(CommandEvent::Failed(Failure { message, ..failure }));
        }
        None => router.end().await,
    }
    usable
}

async fn greet(client: &Client, config: &RedisConfig, router: &mut Router) -> Result<Greeting, Failure> {
    router.connected().await.map_err(|error| handshake::explain(&error, config))?;
    tokio::select! {
        greeting = handshake::greet(client, config) => greeting,
        error = router.ended() => Err(handshake::explain(&error, config)),
    }
}
