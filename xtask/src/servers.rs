//! Finding or installing `redis-server`, and private servers that end with the command.

use std::net::TcpListener;
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
use crate::resp::Connection;

const INSTALL_LIMIT: Duration = Duration::from_secs(240);

/// The server program: `REDIS_SERVER`, or the one on the path, or installed now.
pub(crate) fn find_or_install() -> Result<PathBuf, String> {
    if let Some(wanted) = std::env::var_os("REDIS_SERVER").filter(|wanted| !wanted.is_empty()) {
        let wanted = wanted.to_string_lossy();
        return process::find_program(&wanted).ok_or_else(|| {
            format!("redis-server is missing: REDIS_SERVER names `{wanted}`, which is not there")
        });
    }
    if let Some(found) = process::find_program("redis-server") {
        return Ok(found);
    }
    install().map_err(|reason| {
        format!("redis-server is missing and could not be installed: {reason}")
    })?;
    process::find_program("redis-server").ok_or_else(|| {
        "redis-server is missing: its package was installed, but brought no such program".into()
    })
}

/// A package manager: its program, whether it needs root, the commands that install Redis.
struct Manager {
    program: &'static str,
    root: bool,
    commands: &'static [&'static [&'static str]],
}

const MANAGERS: &[Manager] = &[
    Manager {
        program: "apt-get",
        root: true,
        commands: &[
            &["update", "-qq"],
            &["install", "-y", "-qq", "--no-install-recommends", "redis-server"],
        ],
    },
    Manager { program: "dnf", root: true, commands: &[&["install", "-y", "redis"]] },
    Manager { program: "apk", root: true, commands: &[&["add", "redis"]] },
    Manager { program: "brew", root: false, commands: &[&["install", "redis"]] },
];

fn install() -> Result<(), String> {
    let manager = MANAGERS.iter().find(|manager| process::find_program(manager.program).is_some()).ok_or(
        "none of apt-get, dnf, apk and brew is here; install Redis 6.2 or later, or set REDIS_SERVER",
    )?;
    for args in manager.commands {
        manage(manager, args)?;
    }
    Ok(())
}

/// Installs Debian's packages, where that is the system.
pub(crate) fn install_debian(packages: &[&str]) -> Result<(), String> {
    let here = |manager: &&Manager| {
        manager.program == "apt-get" && process::find_program("apt-get").is_some()
    };
    let manager = MANAGERS.iter().find(here);
    let manager =
        manager.ok_or_else(|| format!("apt-get is not here; install {}", packages.join(", ")))?;
    manage(manager, manager.commands[0])?;
    let mut install = vec!["install", "-y", "-qq", "--no-install-recommends"];
    install.extend_from_slice(packages);
    manage(manager, &install)
}

fn manage(manager: &Manager, args: &[&str]) -> Result<(), String> {
    let mut words = vec![manager.program];
    words.extend_from_slice(args);
    if manager.root && !is_root() {
        words.splice(0..0, ["sudo", "-n"]);
    }
    println!("running: {}", words.join(" "));
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("DEBIAN_FRONTEND", "noninteractive");
    // A private server is all that is wanted: keeps the package from starting a system-wide one.
    command.env("RUNLEVEL", "1");
    let done = process::run(command, INSTALL_LIMIT, Echo::Off)?;
    if !done.success {
        return Err(format!("`{}` failed:\n{}", words.join(" "), done.output.trim_end()));
    }
    Ok(())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A server of our own, on a free port of the loopback interface and on a unix socket. Ends when
/// dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) pid: u32,
    pub(crate) port: u16,
    socket: PathBuf,
    _cleanup: Cleanup,
}

impl Server {
    pub(crate) fn start(program: &Path) -> Result<Self, String> {
        let mut reason = String::new();
        // Somebody else may take the free port before the server does.
        for _ in 0..5 {
            match Self::try_start(program) {
                Ok(server) => return Ok(server),
                Err(error) => reason = error,
            }
        }
        Err(format!("{} does not start: {reason}", program.display()))
    }

    fn try_start(program: &Path) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let port = free_port()?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("xtask-redis-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let (socket, log) = (dir.join("redis.sock"), dir.join("redis.log"));
        let spawned = Command::new(program)
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .arg("--dir")
            .arg(&dir)
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--logfile")
            .arg(&log)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => {
                let _ = std::fs::remove_dir_all(&dir);
                return Err(error.to_string());
            }
        };
        let pid = child.id();
        let cleanup = Cleanup::new(move || {
            process::kill_group(pid);
            let _ = child.wait();
            let _ = std::fs::remove_dir_all(&dir);
        });
        let server = Self { pid, port, socket, _cleanup: cleanup };
        server.wait_until_ready().map_err(|error| {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            format!("{error}\n{}", log.trim_end())
        })?;
        Ok(server)
    }

    fn wait_until_ready(&self) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let answer = self.connect().and_then(|mut connection| connection.text(&["PING"]));
            match answer {
                Ok(_) => return Ok(()),
                Err(error) if started.elapsed() > Duration::from_secs(10) => {
                    return Err(error.to_string());
                }
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// "Redis 7.0.15", "Valkey 8.0.1": what it says itself.
    pub(crate) fn version(&self) -> Result<String, String> {
        let info = self.connect().and_then(|mut connection| connection.text(&["INFO", "server"]));
        info.map(|info| version(&info)).map_err(|error| format!("INFO: {error}"))
    }

    pub(crate) fn connect(&self) -> std::io::Result<Connection> {
        Connection::open(&self.socket)
    }
}

/// Valkey's `redis_version` is the Redis that it is compatible with.
fn version(info: &str) -> String {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
    match (field("valkey_version:"), field("redis_version:")) {
        (Some(valkey), _) => format!("Valkey {}", valkey.trim()),
        (None, Some(redis)) => format!("Redis {}", redis.trim()),
        (None, None) => "of unknown version".to_owned(),
    }
}

/// A port of the loopback interface that nobody listens on.
pub(crate) fn free_port() -> Result<u16, String> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| format!("no free port on 127.0.0.1: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valkey_is_called_by_its_own_version() {
        let valkey =
            "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n";
        assert_eq!(version(valkey), "Valkey 8.0.1");
        assert_eq!(version("# Server\r\nredis_version:6.2.16\r\n"), "Redis 6.2.16");
        assert_eq!(version("# Server\r\n"), "of unknown version");
    }
}
