//! The operating system's TLS library.

use native_tls::Certificate;
use native_tls::Identity;
use native_tls::TlsConnector;

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
    let mut builder = TlsConnector::builder();
    builder.min_protocol_version(Some(native_tls::Protocol::Tlsv12));
    builder.disable_built_in_roots(!tls.authorities.is_empty());
    for text in &tls.authorities {
        for certificate in certificates(CA, text)? {
            builder.add_root_certificate(certificate);
        }
    }
    if let Some(certificate) = &tls.client {
        builder.identity(identity(certificate)?);
    }
    // Fails if the key does not belong to the certificate.
    let connector = builder.build().map_err(|error| match tls.client {
        Some(_) => mismatch(&error),
        None => refused("TLS", error.to_string(), "usable"),
    })?;
    Ok(Connector::Native(connector.into()))
}

fn identity(certificate: &ClientCertificate) -> Result<Identity, Error> {
    certificates(CLIENT, &certificate.chain)?;
    if !String::from_utf8_lossy(&certificate.key).contains("-----BEGIN PRIVATE KEY-----") {
        return Err(refused(CLIENT, "without a readable private key", KEY));
    }
    Identity::from_pkcs8(&certificate.chain, &certificate.key).map_err(|error| mismatch(&error))
}

fn mismatch(error: &native_tls::Error) -> Error {
    let given = format!("with this certificate and key ({error})");
    refused(CLIENT, given, "a certificate and the key that belongs to it")
}

fn certificates(option: &'static str, text: &[u8]) -> Result<Vec<Certificate>, Error> {
    if !String::from_utf8_lossy(text).contains("-----BEGIN CERTIFICATE-----") {
        return Err(refused(option, "without a certificate", CERTIFICATES));
    }
    match Certificate::stack_from_pem(text) {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(refused(option, "with broken PEM", CERTIFICATES)),
    }
}
