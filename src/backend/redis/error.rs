//! Errors of a connection, and the error replies that come over it.

use std::borrow::Cow;
use std::fmt;
use std::io;

/// The end of a connection, a timeout, or an error reply. It never contains a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WireError {
    kind: ErrorKind,
    details: Cow<'static, str>,
}

/// The origin of an error. Only `Reply` comes from the server; all others are noticed by the
/// client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The socket failed, or the other side has closed it.
    Io,
    /// No process listens at the address.
    NoListener,
    /// A time limit has passed.
    Timeout,
    /// The bytes that arrived are not the expected reply.
    Protocol,
    /// The TLS handshake failed, or a certificate was not accepted.
    #[cfg_attr(
        not(any(feature = "rustls", feature = "native-tls")),
        allow(dead_code, reason = "only tests make one then")
    )]
    Tls,
    /// The server sent an error reply, whose text is in the details.
    Reply,
}

impl WireError {
    pub(crate) fn new(kind: ErrorKind, details: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, details: details.into() }
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The text of the server or of the system.
    pub(crate) fn details(&self) -> &str {
        &self.details
    }

    /// True if the server replied that the login is missing or wrong.
    pub(crate) fn is_about_login(&self) -> bool {
        let code = self.details.split_whitespace().next();
        self.kind == ErrorKind::Reply && matches!(code, Some("NOAUTH" | "WRONGPASS"))
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.details)
    }
}

impl std::error::Error for WireError {}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        // The debug text has the kind of the error and the texts of TLS libraries, which
        // `tls::explain` reads.
        Self::new(ErrorKind::Io, format!("{error:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reply_is_about_the_login() {
        for (kind, details, expected) in [
            (ErrorKind::Reply, "NOAUTH Authentication required.", true),
            (ErrorKind::Reply, "WRONGPASS invalid username-password pair", true),
            (ErrorKind::Reply, "NOPERM no permissions, see WRONGPASS", false),
            (ErrorKind::Reply, "", false),
            (ErrorKind::Protocol, "NOAUTH Authentication required.", false),
        ] {
            assert_eq!(WireError::new(kind, details).is_about_login(), expected, "{details}");
        }
    }
}
