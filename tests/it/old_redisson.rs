//! The profile `Native` beside Redisson before 3.2, by a client that speaks exactly its protocol.
//! The Java client itself is run by `cargo xtask interop`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use redis::Connection;

use crate::support::look;
use crate::support::puppet::Puppet;
use crate::support::redis_server::RedisServer;
use crate::support::redis_server::eventually;

/// The scripts of Redisson 3.1.0, to the letter.
const ACQUIRE: &str = "if (redis.call('exists', KEYS[1]) == 0) then redis.call('hset', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; return redis.call('pttl', KEYS[1]);";
const UNLOCK: &str = "if (redis.call('exists', KEYS[1]) == 0) then redis.call('publish', KEYS[2], ARGV[1]); return 1; end;if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil;end; local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); return 0; else redis.call('del', KEYS[1]); redis.call('publish', KEYS[2], ARGV[1]); return 1; end; return nil;";
const FORCE_UNLOCK: &str = "if (redis.call('del', KEYS[1]) == 1) then redis.call('publish', KEYS[2], ARGV[1]); return 1 else return 0 end";

const LEASE_MS: u64 = 30_000;

fn script(text: &str, keys: &[&str]) -> redis::Cmd {
    let mut call = redis::cmd("EVAL");
    call.arg(text).arg(keys.len()).arg(keys);
    call
}

fn acquire(connection: &mut Connection, name: &str, field: &str) -> Option<i64> {
    script(ACQUIRE, &[name]).arg(LEASE_MS).arg(field).query(connection).expect("acquire")
}

/// One thread of a Redisson client.
struct Old {
    connection: Connection,
    listener: Connection,
    field: String,
}

impl Old {
    fn new(server: &RedisServer, thread: u32) -> Self {
        let field = format!("0d9a8a5c-6f3b-4f0e-9a52-3f1c2b7d8e90:{thread}");
        let mut listener = server.connection();
        redis::cmd("CLIENT").arg(&["SETNAME", "old"]).exec(&mut listener).expect("named");
        Self { connection: server.connection(), listener, field }
    }

    fn channel(name: &str) -> String {
        if name.contains('{') {
            format!("redisson_lock__channel:{name}")
        } else {
            format!("redisson_lock__channel__{{{name}}}")
        }
    }

    /// None if it was granted, else what is left of the holder's lease.
    fn attempt(&mut self, name: &str) -> Option<i64> {
        acquire(&mut self.connection, name, &self.field)
    }

    /// Waits for ever; sleeps until the message `0`, or until the holder's time to live is over.
    /// It understands no other message, so it is not woken while clients of ours stand in line.
    fn lock(&mut self, name: &str) {
        if self.attempt(name).is_none() {
            return;
        }
        let mut pub_sub = self.listener.as_pubsub();
        pub_sub.subscribe(Self::channel(name)).expect("subscribed");
        while let Some(left) = acquire(&mut self.connection, name, &self.field) {
            let limit = Duration::from_millis(u64::try_from(left).expect("a time to live").max(1));
            pub_sub.set_read_timeout(Some(limit)).expect("a limit");
            let is_0 =
                |message: redis::Msg| message.get_payload().is_ok_and(|text: String| text == "0");
            while pub_sub.get_message().is_ok_and(|message| !is_0(message)) {}
        }
        pub_sub.unsubscribe(Self::channel(name)).expect("unsubscribed");
    }

    /// 1 when it is free, 0 while it is held on, none if it was not held.
    fn unlock(&mut self, name: &str) -> Option<i64> {
        let mut call = script(UNLOCK, &[name, &Self::channel(name)]);
        call.arg(0).arg(LEASE_MS).arg(&self.field).query(&mut self.connection).expect("unlock")
    }

    fn force_unlock(&mut self, name: &str) -> i64 {
        let mut call = script(FORCE_UNLOCK, &[name, &Self::channel(name)]);
        call.arg(0).query(&mut self.connection).expect("force-unlock")
    }

    /// Critical sections on the number in a file, as the puppet's `count`. Gives how many.
    fn count(&mut self, name: &str, until: u64, file: &Path) -> u64 {
        let counter = File::options().read(true).write(true).open(file).expect("the counter");
        let mut sections = 0;
        loop {
            self.lock(name);
            let mut text = [0; 20];
            counter.read_exact_at(&mut text, 0).expect("read");
            let number: u64 = std::str::from_utf8(&text).expect("text").parse().expect("a number");
            if number < until {
                counter
                    .write_all_at(format!("{:020}\n", number + 1).as_bytes(), 0)
                    .expect("written");
                sections += 1;
            }
            assert_eq!(self.unlock(name), Some(1));
            if number >= until {
                return sections;
            }
        }
    }
}

/// Clients that share names with and without braces wake each other, in both directions, well
/// before any lease ends.
#[test]
fn clients_of_before_3_2_and_the_default_profile_exclude_and_wake_each_other() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let mut puppet = Puppet::start(&server.url(), &[]);
    for (number, name) in ["old", "{old}:2", "ключ:3"].into_iter().enumerate() {
        let mut old = Old::new(&server, 17);
        let quoted = serde_json::Value::from(name);
        old.lock(name);
        old.lock(name);
        assert_eq!(look::hash(&mut connection, name)[&old.field], "2");
        assert_eq!(puppet.run(&format!("t{number} try {quoted}"))["event"], "denied");
        puppet.send(&format!("w{number} lock {quoted}"));
        puppet.wait("waiting", |event| event["event"] == "waiting");
        assert_eq!(old.unlock(name), Some(0));
        assert_eq!(old.unlock(name), Some(1));
        assert_eq!(puppet.end_of(&format!("w{number}"))["event"], "granted");

        assert!(old.attempt(name).is_some());
        assert_eq!(old.unlock(name), None, "it is not theirs");
        let waiter = std::thread::spawn(move || {
            old.lock(name);
            old
        });
        // The puppet's own subscription may be over or not, so that a number of subscribers says
        // nothing.
        eventually("the old client is subscribed", || {
            let mut list = redis::cmd("CLIENT");
            let listening: String =
                list.arg(&["LIST", "TYPE", "PUBSUB"]).query(&mut connection).expect("a list");
            listening.contains("name=old ")
        });
        assert_eq!(puppet.run(&format!("u{number} unlock w{number}"))["event"], "unlocked");
        let mut old = waiter.join().expect("it got the lock");
        assert_eq!(old.unlock(name), Some(1));
    }
    let stats = puppet.run("stats stats");
    assert_eq!(stats["counters"]["fallback_grants"], 0, "{stats}");
    puppet.finish();
}

#[test]
fn each_takes_the_others_lock_away_by_force() {
    let server = RedisServer::start();
    let mut old = Old::new(&server, 1);
    let mut puppet = Puppet::start(&server.url(), &["lease_ms=1000"]);
    old.lock("forced");
    assert_eq!(puppet.run("f force forced")["forced"], true);
    assert_eq!(puppet.run("a lock forced")["event"], "granted");
    assert_eq!(old.unlock("forced"), None);
    assert_eq!(old.force_unlock("forced"), 1);
    let lost = puppet.wait("lost", |event| event["event"] == "lost");
    assert_eq!(lost["reason"], "removed");
    old.lock("forced");
    assert_eq!(puppet.run("u unlock a")["event"], "error");
    assert_eq!(old.unlock("forced"), Some(1));
    puppet.finish();
}

/// The old clients have no place in the line, so how often they are served is chance.
#[test]
fn a_counter_that_both_protect_is_exact() {
    const UNTIL: u64 = 1_000;
    let server = RedisServer::start();
    let file = counter();
    let path = file.display().to_string();
    let mut puppets = [Puppet::start(&server.url(), &[]), Puppet::start(&server.url(), &[])];
    for puppet in &mut puppets {
        puppet.send(&format!("c count counted {UNTIL} {path}"));
    }
    let old: u64 = std::thread::scope(|scope| {
        let threads = [1, 2].map(|thread| {
            let (server, file) = (&server, &file);
            scope.spawn(move || Old::new(server, thread).count("counted", UNTIL, file))
        });
        threads.into_iter().map(|thread| thread.join().expect("it counts")).sum()
    });
    let ours: u64 = puppets
        .iter_mut()
        .map(|puppet| puppet.end_of("c")["done"].as_u64().expect("a number"))
        .sum();
    let counted = std::fs::read_to_string(&file).expect("the counter");
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(counted.trim().parse(), Ok(UNTIL));
    assert_eq!(old + ours, UNTIL);
    assert!(ours > 0, "{old} by old clients, {ours} by ours");
}

/// A file with the number 0.
fn counter() -> PathBuf {
    let file = std::env::temp_dir().join(format!("old-redisson-{}", std::process::id()));
    std::fs::write(&file, format!("{:020}\n", 0)).expect("written");
    file
}
