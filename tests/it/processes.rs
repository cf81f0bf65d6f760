//! The lock between processes: puppets against a private server.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use serde_json::Value;

use crate::support::look;
use crate::support::proxy::Direction;
use crate::support::proxy::FaultProxy;
use crate::support::puppet::Puppet;
use crate::support::redis_server::RedisServer;
use crate::support::redis_server::eventually;
use crate::support::redis_server::pause;

/// MONITOR on a connection of its own.
struct Monitor(BufReader<TcpStream>);

impl Monitor {
    fn start(server: &RedisServer) -> Self {
        let mut stream = TcpStream::connect(server.address()).expect("a connection");
        stream.write_all(b"MONITOR\r\n").expect("written");
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        lines.read_line(&mut line).expect("+OK");
        assert_eq!(line.trim(), "+OK");
        Self(lines)
    }

    /// The commands of clients up to `ECHO mark`, those inside scripts left out.
    fn until(&mut self, connection: &mut redis::Connection, mark: &str) -> Vec<String> {
        let _: String = redis::cmd("ECHO").arg(mark).query(connection).expect("ECHO");
        let mut seen = Vec::new();
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("a line");
            if line.contains(mark) {
                return seen;
            }
            if !line.contains(" lua]") {
                seen.push(line.trim().to_owned());
            }
        }
    }
}

fn scripts(lines: &[String]) -> usize {
    lines.iter().filter(|line| line.to_uppercase().contains("\"EVAL")).count()
}

#[test]
fn a_pair_is_two_scripts_and_a_nested_pair_four() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let mut puppet = Puppet::start(&server.url(), &[]);
    puppet.run("w lock pair owner=o");
    puppet.run("wu unlock w");

    let mut monitor = Monitor::start(&server);
    puppet.run("a lock pair owner=o");
    puppet.run("au unlock a");
    let seen = monitor.until(&mut connection, "mark-1");
    assert_eq!(scripts(&seen), 2, "{seen:#?}");
    assert!(seen.iter().all(|line| line.contains("EVALSHA") || line.contains("PING")), "{seen:#?}");

    puppet.run("b lock pair owner=o");
    let inner = puppet.run("c lock pair owner=o");
    assert_eq!(inner["count"], 2);
    puppet.run("cu unlock c");
    puppet.run("bu unlock b");
    let seen = monitor.until(&mut connection, "mark-2");
    assert_eq!(scripts(&seen), 4, "{seen:#?}");
    puppet.finish();
}

#[test]
fn a_hundred_waiters_behind_a_foreign_hold_are_one_to_the_server() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let holder = "6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731";
    let _: () = redis::cmd("HSET").arg("crowd").arg(holder).arg(1).query(&mut connection).unwrap();
    let _: () = redis::cmd("PEXPIRE").arg("crowd").arg(3_600_000).query(&mut connection).unwrap();
    let mut puppet = Puppet::start(&server.url(), &[]);
    puppet.send_all((0..100).map(|number| format!("w{number} lock crowd")));
    for number in 0..100 {
        let id = format!("w{number}");
        puppet.wait("waiting", |event| event["event"] == "waiting" && event["id"] == id);
    }
    // The window of the promise: 20 s, beginning 3 s after the last was sent.
    pause(Duration::from_secs(3));
    let before = look::script_runs(&mut connection);
    pause(Duration::from_secs(20));
    let runs = look::script_runs(&mut connection) - before;
    assert!(runs <= 5, "{runs} script runs in 20 s");
    assert_eq!(look::subscribers(&mut connection, "redisson_lock__channel__{crowd}"), 1);

    let _: () = redis::cmd("DEL").arg("crowd").query(&mut connection).unwrap();
    let _: () = redis::cmd("PUBLISH")
        .arg("redisson_lock__channel__{crowd}")
        .arg("0")
        .query(&mut connection)
        .unwrap();
    puppet.wait("one grant", |event| event["event"] == "granted");
    let own = look::hash(&mut connection, "crowd");
    assert_eq!(own.len(), 1);
    pause(Duration::from_millis(500));
    assert!(puppet.drain(|event| event["event"] == "granted").is_empty(), "a second grant");
    assert_eq!(look::hash(&mut connection, "crowd"), own);
}

#[test]
fn a_killed_holder_is_taken_over_with_a_larger_token() {
    let server = RedisServer::start();
    let mut holder = Puppet::start(&server.url(), &["lease_ms=1000"]);
    let mut waiter = Puppet::start(&server.url(), &["lease_ms=1000"]);
    let first = holder.run("a lock take-over");
    waiter.send("b lock take-over");
    waiter.wait("waiting", |event| event["event"] == "waiting");
    // Longer than the lease: the watchdog keeps it.
    pause(Duration::from_millis(2_500));
    assert!(waiter.drain(|event| event["event"] == "granted").is_empty());
    holder.kill();
    let second = waiter.end_of("b");
    assert_eq!(second["event"], "granted", "{second}");
    assert!(second["token"].as_u64() > first["token"].as_u64(), "{first} {second}");
}

#[test]
fn a_blocked_runtime_loses_no_hold() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let mut puppet = Puppet::start(&server.url(), &["driver=thread", "lease_ms=2000"]);
    let names: Vec<String> = (0..20).map(|number| format!("blocked-{number}")).collect();
    for name in &names {
        assert_eq!(puppet.run(&format!("{name} lock {name}"))["event"], "granted");
    }
    let held: Vec<_> = names.iter().map(|name| look::hash(&mut connection, name)).collect();
    puppet.run("block block 6000");
    for name in &names {
        assert_eq!(puppet.run(&format!("g-{name} guard {name}"))["state"], "held");
    }
    let still: Vec<_> = names.iter().map(|name| look::hash(&mut connection, name)).collect();
    assert_eq!(held, still, "the same holds, never taken anew");
    assert!(puppet.drain(|event| event["event"] == "lost").is_empty());
}

#[test]
fn a_frozen_holder_says_lost_first() {
    let server = RedisServer::start();
    for driver in ["driver=thread", "driver=current"] {
        let mut frozen = Puppet::start(&server.url(), &[driver, "lease_ms=500"]);
        let mut other = Puppet::start(&server.url(), &[]);
        frozen.run("a lock frozen");
        frozen.signal("-STOP");
        assert_eq!(other.run("b lock frozen")["event"], "granted");
        frozen.signal("-CONT");
        let next = frozen.next_line();
        assert_eq!(
            (&next["event"], &next["id"]),
            (&Value::from("lost"), &Value::from("a")),
            "{next}"
        );
        other.run("bu unlock b");
    }
}

#[test]
fn ten_thousand_dropped_guards_leave_no_key_to_its_ttl() {
    const GUARDS: usize = 10_000;
    let server = RedisServer::start();
    let mut connection = server.connection();
    let mut puppet = Puppet::start(&server.url(), &["lease_ms=3600000"]);
    puppet.send_all((0..GUARDS).map(|number| format!("g{number} lock many-{number}")));
    for _ in 0..GUARDS {
        puppet.wait("a grant", |event| event["event"] == "granted");
    }
    assert_eq!(look::lock_keys(&mut connection).len(), GUARDS);
    puppet.send_all((0..GUARDS).map(|number| format!("d{number} drop g{number}")));
    for _ in 0..GUARDS {
        puppet.wait("dropped", |event| event["event"] == "dropped");
    }
    // Their lease is an hour: whatever goes, goes by a release.
    eventually("all keys are gone", || look::lock_keys(&mut connection).is_empty());
    let stats = puppet.run("s stats");
    assert_eq!(stats["counters"]["failed_drop_releases"], 0, "{stats}");
    puppet.finish();
}

#[test]
fn a_restart_without_persistence_is_told_to_every_guard() {
    let mut server = RedisServer::start();
    let mut puppet = Puppet::start(&server.url(), &[]);
    puppet.send_all((0..50).map(|number| format!("a{number} lock restart-{number}")));
    puppet.send_all(
        (0..50).map(|number| format!("f{number} lock restart-fixed-{number} lease_ms=3600000")),
    );
    for _ in 0..100 {
        puppet.wait("a grant", |event| event["event"] == "granted");
    }
    server.restart();
    let mut lost = BTreeSet::new();
    for _ in 0..100 {
        let event = puppet.wait("lost", |event| event["event"] == "lost");
        assert_eq!(event["reason"], "server_lost_data", "{event}");
        lost.insert(event["id"].as_str().expect("an id").to_owned());
    }
    assert_eq!(lost.len(), 100, "each guard once");
}

#[test]
fn a_client_is_shut_down_at_the_end_of_its_input() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let mut puppet = Puppet::start(&server.url(), &[]);
    for number in 0..10 {
        puppet.run(&format!("a{number} lock end-{number}"));
    }
    puppet.finish();
    assert!(look::lock_keys(&mut connection).is_empty());
    eventually("no connection is left", || {
        let clients: String =
            redis::cmd("CLIENT").arg("LIST").query(&mut connection).expect("CLIENT LIST");
        clients.lines().count() == 1
    });
}

/// How often each client of a crowd has the lock, of so many times. Clients stand for processes
/// here: two of them never share owners, holds or connections.
async fn shares(urls: &[String], all: usize, kept: Duration) -> Vec<usize> {
    let granted = Arc::new(AtomicUsize::new(0));
    let mut clients = Vec::new();
    for url in urls {
        clients.push(LockClient::connect(url).await.expect("a client"));
    }
    let workers = clients.iter().map(|client| {
        let (lock, granted) = (client.mutex("kept").expect("a name"), Arc::clone(&granted));
        async move {
            let mut own = 0;
            loop {
                let guard = lock.lock().await.expect("the lock");
                if granted.fetch_add(1, Ordering::Relaxed) >= all {
                    return own;
                }
                own += 1;
                tokio::time::sleep(kept).await;
                guard.unlock().await.expect("released");
            }
        }
    });
    futures::future::join_all(workers).await
}

/// Longer than the turn of another takes.
#[tokio::test]
async fn clients_that_keep_the_lock_for_a_while_take_turns() {
    const CLIENTS: usize = 20;
    const ALL: usize = 10 * CLIENTS;
    let server = RedisServer::start();
    let shares = shares(&vec![server.url(); CLIENTS], ALL, Duration::from_millis(20)).await;
    println!("{shares:?}");
    assert!(shares.iter().all(|own| own * CLIENTS * 4 >= ALL), "{shares:?}");
}

/// Whoever is near would be back before a message has reached it and its answer the server.
#[tokio::test]
async fn a_client_that_is_far_away_gets_its_turn() {
    const ALL: usize = 400;
    let server = RedisServer::start();
    let far = FaultProxy::start(&server.address());
    for way in [Direction::Up, Direction::Down] {
        far.delay(way, Duration::from_millis(3));
    }
    let urls = [server.url(), server.url(), server.url(), far.url()];
    let shares = shares(&urls, ALL, Duration::from_millis(20)).await;
    println!("{shares:?}");
    assert!(shares.iter().all(|own| own * urls.len() * 20 >= ALL), "{shares:?}");
}
