//! Input that is not allowed, and servers that are not what they should be: each has a typed error
//! that says what was wrong and what is allowed, and nothing is changed or sent.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::io::Write;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Connection;
use redis_reentrant_lock::CredentialProvider;
use redis_reentrant_lock::Credentials;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockClientBuilder;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::ReentrantLock;
use tokio::time::timeout;

use crate::support::hearing::hear;
use crate::support::look;
use crate::support::proxy::Fault;
use crate::support::proxy::FaultProxy;
use crate::support::redis_server::RedisServer;
use crate::support::redis_server::free_port;
use crate::support::settle::leaves_nothing;

const NAME: &str = "orders:42";
const BOUND: Duration = Duration::from_secs(10);
const SECRET: &str = "hunter2";

/// A client, and what the server had and had run before the test's own doing.
struct World {
    server: RedisServer,
    client: LockClient,
    connection: Connection,
}

impl World {
    async fn new() -> Self {
        let server = RedisServer::start();
        let client = LockClient::connect(&server.url()).await.unwrap();
        let connection = server.connection();
        Self { server, client, connection }
    }

    fn runs(&mut self) -> u64 {
        look::script_runs(&mut self.connection)
    }
}

fn says(error: &Error, parts: &[&str]) {
    for part in parts {
        assert!(error.to_string().contains(part), "`{error}` does not say `{part}`");
    }
    assert!(error.is_config() && !error.is_transient() && !error.is_lost(), "{error:?}");
}

#[tokio::test]
async fn names() {
    let mut world = World::new().await;
    let before = (world.runs(), look::dump(&mut world.connection));
    let (too_long, huge) = ("x".repeat(513), "x".repeat(1 << 20));
    let refused = [
        ("", "it is empty; 1 to 512 bytes are allowed"),
        (&*too_long, "it has 513 bytes; 1 to 512 are allowed"),
        (&*huge, "it has 1048576 bytes; 1 to 512 are allowed"),
        ("a\0b", "control character \\u{0}"),
        ("a\nb", "control character \\u{a}"),
        ("a\r\nSET x 1", "control character \\u{d}"),
        ("a\u{85}", "control character \\u{85}"),
        ("{}x", "a non-empty {tag}"),
        ("a{b", "a non-empty {tag}"),
        ("a}b", "a non-empty {tag}"),
        ("a{}{b}", "a non-empty {tag}"),
    ];
    for (name, words) in refused {
        let errors =
            [world.client.reentrant_lock(name).unwrap_err(), world.client.mutex(name).unwrap_err()];
        for error in errors {
            assert!(matches!(error, Error::InvalidName { .. }), "{error:?}");
            says(&error, &[words]);
            assert!(error.to_string().len() < 1_000, "a long name is cut");
            assert!(!error.to_string().contains(char::is_control), "and escaped: {error}");
        }
    }
    assert_eq!((world.runs(), look::dump(&mut world.connection)), before);
    for name in ["{a}b", "a{b}c", "x", " ", "ü:🔒", "%", "a:b,c'd\"e", &"x".repeat(512)] {
        let lock = world.client.reentrant_lock(name).unwrap();
        let guard = lock.lock().await.unwrap();
        assert_eq!(look::lock_keys(&mut world.connection), [name]);
        guard.unlock().await.unwrap();
    }
    leaves_nothing(&world.server, &world.client).await;
}

/// The corpus as the server sees it: one key for each that is accepted, nothing sent for the
/// others.
#[tokio::test]
async fn every_name_of_the_corpus_has_one_key() {
    let mut world = World::new().await;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/names.json");
    let all: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let list = |word: &str| all[word].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
    let before = (world.runs(), look::dump(&mut world.connection));
    for name in list("refused") {
        let error = world.client.reentrant_lock(name).expect_err(name);
        assert!(matches!(error, Error::InvalidName { .. }), "{error:?}");
    }
    assert_eq!((world.runs(), look::dump(&mut world.connection)), before);
    let mut guards = Vec::new();
    for name in list("accepted") {
        let guard = world.client.mutex(name).unwrap().try_lock().await.unwrap();
        guards.push(guard.unwrap_or_else(|_| panic!("{name:?} shares a key")));
    }
    let mut keys = look::lock_keys(&mut world.connection);
    let mut wanted: Vec<&str> = list("accepted").collect();
    wanted.sort_unstable();
    keys.sort_unstable();
    assert_eq!(keys, wanted);
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    leaves_nothing(&world.server, &world.client).await;
}

#[tokio::test]
async fn leases_and_limits_of_a_hold() {
    let mut world = World::new().await;
    let lock = world.client.reentrant_lock(NAME).unwrap();
    let before = (world.runs(), look::dump(&mut world.connection));
    let day = Duration::from_secs(86_400);
    for bad in
        [Duration::ZERO, Duration::from_micros(9_999), day + Duration::from_nanos(1), Duration::MAX]
    {
        for (what, options) in [
            ("lease", LockOptions::new().lease(bad)),
            ("max_hold", LockOptions::new().max_hold(bad)),
        ] {
            let error = lock.lock_with(options).await.unwrap_err();
            assert!(matches!(error, Error::InvalidOption { .. }), "{error:?}");
            says(&error, &[what, &format!("{bad:?}"), "10 ms to 24 h"]);
        }
    }
    assert_eq!((world.runs(), look::dump(&mut world.connection)), before);
    for good in [Duration::from_millis(10), day] {
        let options = LockOptions::new().lease(good).max_hold(day);
        // The shortest may be over before it is known.
        if let Ok(guard) = lock.lock_with(options).await {
            drop(guard);
        }
    }
    leaves_nothing(&world.server, &world.client).await;
}

#[tokio::test]
async fn waits_of_any_length() {
    let mut world = World::new().await;
    let lock = world.client.reentrant_lock(NAME).unwrap();
    let endless = LockOptions::new().wait(Duration::MAX);
    let guard = lock.try_lock_for(Duration::MAX).await.unwrap().expect("free");
    guard.unlock().await.unwrap();
    lock.lock_with(endless).await.unwrap().expect("free").unlock().await.unwrap();
    lock.try_lock_for(Duration::ZERO).await.unwrap().expect("free").unlock().await.unwrap();

    let other = LockClient::connect(&world.server.url()).await.unwrap();
    let held = other.mutex(NAME).unwrap().lock().await.unwrap();
    let before = world.runs();
    assert!(lock.try_lock_for(Duration::ZERO).await.unwrap().is_err());
    assert!(lock.lock_with(LockOptions::new().wait(Duration::ZERO)).await.unwrap().is_err());
    assert_eq!(world.runs() - before, 2, "no wait is one attempt");
    let waiting = tokio::spawn(async move { lock.lock_with(endless).await });
    while world.client.stats().waiters == 0 {
        tokio::task::yield_now().await;
    }
    held.unlock().await.unwrap();
    let guard = timeout(BOUND, waiting).await.unwrap().unwrap().unwrap().expect("free again");
    guard.ensure(Duration::MAX).unwrap_err();
    guard.unlock().await.unwrap();
    leaves_nothing(&world.server, &world.client).await;
}

type Setter = fn(LockClientBuilder, Duration) -> LockClientBuilder;

#[tokio::test]
async fn settings_of_a_client() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let connections = |connection: &mut Connection| {
        let info: String = redis::cmd("INFO").arg("stats").query(connection).unwrap();
        info.lines().find(|line| line.starts_with("total_connections_received")).unwrap().to_owned()
    };
    let before = connections(&mut connection);
    let short = Duration::from_millis(10);
    let day = Duration::from_secs(86_400);
    let table: [(&str, Setter, Duration, &str); 4] = [
        ("lease", LockClientBuilder::lease, day, "10 ms to 24 h"),
        (
            "command_timeout",
            LockClientBuilder::command_timeout,
            Duration::from_secs(60),
            "10 ms to 1 min",
        ),
        ("outage_limit", LockClientBuilder::outage_limit, day, "10 ms to 24 h"),
        ("connect_timeout", LockClientBuilder::connect_timeout, day, "10 ms to 24 h"),
    ];
    for (what, set, longest, allowed) in table {
        let tiny = Duration::from_nanos(1);
        for bad in [Duration::ZERO, short - tiny, longest + tiny, Duration::MAX] {
            let error =
                set(LockClient::builder().url(server.url()), bad).connect().await.unwrap_err();
            assert!(matches!(error, Error::InvalidOption { .. }), "{error:?}");
            says(&error, &[what, &format!("{bad:?}"), allowed]);
        }
    }
    assert_eq!(connections(&mut connection), before, "nobody connected");
    for (_, set, longest, _) in table {
        for good in [short, longest] {
            let client = set(LockClient::builder().url(server.url()), good).connect_lazy().unwrap();
            client.shutdown(BOUND).await.unwrap();
        }
    }
    let error = LockClient::builder().connect().await.unwrap_err();
    says(&error, &["none was given", "url"]);
}

/// What may be under a key that is no lock, planted by commands, and how the error calls it.
fn strangers() -> Vec<(&'static [&'static [&'static str]], &'static str)> {
    const NOT_A_HASH: &str =
        "a value that is not a hash, such as a latch or a semaphore of Redisson, which are strings";
    const FIELD: &str = "6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731";
    vec![
        (&[&["SET", NAME, "text"]], NOT_A_HASH),
        (&[&["RPUSH", NAME, "a", "b"]], NOT_A_HASH),
        (&[&["SADD", NAME, "a"]], NOT_A_HASH),
        (&[&["ZADD", NAME, "1", "a"]], NOT_A_HASH),
        (&[&["XADD", NAME, "*", "a", "b"]], NOT_A_HASH),
        (
            &[&["HSET", NAME, "colour", "red"], &["PEXPIRE", NAME, "60000"]],
            "a hash whose field is not a lock holder",
        ),
        (&[&["HSET", NAME, "colour", "red"]], "a hash whose field is not a lock holder"),
        (
            &[&["HSET", NAME, "a", "1", "b", "2"], &["PEXPIRE", NAME, "60000"]],
            "a hash with several fields",
        ),
        (
            &[&["HSET", NAME, FIELD, "1", "x", "2"], &["PEXPIRE", NAME, "60000"]],
            "a hash with several fields",
        ),
        (&[&["HSET", NAME, "mode", "read"]], "a read-write lock"),
        (&[&["HSET", NAME, "kind", "latch", "count", "3"]], "a count-down latch"),
        (&[&["HSET", NAME, "kind", "semaphore", "permits", "3"]], "a semaphore"),
        (&[&["HSET", NAME, "kind", "semaphore"], &["PEXPIRE", NAME, "60000"]], "a semaphore"),
        (
            &[&["HSET", NAME, "mode", "read", FIELD, "1"], &["PEXPIRE", NAME, "60000"]],
            "a read-write lock",
        ),
    ]
}

fn plant(connection: &mut Connection, commands: &[&[&str]]) {
    redis::cmd("FLUSHALL").exec(connection).unwrap();
    for command in commands {
        redis::cmd(command[0]).arg(&command[1..]).exec(connection).unwrap();
    }
}

async fn everything(lock: &ReentrantLock) -> Vec<(&'static str, Error)> {
    let wait = Duration::from_secs(1);
    vec![
        ("lock", lock.lock().await.unwrap_err()),
        ("try_lock", lock.try_lock().await.unwrap_err()),
        ("try_lock_for", lock.try_lock_for(wait).await.unwrap_err()),
        ("lock_with", lock.lock_with(LockOptions::new().lease(wait)).await.unwrap_err()),
        ("is_locked", lock.is_locked().await.unwrap_err()),
        ("holder", lock.holder().await.unwrap_err()),
        ("remaining_lease", lock.remaining_lease().await.unwrap_err()),
        ("force_unlock", lock.force_unlock().await.unwrap_err()),
    ]
}

#[tokio::test]
async fn a_key_in_other_use() {
    let mut world = World::new().await;
    let lock = world.client.reentrant_lock(NAME).unwrap();
    for (commands, words) in strangers() {
        plant(&mut world.connection, commands);
        let before = look::dump(&mut world.connection);
        assert_eq!(before.len(), 1);
        for (what, error) in everything(&lock).await {
            assert!(matches!(error, Error::KeyConflict { .. }), "{commands:?} {what}: {error:?}");
            says(&error, &[NAME, &format!("used for something else: {words};"), "left untouched"]);
        }
        assert_eq!(look::dump(&mut world.connection), before, "{commands:?}");
    }
    redis::cmd("DEL").arg(NAME).exec(&mut world.connection).unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    leaves_nothing(&world.server, &world.client).await;
}

#[tokio::test]
async fn a_fence_counter_in_other_use() {
    let mut world = World::new().await;
    let lock = world.client.reentrant_lock(NAME).unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    let fence = look::dump(&mut world.connection).into_keys().next().expect("the fence counter");
    let garbage: [&[&str]; 7] = [
        &["SET", &fence, "abc"],
        &["SET", &fence, ""],
        &["SET", &fence, "1.5"],
        &["SET", &fence, "-1"],
        &["SET", &fence, "9007199254740993"],
        &["RPUSH", &fence, "1"],
        &["HSET", &fence, "1", "1"],
    ];
    for command in garbage {
        plant(&mut world.connection, &[command]);
        let before = look::dump(&mut world.connection);
        for error in [lock.lock().await.unwrap_err(), lock.try_lock().await.unwrap_err()] {
            assert!(matches!(error, Error::KeyConflict { .. }), "{command:?}: {error:?}");
            says(&error, &["fence counter", &fence, "left untouched"]);
        }
        assert!(!lock.is_locked().await.unwrap(), "the key itself is free");
        assert!(!lock.force_unlock().await.unwrap());
        assert_eq!(look::dump(&mut world.connection), before, "{command:?}");
    }
    // A hold from before goes on, and ends.
    plant(&mut world.connection, &[]);
    let guard = lock.lock().await.unwrap();
    redis::cmd("SET").arg(&fence).arg("abc").exec(&mut world.connection).unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    guard.verify().await.unwrap();
    guard.unlock().await.unwrap();
    leaves_nothing(&world.server, &world.client).await;
}

// ---- servers

async fn refused(url: &str) -> Error {
    let builder = LockClient::builder().url(url).connect_timeout(Duration::from_secs(8));
    let error =
        timeout(BOUND, builder.connect()).await.expect("within the connect timeout").unwrap_err();
    assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");
    error
}

#[tokio::test]
async fn addresses() {
    let urls = [
        ("", "scheme"),
        ("nonsense", "scheme"),
        ("http://127.0.0.1", "scheme"),
        ("redis://", "host"),
        ("redis://127.0.0.1:0", "1 to 65535"),
        ("redis://127.0.0.1:65536", "1 to 65535"),
        ("redis://127.0.0.1:port", "1 to 65535"),
        ("redis://127.0.0.1/256", "0 to 255"),
        ("redis://127.0.0.1/db", "0 to 255"),
        ("redis://127.0.0.1/1?db=2", "two databases"),
        ("redis://127.0.0.1?wait=1", "allowed are db and protocol"),
        ("redis://hunter2@127.0.0.1", "user:password@"),
        ("redis://u:hunter2@@127.0.0.1", "%40"),
        #[cfg(not(any(feature = "rustls", feature = "native-tls")))]
        ("rediss://u:hunter2@127.0.0.1", "feature `rustls` or `native-tls`"),
    ];
    for (url, words) in urls {
        for error in [refused(url).await, LockClient::connect_lazy(url).unwrap_err()] {
            assert!(matches!(error, Error::InvalidUrl { .. }), "{url}: {error:?}");
            says(&error, &[words]);
        }
    }
}

#[tokio::test]
async fn servers_that_cannot_be_reached() {
    let nobody = RedisServer::not_started(&[]);
    for url in [
        nobody.url(),
        "redis://no-such-host.invalid".to_owned(),
        "unix:///no/such/socket".to_owned(),
    ] {
        let limit = Duration::from_millis(300);
        let builder = LockClient::builder().url(&url).connect_timeout(limit);
        let error = timeout(BOUND, builder.connect()).await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }) && error.is_transient(), "{error:?}");
        let place = url.split("//").nth(1).unwrap();
        assert!(error.to_string().contains(&format!("tried {place}")), "{error}");
    }
}

#[tokio::test]
async fn logins() {
    let server = RedisServer::with(&["--requirepass", "secret"]);
    let place = server.address();
    for login in ["", ":hunter2@", "default:hunter2@", "nobody:hunter2@", "nobody:secret@"] {
        let error = refused(&format!("redis://{login}{place}")).await;
        assert!(matches!(error, Error::Auth { .. }), "{login}: {error:?}");
        let words = if login.is_empty() { "NOAUTH" } else { "WRONGPASS" };
        says(&error, &[words, &place]);
    }
    let client = LockClient::connect(&format!("redis://default:secret@{place}")).await.unwrap();
    client.ping().await.unwrap();
    client.shutdown(BOUND).await.unwrap();
}

#[tokio::test]
async fn a_password_that_the_server_has_not_is_refused_in_resp2_only() {
    let server = RedisServer::start();
    let url = format!("redis://:wrong@{}", server.address());
    let error = refused(&url).await;
    assert!(matches!(error, Error::Auth { .. }), "{error:?}");
    LockClient::connect(&format!("{url}?protocol=resp3"))
        .await
        .unwrap()
        .shutdown(BOUND)
        .await
        .unwrap();
}

#[tokio::test]
async fn where_no_server_is_the_error_says_so_in_the_systems_words() {
    let address = format!("127.0.0.1:{}", free_port());
    let builder = LockClient::builder().url(format!("redis://{address}"));
    let error = builder.connect_timeout(Duration::from_millis(300)).connect().await.unwrap_err();
    let words = error.to_string();
    assert!(words.contains(&format!("tried {address}: Connection refused (os error ")), "{words}");
    assert!(words.matches(&address).count() == 1 && !words.contains("pub/sub"), "{words}");
}

#[tokio::test]
async fn databases_roles_and_versions() {
    let server = RedisServer::start();
    let error = refused(&format!("{}/16", server.url())).await;
    says(&error, &["database", "out of range", &server.address()]);
    LockClient::connect(&format!("{}/15", server.url()))
        .await
        .unwrap()
        .shutdown(BOUND)
        .await
        .unwrap();

    let replica = RedisServer::with(&["--replicaof", "127.0.0.1", &server.port().to_string()]);
    let error = refused(&replica.url()).await;
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    says(&error, &["a replica", "primary", &replica.address()]);

    let proxy = FaultProxy::start(&server.address());
    let info = "# Server\r\nredis_version:6.0.16\r\nrun_id:0123\r\n";
    let forged = format!("${}\r\n{info}\r\n", info.len());
    proxy.nth("INFO", 0, 100, Fault::Answer(forged.into_bytes()));
    let error = refused(&proxy.url()).await;
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    says(&error, &["version 6.0.16", "Redis 6.2", &proxy.address()]);
    assert!(look::dump(&mut server.connection()).is_empty());
}

// ---- the password

/// Everything that is logged, by everybody, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn subscriber(&self) -> impl tracing::Subscriber + Send + Sync + 'static {
        let log = self.clone();
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || log.clone())
            .finish()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

#[tokio::test]
async fn the_password_is_nowhere_to_be_read() {
    let server = RedisServer::with(&["--requirepass", SECRET]);
    let (good, wrong) = (format!("redis://:{SECRET}@{}", server.address()), SECRET.repeat(2));
    let bad = format!("redis://user:{wrong}@{}", server.address());
    let [good3, bad3] = [&good, &bad].map(|url| format!("{url}?protocol=resp3"));
    let nobody = format!("redis://:{SECRET}@{}", RedisServer::not_started(&[]).address());
    let log = Log::default();
    let mut shown: BTreeMap<&str, String> = BTreeMap::new();
    let work = async {
        // On this runtime, so that all of it is logged here.
        let builder = |url: &str| {
            let limit = Duration::from_millis(500);
            LockClient::builder()
                .url(url)
                .driver(redis_reentrant_lock::Driver::Current)
                .connect_timeout(limit)
        };
        shown.insert("builder", both(&builder(&good)));
        let client = builder(&good).connect().await.unwrap();
        let lock = client.reentrant_lock(NAME).unwrap();
        let guard = lock.lock().await.unwrap();
        shown.insert("client", both(&(&client, &lock, &guard, client.stats())));
        guard.unlock().await.unwrap();
        client.shutdown(BOUND).await.unwrap();
        builder(&good3).connect().await.unwrap().shutdown(BOUND).await.unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let provider = |password: String| {
            let asked = Arc::clone(&asked);
            CredentialProvider::new(move || {
                asked.fetch_add(1, Ordering::Relaxed);
                let credentials =
                    Credentials::new("", &password).valid_for(Duration::from_millis(100));
                async move { Ok::<_, io::Error>(credentials) }
            })
        };
        let provided = builder(&server.url()).credentials(provider(SECRET.to_owned()));
        shown.insert("provider", both(&(&provided, Credentials::new("", SECRET))));
        let client = provided.connect().await.unwrap();
        // Logged in anew on the live connection, too.
        while asked.load(Ordering::Relaxed) < 6 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        client.shutdown(BOUND).await.unwrap();
        let refused = builder(&server.url()).credentials(provider(wrong.clone()));
        shown.insert("refused", both(&refused.connect().await.unwrap_err()));
        for (what, url) in [("wrong", &bad), ("wrong 3", &bad3), ("nobody", &nobody)] {
            let error = builder(url).connect().await.unwrap_err();
            shown.insert(what, format!("{error} {error:?} {error:#?}"));
        }
    };
    let subscribed = hear(log.subscriber());
    work.await;
    drop(subscribed);
    for (what, text) in &shown {
        assert!(!text.contains(SECRET), "{what}: {text}");
    }
    let text = log.text();
    assert!(text.contains("granted") && text.contains("DEBUG"), "the log is on: {text}");
    let line = text.lines().find(|line| line.contains(SECRET));
    assert!(line.is_none(), "{line:?}");
}

fn both(value: &impl fmt::Debug) -> String {
    format!("{value:?} {value:#?}")
}
