//! What is taken over from a client of fred and from a configuration of fred.

use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::RespVersion;
use fred::types::config::Blocking;
use fred::types::config::Config as FredConfig;
use fred::types::config::ConnectionConfig;
use fred::types::config::PerformanceConfig;
use fred::types::config::Server;
use fred::types::config::ServerConfig;
#[cfg(any(feature = "rustls", feature = "native-tls"))]
use fred::types::config::TlsConnector;
#[cfg(any(feature = "rustls", feature = "native-tls"))]
use fred::types::config::TlsHostMapping;

use crate::backend::redis::RedisConfig;
use crate::backend::redis::budget::Budgets;
use crate::backend::redis::config::Access;
use crate::backend::redis::config::Deployment;
use crate::backend::redis::config::Endpoint;
use crate::backend::redis::config::Login;
use crate::backend::redis::config::report_not_taken;
use crate::backend::redis::config::without_brackets;
use crate::backend::redis::resp::Protocol;
use crate::backend::redis::tls::Connector;
use crate::backend::redis::wire::WAITING;
use crate::base::error::Error;
use crate::settings::config;

/// The most messages that may wait to be read. With fred's own default of 32, most of a burst is
/// lost.
const MESSAGES: usize = 16 * 1024;

/// What our clients of fred are made from.
#[derive(Clone)]
pub(crate) struct Settings {
    config: FredConfig,
    performance: PerformanceConfig,
    connection: ConnectionConfig,
    address: String,
    topology: config::Topology,
    budgets: Budgets,
}

impl Settings {
    /// Takes over what `Client::clone_new` takes over, and replaces the settings that do not suit
    /// locks.
    pub(crate) fn of(client: &Client, command_timeout: Duration) -> Result<Self, Error> {
        let mut config = client.client_config();
        if client.is_clustered() {
            return Err(Error::InvalidOption {
                option: "fred",
                given: "with a client of a cluster".to_owned(),
                allowed: "with one of a single server or of sentinels; give a cluster with \
                          `.fred_config(&client.client_config())`"
                    .to_owned(),
            });
        }
        let budgets = Budgets::of(command_timeout);
        // Without a reconnect policy this means one attempt to connect, and then its error.
        config.fail_fast = true;
        config.blocking = Blocking::Block;
        let mut performance = client.perf_config();
        performance.broadcast_channel_capacity =
            performance.broadcast_channel_capacity.max(MESSAGES);
        // For pipelines and subscriptions, which are given no timeout of their own.
        performance.default_command_timeout = budgets.answer();
        let mut connection = client.connection_config().clone();
        connection.max_command_attempts = 1;
        connection.max_command_buffer_len = WAITING;
        connection.connection_timeout = budgets.socket(1) + budgets.tls();
        connection.internal_command_timeout = budgets.answer();
        connection.tcp.nodelay = Some(true);
        let topology = topology(&config.server);
        let (address, topology) = (topology.to_string(), topology.kind());
        Ok(Self { config, performance, connection, address, topology, budgets })
    }

    /// Makes a new client that is not connected yet. It has no reconnect policy, so it serves one
    /// connection.
    pub(super) fn client(&self) -> Client {
        let (performance, connection) = (self.performance.clone(), self.connection.clone());
        Client::new(self.config.clone(), Some(performance), Some(connection), None)
    }

    pub(super) fn budgets(&self) -> Budgets {
        self.budgets
    }

    /// The timeout of an attempt to connect, until the first questions are answered. If there are
    /// sentinels, it includes asking them.
    pub(super) fn attempt(&self) -> Duration {
        let Self { budgets, connection, .. } = self;
        budgets.search() + connection.connection_timeout + 2 * budgets.answer()
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn topology(&self) -> config::Topology {
        self.topology
    }

    pub(crate) fn database_number(&self) -> u8 {
        self.config.database.unwrap_or(0)
    }

    pub(super) fn is_sentinel(&self) -> bool {
        self.topology == config::Topology::Sentinel
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.config.uses_tls()
    }
}

/// Takes servers, login, database, protocol and TLS from a configuration of fred, for connections
/// of our own.
pub(crate) fn redis_config(config: &FredConfig, access: &Access) -> Result<RedisConfig, Error> {
    if access.tls.is_some() || access.sentinel_tls.is_some() {
        return Err(Error::InvalidOption {
            option: "tls",
            given: "beside a configuration of fred".to_owned(),
            allowed: "in that configuration".to_owned(),
        });
    }
    let tls = connector(config)?;
    let login = Login { user: config.username.clone(), password: config.password.clone() };
    let protocol =
        if config.version == RespVersion::RESP3 { Protocol::Resp3 } else { Protocol::Resp2 };
    let taken = RedisConfig::of_client(topology(&config.server), login, config.database, protocol);
    let taken = taken.with_connector(tls).provided(access)?;
    report_not_taken("fred", &not_taken(config).join(", "));
    Ok(taken)
}

/// The settings of a configuration of fred that have no effect on connections of our own.
fn not_taken(config: &FredConfig) -> Vec<&'static str> {
    // A credential provider can be seen only with a feature of fred that changes what fred does in
    // the whole program. So it is always listed.
    let mut settings = vec!["fail_fast, blocking", "a credential provider"];
    match config.server {
        ServerConfig::Sentinel { .. } => settings.push("the login of the sentinels"),
        ServerConfig::Clustered { .. } => settings.push("the cluster's discovery policy"),
        // One server, at an address or a unix socket.
        _ => {}
    }
    #[cfg(any(feature = "rustls", feature = "native-tls"))]
    if config.tls.as_ref().is_some_and(|tls| tls.hostnames != TlsHostMapping::None) {
        settings.push("the mapping of TLS host names");
    }
    settings
}

fn topology(server: &ServerConfig) -> Deployment {
    let all = |servers: &[Server]| {
        servers.iter().map(|server| (without_brackets(&server.host), server.port)).collect()
    };
    match server {
        ServerConfig::Centralized { server } => Deployment::One(Endpoint::Tcp {
            host: without_brackets(&server.host),
            port: server.port,
            #[cfg(any(feature = "rustls", feature = "native-tls"))]
            certified: server.tls_server_name.as_ref().map(|name| (**name).to_owned()),
            #[cfg(not(any(feature = "rustls", feature = "native-tls")))]
            certified: None,
        }),
        #[cfg(unix)]
        ServerConfig::Unix { path } => Deployment::One(Endpoint::Unix(path.clone())),
        ServerConfig::Sentinel { hosts, service_name, .. } => Deployment::Sentinel {
            sentinels: all(hosts),
            primary_name: service_name.clone(),
            login: Login::default(),
        },
        ServerConfig::Clustered { hosts, .. } => Deployment::Cluster { seeds: all(hosts) },
    }
}

#[cfg(any(feature = "rustls", feature = "native-tls"))]
fn connector(config: &FredConfig) -> Result<Option<Connector>, Error> {
    match config.tls.as_ref().map(|tls| &tls.connector) {
        None => Ok(None),
        #[cfg(feature = "rustls")]
        Some(TlsConnector::Rustls(connector)) => Ok(Some(Connector::Rustls(connector.clone()))),
        #[cfg(feature = "native-tls")]
        Some(TlsConnector::Native(connector)) => Ok(Some(Connector::Native(connector.clone()))),
        // fred has both variants if another crate in the program turns both features on.
        #[allow(unreachable_patterns, reason = "depends on the features of fred")]
        Some(_) => Err(without_its_library()),
    }
}

#[cfg(not(any(feature = "rustls", feature = "native-tls")))]
fn connector(config: &FredConfig) -> Result<Option<Connector>, Error> {
    if config.uses_tls() { Err(without_its_library()) } else { Ok(None) }
}

fn without_its_library() -> Error {
    Error::InvalidOption {
        option: "fred_config",
        given: "with TLS of a library that is switched off here".to_owned(),
        allowed:
            "used with the feature `rustls` or `native-tls` of redis-reentrant-lock, as in fred"
                .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::path::PathBuf;

    const SECOND: Duration = Duration::from_secs(1);

    fn taken(server: ServerConfig) -> RedisConfig {
        let config = FredConfig { server, database: Some(3), ..FredConfig::default() };
        redis_config(&config, &Access::default()).expect("a configuration")
    }

    #[test]
    fn a_configuration_is_taken_for_every_topology() {
        let topology = |server| taken(server).topology().clone();
        let known = vec![("h".to_owned(), 1)];
        assert_eq!(taken(ServerConfig::new_centralized("[::1]", 1)).address(), "[::1]:1");
        assert_eq!(
            topology(ServerConfig::new_sentinel(vec![("h", 1)], "main")),
            Deployment::Sentinel {
                sentinels: known.clone(),
                primary_name: "main".to_owned(),
                login: Login::default()
            }
        );
        #[cfg(unix)]
        assert_eq!(
            topology(ServerConfig::new_unix_socket("/run/s")),
            Deployment::One(Endpoint::Unix(PathBuf::from("/run/s")))
        );
        assert_eq!(taken(ServerConfig::new_centralized("h", 1)).database(), Some(3));
        let cluster = taken(ServerConfig::new_clustered(vec![("h", 1)]));
        assert_eq!(*cluster.topology(), Deployment::Cluster { seeds: known });
        assert_eq!(cluster.database(), None);
    }

    #[test]
    fn login_and_protocol_are_taken() {
        let config = FredConfig {
            username: Some("ann".to_owned()),
            password: Some("pw".to_owned()),
            version: RespVersion::RESP3,
            ..FredConfig::default()
        };
        let taken = redis_config(&config, &Access::default()).expect("a configuration");
        let login = Login { user: Some("ann".to_owned()), password: Some("pw".to_owned()) };
        assert_eq!((taken.login(), taken.protocol()), (&login, Protocol::Resp3));
    }

    #[cfg(any(feature = "rustls", feature = "native-tls"))]
    #[test]
    fn tls_is_taken_and_is_in_one_place() {
        #[cfg(feature = "rustls")]
        let connector = {
            let provider =
                std::sync::Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
            let config = tokio_rustls::rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_root_certificates(tokio_rustls::rustls::RootCertStore::empty())
                .with_no_client_auth();
            TlsConnector::from(config)
        };
        #[cfg(not(feature = "rustls"))]
        let connector = TlsConnector::default_native_tls().expect("a connector");
        let config = FredConfig { tls: Some(connector.into()), ..FredConfig::default() };
        let taken = redis_config(&config, &Access::default()).expect("a configuration");
        assert!(taken.is_encrypted() && taken.at_sentinel("h", 1).is_encrypted());
        let access =
            Access { tls: Some(crate::settings::tls::Tls::default()), ..Access::default() };
        let error = redis_config(&config, &access).expect_err("two places");
        assert!(matches!(error, Error::InvalidOption { option: "tls", .. }), "{error}");
    }

    #[test]
    fn what_is_not_taken_over_is_named() {
        let named = |server| not_taken(&FredConfig { server, ..FredConfig::default() }).join(", ");
        let one = named(ServerConfig::new_centralized("h", 1));
        assert_eq!(one, "fail_fast, blocking, a credential provider");
        let sentinel = named(ServerConfig::new_sentinel(vec![("h", 1)], "main"));
        assert_eq!(sentinel, format!("{one}, the login of the sentinels"));
        let cluster = named(ServerConfig::new_clustered(vec![("h", 1)]));
        assert_eq!(cluster, format!("{one}, the cluster's discovery policy"));
    }

    #[test]
    fn a_cluster_is_refused_and_the_other_way_is_named() {
        let config = FredConfig {
            server: ServerConfig::new_clustered(vec![("h", 1)]),
            ..FredConfig::default()
        };
        let error =
            Settings::of(&Client::new(config, None, None, None), SECOND).err().expect("a cluster");
        assert!(error.is_config() && error.to_string().contains(".fred_config("), "{error}");
    }

    #[test]
    fn our_clients_send_once_and_do_not_reconnect_whatever_the_users_does() {
        let policy = fred::types::config::ReconnectPolicy::new_constant(0, 1);
        let theirs = Client::new(FredConfig::default(), None, None, Some(policy));
        let ours = Settings::of(&theirs, SECOND).expect("one server").client();
        assert!(!ours.has_reconnect_policy() && theirs.has_reconnect_policy());
        assert_eq!(
            (ours.connection_config().max_command_attempts, ours.client_config().fail_fast),
            (1, true)
        );
        assert!(ours.perf_config().broadcast_channel_capacity >= MESSAGES);
        assert_eq!(ours.perf_config().default_command_timeout, 2 * SECOND);
        assert_ne!(ours.id(), theirs.id());
    }
}
