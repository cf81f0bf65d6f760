//! What is delivered first, on channels filled by hand.

use crate::backend::ServerId;
use std::future::poll_fn;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::backend::Backend;
use crate::backend::BackendEvent;
use crate::backend::Call;
use crate::backend::OpId;
use crate::backend::ServerInfo;
use crate::backend::redis::Life;
use crate::backend::redis::RedisBackend;
use crate::backend::redis::calls::Calls;
use crate::backend::redis::commands::CommandEvent;
use crate::backend::redis::link::Stop;
use crate::backend::redis::tests::driver::connection;

/// A backend that hears of its connections from the sender.
fn backend(turn: u8) -> (RedisBackend, mpsc::UnboundedSender<CommandEvent>) {
    let (events, command_events) = mpsc::unbounded_channel();
    let (_, pubsub_events) = mpsc::unbounded_channel();
    let (stop, _) = Stop::pair();
    let life = Life::Open { stop, links: Vec::new() };
    let backend = RedisBackend {
        calls: Calls::new(),
        command_events,
        pubsub_events,
        subscriptions: None,
        others: Arc::default(),
        life,
        turn,
        waker: None,
    };
    (backend, events)
}

/// A TIME from before the outage would otherwise set the clock of the server that is there now.
#[tokio::test]
async fn replies_of_the_old_connection_come_before_the_new_one() {
    for turn in 0..4 {
        let (mut backend, events) = backend(turn);
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
