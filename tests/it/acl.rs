//! The Redis user that `required_acl` describes may do everything a lock does; without any one of
//! its permissions something ends in an error that names the permission, and nothing is half done.

use std::ops::Range;
use std::time::Duration;

use redis::Connection;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::Finding;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockClientBuilder;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::PreflightReport;
use redis_reentrant_lock::RequiredAcl;
use redis_reentrant_lock::Result;
use redis_reentrant_lock::Severity;
use redis_reentrant_lock::Sharding;
use redis_reentrant_lock::WireProfile;
use tokio::time::timeout;

use crate::support::look;
use crate::support::redis_server::RedisServer;
use crate::support::redis_server::has_redis_7;
use crate::support::redis_server::version;
use crate::support::settle::leaves_nothing;
use crate::support::settle::settles;
use crate::support::topology::Topology;

const BOUND: Duration = Duration::from_secs(10);
const NAME: &str = "orders:42";
const LINE: &str = "redisson_lock_line__{orders:42}";

fn rules(profile: WireProfile) -> Vec<String> {
    RequiredAcl::new(["orders:*"]).unwrap().profile(profile).rules()
}

fn set_user(connection: &mut Connection, user: &str, rules: &[String]) {
    let mut command = redis::cmd("ACL");
    command
        .arg("SETUSER")
        .arg(user)
        .arg("reset")
        .arg("on")
        .arg(">pw")
        .arg(rules)
        .exec(connection)
        .unwrap();
}

fn url(server: &RedisServer, user: &str) -> String {
    format!("redis://{user}:pw@{}", server.address())
}

fn builder(url: &str) -> LockClientBuilder {
    LockClient::builder()
        .url(url)
        .lease(Duration::from_secs(2))
        .outage_limit(Duration::from_secs(3))
}

/// Everything that a lock does, by two clients of one user. Ends with the first error.
struct Life {
    ours: LockClient,
    theirs: LockClient,
}

impl Life {
    async fn begin(url: &str, profile: WireProfile) -> Result<Self> {
        let ours = builder(url).profile(profile).connect().await?;
        match builder(url).profile(profile).connect().await {
            Ok(theirs) => Ok(Self { ours, theirs }),
            Err(error) => {
                ours.shutdown(BOUND).await?;
                Err(error)
            }
        }
    }

    async fn live(&self, name: &str, connection: &mut Connection) -> Result<()> {
        self.ours.ping().await?;
        self.nest(name).await?;
        self.contend(name).await?;
        self.hand_off(name).await?;
        self.share(name, connection).await?;
        self.lose(name, connection).await?;
        self.take_away(name).await
    }

    async fn nest(&self, name: &str) -> Result<()> {
        let lock = self.ours.reentrant_lock(name)?;
        Owner::new()
            .scope(async {
                let outer = lock.lock().await?;
                let inner = lock.lock().await;
                assert!(outer.is_held());
                let before = self.ours.stats().renewals;
                let renewed = outer.verify().await;
                let questions =
                    (lock.is_locked().await, lock.holder().await, lock.remaining_lease().await);
                match inner {
                    Ok(inner) => inner.unlock().await?,
                    Err(error) => {
                        outer.unlock().await?;
                        return Err(error);
                    }
                }
                renewed?;
                assert!(self.ours.stats().renewals >= before);
                assert!(questions.0?);
                assert!(questions.1?.expect("a holder").is_this_client);
                assert!(questions.2?.is_some());
                outer.unlock().await
            })
            .await
    }

    /// Another client waits and is woken, long before it would look by itself.
    async fn contend(&self, name: &str) -> Result<()> {
        let guard = self.ours.mutex(name)?.lock().await?;
        let waiting = self.theirs.mutex(name)?;
        let waiting = tokio::spawn(async move { waiting.lock().await });
        let (client, task) = (self.theirs.clone(), waiting.abort_handle());
        let sleeps = move || client.stats().subscriptions == 1 || task.is_finished();
        settles("it sleeps, or was refused", sleeps).await;
        let released = guard.unlock().await;
        let guard = timeout(BOUND, waiting).await.expect("no hang").unwrap()?;
        assert_eq!(self.theirs.stats().fallback_grants, 0, "the wake-up came");
        guard.unlock().await?;
        released
    }

    async fn hand_off(&self, name: &str) -> Result<()> {
        let lock = self.ours.mutex(name)?;
        let guard = lock.lock().await?;
        let next = tokio::spawn(async move { lock.lock().await });
        let client = self.ours.clone();
        settles("it waits", move || client.stats().waiters == 1).await;
        let released = guard.unlock().await;
        timeout(BOUND, next).await.expect("no hang").unwrap()?.unlock().await?;
        released
    }

    /// Somebody puts data into the hash of the lock: it is left there, without our time to live.
    async fn share(&self, name: &str, connection: &mut Connection) -> Result<()> {
        let guard = self.ours.mutex(name)?.lock().await?;
        redis::cmd("HSET").arg(name).arg("status").arg("paid").exec(connection).unwrap();
        let released = guard.unlock().await;
        let pttl: i64 = redis::cmd("PTTL").arg(name).query(connection).unwrap();
        redis::cmd("DEL").arg(name).exec(connection).unwrap();
        match released {
            Err(Error::KeyStillInUse { .. }) if pttl == -1 => Ok(()),
            Err(error) => Err(error),
            Ok(()) => panic!("the key is in other use"),
        }
    }

    /// The key goes, or is given to somebody else, behind the holder's back.
    async fn lose(&self, name: &str, connection: &mut Connection) -> Result<()> {
        let guard = self.ours.mutex(name)?.lock().await?;
        redis::cmd("DEL").arg(name).exec(connection).unwrap();
        match guard.verify().await {
            Err(Error::Lost { .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => panic!("the key is gone"),
        }
    }

    async fn take_away(&self, name: &str) -> Result<()> {
        let guard = self.ours.mutex(name)?.lock().await?;
        assert!(self.theirs.mutex(name)?.force_unlock().await?);
        timeout(BOUND, guard.lost()).await.expect("the holder is told");
        Ok(())
    }

    async fn end(self) {
        self.ours.shutdown(BOUND).await.unwrap();
        self.theirs.shutdown(BOUND).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_line_allows_all_that_a_lock_does() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    for (profile, name) in [
        (WireProfile::Native, NAME),
        (WireProfile::Native, "orders:{eu}:7"),
        (WireProfile::Redisson, NAME),
        (WireProfile::Redisson, "orders:{eu}:7"),
    ] {
        set_user(&mut connection, "locks", &rules(profile));
        let life = Life::begin(&url(&server, "locks"), profile).await.unwrap();
        life.live(name, &mut connection)
            .await
            .unwrap_or_else(|error| panic!("{name} {profile:?}: {error}"));
        leaves_nothing(&server, &life.ours).await;
        // Another name is none of this user's business.
        let error = life.ours.mutex("invoices:1").unwrap().try_lock().await.unwrap_err();
        assert!(
            matches!(error, Error::Denied { .. }) && error.to_string().contains("invoices:1"),
            "{error}"
        );
        life.end().await;
    }
    // Nothing beyond the line is even tried.
    redis::cmd("ACL").arg("LOG").arg("RESET").exec(&mut connection).unwrap();
    set_user(&mut connection, "locks", &rules(WireProfile::Native));
    let life = Life::begin(&url(&server, "locks"), WireProfile::Native).await.unwrap();
    life.live(NAME, &mut connection).await.unwrap();
    life.end().await;
    let log: Vec<redis::Value> = redis::cmd("ACL").arg("LOG").query(&mut connection).unwrap();
    assert!(log.is_empty(), "{log:?}");
}

fn is_denial(error: &Error) -> bool {
    matches!(error, Error::Denied { .. } | Error::NotAnnounced { .. } | Error::KeyStillInUse { .. })
}

/// Rules about names with braces, which the names here do not have.
const ABOUT_BRACES: [&str; 2] =
    ["&redisson_lock__channel:orders:*{*", "~redisson_lock_line:orders:*{*"];

/// Without these a waiter has no place in the line, or cannot leave it. That ends no wait, so only
/// `preflight` misses them.
const ABOUT_PLACES: [&str; 2] = ["+zadd", "+zrem"];

/// Whether `preflight` says that exactly this is missing.
fn is_missed(report: &PreflightReport, what: &str) -> bool {
    let found: Vec<&Finding> = report.about("permissions").collect();
    matches!(found[..], [Finding { severity: Severity::Error, found, .. }] if found.contains(what))
}

/// What has to be in the error when this rule is taken away.
fn named(rule: &str) -> &str {
    match rule.split_at(1) {
        ("+", command) => command,
        ("~", "orders:*") => "orders:42",
        ("~", "redisson_lock_line__{orders:*}") => "redisson_lock_line__{orders:42}",
        ("~", _) => "redisson_lock_fence:{",
        ("&", "redisson_lock__client:*") => "redisson_lock__client:{",
        ("&", _) => "redisson_lock__channel__{orders:42}",
        _ => panic!("{rule}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_missing_permission_is_named() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let all = rules(WireProfile::Native);
    let (mut missed, mut removed) = (Vec::new(), 0);
    for (number, rule) in all.iter().enumerate() {
        if rule == "resetchannels" || ABOUT_BRACES.contains(&rule.as_str()) {
            continue;
        }
        let about_places = ABOUT_PLACES.contains(&rule.as_str());
        // Redis 6.2 cannot tell permissions.
        if about_places && version() < (7, 0) {
            continue;
        }
        removed += 1;
        let some: Vec<String> = all.iter().filter(|other| *other != rule).cloned().collect();
        let user = format!("without-{number}");
        set_user(&mut connection, &user, &some);
        // A script that the server knows from the last user needs no EVAL.
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection).unwrap();
        let end = timeout(3 * BOUND, async {
            let life = Life::begin(&url(&server, &user), WireProfile::Native).await?;
            let end = life.live(NAME, &mut server.connection()).await;
            let end = match end {
                Ok(()) => life.ours.preflight(NAME).await,
                Err(error) => Err(error),
            };
            let immortal = look::immortal_keys(&mut server.connection());
            assert!(immortal.is_empty(), "without {rule}: {immortal:?}");
            if about_places {
                // It lives for 12 s where nobody can leave it.
                redis::cmd("DEL").arg(LINE).exec(&mut server.connection()).unwrap();
            }
            leaves_nothing(&server, &life.ours).await;
            life.end().await;
            end
        });
        let end = end.await.unwrap_or_else(|_| panic!("without {rule}: a hang"));
        match end {
            Ok(report) if about_places && is_missed(&report, named(rule)) => {
                println!("without {rule}: {report}");
            }
            Err(error)
                if is_denial(&error) && error.to_string().to_lowercase().contains(named(rule)) =>
            {
                println!("without {rule}: {error}");
            }
            other => missed.push(format!("without {rule}: {other:?}")),
        }
        assert!(
            look::dump(&mut connection).keys().all(|key| key.starts_with("redisson_lock_fence:"))
        );
    }
    assert!(missed.is_empty(), "\n{}", missed.join("\n"));
    println!("{{\"part\":\"acl\",\"removed\":{removed}}}");
}

/// Sets a user on some nodes, by rules of which one may be left out.
fn set_on(topology: &Topology, nodes: Range<usize>, rules: &[String], without: &str) {
    for node in nodes {
        let rules: Vec<String> = rules.iter().filter(|rule| *rule != without).cloned().collect();
        set_user(&mut topology.connection(node), "narrow", &rules);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_line_for_a_cluster() {
    if !has_redis_7("sharded pub/sub") {
        return;
    }
    let cluster = Topology::cluster();
    let acl =
        RequiredAcl::new(["orders:*"]).unwrap().topology(redis_reentrant_lock::Topology::Cluster);
    let rules = acl.rules();
    let url = format!("redis-cluster://narrow:pw@{}", cluster.addresses(0..6).join(","));
    let on_first = |name: &String| {
        cluster.owner_of(cluster.ask(0, &["CLUSTER", "KEYSLOT", name]), 0) == Some(0)
    };
    let name = (0..).map(|number| format!("orders:{number}")).find(on_first).unwrap();
    // Of ASKING and SUNSUBSCRIBE nobody hears here: no slot moves, and an old subscription harms
    // nobody.
    for without in [
        "",
        "+cluster|slots",
        "+pubsub|shardnumsub",
        "+ssubscribe",
        "+spublish",
        "+subscribe",
        "+get",
    ] {
        set_on(&cluster, 0..6, &rules, without);
        let end = timeout(3 * BOUND, async {
            let life = Life::begin(&url, WireProfile::Native).await?;
            let end = life.live(&name, &mut cluster.connection(0)).await;
            let report = life.ours.preflight(&name).await?;
            assert_eq!(report.is_usable(), without.is_empty(), "without {without}: {report}");
            life.end().await;
            end
        });
        match end.await.unwrap_or_else(|_| panic!("without {without}: a hang")) {
            Ok(()) => assert_eq!(without, ""),
            Err(error) => {
                println!("without {without}: {error}");
                assert!(is_denial(&error), "without {without}: {error:?}");
                let words = error.to_string().to_lowercase();
                let named = words.contains(&without[1..]) || words.contains("publish to");
                assert!(!without.is_empty() && named, "without {without}: {error}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lines_for_sentinels() {
    let set = Topology::sentinel();
    let acl =
        RequiredAcl::new(["orders:*"]).unwrap().topology(redis_reentrant_lock::Topology::Sentinel);
    let line = acl.sentinel_line().unwrap();
    let rules: Vec<String> =
        line.split("password> ").nth(1).unwrap().split(' ').map(str::to_owned).collect();
    set_on(&set, 0..3, &acl.rules(), "");
    let sentinels = set.addresses(3..6).join(",");
    let url = format!(
        "redis-sentinel://narrow:pw@{sentinels}/main?sentinel_user=narrow&sentinel_password=pw"
    );
    // Without the others a failover is noticed later, or a sentinel that lags behind is believed.
    for without in ["", "+sentinel|get-master-addr-by-name"] {
        set_on(&set, 3..6, &rules, without);
        match Life::begin(&url, WireProfile::Native).await {
            Ok(life) => {
                assert_eq!(without, "");
                life.live(NAME, &mut set.connection(set.primary())).await.unwrap();
                assert!(life.ours.preflight(NAME).await.unwrap().is_usable());
                life.end().await;
            }
            Err(error) => {
                assert!(matches!(error, Error::Denied { .. }), "without {without}: {error:?}");
                // Redis 6.2 names no subcommand.
                let named = if version() < (7, 0) { "'sentinel'" } else { &without[1..] };
                assert!(!without.is_empty() && error.to_string().contains(named), "{error}");
            }
        }
    }
}

#[test]
fn the_commands_are_those_of_the_scripts_and_no_others() {
    let mut called: Vec<String> = Vec::new();
    for text in look::scripts().values() {
        for call in ["redis.call(\"", "redis.pcall(\""] {
            let names =
                text.split(call).skip(1).map(|rest| rest.split('"').next().unwrap().to_lowercase());
            called.extend(names);
        }
    }
    called.extend(
        ["publish", "ping", "info", "time", "eval", "evalsha", "subscribe", "unsubscribe"]
            .map(String::from),
    );
    called.sort();
    called.dedup();
    let mut allowed: Vec<String> = rules(WireProfile::Native)
        .iter()
        .filter_map(|rule| rule.strip_prefix('+'))
        .map(str::to_owned)
        .collect();
    allowed.sort();
    assert_eq!(allowed, called);
    let in_other_profile = rules(WireProfile::Redisson);
    let is_about_lines = |rule: &String| rule.contains("line") || rule.starts_with("+z");
    assert!(!in_other_profile.iter().any(is_about_lines), "{in_other_profile:?}");
}

#[test]
fn rules_are_as_narrow_as_the_syntax_allows() {
    let with = |patterns: &[&str], profile, sign: &str| -> Vec<String> {
        let acl = RequiredAcl::new(patterns).unwrap().profile(profile);
        acl.rules().into_iter().filter(|rule| rule.starts_with(sign)).collect()
    };
    let (ours, java) = (WireProfile::Native, WireProfile::Redisson);
    let client = "&redisson_lock__client:*";
    let fences = "~redisson_lock_fence:{*}";
    assert_eq!(
        with(&["orders:*"], ours, "~"),
        ["~orders:*", fences, "~redisson_lock_line:orders:*{*", "~redisson_lock_line__{orders:*}"]
    );
    assert_eq!(with(&["orders:*"], java, "~"), ["~orders:*", fences]);
    assert_eq!(
        with(&["orders:*"], ours, "&"),
        ["&redisson_lock__channel:orders:*{*", "&redisson_lock__channel__{orders:*}", client]
    );
    assert_eq!(
        with(&["orders:*"], java, "&"),
        ["&redisson_lock__channel:orders:*{*", "&redisson_lock__channel:{orders:*}", client]
    );
    // One name, or one tag: one fence counter.
    let fence = with(&["orders:42"], ours, "~");
    assert!(fence[1].starts_with("~redisson_lock_fence:{") && !fence[1].contains('*'), "{fence:?}");
    assert_eq!(fence[2..], ["~redisson_lock_line__{orders:42}"]);
    assert_eq!(with(&["orders:42"], ours, "&"), ["&redisson_lock__channel__{orders:42}", client]);
    let fence = with(&["a{orders}:*"], ours, "~");
    assert!(fence[1].starts_with("~redisson_lock_fence:{") && !fence[1].contains('*'), "{fence:?}");
    assert_eq!(fence[2..], ["~redisson_lock_line:a{orders}:*"]);
    assert_eq!(with(&["a{orders}:*"], ours, "&"), ["&redisson_lock__channel:a{orders}:*", client]);
    assert_eq!(
        with(&["*{orders}"], ours, "~"),
        ["~*{orders}", fences, "~redisson_lock_line:*{orders}"]
    );
    // What means something in a pattern is written as it was, and a class that takes a brace is a
    // brace.
    assert_eq!(with(&["a\\*b"], ours, "&"), ["&redisson_lock__channel__{a\\*b}", client]);
    assert_eq!(with(&["a[0-9]b"], ours, "&"), ["&redisson_lock__channel__{a[0-9]b}", client]);
    assert_eq!(
        with(&["a[^0-9]b?"], ours, "&"),
        [
            "&redisson_lock__channel:a[^0-9]b{",
            "&redisson_lock__channel:a{b?",
            "&redisson_lock__channel__{a[^0-9]b?}",
            client
        ]
    );
    // Redis takes no second pattern after this one.
    assert_eq!(with(&["**", "orders:*"], ours, "~"), ["~*"]);
    assert_eq!(with(&["a", "a"], ours, "&").len(), 2);
}

#[test]
fn redis_takes_every_line() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    use redis_reentrant_lock::Topology as Kind;
    for topology in [Kind::Single, Kind::Sentinel, Kind::Cluster] {
        for patterns in
            [&["*"][..], &["orders:*", "a\\[b", "x[^{]?"], &["ü:*🔒", "\"'#"], &["{a}b", "a{b}*"]]
        {
            let acl = RequiredAcl::new(patterns).unwrap().topology(topology);
            let acl = acl.other_database(true).user("some-user").unwrap();
            // What a server does not know it does not take.
            let acl = if version() < (7, 0) { acl.sharding(Sharding::Off) } else { acl };
            set_user(&mut connection, "some-user", &acl.rules());
            let line = acl.line();
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words[..5], ["ACL", "SETUSER", "some-user", "reset", "on"]);
            // As it stands it has no password, and is refused for it.
            let refused = redis::cmd("ACL").arg(&words[1..]).exec(&mut connection).unwrap_err();
            assert!(refused.to_string().contains("#<SHA-256"), "{refused}");
            assert_eq!(acl.sentinel_line().is_some(), topology == Kind::Sentinel);
        }
    }
}

#[test]
fn patterns_that_are_none() {
    let long = "x".repeat(513);
    for (pattern, words) in [
        ("", "1 to 512 bytes"),
        (&*long, "1 to 512 bytes"),
        ("a b", "white space"),
        ("a\tb", "white space"),
        ("a\u{a0}b", "white space"),
        ("a\nb*", "white space"),
        ("a\0*", "control"),
        ("a[bc", "`]`"),
        ("a[b\\]", "`]`"),
        ("abc\\", "backslash"),
        ("{}x", "non-empty {tag}"),
    ] {
        let error = RequiredAcl::new([pattern]).unwrap_err();
        assert!(error.is_config() && error.to_string().contains(words), "{pattern:?}: {error}");
        assert!(!error.to_string().contains(char::is_control), "{error}");
    }
    assert!(RequiredAcl::new(&[] as &[&str]).unwrap_err().to_string().contains("at least one"));
    for user in ["", "a b", "a\0"] {
        let error = RequiredAcl::new(["*"]).unwrap().user(user).unwrap_err();
        assert!(error.to_string().contains("user"), "{error}");
    }
}
