//! The first questions on a new connection: is this server a primary, is its version supported,
//! which process is it?

use std::time::Duration;

use tokio::time::Instant;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::ServerInfo;
use crate::backend::Value;
use crate::backend::redis::classify::failure;
use crate::backend::redis::classify::without_arguments;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::dial::within;
use crate::backend::redis::error::ErrorKind;
use crate::backend::redis::error::WireError;
use crate::backend::redis::login;
use crate::backend::redis::tls;
use crate::backend::redis::wire::Wire;

/// Older servers lack commands that the scripts use.
const OLDEST: (u32, u32) = (6, 2);

/// What a proxy without pub/sub lacks.
pub(crate) const WITHOUT_PUBSUB: &str = "[pub/sub is missing: locks need SUBSCRIBE, UNSUBSCRIBE and PING on a \
                                         connection of their own, which a proxy must pass through]";

/// The result of the handshake.
pub(crate) struct Greeting {
    pub(crate) server: ServerInfo,
    /// How long the answers took.
    pub(crate) round_trip: Duration,
}

/// Asks everything in one round trip.
///
/// INFO must be answered: it says whether this is the primary, and its `run_id` identifies the
/// start of the server. Without that, lost data looks like a deleted key. Scripts are not loaded
/// here: the server may have them already, and a slow link can be used before all of them are
/// transferred.
pub(crate) async fn greet(wire: &mut Wire, config: &RedisConfig) -> Result<Greeting, Failure> {
    let sent = Instant::now();
    let questions = [vec!["PING"], vec!["INFO", "server"], vec!["INFO", "replication"]];
    let asked =
        within("no answer to PING and INFO", config.budgets().answer(), wire.ask(&questions)).await;
    let answers = asked.map_err(|error| explain(&error, config))?;
    let round_trip = sent.elapsed();
    let mut answers = answers.into_iter();
    let mut next = || answers.next().unwrap_or(Ok(Value::Nil)).map_err(|error| failure(&error));

    next()?;
    let info = InfoSections { server: text(next()?)?, replication: text(next()?)? };
    let scheme = if config.is_encrypted() { "rediss-cluster://" } else { "redis-cluster://" };
    let instead = config.is_alone().then(|| format!("use {scheme} in the address"));
    let server = info.examine(instead.as_deref(), config.had_primary(), config.address())?;
    Ok(Greeting { server, round_trip })
}

/// The sections of INFO that are read.
pub(crate) struct InfoSections {
    /// Its section `server`.
    pub(crate) server: String,
    /// Its section `replication`.
    pub(crate) replication: String,
}

impl InfoSections {
    /// Checks that the server is a primary with a supported version, and returns its identity. A
    /// node of a cluster is refused if one server was given; `instead` then says what to give.
    pub(crate) fn examine(
        &self,
        instead: Option<&str>,
        had_primary: bool,
        address: String,
    ) -> Result<ServerInfo, Failure> {
        if let Some(instead) = instead {
            check_mode(&self.server, instead)?;
        }
        if let Some(role) = role(&self.server, &self.replication) {
            check_role(&role, had_primary)?;
        }
        let version = version(&self.server);
        check_version(&version)?;
        Ok(ServerInfo {
            run_id: field(&self.server, "run_id").unwrap_or_default(),
            version,
            address,
            uptime: uptime(&self.server),
        })
    }
}

pub(crate) fn text(value: Value) -> Result<String, Failure> {
    match value {
        Value::Text(text) => Ok(text),
        _ => Err(Failure::new(FailureKind::Unsupported, "its answer to INFO is not understood")),
    }
}

/// The role of the server. A sentinel has no `role` in INFO.
fn role(server: &str, replication: &str) -> Option<String> {
    if mode(server).as_deref() == Some("sentinel") {
        return Some("sentinel".to_owned());
    }
    field(replication, "role")
}

/// Valkey has called the field `server_mode` since 8.0, unless `extended-redis-compatibility` is
/// on.
fn mode(server: &str) -> Option<String> {
    field(server, "redis_mode").or_else(|| field(server, "server_mode"))
}

/// A field of INFO.
fn field(info: &str, name: &str) -> Option<String> {
    info.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.trim().to_owned())
}

/// For how long the process has been there at least. Redis takes the difference of two times in
/// whole seconds, which may be nearly a second too much.
fn uptime(info: &str) -> Duration {
    let seconds = field(info, "uptime_in_seconds").and_then(|seconds| seconds.parse().ok());
    seconds.map_or(Duration::ZERO, |seconds: u64| Duration::from_secs(seconds.saturating_sub(1)))
}

/// The version. Valkey reports the Redis version that it is compatible with, 7.2, besides its own.
fn version(info: &str) -> String {
    field(info, "redis_version").unwrap_or_default()
}

/// Refuses a node of a cluster, because it serves only some of the lock names and redirects the
/// others. Even a node that has all slots now may have fewer later.
fn check_mode(server: &str, instead: &str) -> Result<(), Failure> {
    if mode(server).as_deref() != Some("cluster") {
        return Ok(());
    }
    let words =
        format!("it is a node of a cluster, which may serve only some of the locks; {instead}");
    Err(Failure::new(FailureKind::Unsupported, words))
}

/// `had_primary`: a replica at this address is not a mistake in the address, but a passing state.
fn check_role(role: &str, had_primary: bool) -> Result<(), Failure> {
    if role == "master" {
        return Ok(());
    }
    let found = match role {
        "slave" => "a replica",
        "sentinel" => "a sentinel",
        other => other,
    };
    let kind = if had_primary { FailureKind::ReadOnly } else { FailureKind::Unsupported };
    Err(Failure::new(kind, format!("it is {found}; locks need the primary")))
}

fn check_version(version: &str) -> Result<(), Failure> {
    let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else { return Ok(()) };
    if (major, minor) >= OLDEST {
        return Ok(());
    }
    Err(Failure::new(
        FailureKind::Unsupported,
        format!("version {version} is too old; Redis 6.2 or Valkey 7.2 is required"),
    ))
}

/// The failure of an attempt to connect, with a text that says what to change.
pub(crate) fn explain(error: &WireError, config: &RedisConfig) -> Failure {
    login::judge(explain_to(error, config.is_encrypted()), config)
}

/// The same where there is no credential provider that could give another login.
pub(crate) fn explain_to(error: &WireError, encrypted: bool) -> Failure {
    if let Some(failure) = tls::explain(error, encrypted) {
        return failure;
    }
    let mut failure = failure(error);
    failure.message.truncate(without_arguments(&failure.message).len());
    if failure.message.contains("DB index") || failure.message.contains("SELECT is not allowed") {
        failure.message =
            format!("the database in the address does not exist there: {}", failure.message);
    }
    failure
}

/// The same for a pub/sub connection that was opened but does not work. While commands are
/// answered, the port and TLS are right.
pub(crate) fn explain_pubsub(
    error: &WireError,
    config: &RedisConfig,
    commands_answered: bool,
) -> Failure {
    if commands_answered && error.kind() != ErrorKind::Reply {
        return Failure::new(FailureKind::Link, format!("{} {WITHOUT_PUBSUB}", error.details()));
    }
    name_pubsub(explain(error, config))
}

/// Adds to the refusal of a command that pub/sub needs what is missing.
pub(crate) fn name_pubsub(mut failure: Failure) -> Failure {
    if failure.kind == FailureKind::Unsupported {
        failure.message = format!("{} {WITHOUT_PUBSUB}", failure.message);
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_does_not_exist_is_said_to_be_the_addresss() {
        let told = |words| explain_to(&WireError::new(ErrorKind::Reply, words), false).message;
        for words in ["ERR DB index is out of range", "ERR SELECT is not allowed in cluster mode"] {
            assert_eq!(
                told(words),
                format!("the database in the address does not exist there: {words}")
            );
        }
        assert_eq!(told("ERR other"), "ERR other");
        assert_eq!(
            told("ERR unknown command 'AUTH', with args beginning with: 'pw'"),
            "ERR unknown command 'AUTH'"
        );
    }

    #[test]
    fn pubsub_is_said_to_be_missing_where_only_that_can_be_the_reason() {
        let config = RedisConfig::parse("redis://h").expect("an address");
        let cases = [
            (ErrorKind::Io, "cut", true, FailureKind::Link, true),
            (ErrorKind::Io, "cut", false, FailureKind::Link, false),
            (ErrorKind::Reply, "ERR unknown command 'PING'", true, FailureKind::Unsupported, true),
            (ErrorKind::Reply, "ERR unknown command 'PING'", false, FailureKind::Unsupported, true),
            (ErrorKind::Reply, "NOPERM no", true, FailureKind::Denied, false),
        ];
        for (kind, words, commands_answered, expected, missing) in cases {
            let failure = explain_pubsub(&WireError::new(kind, words), &config, commands_answered);
            let row = format!("{kind:?} {words}, commands answered: {commands_answered}");
            assert_eq!(
                (failure.kind, failure.message.contains(WITHOUT_PUBSUB)),
                (expected, missing),
                "{row}"
            );
        }
    }

    #[test]
    fn only_a_primary_is_taken() {
        assert!(check_role("master", false).is_ok() && check_role("master", true).is_ok());
        for (role, words) in [("slave", "replica"), ("sentinel", "sentinel")] {
            let failure = check_role(role, true).expect_err(role);
            assert_eq!(failure.kind, FailureKind::ReadOnly);
            let failure = check_role(role, false).expect_err(role);
            assert_eq!(failure.kind, FailureKind::Unsupported);
            assert!(failure.message.contains(words), "{failure}");
        }
    }

    #[test]
    fn a_node_of_a_cluster_is_no_single_server() {
        for other in [
            "",
            "redis_mode:standalone\r\n",
            "server_mode:standalone\r\n",
            "redis_mode:sentinel\r\n",
        ] {
            assert!(check_mode(other, "use another").is_ok(), "{other}");
        }
        for mode in ["redis_mode:cluster\r\n", "server_mode:cluster\r\n"] {
            let failure = check_mode(mode, "use another").expect_err(mode);
            assert_eq!(failure.kind, FailureKind::Unsupported);
            assert!(failure.message.contains("; use another"), "{failure}");
        }
    }

    #[test]
    fn old_versions_are_refused_and_unknown_ones_are_not() {
        for version in ["6.2.0", "7.0.15", "7.2.4", "8.0", "10.0.1", "", "unstable", "255.255.255"]
        {
            assert!(check_version(version).is_ok(), "{version}");
        }
        for version in ["2.8.1", "5.0.14", "6.0.20", "6.1.240"] {
            let failure = check_version(version).expect_err(version);
            assert_eq!(failure.kind, FailureKind::Unsupported);
            assert!(
                failure.message.contains(version) && failure.message.contains("6.2"),
                "{failure}"
            );
        }
    }

    #[test]
    fn info_is_a_text() {
        assert_eq!(text(Value::Text("role:master".to_owned())).as_deref(), Ok("role:master"));
        for other in [Value::Nil, Value::Int(1), Value::List(vec![Value::Text("INFO".to_owned())])]
        {
            assert!(text(other).is_err_and(|failure| failure.message.contains("INFO")));
        }
    }

    #[test]
    fn info_is_read_by_field() {
        let info = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\nrun_id:ab12\r\n";
        assert_eq!(version(info), "7.2.4");
        assert_eq!(field(info, "run_id").as_deref(), Some("ab12"));
        assert_eq!(field(info, "role"), None);
        assert_eq!(uptime("uptime_in_seconds:77\r\n"), Duration::from_secs(76));
        assert_eq!(uptime("uptime_in_seconds:1\r\n"), Duration::ZERO, "it may be a millisecond");
        assert_eq!(uptime("uptime_in_seconds:0\r\n"), Duration::ZERO);
        assert_eq!(uptime("uptime_in_seconds:-1\r\n"), Duration::ZERO);
        assert_eq!(uptime(info), Duration::ZERO);
        assert_eq!(role(info, "# Replication\r\nrole:slave\r\n").as_deref(), Some("slave"));
        for mode in ["redis_mode:sentinel\r\n", "server_mode:sentinel\r\n"] {
            assert_eq!(role(mode, "").as_deref(), Some("sentinel"));
        }
        assert_eq!(role("redis_mode:cluster\r\n", ""), None);
    }
}
