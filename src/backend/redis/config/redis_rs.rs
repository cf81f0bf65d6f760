//! What is taken over from a client of the crate `redis`, for connections of our own.

use ::redis::Client;
use ::redis::ConnectionAddr;
use ::redis::ProtocolVersion;

use crate::backend::redis::resp::Protocol;
use crate::base::error::Error;

use super::Access;
use super::Deployment;
use super::Encrypted;
use super::Endpoint;
use super::Login;
use super::RedisConfig;
use super::report_not_taken;
use super::without_brackets;

impl RedisConfig {
    /// Takes address, login, database and protocol, and whether TLS is used. The certificates in a
    /// client of `redis` cannot be read.
    pub(crate) fn of_redis(client: &Client, access: &Access) -> Result<Self, Error> {
        let info = client.get_connection_info();
        let (place, encrypted) = place(info.addr(), access)?;
        let settings = info.redis_settings();
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let login =
            Login { user: owned(settings.username()), password: owned(settings.password()) };
        let database = u8::try_from(settings.db()).map_err(|_| {
            refused(format!("with the database {}", settings.db()), "with one from 0 to 255")
        })?;
        let protocol = match settings.protocol() {
            ProtocolVersion::RESP3 => Protocol::Resp3,
            _ => Protocol::Resp2,
        };
        let taken = Self::of_client(Deployment::One(place), login, Some(database), protocol)
            .secured(Encrypted { servers: encrypted, sentinels: false }, access)?
            .provided(access)?;
        report_not_taken("redis", "TCP settings, the library's name");
        Ok(taken)
    }
}

/// The address of the server, and whether TLS is used.
fn place(address: &ConnectionAddr, access: &Access) -> Result<(Endpoint, bool), Error> {
    let tcp = |host: &str, port: &u16| Endpoint::Tcp {
        host: without_brackets(host),
        port: *port,
        certified: None,
    };
    match address {
        ConnectionAddr::Tcp(host, port) => Ok((tcp(host, port), false)),
        ConnectionAddr::TcpTls { insecure: true, .. } => {
            Err(refused("with TLS that takes any certificate", "with TLS that checks certificates"))
        }
        ConnectionAddr::TcpTls { tls_params: Some(_), .. } if access.tls.is_none() => {
            let allowed = "together with `tls`: certificates in a client of `redis` cannot be read";
            Err(refused("with certificates of its own", allowed))
        }
        ConnectionAddr::TcpTls { host, port, .. } => Ok((tcp(host, port), true)),
        ConnectionAddr::Unix(path) => Ok((Endpoint::Unix(path.clone()), false)),
        _ => Err(refused("with an address of another kind", "with TCP, TLS or a unix socket")),
    }
}

fn refused(given: impl Into<String>, allowed: &str) -> Error {
    Error::InvalidOption {
        option: "redis_client",
        given: given.into(),
        allowed: allowed.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::path::PathBuf;

    use ::redis::IntoConnectionInfo;

    fn taken(url: &str) -> Result<RedisConfig, Error> {
        RedisConfig::of_redis(&Client::open(url).expect("an address"), &Access::default())
    }

    #[test]
    fn address_login_database_and_protocol_are_taken() {
        let config =
            taken("redis://ann:pw@db.example:7000/3?protocol=resp3").expect("a configuration");
        let login = Login { user: Some("ann".to_owned()), password: Some("pw".to_owned()) };
        assert_eq!((config.address().as_str(), config.login()), ("db.example:7000", &login));
        assert_eq!((config.database(), config.protocol()), (Some(3), Protocol::Resp3));
        let config = taken("unix:///run/s?db=2").expect("a configuration");
        assert_eq!(
            (config.place(), config.database()),
            (Endpoint::Unix(PathBuf::from("/run/s")), Some(2))
        );
        let plain = taken("redis://[::1]").expect("a configuration");
        assert_eq!((plain.address().as_str(), plain.protocol()), ("[::1]:6379", Protocol::Resp2));
    }

    #[test]
    fn what_would_be_weaker_or_another_server_here_is_refused() {
        let tls = |insecure| ConnectionAddr::TcpTls {
            host: "h".to_owned(),
            port: 1,
            insecure,
            tls_params: None,
        };
        let error = place(&tls(true), &Access::default()).expect_err("any certificate");
        assert!(error.is_config() && error.to_string().contains("redis_client"), "{error}");
        assert!(place(&tls(false), &Access::default()).is_ok_and(|(_, encrypted)| encrypted));
        let info = "redis://h".into_connection_info().expect("an address");
        let settings = info.redis_settings().clone().set_db(256);
        let client = Client::open(info.set_redis_settings(settings)).expect("a client");
        let error =
            RedisConfig::of_redis(&client, &Access::default()).expect_err("no such database");
        assert!(error.to_string().contains("256"), "{error}");
    }
}
