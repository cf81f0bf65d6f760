//! The TLS settings: trusted authorities and the client certificate.

use std::fmt;

/// How `rediss://` connections are secured: which authorities to trust, and which certificate to
/// show.
///
/// Without any setting, the authorities of the operating system are trusted and no certificate is
/// shown; that is what `rediss://` alone means. The server's certificate must always be valid now,
/// signed by a trusted authority, and issued for the host name or IP address that the connection
/// goes to (as a subject alternative name). These checks cannot be turned off.
///
/// This needs the feature `rustls` or `native-tls`; with both, rustls is used. `connect` and
/// `connect_lazy` check everything before anything is sent.
///
/// ```no_run
/// use redis_reentrant_lock::{LockClient, Tls};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let tls = Tls::new()
///     .ca_pem(std::fs::read("ca.crt")?)
///     .client_cert_pem(std::fs::read("client.crt")?, std::fs::read("client.key")?);
/// let builder = LockClient::builder().url("rediss://locks:secret@redis.internal");
/// let client = builder.tls(tls).connect().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "it does nothing before it is passed to `LockClientBuilder::tls`"]
pub struct Tls {
    pub(crate) authorities: Vec<Vec<u8>>,
    pub(crate) client: Option<ClientCertificate>,
}

/// The client's certificate and private key.
#[derive(Clone)]
#[cfg_attr(
    not(any(feature = "rustls", feature = "native-tls")),
    expect(dead_code, reason = "nobody to take it")
)]
pub(crate) struct ClientCertificate {
    pub(crate) chain: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Tls {
    /// The authorities of the operating system, no client certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the authorities in this PEM text, one or more, **instead of** those of the operating
    /// system. Can be called again to trust more.
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authorities.push(pem.into());
        self
    }

    /// Shows this certificate to a server that asks for one (`tls-auth-clients yes`, the default of
    /// Redis). In PEM: first the certificate itself, then any certificates between it and the
    /// authority; and its private key, not encrypted, in PKCS#8 (`BEGIN PRIVATE KEY`; rustls also
    /// takes PKCS#1 and SEC1).
    pub fn client_cert_pem(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.client = Some(ClientCertificate { chain: chain.into(), key: key.into() });
        self
    }
}

/// Does not show the private key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("own_authorities", &!self.authorities.is_empty())
            .field("client_certificate", &self.client.is_some())
            .finish_non_exhaustive()
    }
}
