//! `preflight`: what it finds on good and on bad servers, and that it disturbs nobody.

use std::time::Duration;

use redis::Connection;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::PreflightReport;
use redis_reentrant_lock::RequiredAcl;
use redis_reentrant_lock::Severity;
use redis_reentrant_lock::WireProfile;
use tokio::time::timeout;

use crate::support::client::builder;
use crate::support::look;
use crate::support::puppet::Puppet;
use crate::support::redis_server::RedisServer;
use crate::support::redis_server::has_redis_7;
use crate::support::redis_server::version;
use crate::support::settle::answers;
use crate::support::settle::leaves_nothing;
use crate::support::settle::settles;

const BOUND: Duration = Duration::from_secs(20);
const NAME: &str = "orders:42";

async fn look_at(client: &LockClient, name: &str) -> PreflightReport {
    let report = timeout(BOUND, client.preflight(name)).await.expect("an end").unwrap();
    println!("{report}\n");
    report
}

async fn look_at_latch(client: &LockClient, name: &str) -> PreflightReport {
    let report = timeout(BOUND, client.preflight_latch(name)).await.expect("an end").unwrap();
    println!("{report}\n");
    report
}

async fn look_at_semaphore(client: &LockClient, name: &str) -> PreflightReport {
    let report = timeout(BOUND, client.preflight_semaphore(name)).await.expect("an end").unwrap();
    println!("{report}\n");
    report
}

async fn look_at_fair_lock(client: &LockClient, name: &str) -> PreflightReport {
    let report = timeout(BOUND, client.preflight_fair_lock(name)).await.expect("an end").unwrap();
    println!("{report}\n");
    report
}

async fn look_at_rw_lock(client: &LockClient, name: &str) -> PreflightReport {
    let report = timeout(BOUND, client.preflight_rw_lock(name)).await.expect("an end").unwrap();
    println!("{report}\n");
    report
}

fn finding(report: &PreflightReport, topic: &str, severity: Severity, words: &str) {
    let mut found = report.about(topic).filter(|finding| finding.severity == severity);
    assert!(
        found.any(|finding| format!("{finding:?}").contains(words)),
        "{topic} {severity} {words}: {report}"
    );
}

fn config(connection: &mut Connection, setting: &str, value: &str) {
    redis::cmd("CONFIG").arg("SET").arg(setting).arg(value).exec(connection).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_said_against_a_good_server_and_nothing_is_left_there() {
    let server = RedisServer::with(&["--appendonly", "yes"]);
    let replica = RedisServer::with(&["--replicaof", "127.0.0.1", &server.port().to_string()]);
    let mut connection = server.connection();
    config(&mut connection, "min-replicas-to-write", "1");
    let mut asking = server.connection();
    settles("the replica is well", move || {
        let info: String = redis::cmd("INFO").arg("replication").query(&mut asking).unwrap();
        info.contains("min_slaves_good_slaves:1")
    })
    .await;
    let client = LockClient::connect(&server.url()).await.unwrap();
    for name in [NAME, "{a}b", "ü 🔒"] {
        let report = look_at(&client, name).await;
        assert_eq!(report.severity(), Severity::Ok, "{report}");
        for topic in [
            "server",
            "role",
            "persistence",
            "memory",
            "replication",
            "clock",
            "permissions",
            "scripts",
            "channels",
            "key",
        ] {
            // Redis 6.2 cannot tell permissions.
            let told = topic != "permissions" || version() >= (7, 0);
            assert_eq!(report.about(topic).next().is_some(), told, "{topic}: {report}");
        }
    }
    assert!(look::lock_keys(&mut connection).is_empty());
    let stats = client.stats();
    assert_eq!(
        [stats.grants, stats.losses, stats.waits, stats.wake_ups],
        [0; 4],
        "nothing of it is counted"
    );
    leaves_nothing(&server, &client).await;
    drop(replica);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_script_is_run() {
    let server = RedisServer::start();
    let client = LockClient::connect(&server.url()).await.unwrap();
    let redisson = builder(&server.url()).profile(WireProfile::Redisson).connect().await.unwrap();
    let mut connection = server.connection();
    for (kind, count) in [
        ("reentrant", 9),
        ("latch", 4),
        ("semaphore", 7),
        ("permit_expirable", 7),
        ("read_write", 8),
        ("fair", 5),
        ("fair_queue", 5),
    ] {
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection).unwrap();
        let _ = match kind {
            "latch" => look_at_latch(&client, NAME).await,
            "semaphore" => look_at_semaphore(&client, NAME).await,
            "permit_expirable" => look_at_semaphore(&redisson, NAME).await,
            "read_write" => look_at_rw_lock(&client, NAME).await,
            "fair" => look_at_fair_lock(&client, NAME).await,
            "fair_queue" => look_at_fair_lock(&redisson, NAME).await,
            _ => look_at(&client, NAME).await,
        };
        let scripts = look::scripts_of(kind);
        assert!(scripts.len() >= count, "{:?}", scripts.keys());
        for (name, text) in scripts {
            let mut hash = redis::cmd("EVAL");
            hash.arg("return redis.sha1hex(ARGV[1])").arg(0).arg(text);
            let hash: String = hash.query(&mut connection).unwrap();
            let known = redis::cmd("SCRIPT").arg("EXISTS").arg(hash).query(&mut connection);
            assert_eq!(known, Ok(vec![true]), "{kind} {name}");
        }
    }
    client.shutdown(BOUND).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_latch_is_checked_with_its_own_scripts_and_not_disturbed() {
    for profile in [WireProfile::Native, WireProfile::Redisson] {
        let server = RedisServer::start();
        let client =
            LockClient::builder().url(server.url()).profile(profile).connect().await.unwrap();
        let mut connection = server.connection();
        let report = look_at_latch(&client, NAME).await;
        assert!(report.is_usable(), "{report}");
        assert!(report.to_string().starts_with(r#"preflight of latch "orders:42": note"#));
        finding(&report, "scripts", Severity::Ok, "every script was run");
        finding(&report, "channels", Severity::Ok, "messages come through");
        finding(&report, "key", Severity::Ok, "there is no latch");
        let latch = client.count_down_latch(NAME).unwrap();
        latch.try_set_count(3).await.unwrap();
        let waiter = tokio::spawn({
            let latch = latch.clone();
            async move { latch.wait().await }
        });
        let mut asking = server.connection();
        let channel = "redisson_countdownlatch__channel__{orders:42}";
        settles("it waits", move || look::subscribers(&mut asking, channel) == 1).await;
        let report = look_at_latch(&client, NAME).await;
        finding(&report, "key", Severity::Ok, "in use");
        assert_eq!(latch.count().await.unwrap(), 3, "it was only read");
        assert!(!waiter.is_finished());
        assert_eq!(look::subscribers(&mut connection, channel), 1, "who listened still does");
        assert!(latch.delete().await.unwrap());
        timeout(BOUND, waiter).await.expect("it goes on").unwrap().unwrap();
        // What is left is what operations have come to, for a while.
        let left = look::keys(&mut connection);
        assert!(left.iter().all(|key| key.starts_with("redisson_latch_op:{")), "{left:?}");
        assert!(look::immortal_keys(&mut connection).is_empty());

        redis::cmd("RPUSH").arg(NAME).arg("data").exec(&mut connection).unwrap();
        finding(&look_at_latch(&client, NAME).await, "key", Severity::Error, "another type");
        redis::cmd("DEL").arg(NAME).exec(&mut connection).unwrap();
        config(&mut connection, "maxmemory", "1");
        let report = look_at_latch(&client, NAME).await;
        finding(&report, "scripts", Severity::Error, "raise maxmemory");
        let refused = client.preflight_latch("a\nb").await;
        assert!(matches!(refused, Err(Error::InvalidName { .. })));
    }
}

/// Whatever a user may not do that a latch needs is found, and named, whether or not another name
/// can be used for a rehearsal.
#[tokio::test(flavor = "multi_thread")]
async fn every_missing_permission_of_a_latch_is_found() {
    if !has_redis_7("redis.acl_check_cmd") {
        return;
    }
    let server = RedisServer::start();
    let mut connection = server.connection();
    for (profile, on_key) in [
        (WireProfile::Native, &["hmget", "hset", "hincrby"][..]),
        (WireProfile::Redisson, &["get", "set", "decr"][..]),
    ] {
        let both = [
            "type",
            "del",
            "pexpire",
            "pttl",
            "get",
            "set",
            "publish",
            "subscribe",
            "hget",
            "hexists",
            "hlen",
            "hkeys",
        ];
        let commands = on_key.iter().chain(&both).map(|command| format!("+{command}"));
        let targets = [
            "~orders:*",
            "~redisson_latch_op:{orders:*}:*",
            "&redisson_countdownlatch__channel__{orders:*}",
            "&redisson_lock__client:*",
        ];
        let removed = commands.chain(targets.map(str::to_owned)).map(Some);
        for without in std::iter::once(None).chain(removed) {
            let acl = RequiredAcl::new(["orders:*"]).unwrap().profile(profile).latches(true);
            let mut rules = acl.rules();
            let all = rules.len();
            rules.retain(|rule| Some(rule) != without.as_ref());
            assert_eq!(all - rules.len(), usize::from(without.is_some()), "{without:?}");
            let mut user = redis::cmd("ACL");
            user.arg("SETUSER").arg("u").arg("reset").arg("on").arg(">pw").arg(rules);
            user.exec(&mut connection).unwrap();
            let url = format!("redis://u:pw@{}", server.address());
            let client = LockClient::builder().url(url).profile(profile);
            // The client's own channel is subscribed before anything else.
            let client = match client.connect().await {
                Ok(client) => client,
                Err(Error::Denied { .. }) if without.is_some() => continue,
                Err(error) => panic!("without {without:?}: {error}"),
            };
            let report = look_at_latch(&client, NAME).await;
            assert_eq!(report.is_usable(), without.is_none(), "without {without:?}: {report}");
            if let Some(rule) = without {
                let word = match rule.split_at(1) {
                    ("+", command) => format!("the command {command}"),
                    (_, target) => target.trim_end_matches(":*").replace('*', "42"),
                };
                finding(&report, "permissions", Severity::Error, &word);
                finding(&report, "permissions", Severity::Error, "latches(true)");
            }
            client.shutdown(BOUND).await.unwrap();
        }
        let left = look::keys(&mut connection);
        assert!(left.iter().all(|key| key.starts_with("redisson_latch_op:{")), "{left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_semaphore_is_checked_with_its_own_scripts_and_not_disturbed() {
    for profile in [WireProfile::Native, WireProfile::Redisson] {
        a_semaphore_is_checked(profile).await;
    }
}

async fn a_semaphore_is_checked(profile: WireProfile) {
    let server = RedisServer::start();
    let client = builder(&server.url()).profile(profile).connect().await.unwrap();
    let mut connection = server.connection();
    let report = look_at_semaphore(&client, NAME).await;
    assert!(report.is_usable(), "{report}");
    assert!(report.to_string().starts_with(r#"preflight of semaphore "orders:42": note"#));
    finding(&report, "scripts", Severity::Ok, "every script was run");
    finding(&report, "channels", Severity::Ok, "messages come through");
    finding(&report, "key", Severity::Ok, "no permit is held");
    assert_eq!(left_by_semaphores(&mut connection), [""; 0], "nothing is left");
    let permit = client.semaphore(NAME, 2).unwrap().acquire().await.unwrap();
    let before = left_by_semaphores(&mut connection);
    let report = look_at_semaphore(&client, NAME).await;
    finding(&report, "key", Severity::Ok, "permits are held");
    assert_eq!(left_by_semaphores(&mut connection), before);
    permit.verify().await.unwrap();
    permit.release().await.unwrap();

    redis::cmd("DEL").arg(NAME).exec(&mut connection).unwrap();
    redis::cmd("RPUSH").arg(NAME).arg("data").exec(&mut connection).unwrap();
    let found = if profile == WireProfile::Native { "not a hash" } else { "not a whole number" };
    finding(&look_at_semaphore(&client, NAME).await, "key", Severity::Error, found);
    redis::cmd("DEL").arg(NAME).exec(&mut connection).unwrap();
    config(&mut connection, "maxmemory", "1");
    let report = look_at_semaphore(&client, NAME).await;
    finding(&report, "scripts", Severity::Error, "raise maxmemory");
    let refused = client.preflight_semaphore("a\nb").await;
    assert!(matches!(refused, Err(Error::InvalidName { .. })));
}

/// Keys, but for what operations have come to, which is kept for a while.
fn left_by_semaphores(connection: &mut Connection) -> Vec<String> {
    let mut keys = look::keys(connection);
    keys.retain(|key| !key.starts_with("redisson_latch_op:"));
    keys.sort();
    keys
}

/// Whatever a user may not do that a semaphore or a read-write lock needs is found, and named.
#[tokio::test(flavor = "multi_thread")]
async fn every_missing_permission_of_other_kinds_is_found() {
    if !has_redis_7("redis.acl_check_cmd") {
        return;
    }
    let acl = || RequiredAcl::new(["orders:*"]).unwrap();
    // What only locks need.
    let of_locks: &[_] = &["+hlen", "+hkeys", "+hgetall", "&redisson_lock__channel__{orders:*}"];
    let missing = Missing { flag: "semaphores(true)", others: of_locks, least: 25, ..NATIVE };
    missing.is_found(&acl().semaphores(true), look_at_semaphore).await;
    let of_locks: &[_] = &[
        "+hlen",
        "+hkeys",
        "+hgetall",
        "+exists",
        "+pexpire",
        "+hset",
        "+hdel",
        "&redisson_lock__channel:{orders:*}",
    ];
    let profile = WireProfile::Redisson;
    let missing = Missing { flag: "semaphores(true)", others: of_locks, least: 15, profile };
    missing.is_found(&acl().profile(profile).semaphores(true), look_at_semaphore).await;
    let of_locks: &[_] =
        &["+hgetall", "+hexists", "+persist", "&redisson_lock__channel__{orders:*}"];
    let missing = Missing { flag: "rw_locks(true)", others: of_locks, least: 25, ..NATIVE };
    missing.is_found(&acl().rw_locks(true), look_at_rw_lock).await;
    let missing = Missing { flag: "fair_locks(true)", others: &[], least: 25, ..NATIVE };
    missing.is_found(&acl().fair_locks(true), look_at_fair_lock).await;
}

struct Missing {
    /// What to ask for, so that it is there.
    flag: &'static str,
    /// Rules that this kind does not need.
    others: &'static [&'static str],
    /// So many rules it needs at least.
    least: usize,
    profile: WireProfile,
}

const NATIVE: Missing = Missing { flag: "", others: &[], least: 0, profile: WireProfile::Native };

impl Missing {
    /// One rule is taken away at a time.
    async fn is_found(
        &self,
        acl: &RequiredAcl,
        look_at: impl AsyncFn(&LockClient, &str) -> PreflightReport,
    ) {
        let server = RedisServer::start();
        let mut connection = server.connection();
        // What a client needs before it can ask, and what only names with braces need. A fence
        // counter has a pattern of its own beside the keys of locks.
        let before = ["resetchannels", "+ping", "+info", "+time", "+eval", "+evalsha"];
        let before = before.into_iter().chain(["+unsubscribe", "~redisson_lock_fence:{*}"]);
        let others: Vec<&str> = before.chain(self.others.iter().copied()).collect();
        let is_of_braces = |rule: &str| rule.contains("orders:*{*") || rule.contains(":orders:*");
        let removed = acl.rules().into_iter();
        let removed = removed.filter(|rule| !others.contains(&&**rule) && !is_of_braces(rule));
        let removed: Vec<_> = std::iter::once(None).chain(removed.map(Some)).collect();
        assert!(removed.len() > self.least, "{removed:?}");
        for without in removed {
            let mut rules = acl.rules();
            rules.retain(|rule| Some(rule) != without.as_ref());
            let mut user = redis::cmd("ACL");
            user.arg("SETUSER").arg("u").arg("reset").arg("on").arg(">pw").arg(rules);
            user.exec(&mut connection).unwrap();
            let url = format!("redis://u:pw@{}", server.address());
            let client = match builder(&url).profile(self.profile).connect().await {
                Ok(client) => client,
                Err(Error::Denied { .. }) if without.is_some() => continue,
                Err(error) => panic!("without {without:?}: {error}"),
            };
            let report = look_at(&client, NAME).await;
            assert_eq!(report.is_usable(), without.is_none(), "without {without:?}: {report}");
            if let Some(rule) = without {
                let word = match rule.split_at(1) {
                    ("+", command) => format!("the command {command}"),
                    (_, target) => target.trim_end_matches(":*").replacen('*', "42", 1),
                };
                // Of the key of a reader its beginning.
                let word = word.split(":*").next().unwrap();
                finding(&report, "permissions", Severity::Error, word);
                finding(&report, "permissions", Severity::Error, self.flag);
            }
            client.shutdown(BOUND).await.unwrap();
        }
        assert_eq!(left_by_semaphores(&mut connection), [""; 0], "nothing is left");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_in_use_is_not_disturbed() {
    let server = RedisServer::start();
    let (ours, theirs) = (
        LockClient::connect(&server.url()).await.unwrap(),
        LockClient::connect(&server.url()).await.unwrap(),
    );
    let guard = ours.mutex(NAME).unwrap().lock().await.unwrap();
    let waiting = theirs.mutex(NAME).unwrap();
    let waiting = tokio::spawn(async move { waiting.lock().await });
    let mut connection = server.connection();
    let channel = format!("redisson_lock__channel__{{{NAME}}}");
    let mut asking = server.connection();
    let listened = channel.clone();
    settles("it sleeps", move || look::subscribers(&mut asking, &listened) == 1).await;
    let before = look::hash(&mut connection, NAME);
    for client in [&ours, &theirs] {
        let report = look_at(client, NAME).await;
        assert!(report.is_usable(), "{report}");
        finding(&report, "key", Severity::Ok, "held");
    }
    assert_eq!(look::hash(&mut connection, NAME), before);
    assert_eq!(theirs.stats().wake_ups, 0, "nobody was woken by it");
    let asking = channel.clone();
    assert_eq!(
        look::subscribers(&mut connection, &asking),
        1,
        "whoever listened before still does"
    );
    assert!(guard.is_held() && !waiting.is_finished());
    guard.unlock().await.unwrap();
    timeout(BOUND, waiting).await.unwrap().unwrap().unwrap().unlock().await.unwrap();
    assert_eq!(theirs.stats().fallback_grants, 0);
    leaves_nothing(&server, &theirs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_flaw_of_a_server_is_found() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let client = LockClient::connect(&server.url()).await.unwrap();
    let report = look_at(&client, NAME).await;
    assert_eq!(report.severity(), Severity::Note, "{report}");
    finding(&report, "persistence", Severity::Note, "appendonly yes");
    finding(&report, "replication", Severity::Note, "no replica");

    config(&mut connection, "maxmemory-policy", "allkeys-lru");
    let report = look_at(&client, NAME).await;
    finding(&report, "memory", Severity::Warning, "maxmemory-policy noeviction");
    assert!(report.is_usable());
    config(&mut connection, "maxmemory-policy", "noeviction");

    config(&mut connection, "maxmemory", "1");
    let report = look_at(&client, NAME).await;
    finding(&report, "scripts", Severity::Error, "raise maxmemory");
    config(&mut connection, "maxmemory", "0");

    config(&mut connection, "min-replicas-to-write", "1");
    finding(&look_at(&client, NAME).await, "replication", Severity::Error, "NOREPLICAS");
    config(&mut connection, "min-replicas-to-write", "0");

    redis::cmd("SET").arg(NAME).arg("text").exec(&mut connection).unwrap();
    finding(&look_at(&client, NAME).await, "key", Severity::Error, "a value that is not a hash");
    redis::cmd("DEL").arg(NAME).exec(&mut connection).unwrap();

    // The counter is that of the lock: it would be refused, too.
    let fence = look::dump(&mut connection).into_keys().next().expect("the fence counter");
    redis::cmd("SET").arg(&fence).arg("abc").exec(&mut connection).unwrap();
    finding(&look_at(&client, NAME).await, "key", Severity::Error, &fence);
    redis::cmd("DEL").arg(&fence).exec(&mut connection).unwrap();

    redis::cmd("REPLICAOF").arg("127.0.0.1").arg("1").exec(&mut connection).unwrap();
    finding(&look_at(&client, NAME).await, "role", Severity::Error, "replica");
    let error = LockClient::connect(&server.url()).await.unwrap_err();
    assert!(
        matches!(error, Error::Unsupported { .. }) && error.to_string().contains("replica"),
        "{error}"
    );
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut connection).unwrap();
    assert!(matches!(client.preflight("a\nb").await, Err(Error::InvalidName { .. })));
    leaves_nothing(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_is_a_finding() {
    let mut server = RedisServer::start();
    let client = LockClient::connect(&server.url()).await.unwrap();
    server.freeze();
    let report = look_at(&client, NAME).await;
    assert!(!report.is_usable());
    finding(&report, "server", Severity::Error, "no answer");
    server.thaw();
    answers(&client).await;
    server.stop();
    assert!(!look_at(&client, NAME).await.is_usable());
    assert!(client.shutdown(BOUND).await.unwrap().is_clean());
    assert!(matches!(client.preflight(NAME).await, Err(Error::Closed { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_missing_permission_is_found_at_once() {
    if !has_redis_7("redis.acl_check_cmd") {
        return;
    }
    let server = RedisServer::start();
    let mut connection = server.connection();
    let mut client_of = async |user: &str, pattern: &str, without: &[&str]| {
        let rules = RequiredAcl::new([pattern]).unwrap().rules();
        let rules: Vec<String> =
            rules.into_iter().filter(|rule| !without.contains(&rule.as_str())).collect();
        redis::cmd("ACL")
            .arg("SETUSER")
            .arg(user)
            .arg("reset")
            .arg("on")
            .arg(">pw")
            .arg(rules)
            .exec(&mut connection)
            .unwrap();
        LockClient::connect(&format!("redis://{user}:pw@{}", server.address())).await.unwrap()
    };
    let all = client_of("all", "orders:*", &[]).await;
    let report = look_at(&all, NAME).await;
    assert_eq!(report.severity(), Severity::Note, "{report}");
    finding(&report, "scripts", Severity::Ok, "every script was run");
    finding(&report, "channels", Severity::Ok, "messages");
    let report = look_at(&all, "invoices:1").await;
    finding(&report, "permissions", Severity::Error, "the key invoices:1");
    finding(
        &report,
        "permissions",
        Severity::Error,
        "the channel redisson_lock__channel__{invoices:1}",
    );

    // The user may use this one name: nothing is run beside it.
    let one = client_of("one", NAME, &[]).await;
    let report = look_at(&one, NAME).await;
    assert!(report.is_usable(), "{report}");
    finding(&report, "scripts", Severity::Note, "not run");

    let without = ["+pexpire", "+hkeys", "+get", "~orders:*"];
    let report = look_at(&client_of("some", "orders:*", &without[..3]).await, NAME).await;
    for rule in &without[..3] {
        finding(&report, "permissions", Severity::Error, &format!("the command {}", &rule[1..]));
    }
    assert_eq!(report.about("permissions").count(), 3, "{report}");
    let report = look_at(&client_of("no-key", "orders:*", &without[3..]).await, NAME).await;
    finding(&report, "permissions", Severity::Error, &format!("the key {NAME}"));
    let report = look_at(
        &client_of("deaf", "orders:*", &["&redisson_lock__channel__{orders:*}"]).await,
        NAME,
    )
    .await;
    finding(
        &report,
        "permissions",
        Severity::Error,
        "the channel redisson_lock__channel__{orders:42}",
    );
    // The line of a name with a brace has another spelling.
    for (user, rule, name, line) in [
        (
            "no-line",
            "~redisson_lock_line__{orders:*}",
            "orders:42",
            "redisson_lock_line__{orders:42}",
        ),
        (
            "no-line-in-braces",
            "~redisson_lock_line:orders:*{*",
            "orders:{a}",
            "redisson_lock_line:orders:{a}",
        ),
    ] {
        let client = client_of(user, "orders:*", &[rule]).await;
        let report = look_at(&client, name).await;
        finding(&report, "permissions", Severity::Error, &format!("the key {line}"));
        assert_eq!(report.about("permissions").count(), 1, "{report}");
    }
    let report = look_at(&client_of("mute", "orders:*", &["+publish"]).await, NAME).await;
    finding(&report, "permissions", Severity::Error, "the command publish");
}

#[cfg(feature = "in-memory")]
#[tokio::test(start_paused = true)]
async fn the_in_memory_server_says_what_it_is() {
    let server = redis_reentrant_lock::InMemoryServer::new();
    let client = LockClient::builder().in_memory(&server).connect().await.unwrap();
    let report = look_at(&client, NAME).await;
    assert!(report.is_usable());
    finding(&report, "server", Severity::Note, "in memory");
    finding(&report, "scripts", Severity::Ok, "every script was run");
    let report = look_at_latch(&client, NAME).await;
    finding(&report, "scripts", Severity::Ok, "every script was run");
    tokio::time::advance(Duration::from_secs(3_600)).await;
    let report = look_at(&client, NAME).await;
    finding(&report, "clock", Severity::Ok, "that of this process; an answer takes");
    server.set_reachable(false);
    assert!(!look_at(&client, NAME).await.is_usable());
}

#[test]
fn the_puppet_offers_it() {
    let server = RedisServer::start();
    let mut puppet = Puppet::start(&server.url(), &[]);
    let report = puppet.run("p preflight orders:42");
    assert_eq!(
        (report["event"].as_str(), report["usable"].as_bool()),
        (Some("info"), Some(true)),
        "{report}"
    );
    assert!(report["text"].as_str().unwrap().contains("persistence"), "{report}");
    let latch = puppet.run("l preflight orders:42 kind=latch");
    assert!(latch["text"].as_str().unwrap().starts_with("preflight of latch"), "{latch}");
    assert!(
        report["findings"].as_array().unwrap().iter().any(|finding| finding["topic"] == "memory"),
        "{report}"
    );
}
