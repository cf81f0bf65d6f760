//! Sentinels that answer what a test wants: how a primary is found and left, and that a deposed one
//! is not used again.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::AsyncBufReadExt;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::io::BufReader;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::sync::broadcast;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::driver::Driver;
use super::driver::SECOND;
use super::driver::count;
use super::redis_server::RedisServer;
use crate::backend::Call;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::redis::RedisConfig;
use crate::backend::redis::addresses::Target;
use crate::backend::redis::calls::CallRequest;
use crate::backend::redis::calls::Calls;
use crate::backend::redis::calls::Connection;
use crate::backend::redis::dial::dial;
use crate::backend::redis::locator::PrimaryTerm;

/// A sentinel with this epoch accepts no argument of PING.
const OF_REDIS_6: u64 = 62;

/// Answers with the primary that it is given. It ends with the test's runtime.
pub(super) struct Sentinel {
    pub(super) port: u16,
    names: Arc<Mutex<(u16, u64)>>,
    announcements: broadcast::Sender<String>,
    asked: Arc<AtomicU64>,
    task: AbortHandle,
}

impl Sentinel {
    pub(super) async fn start(primary: u16, epoch: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (names, asked) = (Arc::new(Mutex::new((primary, epoch))), Arc::<AtomicU64>::default());
        let (announcements, _) = broadcast::channel(8);
        let (named, sender, count) =
            (Arc::clone(&names), announcements.clone(), Arc::clone(&asked));
        let accept = async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(
                    stream,
                    Arc::clone(&named),
                    sender.subscribe(),
                    Arc::clone(&count),
                ));
            }
        };
        Self { port, names, announcements, asked, task: tokio::spawn(accept).abort_handle() }
    }

    fn name(&self, primary: u16, epoch: u64) {
        *self.names.lock().unwrap() = (primary, epoch);
    }

    fn announce(&self, old: u16, new: u16) {
        self.announcements.send(format!("main 127.0.0.1 {old} 127.0.0.1 {new}")).unwrap();
    }

    /// Waits until it has been asked once more from now on.
    async fn is_asked_again(&self) {
        // One question may be in flight already.
        let before = self.asked.load(Ordering::Acquire);
        for _ in 0..2_000 {
            if self.asked.load(Ordering::Acquire) >= before + 2 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the sentinel is not asked again");
    }
}

async fn serve(
    stream: TcpStream,
    names: Arc<Mutex<(u16, u64)>>,
    mut announcements: broadcast::Receiver<String>,
    asked: Arc<AtomicU64>,
) {
    let mut stream = BufReader::new(stream);
    loop {
        let answer = tokio::select! {
            words = command(&mut stream) => match words {
                Some(words) => answer(&words, *names.lock().unwrap(), &asked),
                None => return,
            },
            Ok(text) = announcements.recv() => push(&["message", "+switch-master", &text]),
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn command(stream: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let number: usize = line.strip_prefix('*')?.trim_end().parse().ok()?;
    let mut words = Vec::new();
    for _ in 0..number {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
        let mut word = vec![0; line.strip_prefix('$')?.trim_end().parse::<usize>().ok()? + 2];
        stream.read_exact(&mut word).await.ok()?;
        words.push(String::from_utf8_lossy(&word[..word.len() - 2]).into_owned());
    }
    Some(words)
}

fn answer(words: &[String], (primary, epoch): (u16, u64), asked: &AtomicU64) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["HELLO", ..] => "%1\r\n$5\r\nproto\r\n:3\r\n".to_owned(),
        ["SUBSCRIBE", channel] => format!(">3\r\n$9\r\nsubscribe\r\n{}:1\r\n", bulk(channel)),
        ["PING", _] if epoch == OF_REDIS_6 => {
            "-ERR wrong number of arguments for 'ping' command\r\n".to_owned()
        }
        ["PING", text] => bulk(text),
        ["SENTINEL", "MASTER", "main"] => {
            asked.fetch_add(1, Ordering::Release);
            format!("%1\r\n{}{}", bulk("config-epoch"), bulk(&epoch.to_string()))
        }
        ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"] => {
            format!("*2\r\n{}{}", bulk("127.0.0.1"), bulk(&primary.to_string()))
        }
        ["SENTINEL", "MASTER", _] => "-ERR No such master with that name\r\n".to_owned(),
        ["SENTINEL", ..] => "_\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn push(words: &[&str]) -> String {
    format!(">{}\r\n{}", words.len(), words.iter().map(|word| bulk(word)).collect::<String>())
}

fn url(sentinels: &[&Sentinel]) -> String {
    let places: Vec<String> =
        sentinels.iter().map(|one| format!("127.0.0.1:{}", one.port)).collect();
    format!("redis-sentinel://{}/main", places.join(","))
}

#[tokio::test]
async fn an_announced_primary_is_used_while_others_still_name_the_old_one() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let knowing = Sentinel::start(old.port(), 1).await;
    let late = Sentinel::start(old.port(), 1).await;
    let mut driver = Driver::new(&url(&[&knowing, &late]));
    assert_eq!(driver.both_up().await.address, old.address());

    knowing.name(new.port(), 2);
    knowing.announce(old.port(), new.port());
    driver.down().await;
    driver.pubsub_down().await;
    assert_eq!(driver.both_up().await.address, new.address());
    late.is_asked_again().await;
    // A connection that was meant for the old primary would show now, because it is replaced when
    // it ends.
    driver.backend.reconnect(ServerId::ONLY);
    driver.down().await;
    assert_eq!(driver.up().await.address, new.address());
    driver.close().await;
}

/// The message is lost, or was sent while no client was connected.
#[tokio::test]
async fn a_change_that_nobody_announces_is_found_out_by_asking() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let sentinel = Sentinel::start(old.port(), 1).await;
    let mut driver = Driver::new(&url(&[&sentinel]));
    assert_eq!(driver.both_up().await.address, old.address());
    sentinel.name(new.port(), 2);
    driver.down().await;
    driver.pubsub_down().await;
    assert_eq!(driver.both_up().await.address, new.address());
    driver.close().await;
}

#[tokio::test]
async fn a_sentinel_with_nothing_to_announce_is_asked_now_and_then_only() {
    let server = RedisServer::start();
    let sentinel = Sentinel::start(server.port(), 1).await;
    let mut driver = Driver::new(&url(&[&sentinel]));
    driver.both_up().await;
    let before = sentinel.asked.load(Ordering::Acquire);
    driver.listen(Duration::from_secs(1)).await;
    let asked = sentinel.asked.load(Ordering::Acquire) - before;
    assert!(asked <= 3, "{asked} times in a second");
    driver.close().await;
}

#[tokio::test]
async fn a_replica_is_asked_about_until_it_is_the_primary_or_another_is_named() {
    let (primary, replica) = (RedisServer::start(), RedisServer::start());
    let replicate = |of: &str, port: &str| {
        let mut command = redis::cmd("REPLICAOF");
        command.arg(of).arg(port).query::<String>(&mut replica.connection()).unwrap()
    };
    replicate("127.0.0.1", &primary.port().to_string());
    let sentinel = Sentinel::start(replica.port(), 1).await;
    let mut driver = Driver::new(&url(&[&sentinel]));
    for _ in 0..3 {
        let failure = driver.connect_failed().await;
        assert_eq!(failure.kind, FailureKind::ReadOnly, "{failure}");
        assert!(failure.message.contains("replica"), "{failure}");
    }
    sentinel.name(primary.port(), 2);
    assert_eq!(driver.up().await.address, primary.address());
    driver.close().await;
}

#[tokio::test]
async fn who_was_asked_is_said_when_none_answers() {
    let away = Sentinel::start(1, 1).await;
    away.task.abort();
    while !away.task.is_finished() {
        tokio::task::yield_now().await;
    }
    let mut driver =
        Driver::new(&format!("redis-sentinel://127.0.0.1:1,127.0.0.1:{}/main", away.port));
    let failure = driver.connect_failed().await;
    assert_eq!(failure.kind, FailureKind::NoListener);
    for words in ["127.0.0.1:1 (", &format!("127.0.0.1:{} (", away.port), "\"main\""] {
        assert!(failure.message.contains(words), "{failure}");
    }
    driver.close().await;
}

#[tokio::test]
async fn a_sentinel_of_redis_6_takes_no_argument_of_ping() {
    let server = RedisServer::start();
    let sentinel = Sentinel::start(server.port(), OF_REDIS_6).await;
    let mut driver = Driver::new(&url(&[&sentinel]));
    let up = tokio::time::timeout(10 * SECOND, driver.both_up()).await;
    assert_eq!(up.expect("named").address, server.address());
    // From here on no new connection is accepted, so the question comes over the present one.
    sentinel.task.abort();
    sentinel.is_asked_again().await;
    driver.close().await;
}

#[tokio::test]
async fn an_unknown_primary_is_named() {
    let sentinel = Sentinel::start(1, 1).await;
    let mut driver = Driver::new(&url(&[&sentinel]).replace("/main", "/other"));
    let failure = driver.connect_failed().await;
    assert_eq!(failure.kind, FailureKind::Unsupported, "{failure}");
    assert!(failure.message.contains("\"other\""), "{failure}");
    driver.close().await;
}

/// The moment between the news of a new primary and the end of the old connection.
#[tokio::test]
async fn what_a_deposed_primary_answers_is_no_answer() {
    let server = RedisServer::start();
    let config = RedisConfig::parse(&server.url()).unwrap();
    let changes = Arc::new(AtomicU64::new(1));
    let mut calls = Calls::new(None, config.budgets());
    calls.connected(Connection {
        wire: dial(&config, &Target::Tcp(server.address().parse().unwrap()), 1).await.unwrap(),
        ended: oneshot::channel().0,
        end: Arc::new(Notify::new()),
        round_trip: Duration::ZERO,
        term: PrimaryTerm::now(&changes),
        asks_again: false,
    });
    calls.submit(OpId(1), CallRequest::Call(Call::Time), SECOND);
    let answer = std::future::poll_fn(|cx| calls.poll_answer(cx)).await;
    assert!(matches!(answer, (OpId(1), Outcome::Done(_))), "{answer:?}");

    calls.submit(OpId(2), CallRequest::Call(count("n")), SECOND);
    changes.fetch_add(1, Ordering::Release);
    let answer = std::future::poll_fn(|cx| calls.poll_answer(cx)).await;
    assert!(matches!(answer, (OpId(2), Outcome::Unknown(_))), "{answer:?}");
    calls.submit(OpId(3), CallRequest::Call(count("n")), SECOND);
    let answer = std::future::poll_fn(|cx| calls.poll_answer(cx)).await;
    assert!(matches!(answer, (OpId(3), Outcome::NotExecuted(_))), "{answer:?}");
}
