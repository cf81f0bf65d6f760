//! Parses addresses strictly. No error repeats a part that could hold a password.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use crate::backend::redis::resp::Protocol;
use crate::base::error::Error;

use super::Address;
use super::Deployment;
use super::Encrypted;
use super::Endpoint;
use super::Login;
use super::RedisConfig;
use super::invalid;

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;
const FORMS: &str = "redis://[user:password@]host[:port][/database][?protocol=resp3], \
                     redis+unix:///path[?db=database], \
                     redis-sentinel://[user:password@]host[:port],host…/primary_name[/database] and \
                     redis-cluster://[user:password@]host[:port],host…; rediss for TLS, valkey in the place of redis";

type Parsed = (RedisConfig, Encrypted);

pub(super) fn parse(url: &str) -> Result<Parsed, Error> {
    // An address that was read from a file ends with a line break. White space around an address
    // never has a meaning.
    let url = url.trim();
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(invalid(format!("it has no \"scheme://\"; allowed are {FORMS}")));
    };
    match scheme.to_ascii_lowercase().as_str() {
        "redis" | "valkey" => one(rest, false),
        "rediss" | "valkeys" => one(rest, true),
        "redis+unix" | "valkey+unix" | "unix" => unix(rest),
        "redis-sentinel" | "valkey-sentinel" => sentinel(rest, false),
        "rediss-sentinel" | "valkeys-sentinel" => sentinel(rest, true),
        "redis-cluster" | "valkey-cluster" => cluster(rest, false),
        "rediss-cluster" | "valkeys-cluster" => cluster(rest, true),
        _ => Err(invalid(format!("its scheme is not known; allowed are {FORMS}"))),
    }
}

fn one(rest: &str, tls: bool) -> Result<Parsed, Error> {
    let parts = Parts::split(rest)?;
    if parts.places.contains(',') {
        return Err(invalid("several hosts belong to redis-sentinel:// or redis-cluster://"));
    }
    let (host, port) = host_and_port(parts.places, DEFAULT_PORT)?;
    let options = Options::parse(parts.query, false)?;
    let database = one_database(parts.path, options.database)?;
    let topology = Deployment::One(Endpoint::Tcp { host, port, certified: None });
    Ok((
        build(topology, parts.login, database, options.protocol),
        Encrypted { servers: tls, sentinels: false },
    ))
}

fn unix(rest: &str) -> Result<Parsed, Error> {
    if cfg!(not(unix)) {
        return Err(invalid("this system has no unix sockets; use redis://host:port"));
    }
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
    let path = PathBuf::from(decode(path, "the path")?);
    let options = Options::parse(query, false)?;
    let config =
        build(Deployment::One(Endpoint::Unix(path)), login, options.database, options.protocol);
    Ok((config, Encrypted { servers: false, sentinels: false }))
}

fn sentinel(rest: &str, tls: bool) -> Result<Parsed, Error> {
    let parts = Parts::split(rest)?;
    let sentinels = hosts_and_ports(parts.places, DEFAULT_SENTINEL_PORT)?;
    let (name, path) = match parts.path.map(|path| path.split_once('/')) {
        None => ("", None),
        Some(Some((name, path))) => (name, Some(path)),
        Some(None) => (parts.path.unwrap_or_default(), None),
    };
    if name.is_empty() {
        return Err(invalid(
            "the name under which the sentinels know the primary is missing: redis-sentinel://host/primary_name",
        ));
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if !name.bytes().all(allowed) {
        return Err(invalid(
            "the primary's name may have letters, digits, \"-\", \".\" and \"_\" only",
        ));
    }
    let options = Options::parse(parts.query, true)?;
    let database = one_database(path, options.database)?;
    let topology = Deployment::Sentinel {
        sentinels,
        primary_name: name.to_owned(),
        login: options.sentinel_login,
    };
    let config = build(topology, parts.login, database, options.protocol);
    Ok((config, Encrypted { servers: tls, sentinels: options.sentinel_tls.unwrap_or(tls) }))
}

fn cluster(rest: &str, tls: bool) -> Result<Parsed, Error> {
    let parts = Parts::split(rest)?;
    let seeds = hosts_and_ports(parts.places, DEFAULT_PORT)?;
    let options = Options::parse(parts.query, false)?;
    let database = one_database(parts.path, options.database)?;
    if database.is_some_and(|database| database > 0) {
        return Err(invalid("a cluster has only database 0; leave the database out"));
    }
    let config = build(Deployment::Cluster { seeds }, parts.login, None, options.protocol);
    Ok((config, Encrypted { servers: tls, sentinels: false }))
}

fn build(
    topology: Deployment,
    login: Login,
    database: Option<u8>,
    protocol: Protocol,
) -> RedisConfig {
    RedisConfig { login, database, protocol, ..RedisConfig::new(topology) }
}

/// The parts of `[login@]places[/path][?query]`.
struct Parts<'a> {
    login: Login,
    places: &'a str,
    path: Option<&'a str>,
    query: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn split(rest: &'a str) -> Result<Self, Error> {
        let (rest, query) = split_query(rest)?;
        // Otherwise an unescaped "/" or "@" in a password would end up in the host or in the
        // database.
        if rest.rfind('@') > rest.find('/') && rest.contains('/') {
            return Err(invalid(
                "\"@\" and \"/\" in a user or password must be written as %40 and %2F",
            ));
        }
        let (authority, path) = rest.split_once('/').map_or((rest, None), |(a, p)| (a, Some(p)));
        let (login, places) = split_login(authority)?;
        Ok(Self { login, places, path: path.filter(|path| !path.is_empty()), query })
    }
}

fn split_query(rest: &str) -> Result<(&str, Option<&str>), Error> {
    if rest.contains('#') {
        return Err(invalid("\"#\" has no meaning in it; in a user or password write %23"));
    }
    Ok(rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query))))
}

fn split_login(authority: &str) -> Result<(Login, &str), Error> {
    let Some((login, place)) = authority.rsplit_once('@') else {
        return Ok((Login::default(), authority));
    };
    if login.contains('@') {
        return Err(invalid("\"@\" in a user or password must be written as %40"));
    }
    let Some((user, password)) = login.split_once(':') else {
        return Err(invalid(
            "a login is written user:password@, or :password@ for the default user",
        ));
    };
    if password.contains(':') {
        return Err(invalid("\":\" in a password must be written as %3A"));
    }
    let user = decode(user, "the user")?;
    let password = decode(password, "the password")?;
    Ok((Login { user: (!user.is_empty()).then_some(user), password: Some(password) }, place))
}

fn hosts_and_ports(places: &str, default_port: u16) -> Result<Vec<Address>, Error> {
    let mut all = Vec::new();
    for place in places.split(',') {
        let place = host_and_port(place.trim(), default_port)?;
        if all.contains(&place) {
            return Err(invalid("it names a host and port twice"));
        }
        all.push(place);
    }
    Ok(all)
}

/// Removes the brackets of an IPv6 address.
fn host_and_port(place: &str, default_port: u16) -> Result<Address, Error> {
    let (host, port) = if let Some(rest) = place.strip_prefix('[') {
        let Some((inside, after)) = rest.split_once(']') else {
            return Err(invalid("the \"]\" after its IPv6 address is missing"));
        };
        if inside.parse::<Ipv6Addr>().is_err() {
            return Err(invalid("what stands between \"[\" and \"]\" is not an IPv6 address"));
        }
        match after.strip_prefix(':') {
            Some(port) => (inside, Some(port)),
            None if after.is_empty() => (inside, None),
            None => return Err(invalid("after \"]\" only \":port\" is allowed")),
        }
    } else {
        let (host, port) =
            place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port)));
        if port.is_some_and(|port| port.contains(':')) {
            return Err(invalid("an IPv6 address is written in brackets: redis://[::1]:6379"));
        }
        if host.is_empty() {
            return Err(invalid(format!("its host is empty; allowed are {FORMS}")));
        }
        if !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
            return Err(invalid("its host may have letters, digits, \"-\", \".\" and \"_\" only"));
        }
        (host, port)
    };
    let port = match port {
        None => default_port,
        Some(port) => number(port)
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port > 0)
            .ok_or_else(|| invalid("its port must be a number from 1 to 65535"))?,
    };
    Ok((host.to_owned(), port))
}

/// The database from the path or from the parameter.
fn one_database(path: Option<&str>, parameter: Option<u8>) -> Result<Option<u8>, Error> {
    let in_path = path.filter(|path| !path.is_empty()).map(database).transpose()?;
    if in_path.is_some() && parameter.is_some() && in_path != parameter {
        return Err(invalid("it names two databases; give either /database or ?db=database"));
    }
    Ok(in_path.or(parameter))
}

fn database(text: &str) -> Result<u8, Error> {
    number(text)
        .and_then(|number| u8::try_from(number).ok())
        .ok_or_else(|| invalid("its database must be a number from 0 to 255"))
}

/// Digits only: `parse` alone would accept "+1".
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

struct Options {
    database: Option<u8>,
    protocol: Protocol,
    sentinel_login: Login,
    sentinel_tls: Option<bool>,
}

impl Options {
    fn parse(query: Option<&str>, of_sentinel: bool) -> Result<Self, Error> {
        let mut chosen = None;
        let mut db = None;
        let mut login = Login::default();
        let mut sentinel_tls = None;
        for pair in query.into_iter().flat_map(|query| query.split('&')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let again = match key {
                "db" => db.replace(database(value)?).is_some(),
                "protocol" => chosen.replace(protocol(value)?).is_some(),
                "sentinel_user" | "sentinel_password" | "sentinel_tls" if !of_sentinel => {
                    return Err(invalid(format!(
                        "its parameter {key} belongs to redis-sentinel://"
                    )));
                }
                "sentinel_user" => {
                    login.user.replace(decode(value, "the sentinels' user")?).is_some()
                }
                "sentinel_password" => {
                    login.password.replace(decode(value, "the sentinels' password")?).is_some()
                }
                "sentinel_tls" => sentinel_tls.replace(on_or_off(value)?).is_some(),
                _ => {
                    return Err(invalid(
                        "it has an unknown parameter; allowed are db and protocol, and for redis-sentinel:// \
                         sentinel_user, sentinel_password and sentinel_tls",
                    ));
                }
            };
            if again {
                return Err(invalid(format!("its parameter {key} is given twice")));
            }
        }
        if login.user.is_some() && login.password.is_none() {
            return Err(invalid("it has a sentinel_user and no sentinel_password"));
        }
        login.user = login.user.filter(|user| !user.is_empty());
        let protocol = chosen.unwrap_or(Protocol::Resp2);
        Ok(Self { database: db, protocol, sentinel_login: login, sentinel_tls })
    }
}

fn protocol(value: &str) -> Result<Protocol, Error> {
    match value.to_ascii_lowercase().as_str() {
        "resp2" | "2" => Ok(Protocol::Resp2),
        "resp3" | "3" => Ok(Protocol::Resp3),
        _ => Err(invalid("its parameter protocol must be resp2 or resp3")),
    }
}

fn on_or_off(value: &str) -> Result<bool, Error> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(invalid("its parameter sentinel_tls must be on or off")),
    }
}

fn decode(text: &str, what: &str) -> Result<String, Error> {
    if text.trim() != text || text.contains(char::is_control) {
        return Err(invalid(format!(
            "{what} in it begins or ends with white space, or has a line break or another control character; \
             if that belongs to it, write a space as %20 and a line break as %0A"
        )));
    }
    let wrong = || {
        invalid(format!(
            "{what} in it is not valid: \"%\" must be followed by two hex digits (UTF-8)"
        ))
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit =
            || rest.next().and_then(|digit| char::from(digit).to_digit(16)).ok_or_else(wrong);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| wrong())?);
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> RedisConfig {
        parse(url).unwrap_or_else(|error| panic!("{url}: {error}")).0
    }

    #[test]
    fn every_part_of_an_address_is_understood() {
        let full = parsed("valkey://us%3Aer:p%40ss%2F%25@db.example_1.org:7000/3?protocol=resp3");
        assert_eq!(full.address(), "db.example_1.org:7000");
        assert_eq!(full.login.user.as_deref(), Some("us:er"));
        assert_eq!(full.login.password.as_deref(), Some("p@ss/%"));
        assert_eq!(full.database, Some(3));
        assert_eq!(full.protocol, Protocol::Resp3);

        let plain = parsed("redis://127.0.0.1");
        assert_eq!((plain.address().as_str(), plain.database), ("127.0.0.1:6379", None));
        assert_eq!((&plain.login.password, &plain.protocol), (&None, &Protocol::Resp2));
        assert_eq!(parsed("REDIS://[::1]:1/").address(), "[::1]:1");
        assert_eq!(parsed("redis://h?db=15").database, Some(15));
        assert_eq!(parsed("redis://h/2?db=2").database, Some(2));
        let default_user = parsed("redis://:secret@h");
        assert_eq!(
            (default_user.login.user, default_user.login.password),
            (None, Some("secret".to_owned()))
        );
    }

    #[test]
    fn white_space_around_an_address_and_around_hosts_means_nothing() {
        for around in [" ", "\n", "\r\n", "\t \u{a0}"] {
            let one = parsed(&format!("{around}redis://u:a b@h:7/3?protocol=3{around}"));
            assert_eq!((one.address().as_str(), one.database), ("h:7", Some(3)));
            assert_eq!(
                one.login.password.as_deref(),
                Some("a b"),
                "within a password it belongs to it"
            );
            let several = parsed(&format!("redis-cluster://h1,{around}h2:7 , [::1]{around}"));
            assert_eq!(several.address(), "cluster of h1:6379, h2:7, [::1]:6379");
        }
        assert_eq!(parsed("redis://:pw%0A@h").login.password.as_deref(), Some("pw\n"));
    }

    #[cfg(unix)]
    #[test]
    fn unix_sockets_are_understood() {
        for scheme in ["redis+unix", "valkey+unix", "unix"] {
            let config = parsed(&format!("{scheme}:///run/red%20is.sock?db=4&protocol=resp2"));
            assert_eq!(config.address(), "/run/red is.sock");
            assert_eq!(config.database, Some(4));
            assert!(matches!(config.place(), Endpoint::Unix(_)));
        }
        assert_eq!(parsed("redis+unix:///a").address(), "/a");
        assert_eq!(
            parsed("unix://:secret@/run/redis.sock").login.password.as_deref(),
            Some("secret")
        );
    }

    #[test]
    fn what_is_not_allowed_is_said_without_the_password() {
        for (url, words) in [
            ("", "scheme"),
            ("localhost:6379", "scheme"),
            ("http://h", "scheme"),
            ("redis://u:%g0hunter2@h", "two hex digits"),
            ("redis://u:%0ghunter2@h", "two hex digits"),
            ("redis://h1,h2", "several hosts"),
            ("redis-cluster://", "host is empty"),
            ("redis-cluster://h1,", "host is empty"),
            ("redis-cluster://h1,h1:6379", "twice"),
            ("redis-cluster://u:hunter2@h1,h2/3", "only database 0"),
            ("redis-cluster://h1?db=1", "only database 0"),
            ("redis-cluster://h1?sentinel_user=hunter2", "belongs to redis-sentinel"),
            ("redis-sentinel://h", "primary_name"),
            ("redis-sentinel://h/", "primary_name"),
            ("redis-sentinel:///main", "host is empty"),
            ("redis-sentinel://u:hunter2@h/hun%20ter2", "primary's name"),
            ("redis-sentinel://h/main/x", "database"),
            ("redis-sentinel://h/main/1?db=2", "two databases"),
            ("redis-sentinel://h/main?sentinel_user=hunter2", "no sentinel_password"),
            ("redis-sentinel://h/main?sentinel_password=hunter2%", "two hex digits"),
            (
                "redis-sentinel://h/main?sentinel_password=hunter2&sentinel_password=hunter2",
                "twice",
            ),
            ("rediss-sentinel://h/main?sentinel_tls=hunter2", "on or off"),
            ("rediss://h?sentinel_tls=off", "belongs to redis-sentinel"),
            ("redis://", "host is empty"),
            ("redis://:hunter2@", "host is empty"),
            ("redis://:6379", "host is empty"),
            ("redis://h h", "host may have"),
            ("redis://h\n:6379", "host may have"),
            ("redis://h: 6379", "port"),
            ("redis://u:hunter2\n@h", "the password in it begins or ends with white space"),
            ("redis://u: hunter2@h", "the password in it begins or ends with white space"),
            ("redis://u\r\n:hunter2@h", "the user in it begins or ends with white space"),
            ("redis://u:hun\nter2@h", "line break"),
            (
                "redis-sentinel://h/main?sentinel_password=hunter2 &db=1",
                "the sentinels' password in it begins",
            ),
            ("unix:///run/x\t?db=1", "the path in it"),
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
            let Err(Error::InvalidUrl { reason }) = parse(url) else {
                panic!("{url} was accepted")
            };
            assert!(reason.contains(words), "{url}: {reason}");
            assert!(!reason.contains("hunter2") && !reason.contains("ter2"), "{url}: {reason}");
        }
    }

    #[test]
    fn sentinels_are_understood() {
        let full = parsed(
            "valkey-sentinel://ann:p%2Cw@s1:1,[::1],s3/main.1-a_b/3?sentinel_user=sen&sentinel_password=s%26t&protocol=3",
        );
        let sentinels = [("s1", 1), ("::1", 26379), ("s3", 26379)]
            .map(|(host, port)| (host.to_owned(), port))
            .to_vec();
        let login = Login { user: Some("sen".to_owned()), password: Some("s&t".to_owned()) };
        let topology =
            Deployment::Sentinel { sentinels, primary_name: "main.1-a_b".to_owned(), login };
        assert_eq!(*full.topology(), topology);
        assert_eq!(
            full.login,
            Login { user: Some("ann".to_owned()), password: Some("p,w".to_owned()) }
        );
        assert_eq!((full.database, &full.protocol), (Some(3), &Protocol::Resp3));
        assert_eq!(full.address(), "main.1-a_b of the sentinels s1:1, [::1]:26379, s3:26379");

        let plain = parsed("redis-sentinel://h/main/");
        assert!(
            matches!(plain.topology(), Deployment::Sentinel { login, .. } if *login == Login::default())
        );
        let without_user = parsed("redis-sentinel://u:p@h/main?sentinel_password=x");
        let Deployment::Sentinel { login, .. } = without_user.topology() else {
            panic!("{without_user:?}")
        };
        assert_eq!((login.user.as_deref(), login.password.as_deref()), (None, Some("x")));
    }

    #[test]
    fn tls_is_what_the_scheme_and_the_sentinels_parameter_say() {
        for (url, servers, sentinels) in [
            ("rediss://h", true, false),
            ("valkeys://h", true, false),
            ("rediss-cluster://h", true, false),
            ("redis-cluster://h", false, false),
            ("rediss-sentinel://h/main", true, true),
            ("valkeys-sentinel://h/main?sentinel_tls=off", true, false),
            ("redis-sentinel://h/main?sentinel_tls=on", false, true),
            ("redis-sentinel://h/main", false, false),
        ] {
            let (_, encrypted) = parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(encrypted, Encrypted { servers, sentinels }, "{url}");
        }
    }

    #[test]
    fn clusters_are_understood() {
        let config = parsed("redis-cluster://:pw@n1,n2:7001,[2001:db8::1]:7002");
        let seeds = [("n1", 6379), ("n2", 7001), ("2001:db8::1", 7002)]
            .map(|(host, port)| (host.to_owned(), port));
        assert_eq!(*config.topology(), Deployment::Cluster { seeds: seeds.to_vec() });
        assert_eq!(config.address(), "cluster of n1:6379, n2:7001, [2001:db8::1]:7002");
        assert_eq!(parsed("redis-cluster://h/0").database, None);
    }
}
