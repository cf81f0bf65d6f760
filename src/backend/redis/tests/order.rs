//! The order of events, and how the ends of connections are reported, with channels that the test
//! fills.

use crate::backend::ServerId;
use std::future::poll_fn;
use std::sync::Arc;

use futures::FutureExt;
use tokio::io::AsyncWriteExt;
use tokio::io::DuplexStream;
use tokio::sync::Notify;
use tokio::sync::mpsc;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::backend::Backend;
use crate::backend::BackendEvent;
use crate::backend::Call;
use crate::backend::OpId;
use crate::backend::ServerInfo;
use crate::backend::redis::BackendPhase;
use crate::backend::redis::RedisBackend;
use crate::backend::redis::budget::Budgets;
use crate::backend::redis::calls::Calls;
use crate::backend::redis::calls::Connection;
use crate::backend::redis::commands::CommandEvent;
use crate::backend::redis::link::BrokenConnection;
use crate::backend::redis::link::StopSignal;
use crate::backend::redis::pubsub::PubSubEvent;
use crate::backend::redis::pubsub::PubSubLink;
use crate::backend::redis::subscriber::Subscriber;
use crate::backend::redis::tests::driver::connection;

/// A backend whose connections are reported through these senders.
fn backend(
    turn: u8,
) -> (RedisBackend, mpsc::UnboundedSender<CommandEvent>, mpsc::UnboundedSender<PubSubEvent>) {
    let (events, command_events) = mpsc::unbounded_channel();
    let (pubsub, pubsub_events) = mpsc::unbounded_channel();
    let (stop, _) = StopSignal::pair();
    let phase = BackendPhase::Open { stop, links: Vec::new() };
    let backend = RedisBackend {
        calls: Calls::new(None, Budgets::of(super::driver::SECOND)),
        command_events,
        pubsub_events,
        subscriptions: None,
        run_id: String::new(),
        moved_at: None,
        others: Arc::default(),
        phase,
        turn,
        waker: None,
    };
    (backend, events, pubsub)
}

/// Otherwise a TIME from before the outage would be used for the clock of another server.
#[tokio::test]
async fn replies_of_the_old_connection_come_before_the_new_one() {
    for turn in 0..4 {
        let (mut backend, events, _pubsub) = backend(turn);
        let ((first, _open), (second, _open_too)) = (connection(1), connection(1));
        let _ = events.send(CommandEvent::Up(Box::new(first), ServerInfo::default()));
        assert!(matches!(poll_fn(|cx| backend.poll_event(cx)).await, BackendEvent::Up(..)));
        for op in 0..5 {
            backend.submit(OpId(op), ServerId::ONLY, Call::Time, super::driver::SECOND);
        }
        let _ = events.send(CommandEvent::Down { cause: "cut".to_owned() });
        let _ = events.send(CommandEvent::Up(Box::new(second), ServerInfo::default()));
        let mut answered = 0;
        loop {
            match poll_fn(|cx| backend.poll_event(cx)).await {
                BackendEvent::Replied { .. } => answered += 1,
                BackendEvent::Up(..) => break,
                event => assert!(matches!(event, BackendEvent::Down { .. }), "{event:?}"),
            }
        }
        assert_eq!(answered, 5, "turn {turn}");
    }
}

fn subscriptions(
    connection: Connection,
    ended: oneshot::Sender<BrokenConnection>,
    end: &Arc<Notify>,
) -> PubSubLink {
    let subscriber = Subscriber::new(connection.wire, Budgets::of(super::driver::SECOND));
    PubSubLink { subscriber, ended, end: Arc::clone(end), served: false, dialled: Instant::now() }
}

/// Ends the command connection.
async fn cut(backend: &mut RedisBackend, commands: &mpsc::UnboundedSender<CommandEvent>) {
    let _ = commands.send(CommandEvent::Down { cause: "cut".to_owned() });
    while !matches!(poll_fn(|cx| backend.poll_event(cx)).await, BackendEvent::Down { .. }) {}
}

/// A name or an address may lead to another server while connections to the old one stay open or
/// are being made.
#[tokio::test]
async fn pub_sub_follows_to_another_server() {
    // The new `run_id`; the step at which the pub/sub connection is dialled, and the one at which
    // it is up (0: with the first command connection, 1: after its end, 2: with the new one);
    // whether it is replaced.
    for (run_id, dialled, up, follows) in [
        ("b", 0, 0, true),
        ("a", 0, 0, false),
        ("b", 1, 1, true),
        ("b", 1, 2, true),
        ("b", 2, 2, false),
    ] {
        let (mut backend, commands, pubsub) = backend(0);
        let mut open = Vec::new();
        let mut connect = || {
            let (connection, server) = connection(1_000);
            open.push(server);
            connection
        };
        let connected = |connection, run_id: &str| {
            CommandEvent::Up(
                Box::new(connection),
                ServerInfo { run_id: run_id.to_owned(), ..ServerInfo::default() },
            )
        };
        let _ = commands.send(connected(connect(), "a"));
        assert!(matches!(poll_fn(|cx| backend.poll_event(cx)).await, BackendEvent::Up(..)));
        let (end, mut waiting) = (Arc::new(Notify::new()), None);
        let mut ends = Vec::new();
        for step in 0..3 {
            match step {
                0 => {}
                1 => cut(&mut backend, &commands).await,
                _ => {
                    let _ = commands.send(connected(connect(), run_id));
                    while !matches!(
                        poll_fn(|cx| backend.poll_event(cx)).await,
                        BackendEvent::Up(..)
                    ) {}
                }
            }
            if step == dialled {
                let (ended, hears) = oneshot::channel();
                ends.push(hears);
                waiting = Some(subscriptions(connect(), ended, &end));
            }
            if step == up {
                let subscriptions = waiting.take().expect("dialled before");
                let _ = pubsub.send(PubSubEvent::Up(Box::new(subscriptions)));
                while !matches!(poll_fn(|cx| backend.poll_event(cx)).await, BackendEvent::PubSubUp)
                {
                }
            }
        }
        assert_eq!(end.notified().now_or_never().is_some(), follows, "{run_id}, {dialled}, {up}");
    }
}

/// What the server sends before it closes the connection, if anything, and how that is reported.
async fn end(
    backend: &mut RedisBackend,
    mut server: DuplexStream,
    answer: Option<&str>,
    mut ended: oneshot::Receiver<BrokenConnection>,
) -> BrokenConnection {
    server.write_all(answer.unwrap_or_default().as_bytes()).await.expect("room");
    drop(server);
    loop {
        tokio::select! {
            broken = &mut ended => return broken.expect("told"),
            _ = poll_fn(|cx| backend.poll_event(cx)) => {}
        }
    }
}

/// The next attempt depends on it.
#[tokio::test]
async fn the_end_of_a_connection_tells_whether_it_served() {
    let (mut backend, commands, pubsub) = backend(0);
    for serves in [true, false] {
        let (ended, hears) = oneshot::channel();
        let (mut connection, server) = connection(1_000);
        connection.ended = ended;
        let _ = commands.send(CommandEvent::Up(Box::new(connection), ServerInfo::default()));
        assert!(matches!(poll_fn(|cx| backend.poll_event(cx)).await, BackendEvent::Up(..)));
        backend.submit(OpId(0), ServerId::ONLY, Call::Time, super::driver::SECOND);
        let answer = serves.then_some("*2\r\n$1\r\n1\r\n$1\r\n1\r\n");
        assert_eq!(end(&mut backend, server, answer, hears).await.served, serves);
    }
    for serves in [true, false] {
        let (ended, hears) = oneshot::channel();
        let (connection, server) = connection(1_000);
        let subscriptions = subscriptions(connection, ended, &Arc::default());
        let _ = pubsub.send(PubSubEvent::Up(Box::new(subscriptions)));
        while !matches!(poll_fn(|cx| backend.poll_event(cx)).await, BackendEvent::PubSubUp) {}
        backend.subscribe("a".into(), false, 1);
        let answer = serves.then_some("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n");
        assert_eq!(end(&mut backend, server, answer, hears).await.served, serves);
    }
}
