//! Where the server is and how to log in; parsed strictly, never printed with its password.

use std::fmt;
use std::net::Ipv6Addr;

use fred::types::RespVersion;
use fred::types::config::Config as FredConfig;
use fred::types::config::ServerConfig;

use crate::backend::Script;
use crate::error::Error;

const DEFAULT_PORT: u16 = 6379;
const FORMS: &str = "redis://[user:password@]host[:port][/database][?protocol=resp3] and \
                     redis+unix:///path[?db=database], also with valkey in the place of redis";

/// Address, login, database and protocol of one server.
#[derive(Clone)]
pub(crate) struct RedisConfig {
    fred: FredConfig,
    address: String,
    scripts: Vec<&'static Script>,
}

impl RedisConfig {
    /// Parses an address. The protocol is RESP2 unless `?protocol=resp3` is given: the scripts gain nothing from
    /// RESP3, and RESP2 needs no HELLO, which proxies and restricted users may lack.
    ///
    /// No error repeats a part of the address that could hold a password.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(invalid(format!("it has no \"scheme://\"; allowed are {FORMS}")));
        };
        match scheme.to_ascii_lowercase().as_str() {
            "redis" | "valkey" => tcp(rest),
            "redis+unix" | "valkey+unix" | "unix" => unix(rest),
            "rediss" | "valkeys" => Err(invalid(
                "it asks for TLS, which needs the feature `rustls` or `native-tls` and is not wired in this version yet; \
                 use redis:// in a trusted network, or a TLS proxy beside the client",
            )),
            "redis-cluster" | "valkey-cluster" | "redis-sentinel" | "valkey-sentinel" => Err(invalid(
                "clusters and sentinels are not supported in this version; give one primary server",
            )),
            _ => Err(invalid(format!("its scheme is not known; allowed are {FORMS}"))),
        }
    }

    /// Takes server, login, database, protocol and TLS from a configuration of fred.
    #[cfg(feature = "fred-config")]
    pub(crate) fn from_fred(config: FredConfig) -> Result<Self, Error> {
        let address = match &config.server {
            ServerConfig::Centralized { server } => format!("{}:{}", server.host, server.port),
            ServerConfig::Unix { path } => path.display().to_string(),
            _ => {
                return Err(invalid(
                    "clusters and sentinels are not supported in this version; give a `ServerConfig::Centralized` or \
                     `ServerConfig::Unix`",
                ));
            }
        };
        Ok(Self::new(config, address))
    }

    fn new(mut fred: FredConfig, address: String) -> Self {
        // One client of fred lives for one connection (see `link`): it shall report a failure, not retry.
        fred.fail_fast = true;
        Self { fred, address, scripts: Vec::new() }
    }

    /// Has these scripts loaded on every new connection, so that none is unknown in the middle of traffic.
    pub(crate) fn preload(mut self, scripts: impl IntoIterator<Item = &'static Script>) -> Self {
        self.scripts.extend(scripts);
        self
    }

    /// The scripts to load.
    pub(crate) fn scripts(&self) -> &[&'static Script] {
        &self.scripts
    }

    /// For fred's clients.
    pub(crate) fn fred(&self) -> &FredConfig {
        &self.fred
    }

    /// Where the server is, without credentials.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("address", &self.address)
            .field("user", &self.fred.username)
            .field("password", &self.fred.password.as_ref().map(|_| "***"))
            .field("database", &self.fred.database.unwrap_or(0))
            .field("protocol", &self.fred.version)
            .finish()
    }
}

fn invalid(reason: impl Into<String>) -> Error {
    Error::InvalidUrl { reason: reason.into() }
}

fn tcp(rest: &str) -> Result<RedisConfig, Error> {
    let (rest, query) = split_query(rest)?;
    // An unescaped "/" or "@" in a password would otherwise end up in the host or in the database.
    if rest.rfind('@') > rest.find('/') && rest.contains('/') {
        return Err(invalid("\"@\" and \"/\" in a user or password must be written as %40 and %2F"));
    }
    let (authority, path) = rest.split_once('/').map_or((rest, None), |(a, p)| (a, Some(p)));
    let (login, place) = split_login(authority)?;
    let (host, port) = host_and_port(place)?;
    let in_path = match path {
        None | Some("") => None,
        Some(path) => Some(database(path)?),
    };
    let options = Options::parse(query)?;
    if in_path.is_some() && options.database.is_some() && in_path != options.database {
        return Err(invalid("it names two databases; give either /database or ?db=database"));
    }
    let address = format!("{host}:{port}");
    let server = ServerConfig::new_centralized(host, port);
    Ok(build(server, address, login, in_path.or(options.database), options.version))
}

fn unix(rest: &str) -> Result<RedisConfig, Error> {
    let (rest, query) = split_query(rest)?;
    let (authority, path) = match rest.find('/') {
        Some(start) => rest.split_at(start),
        None => (rest, ""),
    };
    let (login, place) = split_login(authority)?;
    if !place.is_empty() {
        return Err(invalid("a unix socket has no host; write three slashes: redis+unix:///path"));
    }
    if path.len() < 2 {
        return Err(invalid("the path of the unix socket is missing: redis+unix:///path"));
    }
    let path = decode(path, "the path")?;
    let options = Options::parse(query)?;
    let server = ServerConfig::new_unix_socket(&path);
    Ok(build(server, path, login, options.database, options.version))
}

fn build(
    server: ServerConfig,
    address: String,
    login: Login,
    database: Option<u8>,
    version: RespVersion,
) -> RedisConfig {
    let fred = FredConfig {
        server,
        username: login.user,
        password: login.password,
        database,
        version,
        ..FredConfig::default()
    };
    RedisConfig::new(fred, address)
}

fn split_query(rest: &str) -> Result<(&str, Option<&str>), Error> {
    if rest.contains('#') {
        return Err(invalid("\"#\" has no meaning in it; in a user or password write %23"));
    }
    Ok(rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query))))
}

#[derive(Default)]
struct Login {
    user: Option<String>,
    password: Option<String>,
}

fn split_login(authority: &str) -> Result<(Login, &str), Error> {
    let Some((login, place)) = authority.rsplit_once('@') else {
        return Ok((Login::default(), authority));
    };
    if login.contains('@') {
        return Err(invalid("\"@\" in a user or password must be written as %40"));
    }
    let Some((user, password)) = login.split_once(':') else {
        return Err(invalid("a login is written user:password@, or :password@ for the default user"));
    };
    if password.contains(':') {
        return Err(invalid("\":\" in a password must be written as %3A"));
    }
    let user = decode(user, "the user")?;
    let password = decode(password, "the password")?;
    Ok((Login { user: (!user.is_empty()).then_some(user), password: Some(password) }, place))
}

/// An IPv6 address keeps its brackets: fred joins host and port with a colon.
fn host_and_port(place: &str) -> Result<(String, u16), Error> {
    let (host, port) = if let Some(rest) = place.strip_prefix('[') {
        let Some((inside, after)) = rest.split_once(']') else {
            return Err(invalid("the \"]\" after its IPv6 address is missing"));
        };
        if inside.parse::<Ipv6Addr>().is_err() {
            return Err(invalid("what stands between \"[\" and \"]\" is not an IPv6 address"));
        }
        match after.strip_prefix(':') {
            Some(port) => (format!("[{inside}]"), Some(port)),
            None if after.is_empty() => (format!("[{inside}]"), None),
            None => return Err(invalid("after \"]\" only \":port\" is allowed")),
        }
    } else {
        let (host, port) = place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port)));
        if port.is_some_and(|port| port.contains(':')) {
            return Err(invalid("an IPv6 address is written in brackets: redis://[::1]:6379"));
        }
        if host.is_empty() {
            return Err(invalid(format!("its host is empty; allowed are {FORMS}")));
        }
        if !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
            return Err(invalid("its host may have letters, digits, \"-\", \".\" and \"_\" only"));
        }
        (host.to_owned(), port)
    };
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => number(port)
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port > 0)
            .ok_or_else(|| invalid("its port must be a number from 1 to 65535"))?,
    };
    Ok((host, port))
}

fn database(text: &str) -> Result<u8, Error> {
    number(text)
        .and_then(|number| u8::try_from(number).ok())
        .ok_or_else(|| invalid("its database must be a number from 0 to 255"))
}

/// Digits only: `parse` alone would take "+1".
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

struct Options {
    database: Option<u8>,
    version: RespVersion,
}

impl Options {
    fn parse(query: Option<&str>) -> Result<Self, Error> {
        let mut version = None;
        let mut db = None;
        for pair in query.into_iter().flat_map(|query| query.split('&')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let again = match key {
                "db" => db.replace(database(value)?).is_some(),
                "protocol" => version.replace(protocol(value)?).is_some(),
                _ => return Err(invalid("it has an unknown parameter; allowed are db and protocol")),
            };
            if again {
                return Err(invalid(format!("its parameter {key} is given twice")));
            }
        }
        Ok(Self { database: db, version: version.unwrap_or(RespVersion::RESP2) })
    }
}

fn protocol(value: &str) -> Result<RespVersion, Error> {
    match value.to_ascii_lowercase().as_str() {
        "resp2" | "2" => Ok(RespVersion::RESP2),
        "resp3" | "3" => Ok(RespVersion::RESP3),
        _ => Err(invalid("its parameter protocol must be resp2 or resp3")),
    }
}

fn decode(text: &str, what: &str) -> Result<String, Error> {
    let wrong =
        || invalid(format!("{what} in it is not valid: \"%\" must be followed by two hex digits (UTF-8)"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16)).ok_or_else(wrong);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| wrong())?);
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> RedisConfig {
        RedisConfig::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn every_part_of_an_address_is_understood() {
        let full = parsed("valkey://us%3Aer:p%40ss%2F%25@db.example_1.org:7000/3?protocol=resp3");
        assert_eq!(full.address(), "db.example_1.org:7000");
        assert_eq!(full.fred.username.as_deref(), Some("us:er"));
        assert_eq!(full.fred.password.as_deref(), Some("p@ss/%"));
        assert_eq!(full.fred.database, Some(3));
        assert_eq!(full.fred.version, RespVersion::RESP3);

        let plain = parsed("redis://127.0.0.1");
        assert_eq!((plain.address(), plain.fred.database), ("127.0.0.1:6379", None));
        assert_eq!((&plain.fred.password, &plain.fred.version), (&None, &RespVersion::RESP2));
        assert_eq!(parsed("REDIS://[::1]:1/").address(), "[::1]:1");
        assert_eq!(parsed("redis://h?db=15").fred.database, Some(15));
        assert_eq!(parsed("redis://h/2?db=2").fred.database, Some(2));
        let default_user = parsed("redis://:secret@h");
        assert_eq!(
            (default_user.fred.username, default_user.fred.password),
            (None, Some("secret".to_owned()))
        );
    }

    #[test]
    fn unix_sockets_are_understood() {
        for scheme in ["redis+unix", "valkey+unix", "unix"] {
            let config = parsed(&format!("{scheme}:///run/red%20is.sock?db=4&protocol=resp2"));
            assert_eq!(config.address(), "/run/red is.sock");
            assert_eq!(config.fred.database, Some(4));
            assert!(config.fred.server.is_unix_socket());
        }
        assert_eq!(parsed("unix://:secret@/run/redis.sock").fred.password.as_deref(), Some("secret"));
    }

    #[test]
    fn what_is_not_allowed_is_said_without_the_password() {
        for (url, words) in [
            ("", "scheme"),
            ("localhost:6379", "scheme"),
            ("http://h", "scheme"),
            ("rediss://:hunter2@h", "TLS"),
            ("valkeys://h", "TLS"),
            ("redis-cluster://h", "clusters"),
            ("redis://", "host is empty"),
            ("redis://:hunter2@", "host is empty"),
            ("redis://:6379", "host is empty"),
            ("redis://h h", "host may have"),
            ("redis://h:0", "port"),
            ("redis://h:65536", "port"),
            ("redis://h:+1", "port"),
            ("redis://h:", "port"),
            ("redis://:hunter2@h:hunter2", "port"),
            ("redis://::1", "brackets"),
            ("redis://[::1", "]"),
            ("redis://[nonsense]", "IPv6"),
            ("redis://[::1]6379", ":port"),
            ("redis://h/hunter2", "database"),
            ("redis://h/256", "database"),
            ("redis://h/-1", "database"),
            ("redis://h/1?db=2", "two databases"),
            ("redis://h?db=", "database"),
            ("redis://h?protocol=resp4", "protocol"),
            ("redis://h?hunter2=1", "unknown parameter"),
            ("redis://h?db=1&db=1", "twice"),
            ("redis://h?", "unknown parameter"),
            ("redis://h#hunter2", "#"),
            ("redis://hunter2@h", "user:password@"),
            ("redis://u:hunter2@x@h", "%40"),
            ("redis://u:hunter2:x@h", "%3A"),
            ("redis://u:hun/ter2@h", "%2F"),
            ("redis://u:hunter2%zz@h", "%"),
            ("redis://u:hunter2%ff@h", "%"),
            ("redis://u:hunter2%00@h", "%"),
            ("redis://u:hunter2%4@h", "%"),
            ("unix://", "path"),
            ("unix:///", "path"),
            ("redis+unix://:hunter2@h/run/x", "three slashes"),
        ] {
            let Err(Error::InvalidUrl { reason }) = RedisConfig::parse(url) else {
                panic!("{url} was accepted")
            };
            assert!(reason.contains(words), "{url}: {reason}");
            assert!(!reason.contains("hunter2") && !reason.contains("ter2"), "{url}: {reason}");
        }
    }

    #[test]
    fn debug_hides_the_password() {
        let text = format!("{:?}", parsed("redis://me:hunter2@h"));
        assert!(text.contains("me") && text.contains("***") && !text.contains("hunter2"), "{text}");
    }

    #[cfg(feature = "fred-config")]
    #[test]
    fn a_configuration_of_fred_is_taken_for_one_server_only() {
        let one = FredConfig { server: ServerConfig::new_centralized("h", 1), ..FredConfig::default() };
        assert_eq!(RedisConfig::from_fred(one).expect("one server").address(), "h:1");
        for server in [
            ServerConfig::new_clustered(vec![("h", 1)]),
            ServerConfig::new_sentinel(vec![("h", 1)], "primary"),
        ] {
            let config = FredConfig { server, ..FredConfig::default() };
            assert!(matches!(RedisConfig::from_fred(config), Err(Error::InvalidUrl { .. })));
        }
    }
}
