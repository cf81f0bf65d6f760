//! What the log is told, under which names.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use redis_reentrant_lock::Driver;
use redis_reentrant_lock::InMemoryServer;
use redis_reentrant_lock::LockClient;
use tracing::Event;
use tracing::Subscriber;
use tracing::field::Field;
use tracing::field::Visit;
use tracing::span::Attributes;
use tracing::span::Id;
use tracing::span::Record;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::layer::SubscriberExt;

use crate::support::hearing::hear;
use crate::support::proxy::FaultProxy;
use crate::support::redis_server::RedisServer;
use crate::support::settle::settles;

/// Names of events and spans, and everything that was said in them.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Said>>);

#[derive(Default)]
struct Said {
    events: BTreeSet<&'static str>,
    spans: BTreeSet<&'static str>,
    text: String,
}

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = writeln!(self.0, "{}={value:?}", field.name());
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "redis_reentrant_lock" {
            let mut said = self.0.lock().unwrap();
            said.events.insert(event.metadata().name());
            event.record(&mut Text(&mut said.text));
        }
    }

    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        if span.metadata().target() == "redis_reentrant_lock" {
            let mut said = self.0.lock().unwrap();
            said.spans.insert(span.metadata().name());
            span.record(&mut Text(&mut said.text));
        }
    }

    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        values.record(&mut Text(&mut self.0.lock().unwrap().text));
    }
}

#[tokio::test(start_paused = true)]
async fn events_and_spans_have_stable_names_and_short_ids() {
    let log = Log::default();
    let _subscriber = hear(tracing_subscriber::registry().with(log.clone()));
    let server = InMemoryServer::new();
    let lease = Duration::from_secs(3);
    let client = LockClient::builder().in_memory(&server).lease(lease).connect().await.unwrap();
    let lock = client.reentrant_lock("or\"ders\u{e4}").unwrap();
    let other = LockClient::builder().in_memory(&server).connect().await.unwrap();

    let guard = lock.lock().await.unwrap();
    assert!(other.mutex(lock.name()).unwrap().try_lock_for(lease * 2).await.unwrap().is_err());
    guard.unlock().await.unwrap();
    let guard = lock.lock().await.unwrap();
    server.remove(lock.name());
    guard.lost().await;

    let said = log.0.lock().unwrap();
    for name in ["acquire", "wait", "renew", "release", "lost"] {
        assert!(said.events.contains(name), "no event `{name}` in {:?}", said.events);
    }
    assert_eq!(said.spans, BTreeSet::from(["acquire", "release"]));
    for part in
        ["owner=\"thread\"", "owner=\"unique\"", "outcome=\"granted\"", "outcome=\"not granted\""]
    {
        assert!(said.text.contains(part), "no {part} in {}", said.text);
    }
    assert!(said.text.contains("name=\"or\\\"ders\u{e4}\""), "names are escaped: {}", said.text);
    assert!(said.text.contains(&client.id()[..8]), "{}", said.text);
    assert!(!said.text.contains(client.id()), "client ids are cut short: {}", said.text);
}

/// `Driver::Current`: it is this thread that hears the log.
#[tokio::test]
async fn a_connection_for_wake_ups_that_breaks_is_told_and_so_is_the_next() {
    let log = Log::default();
    let _subscriber = hear(tracing_subscriber::registry().with(log.clone()));
    let server = RedisServer::start();
    let builder = LockClient::builder().url(server.url()).driver(Driver::Current);
    let client = builder.connect().await.unwrap();
    let mut connection = server.connection();
    settles("its connection for wake-ups is killed", move || {
        let killed: u64 =
            redis::cmd("CLIENT").arg(&["KILL", "TYPE", "pubsub"]).query(&mut connection).unwrap();
        killed > 0
    })
    .await;
    let heard = log.clone();
    settles("there is another", move || {
        heard.0.lock().unwrap().text.contains("connected again (pub/sub)")
    })
    .await;
    client.shutdown(Duration::from_secs(5)).await.unwrap();
    let said = log.0.lock().unwrap();
    assert!(
        said.text.contains("disconnected (pub/sub): no wake-ups from this server until"),
        "{}",
        said.text
    );
    assert_eq!(said.text.matches("(pub/sub)").count(), 2, "{}", said.text);
    let told = said.text.split("disconnected (pub/sub)").nth(1).unwrap_or_default();
    let fields: Vec<&str> = told.lines().skip(1).take(2).collect();
    let address = format!("address={}", server.url().trim_start_matches("redis://"));
    assert!(fields[0] == address && fields[1].starts_with("cause="), "{}", said.text);
}

/// Each cause once, however many attempts fail.
#[tokio::test]
async fn a_server_that_goes_away_is_told_with_the_causes_and_how_long_it_was_away() {
    let log = Log::default();
    let _subscriber = hear(tracing_subscriber::registry().with(log.clone()));
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let url = proxy.url().replace("redis://", "redis://:a-password@");
    let mut connection = server.connection();
    redis::cmd("CONFIG").arg(&["SET", "requirepass", "a-password"]).exec(&mut connection).unwrap();
    let client = LockClient::builder().url(url).driver(Driver::Current).connect().await.unwrap();
    let text = || log.0.lock().unwrap().text.clone();
    proxy.refuse(true);
    proxy.cut();
    until(|| text().contains("connecting failed")).await;
    tokio::time::timeout(Duration::from_secs(10), async {
        // It tries again in the meantime.
        while client.links()[0].lasts < Duration::from_millis(300) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    // "Closed" and "reset".
    assert!(text().matches("connecting failed").count() <= 2, "{}", text());
    redis::cmd("CONFIG").arg(&["SET", "requirepass", "another"]).exec(&mut connection).unwrap();
    proxy.refuse(false);
    until(|| text().contains("WRONGPASS")).await;
    redis::cmd("CONFIG").arg(&["SET", "requirepass", "a-password"]).exec(&mut connection).unwrap();
    until(|| client.is_connected()).await;
    client.shutdown(Duration::from_secs(5)).await.unwrap();
    let text = text();
    for part in ["disconnected", "lasted=", "away=", &client.id()[..8], &proxy.address()] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(!text.contains("a-password"), "{text}");
}

/// Lets this test's tasks run until something is so.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
