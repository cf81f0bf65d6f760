//! Certificates for TLS servers in tests and in the compose file. Not for production: the keys are
//! left in plain files.

use std::fs;
use std::path::Path;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use rcgen::BasicConstraints;
use rcgen::CertificateParams;
use rcgen::DnType;
use rcgen::ExtendedKeyUsagePurpose;
use rcgen::IsCa;
use rcgen::Issuer;
use rcgen::KeyPair;
use rcgen::KeyUsagePurpose;

/// What servers in tests and in the compose file are called.
pub const HOSTS: &[&str] = &["localhost", "127.0.0.1", "::1", "redis", "redis-tls"];

/// A certificate and its private key.
#[derive(Debug, Clone)]
pub struct Pair {
    /// In PEM.
    pub cert: String,
    /// In PEM.
    pub key: String,
}

/// Signs certificates.
#[derive(Debug)]
pub struct Authority {
    /// Its own certificate, in PEM.
    pub cert: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new authority with a certificate that it signed itself.
    ///
    /// # Errors
    ///
    /// What rcgen cannot do.
    pub fn new(name: &str) -> Result<Self, rcgen::Error> {
        let mut params = params(name, &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let cert = params.self_signed(&key)?.pem();
        Ok(Self { cert, issuer: Issuer::new(params, key) })
    }

    /// For a server with these names and addresses. It is valid for a client too: replicas and
    /// nodes of a cluster are both.
    ///
    /// # Errors
    ///
    /// What rcgen cannot do.
    pub fn server(&self, hosts: &[&str]) -> Result<Pair, rcgen::Error> {
        let mut params = params("server", hosts)?;
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// For a server that forgot to renew it.
    ///
    /// # Errors
    ///
    /// What rcgen cannot do.
    pub fn expired_server(&self, hosts: &[&str]) -> Result<Pair, rcgen::Error> {
        let mut params = params("server", hosts)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        self.sign(params)
    }

    /// For a client with this name.
    ///
    /// # Errors
    ///
    /// What rcgen cannot do.
    pub fn client(&self, name: &str) -> Result<Pair, rcgen::Error> {
        let mut params = params(name, &[])?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Result<Pair, rcgen::Error> {
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Pair { cert, key: key.serialize_pem() })
    }
}

/// Valid from last year on, for ten years.
fn params(name: &str, hosts: &[&str]) -> Result<CertificateParams, rcgen::Error> {
    let mut params =
        CertificateParams::new(hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>())?;
    params.distinguished_name.push(DnType::CommonName, name);
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let year = i32::try_from(1970 + seconds / 31_556_952).unwrap_or(2_000);
    params.not_before = rcgen::date_time_ymd(year - 1, 1, 1);
    params.not_after = rcgen::date_time_ymd(year + 9, 1, 1);
    Ok(params)
}

/// Writes what a TLS deployment needs into a directory; what is there already is left as it is.
///
/// # Errors
///
/// The file that cannot be written, and why.
pub fn write(directory: &Path, more_hosts: &[&str]) -> Result<(), String> {
    const FILES: [&str; 10] = [
        "ca.crt",
        "server.crt",
        "server.key",
        "client.crt",
        "client.key",
        "expired-server.crt",
        "expired-server.key",
        "other-ca.crt",
        "other-client.crt",
        "other-client.key",
    ];
    if FILES.iter().all(|file| directory.join(file).is_file()) {
        return Ok(());
    }
    let make = || -> Result<[String; 10], rcgen::Error> {
        let (ours, other) =
            (Authority::new("test authority")?, Authority::new("another authority")?);
        let hosts = [HOSTS, more_hosts].concat();
        let (server, expired) = (ours.server(&hosts)?, ours.expired_server(&hosts)?);
        let (client, stranger) = (ours.client("client")?, other.client("stranger")?);
        Ok([
            ours.cert,
            server.cert,
            server.key,
            client.cert,
            client.key,
            expired.cert,
            expired.key,
            other.cert,
            stranger.cert,
            stranger.key,
        ])
    };
    let texts = make().map_err(|error| format!("no certificates: {error}"))?;
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    for (file, text) in FILES.iter().zip(texts) {
        let path = directory.join(file);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}
