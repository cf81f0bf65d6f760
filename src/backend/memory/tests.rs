use std::future::poll_fn;
use std::task::Context;
use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::backend::Backend;
use crate::backend::BackendEvent;
use crate::backend::Call;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::Script;
use crate::backend::ScriptCall;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::backend::Value;
use crate::backend::woken::Woken;
use crate::backend::words::Words;

const TIMEOUT: Duration = Duration::from_secs(1);

static TAKE: Script = Script {
    name: "take",
    source: r#"
        redis.call("HSET", KEYS[1], "field", 1)
        return redis.call("PEXPIRE", KEYS[1], 30000)
    "#,
};
static LOOK: Script = Script { name: "look", source: r#"return redis.call("PTTL", KEYS[1])"# };
static FREE: Script = Script {
    name: "free",
    source: r#"
        redis.call("DEL", KEYS[1])
        return redis.call("PUBLISH", "freed", "0")
    "#,
};

fn call(script: &'static Script) -> Call {
    Call::Script(ScriptCall::new(script, ["orders:42"].into(), Words::default()).into())
}

async fn next(backend: &mut MemoryBackend) -> BackendEvent {
    poll_fn(|cx| backend.poll_event(cx)).await
}

fn connect(server: &InMemoryServer) -> MemoryBackend {
    let (client, _) = server.register("a client");
    MemoryBackend::new(server, client)
}

async fn connected(server: &InMemoryServer) -> (MemoryBackend, ServerInfo) {
    let mut backend = connect(server);
    let info = up(&mut backend).await;
    (backend, info)
}

async fn up(backend: &mut MemoryBackend) -> ServerInfo {
    let BackendEvent::Up(_, info) = next(backend).await else { panic!("not up") };
    assert!(matches!(next(backend).await, BackendEvent::PubSubUp));
    info
}

async fn down(backend: &mut MemoryBackend) {
    assert!(matches!(next(backend).await, BackendEvent::Down { .. }));
    assert!(matches!(next(backend).await, BackendEvent::PubSubDown));
}

async fn replied(backend: &mut MemoryBackend, expected: u64) -> Outcome<Value> {
    match next(backend).await {
        BackendEvent::Replied { op, outcome, .. } if op == OpId(expected) => outcome,
        other => panic!("{other:?} instead of the reply to {expected}"),
    }
}

async fn run(backend: &mut MemoryBackend, op: u64, script: &'static Script) -> i64 {
    backend.submit(OpId(op), ServerId::ONLY, call(script), TIMEOUT);
    match replied(backend, op).await {
        Outcome::Done(Value::Int(number)) => number,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn scripts_run_and_leases_follow_the_paused_clock() {
    let server = InMemoryServer::new();
    let (mut a, _) = connected(&server).await;
    let (mut b, _) = connected(&server).await;
    assert_eq!(run(&mut a, 1, &TAKE).await, 1);
    assert!(server.contains("orders:42"));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(run(&mut b, 1, &LOOK).await, 20_000);
    tokio::time::advance(Duration::from_millis(20_001)).await;
    assert!(!server.contains("orders:42"));
    assert_eq!(run(&mut b, 2, &LOOK).await, -2);
}

#[tokio::test]
async fn time_and_ping_are_answered() {
    let (mut backend, _) = connected(&InMemoryServer::new()).await;
    backend.submit(OpId(1), ServerId::ONLY, Call::Time, TIMEOUT);
    backend.submit(OpId(2), ServerId::ONLY, Call::Ping, TIMEOUT);
    let Outcome::Done(Value::List(time)) = replied(&mut backend, 1).await else {
        panic!("no time")
    };
    assert!(matches!(time[..], [Value::Int(micros)] if micros >= 1_704_067_200_000_000));
    assert_eq!(replied(&mut backend, 2).await, Outcome::Done(Value::List(vec![])));
}

#[tokio::test]
async fn a_message_reaches_every_subscriber_the_sender_included_and_is_counted() {
    let server = InMemoryServer::new();
    let (mut a, _) = connected(&server).await;
    let (mut b, _) = connected(&server).await;
    for (generation, backend) in [(7, &mut a), (8, &mut b)] {
        backend.subscribe("freed".into(), false, generation);
        let BackendEvent::Subscribed { channel, generation: confirmed, result } =
            next(backend).await
        else {
            panic!("not confirmed")
        };
        assert_eq!((&*channel, confirmed, result), ("freed", generation, Ok(())));
    }
    b.subscribe("freed".into(), true, 9);
    assert!(matches!(next(&mut b).await, BackendEvent::Subscribed { generation: 9, .. }));
    run(&mut a, 1, &TAKE).await;
    a.submit(OpId(2), ServerId::ONLY, call(&FREE), TIMEOUT);
    for backend in [&mut a, &mut b] {
        let BackendEvent::Message { channel, payload } = next(backend).await else {
            panic!("no message")
        };
        assert_eq!((&*channel, &*payload), ("freed", "0"));
    }
    assert_eq!(replied(&mut a, 2).await, Outcome::Done(Value::Int(2)));
    b.unsubscribe("freed".into(), false);
    drop(a);
    let (mut c, _) = connected(&server).await;
    run(&mut c, 1, &TAKE).await;
    assert_eq!(run(&mut c, 2, &FREE).await, 0);
}

#[tokio::test]
async fn a_restart_loses_data_and_subscriptions_and_shows_as_another_run() {
    let server = InMemoryServer::new();
    let (mut backend, before) = connected(&server).await;
    backend.subscribe("freed".into(), false, 1);
    next(&mut backend).await;
    run(&mut backend, 1, &TAKE).await;
    server.restart();
    down(&mut backend).await;
    let after = up(&mut backend).await;
    assert_ne!(before.run_id, after.run_id);
    assert!(!server.contains("orders:42"));
    run(&mut backend, 2, &TAKE).await;
    assert_eq!(run(&mut backend, 3, &FREE).await, 0);
}

#[tokio::test]
async fn an_unreachable_server_executes_nothing_and_lets_its_clients_back_in() {
    let server = InMemoryServer::new();
    let (mut backend, before) = connected(&server).await;
    server.set_reachable(false);
    down(&mut backend).await;
    assert!(matches!(next(&mut backend).await, BackendEvent::ConnectFailed { .. }));
    backend.submit(OpId(1), ServerId::ONLY, call(&TAKE), TIMEOUT);
    let outcome = replied(&mut backend, 1).await;
    assert!(matches!(outcome, Outcome::NotExecuted(failure) if failure.kind == FailureKind::Link));
    assert!(!server.contains("orders:42"));
    server.set_reachable(true);
    assert_eq!(up(&mut backend).await, before);
    run(&mut backend, 2, &TAKE).await;
}

#[tokio::test(start_paused = true)]
async fn lost_replies_end_as_unknown_at_their_timeout_although_the_call_was_executed() {
    let server = InMemoryServer::new();
    let (mut backend, _) = connected(&server).await;
    server.set_answering(false);
    let sent = Instant::now();
    backend.submit(OpId(1), ServerId::ONLY, call(&TAKE), TIMEOUT);
    backend.submit(OpId(2), ServerId::ONLY, Call::Ping, Duration::MAX);
    assert!(matches!(replied(&mut backend, 1).await, Outcome::Unknown(_)));
    // Tokio's timers have a resolution of a millisecond.
    assert!((TIMEOUT..TIMEOUT + Duration::from_millis(2)).contains(&sent.elapsed()));
    assert!(server.contains("orders:42"));
    server.set_answering(true);
    assert!(matches!(replied(&mut backend, 2).await, Outcome::Unknown(_)));
    down(&mut backend).await;
    up(&mut backend).await;
}

#[tokio::test]
async fn a_cut_connection_loses_the_replies_on_their_way() {
    let server = InMemoryServer::new();
    let (mut backend, _) = connected(&server).await;
    backend.submit(OpId(1), ServerId::ONLY, call(&TAKE), TIMEOUT);
    server.disconnect_all();
    assert!(matches!(replied(&mut backend, 1).await, Outcome::Unknown(_)));
    down(&mut backend).await;
    up(&mut backend).await;
    backend.reconnect(ServerId::ONLY);
    down(&mut backend).await;
    up(&mut backend).await;
}

#[tokio::test]
async fn closing_ends_with_closed_and_nothing_after_it() {
    let server = InMemoryServer::new();
    let (mut backend, _) = connected(&server).await;
    backend.submit(OpId(1), ServerId::ONLY, Call::Ping, TIMEOUT);
    backend.close();
    backend.close();
    assert!(matches!(replied(&mut backend, 1).await, Outcome::Unknown(_)));
    down(&mut backend).await;
    assert!(matches!(next(&mut backend).await, BackendEvent::Closed));
    server.disconnect_all();
    backend.submit(OpId(2), ServerId::ONLY, Call::Ping, TIMEOUT);
    assert!(matches!(replied(&mut backend, 2).await, Outcome::NotExecuted(_)));
}

#[test]
fn a_client_on_another_thread_is_woken() {
    let server = InMemoryServer::new();
    let (sender, receiver) = std::sync::mpsc::channel();
    let same = server.clone();
    let waiter = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (mut backend, _) = connected(&same).await;
            backend.subscribe("freed".into(), false, 1);
            next(&mut backend).await;
            sender.send(()).unwrap();
            next(&mut backend).await
        })
    });
    receiver.recv().unwrap();
    let mut backend = connect(&server);
    backend.submit(OpId(1), ServerId::ONLY, call(&TAKE), TIMEOUT);
    backend.submit(OpId(2), ServerId::ONLY, call(&FREE), TIMEOUT);
    assert!(matches!(waiter.join().unwrap(), BackendEvent::Message { .. }));
}

#[test]
fn nobody_is_woken_for_nothing() {
    let server = InMemoryServer::new();
    let mut backend = connect(&server);
    let count = Arc::<Woken>::default();
    let waker = Waker::from(Arc::clone(&count));
    let mut cx = Context::from_waker(&waker);
    let (mut events, mut woken) = (0, 0);
    while count.times() > woken || events < 2 {
        woken = count.times();
        events += usize::from(backend.poll_event(&mut cx).is_ready());
    }
    assert!(backend.poll_event(&mut cx).is_pending());
    let mut other = connect(&server);
    other.submit(OpId(1), ServerId::ONLY, Call::Ping, TIMEOUT);
    assert_eq!(count.times(), woken);
    server.disconnect_all();
    assert_eq!(count.times(), woken + 1);
}

static TELL: Script = Script {
    name: "tell",
    source: r#"
        redis.call("PUBLISH", "freed", ARGV[1])
        return redis.call("PUBSUB", "NUMSUB", "freed")[2]
    "#,
};

/// Publishes a message. Returns the number of subscribers that the server counts.
async fn tell(backend: &mut MemoryBackend, op: u64, payload: &str) -> i64 {
    let call = ScriptCall::new(&TELL, Words::default(), [payload].into());
    backend.submit(OpId(op), ServerId::ONLY, Call::Script(call.into()), TIMEOUT);
    match replied(backend, op).await {
        Outcome::Done(Value::Int(number)) => number,
        other => panic!("{other:?}"),
    }
}

async fn subscribe(backend: &mut MemoryBackend) {
    backend.subscribe("freed".into(), false, 1);
    assert!(matches!(next(backend).await, BackendEvent::Subscribed { generation: 1, .. }));
}

async fn message(backend: &mut MemoryBackend) -> String {
    match next(backend).await {
        BackendEvent::Message { payload, .. } => payload,
        other => panic!("{other:?} instead of a message"),
    }
}

/// Registers a client. Returns its backend and its handle for tests.
async fn controlled(server: &InMemoryServer, id: &str) -> (MemoryBackend, InMemoryClient) {
    let (client, _) = server.register(id);
    let mut backend = MemoryBackend::new(server, client);
    up(&mut backend).await;
    (backend, server.client_with_id(id).unwrap())
}

/// Tokio's timers have a resolution of a millisecond.
fn about(elapsed: Duration, expected: Duration) -> bool {
    (expected..expected + Duration::from_millis(2)).contains(&elapsed)
}

#[tokio::test(start_paused = true)]
async fn a_partition_lets_nothing_through_and_the_client_notices_by_itself() {
    let server = InMemoryServer::new();
    let (mut a, control) = controlled(&server, "a").await;
    let (mut b, _) = controlled(&server, "b").await;
    subscribe(&mut a).await;
    control.set_partitioned(true);
    control.set_partitioned(true);
    let sent = Instant::now();
    a.submit(OpId(1), ServerId::ONLY, call(&TAKE), TIMEOUT);
    a.submit(OpId(2), ServerId::ONLY, Call::Ping, 2 * TIMEOUT);
    a.subscribe("others".into(), false, 2);
    a.unsubscribe("freed".into(), false);
    assert_eq!(tell(&mut b, 1, "lost").await, 1, "the server does not know");
    assert!(matches!(replied(&mut a, 1).await, Outcome::Unknown(_)));
    assert!(about(sent.elapsed(), TIMEOUT), "{:?}", sent.elapsed());
    assert!(!server.contains("orders:42"), "it was executed");
    assert!(matches!(replied(&mut a, 2).await, Outcome::Unknown(_)));
    down(&mut a).await;
    assert!(matches!(next(&mut a).await, BackendEvent::ConnectFailed { .. }));
    a.submit(OpId(3), ServerId::ONLY, call(&TAKE), TIMEOUT);
    assert!(matches!(replied(&mut a, 3).await, Outcome::NotExecuted(_)));
    assert_eq!(tell(&mut b, 2, "lost").await, 1, "it still does not know");
    control.set_partitioned(false);
    up(&mut a).await;
    assert_eq!(tell(&mut b, 3, "lost").await, 0);
    assert_eq!(run(&mut a, 4, &TAKE).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_ends_soon_breaks_the_connections_all_the_same() {
    let server = InMemoryServer::new();
    let (mut backend, control) = controlled(&server, "a").await;
    control.set_partitioned(true);
    backend.submit(OpId(1), ServerId::ONLY, call(&TAKE), TIMEOUT);
    control.set_partitioned(false);
    assert!(matches!(replied(&mut backend, 1).await, Outcome::Unknown(_)));
    down(&mut backend).await;
    up(&mut backend).await;
    assert!(!server.contains("orders:42"));
}

#[tokio::test(start_paused = true)]
async fn who_connects_during_a_partition_has_to_wait_for_its_end() {
    let server = InMemoryServer::new();
    let (client, _) = server.register("a");
    let control = server.client_with_id("a").unwrap();
    control.set_partitioned(true);
    let mut backend = MemoryBackend::new(&server, client);
    assert!(matches!(next(&mut backend).await, BackendEvent::ConnectFailed { .. }));
    backend.reconnect(ServerId::ONLY);
    assert!(matches!(next(&mut backend).await, BackendEvent::ConnectFailed { .. }));
    control.set_partitioned(false);
    up(&mut backend).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_when_a_partition_begins_is_lost() {
    let server = InMemoryServer::new();
    let (mut a, control) = controlled(&server, "a").await;
    let (mut b, _) = controlled(&server, "b").await;
    subscribe(&mut a).await;
    control.set_reply_delay(Duration::from_millis(300));
    control.set_message_delay(Duration::from_millis(300));
    let sent = Instant::now();
    a.submit(OpId(1), ServerId::ONLY, call(&TAKE), TIMEOUT);
    tell(&mut b, 1, "lost").await;
    control.set_partitioned(true);
    assert!(matches!(replied(&mut a, 1).await, Outcome::Unknown(_)));
    assert!(about(sent.elapsed(), TIMEOUT), "{:?}", sent.elapsed());
    assert!(server.contains("orders:42"), "it was executed before");
    down(&mut a).await;
}

#[tokio::test(start_paused = true)]
async fn replies_take_as_long_as_they_are_told_to_and_stay_in_order() {
    let server = InMemoryServer::new();
    let (mut backend, control) = controlled(&server, "a").await;
    let sent = Instant::now();
    control.set_reply_delay(Duration::from_millis(300));
    backend.submit(OpId(1), ServerId::ONLY, Call::Ping, TIMEOUT);
    control.set_reply_delay(Duration::from_millis(100));
    backend.submit(OpId(2), ServerId::ONLY, Call::Ping, TIMEOUT);
    control.set_reply_delay(Duration::ZERO);
    backend.submit(OpId(3), ServerId::ONLY, Call::Ping, TIMEOUT);
    for op in 1..=3 {
        assert!(matches!(replied(&mut backend, op).await, Outcome::Done(_)));
        assert!(about(sent.elapsed(), Duration::from_millis(300)), "{op}: {:?}", sent.elapsed());
    }
    let sent = Instant::now();
    backend.submit(OpId(4), ServerId::ONLY, Call::Ping, TIMEOUT);
    assert!(matches!(replied(&mut backend, 4).await, Outcome::Done(_)));
    assert_eq!(sent.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_comes_after_the_timeout_is_none() {
    let server = InMemoryServer::new();
    let (mut backend, control) = controlled(&server, "a").await;
    for (op, delay) in [(1, TIMEOUT), (2, Duration::MAX)] {
        let sent = Instant::now();
        control.set_reply_delay(delay);
        backend.submit(OpId(op), ServerId::ONLY, call(&TAKE), TIMEOUT);
        assert!(matches!(replied(&mut backend, op).await, Outcome::Unknown(_)));
        assert!(about(sent.elapsed(), TIMEOUT), "{:?}", sent.elapsed());
        assert!(server.contains("orders:42"));
    }
    // The connection is as good as before.
    control.set_reply_delay(Duration::ZERO);
    assert_eq!(run(&mut backend, 3, &TAKE).await, 1);
}

#[tokio::test(start_paused = true)]
async fn messages_take_as_long_as_they_are_told_to_and_stay_in_order() {
    let server = InMemoryServer::new();
    let (mut a, control) = controlled(&server, "a").await;
    let (mut b, _) = controlled(&server, "b").await;
    let sent = Instant::now();
    control.set_message_delay(Duration::from_millis(300));
    subscribe(&mut a).await;
    assert!(about(sent.elapsed(), Duration::from_millis(300)), "{:?}", sent.elapsed());
    let sent = Instant::now();
    assert_eq!(tell(&mut b, 1, "first").await, 1);
    control.set_message_delay(Duration::ZERO);
    tell(&mut b, 2, "second").await;
    // Replies come over the other connection, without a delay.
    assert_eq!(run(&mut a, 1, &TAKE).await, 1);
    assert_eq!(sent.elapsed(), Duration::ZERO);
    for payload in ["first", "second"] {
        assert_eq!(message(&mut a).await, payload);
        assert!(about(sent.elapsed(), Duration::from_millis(300)), "{:?}", sent.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_connection_loses_what_was_still_on_its_way() {
    let server = InMemoryServer::new();
    let (mut a, control) = controlled(&server, "a").await;
    let (mut b, _) = controlled(&server, "b").await;
    subscribe(&mut a).await;
    control.set_reply_delay(Duration::from_millis(300));
    control.set_message_delay(Duration::from_millis(300));
    a.submit(OpId(1), ServerId::ONLY, call(&TAKE), TIMEOUT);
    tell(&mut b, 1, "lost").await;
    control.disconnect();
    assert!(matches!(replied(&mut a, 1).await, Outcome::Unknown(_)));
    down(&mut a).await;
    up(&mut a).await;
    control.set_reply_delay(Duration::ZERO);
    assert_eq!(run(&mut a, 2, &LOOK).await, 30_000);
}

#[tokio::test(start_paused = true)]
async fn one_client_can_be_refused_or_left_unanswered_while_others_are_served() {
    let server = InMemoryServer::new();
    let (mut a, control) = controlled(&server, "a").await;
    let (mut b, _) = controlled(&server, "b").await;
    control.set_reachable(false);
    down(&mut a).await;
    assert!(matches!(next(&mut a).await, BackendEvent::ConnectFailed { .. }));
    run(&mut b, 1, &TAKE).await;
    control.set_reachable(true);
    up(&mut a).await;

    subscribe(&mut a).await;
    control.set_answering(false);
    a.submit(OpId(1), ServerId::ONLY, call(&FREE), TIMEOUT);
    assert!(matches!(replied(&mut a, 1).await, Outcome::Unknown(_)));
    assert!(!server.contains("orders:42"), "it was executed");
    assert_eq!(tell(&mut b, 2, "lost").await, 1);
    control.set_answering(true);
    down(&mut a).await;
    up(&mut a).await;
    assert_eq!(run(&mut a, 2, &LOOK).await, -2);
}

#[tokio::test(start_paused = true)]
async fn the_server_goes_by_its_clients_clock_whoever_looks() {
    let server = InMemoryServer::new();
    let (mut backend, _) = controlled(&server, "a").await;
    run(&mut backend, 1, &TAKE).await;
    tokio::time::advance(Duration::from_secs(10)).await;
    // A thread that does not see the paused clock.
    let same = server.clone();
    let looks = move || std::thread::spawn(move || same.contains("orders:42")).join().unwrap();
    assert!(looks.clone()());
    assert_eq!(run(&mut backend, 2, &LOOK).await, 20_000);
    tokio::time::advance(Duration::from_millis(20_001)).await;
    assert!(!looks());
}
