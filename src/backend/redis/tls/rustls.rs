//! rustls with ring.

use std::sync::Arc;

use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::ConfigBuilder;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::client::WantsClientCert;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use crate::base::error::Error;
use crate::settings::tls::ClientCertificate;
use crate::settings::tls::Tls;

use super::CA;
use super::CERTIFICATES;
use super::CLIENT;
use super::Connector;
use super::KEY;
use super::refused;

pub(super) fn build(tls: &Tls) -> Result<Connector, Error> {
    let roots = if tls.authorities.is_empty() { of_the_system()? } else { own(&tls.authorities)? };
    // The provider is given, because a process with two cryptography providers has no default one,
    // and rustls would panic.
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused("TLS", error.to_string(), "usable"))?
        .with_root_certificates(roots);
    let config = match &tls.client {
        None => config.with_no_client_auth(),
        Some(certificate) => with_certificate(config, certificate)?,
    };
    Ok(Connector::Rustls(Arc::new(config).into()))
}

fn own(texts: &[Vec<u8>]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for text in texts {
        for certificate in certificates(CA, text)? {
            roots.add(certificate).map_err(|error| {
                refused(CA, format!("with a broken certificate ({error})"), CERTIFICATES)
            })?;
        }
    }
    Ok(roots)
}

/// The system's certificate authorities. One that cannot be read is skipped, which only makes fewer
/// servers trusted.
fn of_the_system() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
        return Err(refused(
            "TLS",
            format!("with this system's authorities, of which none was found{why},"),
            "with the system's CA certificates installed, or with `Tls::ca_pem`",
        ));
    }
    Ok(roots)
}

fn with_certificate(
    config: ConfigBuilder<ClientConfig, WantsClientCert>,
    certificate: &ClientCertificate,
) -> Result<ClientConfig, Error> {
    let chain = certificates(CLIENT, &certificate.chain)?;
    let key = PrivateKeyDer::from_pem_slice(&certificate.key)
        .map_err(|_| refused(CLIENT, "without a readable private key", KEY))?;
    config.with_client_auth_cert(chain, key).map_err(|error| {
        refused(
            CLIENT,
            format!("with this certificate and key ({error})"),
            "a certificate and the key that belongs to it",
        )
    })
}

fn certificates(option: &'static str, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|_| refused(option, "with broken PEM", CERTIFICATES))?;
    if all.is_empty() {
        return Err(refused(option, "without a certificate", CERTIFICATES));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_an_authority_is_refused() {
        for text in ["", "no PEM", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
            let refused = own(&[text.as_bytes().to_vec()]);
            assert!(
                matches!(refused, Err(Error::InvalidOption { option: CA, .. })),
                "{text}: {refused:?}"
            );
        }
    }
}
