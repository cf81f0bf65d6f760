//! A private redis-server that speaks TLS on one port, and plain text on another for tests to look
//! through.

use std::fs;
use std::path::PathBuf;

use certs::Authority;
use certs::HOSTS;
use certs::Pair;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockClientBuilder;
use redis_reentrant_lock::Tls;

use crate::support::redis_server::RedisServer;
use crate::support::redis_server::free_port;

/// Who signs what.
pub(crate) struct Certificates {
    pub(crate) ours: Authority,
    pub(crate) other: Authority,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let authority = |name| Authority::new(name).expect("an authority");
        Self { ours: authority("test authority"), other: authority("another authority") }
    }

    pub(crate) fn server(&self) -> Pair {
        self.ours.server(HOSTS).expect("a certificate")
    }

    pub(crate) fn client(&self) -> Pair {
        self.ours.client("client").expect("a certificate")
    }

    /// Trusts our authority.
    pub(crate) fn trusting(&self) -> Tls {
        Tls::new().ca_pem(self.ours.cert.as_str())
    }

    /// Trusts our authority and shows a certificate signed by it.
    pub(crate) fn mutual(&self) -> Tls {
        let Pair { cert, key } = self.client();
        self.trusting().client_cert_pem(cert, key)
    }
}

pub(crate) struct TlsServer {
    pub(crate) plain: RedisServer,
    pub(crate) port: u16,
    directory: PathBuf,
}

impl TlsServer {
    /// With this certificate; wants one of each client if `mutual`. More options as on the command
    /// line.
    pub(crate) fn start(
        certificates: &Certificates,
        own: &Pair,
        mutual: bool,
        more: &[&str],
    ) -> Self {
        let port = free_port();
        let directory =
            std::env::temp_dir().join(format!("lock-tls-{}-{port}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let file = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).expect("a file");
            path.display().to_string()
        };
        let (ca, cert, key) = (
            file("ca.crt", &certificates.ours.cert),
            file("s.crt", &own.cert),
            file("s.key", &own.key),
        );
        let number = port.to_string();
        let mut options =
            vec!["--tls-port", &number, "--tls-ca-cert-file", &ca, "--tls-cert-file", &cert];
        options.extend([
            "--tls-key-file",
            &key,
            "--tls-auth-clients",
            if mutual { "yes" } else { "no" },
        ]);
        options.extend(more);
        Self { plain: RedisServer::with(&options), port, directory }
    }

    pub(crate) fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.port)
    }

    pub(crate) fn builder(&self, tls: Tls) -> LockClientBuilder {
        LockClient::builder().url(self.url()).tls(tls)
    }

    /// Writes a file beside the server's and gives its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.directory.join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
