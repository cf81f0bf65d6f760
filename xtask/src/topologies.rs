//! The kinds of deployment, as `docker/topology.sh` defines them: started privately, without
//! containers.

use std::net::TcpListener;
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use crate::cleanup::Cleanup;
use crate::process;
use crate::process::Echo;

const READY_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Single,
    Tls,
    Sentinel,
    Cluster,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Single, Self::Tls, Self::Sentinel, Self::Cluster];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Tls => "tls",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
        }
    }

    fn servers(self) -> u16 {
        match self {
            Self::Single | Self::Tls => 1,
            Self::Sentinel | Self::Cluster => 6,
        }
    }

    /// What clients are told, for servers that begin at this port.
    pub(crate) fn url(self, port: u16) -> String {
        let places = |numbers: Range<u16>| {
            numbers
                .map(|number| format!("127.0.0.1:{}", port + number))
                .collect::<Vec<_>>()
                .join(",")
        };
        match self {
            Self::Single => format!("redis://{}", places(0..1)),
            Self::Tls => format!("rediss://locks:lock-secret@{}", places(0..1)),
            Self::Sentinel => {
                let login = "locks:lock-secret";
                format!(
                    "redis-sentinel://{login}@{}/main?sentinel_password=sentinel-secret",
                    places(3..6)
                )
            }
            Self::Cluster => format!("redis-cluster://{}", places(0..3)),
        }
    }

    /// The first of as many free ports side by side as it needs; those of a cluster's buses lie
    /// 10000 above.
    pub(crate) fn free_ports(self) -> Result<u16, String> {
        let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        let all_free = |first: u16| {
            (first..first + self.servers()).all(|port| free(port) && free(port + 10_000))
        };
        // Below the range that outgoing connections take theirs from; processes begin at different
        // places, and no place is given twice.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        (0..1_000)
            .map(|_| (std::process::id() + NEXT.fetch_add(1, Ordering::Relaxed)) % 1_000)
            .filter_map(|place| u16::try_from(10_000 + place * 8).ok())
            .find(|first| all_free(*first))
            .ok_or_else(|| "no free ports side by side on 127.0.0.1".to_owned())
    }
}

/// Running servers of one kind. They end when it is dropped.
pub(crate) struct Private {
    pub(crate) kind: Kind,
    port: u16,
    version: String,
    _cleanup: Cleanup,
}

impl Private {
    pub(crate) fn start(kind: Kind, redis: &Path, certs: &Path) -> Result<Self, String> {
        for program in ["bash", &cli_of(redis).to_string_lossy()] {
            process::find_program(program).ok_or_else(|| format!("{program} is missing"))?;
        }
        let port = kind.free_ports()?;
        let dir =
            std::env::temp_dir().join(format!("xtask-{}-{}", kind.name(), std::process::id()));
        std::fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let script = Script { kind, port, dir: dir.clone(), redis, certs };
        let mut command = script.command(&[kind.name()]);
        let log = dir.join("log");
        let log_file =
            std::fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let errors = log_file.try_clone().map_err(|error| error.to_string())?;
        let spawned =
            command.stdin(Stdio::null()).stdout(log_file).stderr(errors).process_group(0).spawn();
        let mut child = spawned.map_err(|error| format!("cannot run bash: {error}"))?;
        let pid = child.id();
        let cleanup = Cleanup::new(move || {
            process::kill_group(pid);
            let _ = child.wait();
            let _ = std::fs::remove_dir_all(&dir);
        });
        script.wait_until_ready().map_err(|reason| {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            format!(
                "the servers of kind {} do not start: {reason}\n{}",
                kind.name(),
                log.trim_end()
            )
        })?;
        let version = script.version()?;
        Ok(Self { kind, port, version, _cleanup: cleanup })
    }

    pub(crate) fn url(&self) -> String {
        self.kind.url(self.port)
    }

    /// What its servers say they are, as in "6 of Valkey 8.0.1"; all must be the same.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Where all its servers listen.
    pub(crate) fn ports(&self) -> Range<u16> {
        self.port..self.port + self.kind.servers()
    }
}

struct Script<'a> {
    kind: Kind,
    port: u16,
    dir: PathBuf,
    redis: &'a Path,
    certs: &'a Path,
}

impl Script<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("bash");
        command.arg(crate::root().join("docker/topology.sh")).args(args);
        command.env("TOPOLOGY_PORT", self.port.to_string()).env("TOPOLOGY_DIR", &self.dir);
        command.env("REDIS_SERVER", self.redis).env("REDIS_CLI", cli_of(self.redis));
        if self.kind == Kind::Tls {
            command.env("TOPOLOGY_CERTS", self.certs);
        }
        command
    }

    fn wait_until_ready(&self) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let done = process::run(
                self.command(&["ready", self.kind.name()]),
                Duration::from_secs(10),
                Echo::Off,
            )?;
            if done.success {
                return Ok(());
            }
            if started.elapsed() > READY_LIMIT {
                return Err(done.output.trim_end().to_owned());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn version(&self) -> Result<String, String> {
        let command = self.command(&["version", self.kind.name()]);
        let done = process::run(command, Duration::from_secs(10), Echo::Off)?;
        let versions: Vec<&str> = done.output.lines().collect();
        let all_same = versions.windows(2).all(|pair| pair[0] == pair[1]);
        match versions.first() {
            Some(version)
                if done.success
                    && all_same
                    && versions.len() == usize::from(self.kind.servers()) =>
            {
                Ok(format!("{} of {version}", versions.len()))
            }
            _ => Err(format!(
                "the servers of kind {} are not of one version: {versions:?}",
                self.kind.name()
            )),
        }
    }
}

/// The client beside the server, which is of its version, or the one on the path. Valkey's may be
/// without the name that Redis gives it.
fn cli_of(redis: &Path) -> PathBuf {
    let beside = ["redis-cli", "valkey-cli"].map(|name| redis.with_file_name(name));
    beside.into_iter().find(|cli| cli.is_file()).unwrap_or_else(|| PathBuf::from("redis-cli"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_is_the_one_beside_the_server() {
        let dir = std::env::temp_dir().join(format!("xtask-cli-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let server = dir.join("valkey-server");
        assert_eq!(cli_of(&server), Path::new("redis-cli"));
        for name in ["valkey-cli", "redis-cli"] {
            std::fs::write(dir.join(name), "").unwrap();
            assert_eq!(cli_of(&server), dir.join(name));
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn addresses_name_the_servers_that_clients_talk_to() {
        assert_eq!(Kind::Single.url(1), "redis://127.0.0.1:1");
        let sentinels = Kind::Sentinel.url(7_100);
        assert!(
            sentinels.contains("@127.0.0.1:7103,127.0.0.1:7104,127.0.0.1:7105/main?"),
            "{sentinels}"
        );
        assert!(
            Kind::Cluster.url(7_200).ends_with("//127.0.0.1:7200,127.0.0.1:7201,127.0.0.1:7202")
        );
    }
}
