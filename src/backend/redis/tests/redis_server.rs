//! A private redis-server, one for each test that needs one.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::io::Read;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Polls `condition` until it holds; panics after ten seconds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if condition() {
            return;
        }
        pause(Duration::from_millis(10));
    }
    panic!("within 10 s it did not happen that {what}");
}

/// Blocks this thread: for plain test threads, never for a runtime.
pub(crate) fn pause(duration: Duration) {
    let never = Mutex::new(());
    let guard = never.lock().expect("a fresh mutex");
    drop(Condvar::new().wait_timeout_while(guard, duration, |()| true));
}

/// A server process with its own directory. Killed when dropped.
#[derive(Debug)]
pub(crate) struct RedisServer {
    child: Option<Child>,
    port: u16,
    directory: PathBuf,
    options: Vec<String>,
    environment: Vec<(&'static str, OsString)>,
}

impl RedisServer {
    /// On a free port of the loopback interface and a unix socket, without persistence.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// With more options, as on redis-server's command line: `["--requirepass", "secret"]`.
    pub(crate) fn with(options: &[&str]) -> Self {
        Self::in_environment(options, Vec::new())
    }

    /// The same, with variables of its environment.
    pub(crate) fn in_environment(
        options: &[&str],
        environment: Vec<(&'static str, OsString)>,
    ) -> Self {
        // Another process may take the free port before the server does.
        for _ in 0..5 {
            let mut server = Self::not_started(options);
            server.environment.clone_from(&environment);
            if server.try_start() {
                return server;
            }
        }
        panic!("redis-server does not start: {options:?}")
    }

    /// Reserves a port; `restart` starts the server.
    pub(crate) fn not_started(options: &[&str]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("lock-test-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory for the server");
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let environment = Vec::new();
        Self { child: None, port: free_port(), directory, options, environment }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("s")
    }

    /// Kills it, as `kill -9` does.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops it if it runs, and starts a new process on the same port without data.
    pub(crate) fn restart(&mut self) {
        self.stop();
        assert!(
            self.try_start(),
            "redis-server on port {} does not start: {:?}",
            self.port,
            self.options
        );
    }

    /// False if it ended at once, for example because the port is taken.
    fn try_start(&mut self) -> bool {
        let child = self.child.insert(self.spawn());
        for _ in 0..1_000 {
            if answers(&self.directory.join("s")) {
                return true;
            }
            if child.try_wait().expect("the state of the server").is_some() {
                self.child = None;
                return false;
            }
            pause(Duration::from_millis(10));
        }
        panic!("redis-server on port {} did not answer within 10 s: {:?}", self.port, self.options);
    }

    /// The same, without the data in append-only files.
    pub(crate) fn restart_empty(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(self.directory.join("appendonlydir"));
        // The file of Redis 6.2.
        let _ = fs::remove_file(self.directory.join("appendonly.aof"));
        self.restart();
    }

    /// Freezes the process; its connections stay open.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    /// A connection that does not belong to this crate, to set up and inspect data.
    pub(crate) fn connection(&self) -> redis::Connection {
        redis::Client::open(self.url())
            .and_then(|client| client.get_connection())
            .unwrap_or_else(|error| panic!("redis-server on port {}: {error}", self.port))
    }

    fn spawn(&self) -> Child {
        let mut command = Command::new(binary());
        command
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .arg("--unixsocket")
            .arg(self.socket())
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .arg("--dir")
            .arg(&self.directory)
            .args(&self.options)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().unwrap_or_else(|error| panic!("redis-server did not start: {error}"))
    }

    fn signal(&self, signal: &str) {
        let child = self.child.as_ref().expect("a running server");
        let done =
            Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill");
        assert!(done.success(), "kill {signal} failed");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// `REDIS_SERVER`, or the program in `PATH`.
pub(crate) fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("REDIS_SERVER") {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "REDIS_SERVER is {}, which is not a file", path.display());
        return path;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join("redis-server"))
        .find(|file| Path::is_file(file))
        .expect("no redis-server in PATH: install Redis 6.2 or later, or set REDIS_SERVER to its binary")
}

/// True if the servers are Redis 7.0 or later, or Valkey. Otherwise reports that the test is not
/// run, and why. The report bypasses the capture of the test's output, so that `cargo xtask test`
/// can count it.
#[allow(dead_code, reason = "chaos is not run with less")]
pub(crate) fn has_redis_7(what: &str) -> bool {
    let has = version() >= (7, 0);
    if !has {
        let (major, minor) = version();
        not_run(&format!("needs {what}, this is Redis {major}.{minor}"));
    }
    has
}

/// Reports that the test is not run, and why.
pub(crate) fn not_run(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let line = format!("NOT RUN: {test}: {why}\n");
    io::stderr().write_all(line.as_bytes()).expect("standard error");
}

/// The version that the program reports, of Redis or Valkey.
#[allow(dead_code, reason = "chaos does not ask")]
pub(crate) fn version() -> (u32, u32) {
    static VERSION: OnceLock<(u32, u32)> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let said = Command::new(binary()).arg("--version").output().expect("a version").stdout;
        let said = String::from_utf8_lossy(&said);
        let version = said.split(' ').find_map(|word| word.strip_prefix("v=")).expect("v=7.0.15");
        let mut numbers = version.split('.').map(|number| number.parse().expect("a number"));
        (numbers.next().expect("a major version"), numbers.next().expect("a minor version"))
    })
}

/// Uses the unix socket, because the port may be that of another test's server. An error reply,
/// such as NOAUTH, is an answer as well.
fn answers(socket: &Path) -> bool {
    let ask = || -> io::Result<bool> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        Ok(stream.read(&mut [0; 64])? > 0)
    };
    ask().unwrap_or(false)
}

/// A port on which no process listens; each is returned once. It is below the range from which the
/// system chooses ports for outgoing connections, which could take it while its server is stopped.
pub(crate) fn free_port() -> u16 {
    static TURN: AtomicU32 = AtomicU32::new(0);
    for _ in 0..3_000 {
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        // Processes that run at the same time begin at different ports.
        let place = (std::process::id().wrapping_mul(397).wrapping_add(turn)) % 3_000;
        let port = 7_000 + u16::try_from(place).expect("below 3,000");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port on 127.0.0.1")
}
