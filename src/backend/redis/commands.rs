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
use crate::backend::redis::link::Pause;
use crate::backend::redis::link::Router;
use crate::backend::redis::link::Stop;
use crate::backend::redis::link::unless_stopped;
use crate::backend::redis::whereabouts::Found;
use crate::backend::redis::whereabouts::Whereabouts;

/// What happened to the command connection.
pub(crate) enum CommandEvent {
    Up(Connection, ServerInfo),
    Down { cause: String },
    Failed(Failure),
}

/// Keeps a command connection until told to stop. On return its socket is closed.
pub(crate) async fn run(
    mut whereabouts: Whereabouts,
    events: mpsc::UnboundedSender<CommandEvent>,
    mut stop: Stop,
) {
    let mut pause = Pause::new();
    let mut go_on = true;
    while go_on {
        // What was the primary a moment ago may be none any more, and not know it.
        let was_usable = match unless_stopped(&mut stop, whereabouts.find(true)).await {
            Some(Ok(found)) => one_connection(found, &mut whereabouts, &events, &mut stop).await,
            Some(Err(failure)) => {
                let _ = events.send(CommandEvent::Failed(failure));
                false
            }
            None => false,
        };
        if was_usable {
            pause = Pause::new();
        }
        go_on = whereabouts.pause(&mut stop, pause.next()).await;
    }
}

/// From an attempt to connect to the end of the connection; says whether it was usable.
async fn one_connection(
    found: Found,
    whereabouts: &mut Whereabouts,
    events: &mpsc::UnboundedSender<CommandEvent>,
    stop: &mut Stop,
) -> bool {
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
            let connection = Connection { client, router: watcher, end: end_of, loaded, mandate, asks_again };
            let _ = events.send(CommandEvent::Up(connection, server));
            let cause = tokio::select! {
                error = router.ended() => error.details().to_owned(),
                moved = whereabouts.moved() => moved,
                () = end.notified() => "replaced: it did not answer, or the server changed its role".to_owned(),
                () = stop.wait() => "closed".to_owned(),
                never = renewal.keep_logged_in(&logged_in) => match never {},
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
