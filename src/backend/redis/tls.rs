//! TLS connectors, and explanations of TLS errors.
//!
//! The libraries report what went wrong only in their debug texts, which `explain` recognizes.

use tokio::net::TcpStream;
#[cfg(feature = "rustls")]
use tokio_rustls::rustls::pki_types::ServerName;

#[cfg(any(feature = "rustls", feature = "native-tls"))]
use std::fmt;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::redis::error::ErrorKind;
use crate::backend::redis::error::WireError;
use crate::backend::redis::wire::Stream;
#[cfg(feature = "rustls")]
use crate::backend::redis::wire::stream_error;
use crate::base::error::Error;
use crate::settings::tls::Tls;

#[cfg(all(feature = "native-tls", not(feature = "rustls")))]
mod native;
#[cfg(feature = "rustls")]
mod rustls;

#[cfg(all(feature = "native-tls", not(feature = "rustls")))]
use self::native::build;
#[cfg(feature = "rustls")]
use self::rustls::build;

/// Adds TLS to a socket, with one of the TLS libraries. Without such a library there is no variant.
#[derive(Clone)]
pub(crate) enum Connector {
    #[cfg(feature = "rustls")]
    Rustls(tokio_rustls::TlsConnector),
    /// If both libraries are enabled, a configuration of fred may still bring one of these.
    #[cfg(all(feature = "native-tls", any(feature = "fred", not(feature = "rustls"))))]
    Native(tokio_native_tls::TlsConnector),
}

/// Checks the settings and makes a connector from them.
#[cfg(any(feature = "rustls", feature = "native-tls"))]
pub(crate) fn connector(tls: &Tls) -> Result<Connector, Error> {
    build(tls)
}

#[cfg(not(any(feature = "rustls", feature = "native-tls")))]
pub(crate) fn connector(_: &Tls) -> Result<Connector, Error> {
    let reason =
        "it asks for TLS, which needs the feature `rustls` or `native-tls` of redis-reentrant-lock";
    Err(Error::InvalidUrl { reason: reason.to_owned() })
}

/// Runs the TLS handshake on a socket and verifies the server's certificate for this host.
#[cfg(any(feature = "rustls", feature = "native-tls"))]
pub(crate) async fn secure(
    connector: &Connector,
    host: &str,
    socket: TcpStream,
) -> Result<Box<dyn Stream>, WireError> {
    match connector {
        #[cfg(feature = "rustls")]
        Connector::Rustls(connector) => {
            let name = ServerName::try_from(host.to_owned()).map_err(tls_error)?;
            Ok(Box::new(connector.connect(name, socket).await.map_err(stream_error)?))
        }
        #[cfg(all(feature = "native-tls", any(feature = "fred", not(feature = "rustls"))))]
        Connector::Native(connector) => {
            Ok(Box::new(connector.connect(host, socket).await.map_err(tls_error)?))
        }
    }
}

#[cfg(not(any(feature = "rustls", feature = "native-tls")))]
pub(crate) async fn secure(
    connector: &Connector,
    _: &str,
    _: TcpStream,
) -> Result<Box<dyn Stream>, WireError> {
    match *connector {}
}

/// Keeps the debug text, because it says more than the display text, and `explain` reads it.
#[cfg(any(feature = "rustls", feature = "native-tls"))]
fn tls_error(error: impl fmt::Debug) -> WireError {
    WireError::new(ErrorKind::Tls, format!("{error:?}"))
}

#[cfg(any(feature = "rustls", feature = "native-tls"))]
fn refused(option: &'static str, given: impl Into<String>, allowed: &str) -> Error {
    Error::InvalidOption { option, given: given.into(), allowed: allowed.to_owned() }
}

#[cfg(any(feature = "rustls", feature = "native-tls"))]
const CA: &str = "Tls::ca_pem";
#[cfg(any(feature = "rustls", feature = "native-tls"))]
const CLIENT: &str = "Tls::client_cert_pem";
#[cfg(any(feature = "rustls", feature = "native-tls"))]
const CERTIFICATES: &str = "PEM text with at least one valid \"BEGIN CERTIFICATE\" block";
#[cfg(any(feature = "rustls", feature = "native-tls"))]
const KEY: &str = "PEM text with one private key in PKCS#8, not encrypted (\"BEGIN PRIVATE KEY\")";

/// A problem with certificates is one of configuration, which retrying does not mend. A timeout or
/// a closed connection may have other causes than one side without TLS, so that is only mentioned
/// as a possibility.
pub(crate) fn explain(error: &WireError, encrypted: bool) -> Option<Failure> {
    let details = error.details();
    if let Some(words) = words(details) {
        return Some(Failure::new(FailureKind::Tls, words));
    }
    let closed = CLOSED.iter().any(|sign| details.contains(sign));
    let hint = match (encrypted, error.kind()) {
        (true, ErrorKind::Timeout) if details.starts_with(NO_HANDSHAKE) => {
            "this port may not speak TLS; if so, use redis:// or the TLS port of the server"
        }
        (true, _) if closed => {
            "the server may require a client certificate: `Tls::client_cert_pem`"
        }
        (false, kind) if closed || kind == ErrorKind::Protocol => {
            "this port may speak TLS; if so, use rediss://"
        }
        _ => return None,
    };
    Some(Failure::new(FailureKind::Link, format!("{details} ({hint})")))
}

/// The first words of the error for a TLS handshake that took too long.
pub(crate) const NO_HANDSHAKE: &str = "no TLS handshake";

/// Texts of a connection that the server closed during the handshake.
const CLOSED: &[&str] = &[
    "Connection reset",
    "ConnectionReset",
    "Broken pipe",
    "BrokenPipe",
    "UnexpectedEof",
    "Connection closed.",
];

/// The texts of each library, and what they mean. The first match counts.
const TEXTS: &[(&[&str], &str)] = &[
    // Before "UnknownIssuer", because an alert says what *the server* thinks.
    (
        &["CertificateRequired", "certificate required", "AlertReceived(HandshakeFailure)"],
        "the server requires a client certificate: give one with `Tls::client_cert_pem`",
    ),
    (
        &[
            "AlertReceived(UnknownCA)",
            "alert unknown ca",
            "AlertReceived(BadCertificate)",
            "alert bad certificate",
        ],
        "the server does not accept our client certificate: it was signed by an authority that the server does not trust",
    ),
    (
        &["AlertReceived(CertificateExpired)", "alert certificate expired"],
        "our client certificate has expired",
    ),
    (
        &[
            "AlertReceived(ProtocolVersion)",
            "alert protocol version",
            "PeerIncompatible",
            "unsupported protocol",
        ],
        "server and client have no TLS version in common; it must be TLS 1.2 or 1.3",
    ),
    (
        &["NotValidForName", "hostname mismatch", "Hostname mismatch", "IP address mismatch"],
        "the server's certificate is not issued for the host in the address; its subject alternative names must contain that host",
    ),
    (
        &["InvalidCertificate(Expired", "certificate has expired"],
        "the server's certificate has expired, or the clock of this machine is wrong",
    ),
    (
        &["InvalidCertificate(NotValidYet", "certificate is not yet valid"],
        "the server's certificate is not valid yet, or the clock of this machine is wrong",
    ),
    (
        &[
            "UnknownIssuer",
            "unable to get local issuer certificate",
            "self-signed certificate",
            "self signed certificate",
            "CaUsedAsEndEntity",
            "BadSignature",
        ],
        "the server's certificate was not signed by a trusted authority: give its authority with `Tls::ca_pem`",
    ),
    (&["InvalidCertificate"], "the server's certificate is not valid"),
    (&["certificate verify failed"], "the server's certificate is not valid"),
    (
        &["InvalidMessage", "wrong version number", "packet length too long", "http request"],
        "the server does not speak TLS on this port: use redis://, or the TLS port of the server",
    ),
];

fn words(details: &str) -> Option<String> {
    let known = TEXTS.iter().find(|(signs, _)| signs.iter().any(|sign| details.contains(sign)));
    let (_, words) = known?;
    Some(format!("TLS: {words} ({})", core_of(details)))
}

/// The library's own text, without the wrapping `Custom { kind: InvalidData, error: … }`.
fn core_of(details: &str) -> &str {
    let details = details.strip_prefix("Custom { kind: ").unwrap_or(details);
    details
        .split_once("error: ")
        .map_or(details, |(_, rest)| rest.strip_suffix(" }").unwrap_or(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_without_tls_is_mentioned_where_that_may_be_the_reason() {
        let client = Some("may require a client certificate");
        let without = Some("may not speak TLS");
        let with = Some("may speak TLS");
        let table = [
            (true, ErrorKind::Timeout, "no TLS handshake within 1s", without),
            (true, ErrorKind::Timeout, "no answer to PING within 1s", None),
            (true, ErrorKind::Io, "Connection closed.", client),
            (true, ErrorKind::Io, "Network is unreachable", None),
            (false, ErrorKind::Io, "Connection closed.", with),
            (false, ErrorKind::Protocol, "its answer is not understood", with),
            (false, ErrorKind::Timeout, "no TLS handshake within 1s", None),
            (false, ErrorKind::Io, "Network is unreachable", None),
        ];
        for (encrypted, kind, details, hint) in table {
            let explained = explain(&WireError::new(kind, details), encrypted);
            let row = format!("{encrypted}, {kind:?}, {details}");
            match (explained, hint) {
                (Some(failure), Some(hint)) => {
                    assert_eq!(failure.kind, FailureKind::Link, "{row}");
                    assert!(
                        failure.message.contains(hint) && failure.message.contains(details),
                        "{row}"
                    );
                }
                (None, None) => {}
                (explained, _) => panic!("{row}: {explained:?}"),
            }
        }
    }
}
