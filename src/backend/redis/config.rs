//! The settings of a deployment: which servers there are and how to log in to them. Its debug text
//! has no password.

#[cfg(feature = "redis")]
mod redis_rs;
mod url;

use std::fmt;
use std::net::IpAddr;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

#[cfg(any(feature = "fred", feature = "redis"))]
use tracing::Level;
#[cfg(any(feature = "fred", feature = "redis"))]
use tracing::event;

use crate::backend::BatchScript;
use crate::backend::redis::budget::Budgets;
use crate::backend::redis::names::Resolver;
use crate::backend::redis::resp::Protocol;
use crate::backend::redis::tls;
use crate::backend::redis::tls::Connector;
use crate::base::error::Error;
#[cfg(any(feature = "fred", feature = "redis"))]
use crate::base::log::TARGET;
#[cfg(any(feature = "fred", feature = "redis"))]
use crate::base::log::tell;
use crate::settings::address_map::AddressMap;
use crate::settings::config;
use crate::settings::credentials::CredentialProvider;
use crate::settings::tls::Tls;

/// Servers, logins, database, protocol and TLS.
#[derive(Clone)]
pub(crate) struct RedisConfig {
    topology: Deployment,
    login: Login,
    database: Option<u8>,
    protocol: Protocol,
    tls: Option<Connector>,
    sentinel_tls: Option<Connector>,
    provider: Option<CredentialProvider>,
    several: Option<BatchScript>,
    budgets: Budgets,
    resolver: Resolver,
    address_map: Option<AddressMap>,
    /// The address under which other servers announce this one, if connections go to another.
    announced: Option<Address>,
    /// True if connections follow the host name of their server when it resolves to other
    /// addresses.
    follows_names: bool,
    /// True if sentinels, a cluster or an earlier connection have said that the primary is there.
    had_primary: bool,
    /// True if the user gave one server. Otherwise a cluster or sentinels lead to it.
    alone: bool,
}

/// The settings that are not in an address: TLS, and where logins come from.
#[derive(Clone, Default)]
pub(crate) struct Access {
    pub(crate) tls: Option<Tls>,
    /// TLS for the sentinels; if not given, `tls` applies.
    pub(crate) sentinel_tls: Option<Tls>,
    /// Replaces user and password.
    pub(crate) provider: Option<CredentialProvider>,
    /// Maps the addresses that other servers announce.
    pub(crate) address_map: Option<AddressMap>,
    /// True if connections stay with their address when the host name of their server resolves to
    /// others.
    pub(crate) ignores_dns: bool,
    #[cfg(test)]
    pub(crate) resolver: Resolver,
}

/// Which connections use TLS, according to the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Encrypted {
    pub(crate) servers: bool,
    pub(crate) sentinels: bool,
}

/// Host and port of a server. An IPv6 address has no brackets.
pub(crate) type Address = (String, u16);

/// Which servers there are, and how the primary is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Deployment {
    /// One server, whose address is known.
    One(Endpoint),
    /// A primary that any of the sentinels can name. The sentinels get a login only if they have
    /// one of their own.
    Sentinel { sentinels: Vec<Address>, primary_name: String, login: Login },
    /// A cluster, of which some nodes are known.
    Cluster { seeds: Vec<Address> },
}

impl Deployment {
    /// The topology for the public API.
    pub(crate) fn kind(&self) -> config::Topology {
        match self {
            Self::One(_) => config::Topology::Single,
            Self::Sentinel { .. } => config::Topology::Sentinel,
            Self::Cluster { .. } => config::Topology::Cluster,
        }
    }
}

/// The address of the server, or those of all known ones, without credentials.
impl fmt::Display for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |known: &[Address]| {
            known
                .iter()
                .map(|(host, port)| host_and_port(host, *port))
                .collect::<Vec<_>>()
                .join(", ")
        };
        match self {
            Self::One(Endpoint::Tcp { host, port, .. }) => f.write_str(&host_and_port(host, *port)),
            Self::One(Endpoint::Unix(path)) => path.display().fmt(f),
            Self::Sentinel { sentinels, primary_name, .. } => {
                write!(f, "{primary_name} of the sentinels {}", all(sentinels))
            }
            Self::Cluster { seeds } => write!(f, "cluster of {}", all(seeds)),
        }
    }
}

/// The address of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Tcp {
        /// An IPv6 address has no brackets.
        host: String,
        port: u16,
        /// The name that the certificate must be issued for, if it is not the host.
        certified: Option<String>,
    },
    Unix(PathBuf),
}

/// User and password, if any.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "***");
        f.debug_struct("Login").field("user", &self.user).field("password", &password).finish()
    }
}

impl RedisConfig {
    /// Parses an address. The protocol is RESP2 unless `?protocol=resp3` is given: the scripts gain
    /// nothing from RESP3, and RESP2 needs no HELLO, which proxies may not support and users may
    /// not be allowed to call.
    ///
    /// No error repeats a part of the address that could hold a password.
    pub(crate) fn with_access(address: &str, access: &Access) -> Result<Self, Error> {
        let (config, encrypted) = url::parse(address)?;
        config.secured(encrypted, access)?.provided(access)
    }

    /// Parses an address without loading the system's certificate authorities, which takes
    /// milliseconds.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn read(address: &str) -> Result<Self, Error> {
        url::parse(address).map(|(config, _)| config)
    }

    /// Parses an address that needs no further settings.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn parse(address: &str) -> Result<Self, Error> {
        Self::with_access(address, &Access::default())
    }

    pub(crate) fn secured(mut self, encrypted: Encrypted, access: &Access) -> Result<Self, Error> {
        let unused = |option, given: &str, allowed: &str| {
            Err(Error::InvalidOption {
                option,
                given: given.to_owned(),
                allowed: allowed.to_owned(),
            })
        };
        if access.tls.is_some() && !encrypted.servers && !encrypted.sentinels {
            return unused(
                "tls",
                "with an address without TLS",
                "used with rediss://, or left out",
            );
        }
        if access.sentinel_tls.is_some() && !encrypted.sentinels {
            return unused(
                "sentinel_tls",
                "with an address without it",
                "used with rediss-sentinel://",
            );
        }
        let of_servers = access.tls.clone().unwrap_or_default();
        let of_sentinels = access.sentinel_tls.as_ref().unwrap_or(&of_servers);
        self.tls = encrypted.servers.then(|| tls::connector(&of_servers)).transpose()?;
        self.sentinel_tls =
            encrypted.sentinels.then(|| tls::connector(of_sentinels)).transpose()?;
        Ok(self)
    }

    pub(crate) fn provided(mut self, access: &Access) -> Result<Self, Error> {
        if access.provider.is_some() && self.login != Login::default() {
            return Err(Error::InvalidOption {
                option: "credentials",
                given: "beside a user or password in the address".to_owned(),
                allowed: "in one of the two places".to_owned(),
            });
        }
        self.provider = access.provider.clone();
        self.follows_names = !access.ignores_dns;
        self.address_map = access.address_map.clone();
        #[cfg(test)]
        let this = self.resolved_by(access.resolver.clone());
        #[cfg(not(test))]
        let this = self;
        Ok(this)
    }

    /// Takes the settings of another library's client. TLS is added by `secured` or
    /// `with_connector`.
    #[cfg(any(feature = "fred", feature = "redis"))]
    pub(crate) fn of_client(
        topology: Deployment,
        login: Login,
        database: Option<u8>,
        protocol: Protocol,
    ) -> Self {
        // The nodes of a cluster have only database 0, and other libraries ignore another one for
        // them.
        let database = database.filter(|_| !matches!(topology, Deployment::Cluster { .. }));
        Self { login, database, protocol, ..Self::new(topology) }
    }

    /// Uses this connector for servers and sentinels alike; `None` means no TLS.
    #[cfg(feature = "fred")]
    pub(crate) fn with_connector(self, tls: Option<Connector>) -> Self {
        Self { sentinel_tls: tls.clone(), tls, ..self }
    }

    fn new(topology: Deployment) -> Self {
        Self {
            alone: matches!(topology, Deployment::One(_)),
            topology,
            login: Login::default(),
            database: None,
            protocol: Protocol::Resp2,
            tls: None,
            sentinel_tls: None,
            provider: None,
            several: None,
            budgets: Budgets::of(config::Config::DEFAULT_COMMAND_TIMEOUT),
            resolver: Resolver::default(),
            address_map: None,
            announced: None,
            follows_names: true,
            had_primary: false,
        }
    }

    /// Sets the time limits that follow from this command timeout.
    pub(crate) fn timed(mut self, command_timeout: Duration) -> Self {
        self.budgets = Budgets::of(command_timeout);
        self
    }

    pub(crate) fn budgets(&self) -> Budgets {
        self.budgets
    }

    /// Sets the resolver of host names.
    #[cfg(test)]
    pub(crate) fn resolved_by(mut self, resolver: Resolver) -> Self {
        self.resolver = resolver;
        self
    }

    pub(crate) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Whether connections follow the host names of their servers to other addresses.
    pub(crate) fn follows_names(&self) -> bool {
        self.follows_names
    }

    /// True if there may be a host name to follow: sentinels may announce one.
    pub(crate) fn may_have_names(&self) -> bool {
        match &self.topology {
            Deployment::One(Endpoint::Tcp { host, .. }) => host.parse::<IpAddr>().is_err(),
            Deployment::One(Endpoint::Unix(_)) => false,
            Deployment::Sentinel { .. } | Deployment::Cluster { .. } => true,
        }
    }

    /// Sets the script that runs batches of calls. It is used where one server has all keys.
    pub(crate) fn run_together(mut self, several: BatchScript) -> Self {
        self.several = Some(several);
        self
    }

    pub(crate) fn several(&self) -> Option<BatchScript> {
        self.several.filter(|_| self.alone || matches!(self.topology, Deployment::Sentinel { .. }))
    }

    /// True if the address has had a primary. A replica found there is then a passing state:
    /// sentinels will name another server, or the name will resolve to another address.
    pub(crate) fn had_primary(&self) -> bool {
        self.had_primary
    }

    pub(crate) fn note_primary(&mut self) {
        self.had_primary = true;
    }

    /// True if all locks are on this one server.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Which servers there are.
    pub(crate) fn topology(&self) -> &Deployment {
        &self.topology
    }

    /// The settings for the backend of one primary: the same with only this server. An IPv6 address
    /// may have brackets.
    pub(crate) fn at(&self, host: &str, port: u16) -> Self {
        self.of_place(Endpoint::Tcp { host: without_brackets(host), port, certified: None })
    }

    /// The same for a server that sentinels or a cluster announce at this address, which the user's
    /// address map may replace.
    pub(crate) fn at_announced(&self, host: &str, port: u16) -> Self {
        let Some(map) = &self.address_map else { return self.at(host, port) };
        let announced = (without_brackets(host), port);
        let mapped = map.apply(&announced.0, port);
        let (host, certified) = (without_brackets(&mapped.host), mapped.certified_for);
        let place = Endpoint::Tcp { host, port: mapped.port, certified };
        Self { announced: Some(announced), ..self.of_place(place) }
    }

    fn of_place(&self, place: Endpoint) -> Self {
        Self { topology: Deployment::One(place), had_primary: true, ..self.clone() }
    }

    /// The settings for one sentinel, with the sentinels' own login and TLS.
    pub(crate) fn at_sentinel(&self, host: &str, port: u16) -> Self {
        let login = match &self.topology {
            Deployment::Sentinel { login, .. } => login.clone(),
            Deployment::One(_) | Deployment::Cluster { .. } => Login::default(),
        };
        let tls = self.sentinel_tls.clone();
        // RESP3, because questions are asked on the connection that has subscriptions.
        let protocol = Protocol::Resp3;
        Self { login, database: None, protocol, tls, provider: None, ..self.at(host, port) }
    }

    /// The topology for the public API.
    pub(crate) fn kind(&self) -> config::Topology {
        self.topology.kind()
    }

    /// The number of the database.
    pub(crate) fn database_number(&self) -> u8 {
        self.database.unwrap_or(0)
    }

    /// The address of the server, or of the first one of several.
    pub(crate) fn place(&self) -> Endpoint {
        match &self.topology {
            Deployment::One(place) => place.clone(),
            Deployment::Sentinel { sentinels: known, .. }
            | Deployment::Cluster { seeds: known } => {
                let (host, port) = known.first().cloned().unwrap_or_default();
                Endpoint::Tcp { host: without_brackets(&host), port, certified: None }
            }
        }
    }

    pub(crate) fn login(&self) -> &Login {
        &self.login
    }

    /// The database to select, unless it is 0: the nodes of a cluster have only that one and refuse
    /// to select another.
    pub(crate) fn database(&self) -> Option<u8> {
        self.database.filter(|database| *database > 0)
    }

    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub(crate) fn connector(&self) -> Option<&Connector> {
        self.tls.as_ref()
    }

    /// The credential provider, if there is one; see `login`.
    pub(crate) fn provider(&self) -> Option<&CredentialProvider> {
        self.provider.as_ref()
    }

    /// The same with this login.
    pub(crate) fn with_login(self, login: Login) -> Self {
        Self { login, ..self }
    }

    /// True if connections to servers use TLS.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// The address of the server as other servers announce it, or those of all known servers,
    /// without credentials.
    pub(crate) fn address(&self) -> String {
        let announced = self.announced.as_ref().map(|(host, port)| host_and_port(host, *port));
        announced.unwrap_or_else(|| self.topology.to_string())
    }

    /// The same for errors, together with the address that connections go to.
    pub(crate) fn address_in_use(&self) -> String {
        let (address, used) = (self.address(), self.topology.to_string());
        if address == used { address } else { format!("{address}, mapped to {used}") }
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("topology", &self.topology)
            .field("login", &self.login)
            .field("database", &self.database.unwrap_or(0))
            .field("protocol", &self.protocol)
            .field("tls", &self.tls.is_some())
            .field("sentinel_tls", &self.sentinel_tls.is_some())
            .field("provider", &self.provider)
            .field("address_map", &self.address_map)
            .finish_non_exhaustive()
    }
}

/// For people: an IPv6 address gets brackets.
pub(crate) fn host_and_port(host: &str, port: u16) -> String {
    if host.parse::<Ipv6Addr>().is_ok() {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

pub(crate) fn without_brackets(host: &str) -> String {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).to_owned()
}

/// Logs which settings of another library's client have no effect on connections of our own.
#[cfg(any(feature = "fred", feature = "redis"))]
pub(crate) fn report_not_taken(library: &str, settings: &str) {
    tell(
        || event!(name: "settings", target: TARGET, parent: None, Level::INFO, %library, %settings, "not taken over"),
    );
}

fn invalid(reason: impl Into<String>) -> Error {
    Error::InvalidUrl { reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::settings::address_map::MappedAddress;

    fn parsed(url: &str) -> RedisConfig {
        RedisConfig::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn debug_hides_the_password() {
        let text = format!("{:?}", parsed("redis://me:hunter2@h"));
        assert!(text.contains("me") && text.contains("***") && !text.contains("hunter2"), "{text}");
        let url = "redis-sentinel://me:hunter2@h/main?sentinel_user=se&sentinel_password=hunter2";
        let text = format!("{:?}", parsed(url));
        assert!(text.contains("se") && !text.contains("hunter2"), "{text}");
        assert!(!parsed(url).address().contains("hunter2"));
    }

    #[test]
    fn each_server_gets_the_login_that_is_meant_for_it() {
        let config =
            parsed("redis-sentinel://ann:pw@s1,s2/main/3?sentinel_user=sen&sentinel_password=spw");
        let login = |config: &RedisConfig| {
            let Login { user, password } = config.login().clone();
            (user.unwrap_or_default(), password.unwrap_or_default())
        };
        let of = |user: &str, password: &str| (user.to_owned(), password.to_owned());
        let primary = config.at("10.0.0.1", 6380);
        assert_eq!((login(&primary), primary.database()), (of("ann", "pw"), Some(3)));
        let sentinel = config.at_sentinel("s2", 26379);
        assert_eq!((login(&sentinel), sentinel.database()), (of("sen", "spw"), None));
        assert_eq!(
            (sentinel.address().as_str(), sentinel.protocol()),
            ("s2:26379", Protocol::Resp3)
        );

        let without = parsed("redis-sentinel://ann:pw@s1/main").at_sentinel("s1", 26379);
        assert_eq!(login(&without), of("", ""));

        // Sentinels have neither the provider of the servers nor their TLS.
        let provider = Some(CredentialProvider::new(async || Err::<_, String>("no login".into())));
        let config = parsed("redis-sentinel://s1/main");
        let config = config.provided(&Access { provider, ..Access::default() }).unwrap();
        assert!(config.at("10.0.0.1", 6380).provider().is_some());
        assert!(config.at_sentinel("s1", 26379).provider().is_none());
    }

    #[cfg(feature = "rustls")]
    #[test]
    fn sentinels_have_a_tls_of_their_own() {
        for (url, server, sentinel) in [
            ("rediss-sentinel://h/main?sentinel_tls=off", true, false),
            ("redis-sentinel://h/main?sentinel_tls=on", false, true),
        ] {
            let config = RedisConfig::with_access(url, &Access::default()).unwrap();
            let has = |config: &RedisConfig| config.tls.is_some();
            assert_eq!(has(&config.at("10.0.0.1", 6380)), server, "{url}");
            assert_eq!(has(&config.at_sentinel("h", 26379)), sentinel, "{url}");
        }
    }

    #[test]
    fn what_others_announce_is_mapped_and_keeps_its_name() {
        let map = |host: &str, port| match host {
            "10.0.0.1" => MappedAddress::new("127.0.0.1", port + 1),
            "::1" => MappedAddress::new("[::2]", port).certified_for("db"),
            other => MappedAddress::new(other, port),
        };
        let access = Access { address_map: Some(AddressMap::new(map)), ..Access::default() };
        let place = |host: &str, port, certified: Option<&str>| Endpoint::Tcp {
            host: host.to_owned(),
            port,
            certified: certified.map(str::to_owned),
        };
        let table = [
            (
                "10.0.0.1",
                place("127.0.0.1", 7002, None),
                "10.0.0.1:7001",
                "10.0.0.1:7001, mapped to 127.0.0.1:7002",
            ),
            (
                "[::1]",
                place("::2", 7001, Some("db")),
                "[::1]:7001",
                "[::1]:7001, mapped to [::2]:7001",
            ),
            ("other", place("other", 7001, None), "other:7001", "other:7001"),
        ];
        for url in ["redis-sentinel://10.0.0.1:7001/main", "redis-cluster://10.0.0.1:7001"] {
            let config = RedisConfig::with_access(url, &access).expect("an address");
            for (host, expected, address, in_use) in &table {
                let mapped = config.at_announced(host, 7001);
                assert_eq!(mapped.place(), *expected, "{host}");
                assert_eq!(
                    (mapped.address().as_str(), mapped.address_in_use().as_str()),
                    (*address, *in_use)
                );
            }
            for given in [config.at("10.0.0.1", 7001), config.at_sentinel("10.0.0.1", 7001)] {
                assert_eq!(
                    given.place(),
                    place("10.0.0.1", 7001, None),
                    "what users give is not mapped"
                );
            }
        }
        let unmapped = parsed("redis-cluster://h").at_announced("10.0.0.1", 7001);
        assert_eq!(unmapped.address_in_use(), "10.0.0.1:7001");
    }

    #[test]
    fn only_another_database_than_the_first_is_selected() {
        for (url, selected, number) in [
            ("redis://h", None, 0),
            ("redis://h/0", None, 0),
            ("redis://h/1", Some(1), 1),
            ("redis-sentinel://h/main/0", None, 0),
            ("redis-sentinel://h/main/15", Some(15), 15),
        ] {
            let config = parsed(url);
            assert_eq!((config.database(), config.database_number()), (selected, number), "{url}");
        }
    }

    #[cfg(feature = "rustls")]
    #[test]
    fn settings_of_tls_are_refused_where_nothing_is_encrypted() {
        let option = |url: &str, access: &Access| match RedisConfig::with_access(url, access) {
            Err(Error::InvalidOption { option, .. }) => Some(option),
            _ => None,
        };
        let tls = || Access { tls: Some(Tls::new()), ..Access::default() };
        let of_sentinels = || Access { sentinel_tls: Some(Tls::new()), ..Access::default() };
        // Whether `tls`, and whether `sentinel_tls`, is accepted.
        let cases = [
            ("redis://h", false, false),
            ("redis+unix:///run/redis.sock", false, false),
            ("redis-cluster://h", false, false),
            ("redis-sentinel://h/main", false, false),
            ("rediss://h", true, false),
            ("rediss-cluster://h", true, false),
            ("rediss-sentinel://h/main", true, true),
            ("rediss-sentinel://h/main?sentinel_tls=off", true, false),
            ("redis-sentinel://h/main?sentinel_tls=on", true, true),
        ];
        for (url, servers, sentinels) in cases {
            assert_eq!(option(url, &tls()) != Some("tls"), servers, "{url}");
            assert_eq!(option(url, &of_sentinels()) != Some("sentinel_tls"), sentinels, "{url}");
        }
    }

    #[test]
    fn calls_go_together_where_all_locks_are_at_one_server() {
        static SCRIPT: crate::backend::Script =
            crate::backend::Script { name: "test/several", source: "" };
        let several = BatchScript { script: &SCRIPT, begin: '+', of: &[] };
        for (url, together) in [
            ("redis://h", true),
            ("redis+unix:///run/redis.sock", true),
            ("redis-sentinel://h/main", true),
            ("redis-cluster://h", false),
        ] {
            let config = parsed(url);
            assert!(config.several().is_none(), "{url}: nobody has said how");
            assert_eq!(config.run_together(several).several().is_some(), together, "{url}");
        }
        let node = parsed("redis-cluster://h").run_together(several).at("h", 7001);
        assert!(node.several().is_none(), "one of several");
    }

    #[test]
    fn one_node_is_addressed_like_one_server() {
        let cluster = parsed("redis-cluster://ann:pw@n1,n2?protocol=resp3");
        let node = cluster.at("::1", 7001);
        assert_eq!(node.address(), "[::1]:7001");
        assert_eq!(node.place(), cluster.at("[::1]", 7001).place());
        assert_eq!((node.login().user.as_deref(), node.protocol()), (Some("ann"), Protocol::Resp3));
    }
}
