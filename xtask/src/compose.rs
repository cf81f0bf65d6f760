//! The services of `docker-compose.yml`: up, healthy, down again whatever happens.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use crate::cleanup::Cleanup;
use crate::process;
use crate::process::Echo;
use crate::topologies::Kind;

const IMAGE: &str = "redis:7";
const PULL_LIMIT: Duration = Duration::from_secs(120);
const BUILD_LIMIT: Duration = Duration::from_secs(300);
const HEALTHY_LIMIT: Duration = Duration::from_secs(60);

/// The running services. Taken down when dropped.
pub(crate) struct Stack {
    tool: Tool,
    settings: Settings,
    cleanup: Cleanup,
}

/// What the compose file takes from the environment.
#[derive(Debug, Clone)]
struct Settings {
    certs: PathBuf,
    ports: [(Kind, u16); 4],
}

/// Compose v2, `docker compose`, or `docker-compose` 1.29.
#[derive(Debug, Clone, Copy)]
struct Tool(&'static [&'static str]);

const TOOLS: [Tool; 2] = [Tool(&["docker", "compose"]), Tool(&["docker-compose"])];

/// Every service, healthy; or what is missing.
pub(crate) fn up(certs: &Path) -> Result<Stack, String> {
    let tool = prepare()?;
    let mut ports = Kind::ALL.map(|kind| (kind, 0));
    for (kind, port) in &mut ports {
        *port = kind.free_ports()?;
    }
    let settings = Settings { certs: certs.to_owned(), ports };
    // Registered first: half a start is taken down as well.
    let down = settings.clone();
    let cleanup = Cleanup::new(move || tool.take_down(&down));
    let stack = Stack { tool, settings, cleanup };
    let done = process::run(tool.command(&stack.settings, &["up", "-d"]), HEALTHY_LIMIT, Echo::On)?;
    if !done.success {
        return Err("the compose file's services do not start".into());
    }
    stack.wait_until_healthy()?;
    Ok(stack)
}

/// Sees to it that there are a daemon, a compose program and the image; or says what is missing.
fn prepare() -> Result<Tool, String> {
    let missing = match missing() {
        Ok(tool) => return Ok(tool),
        Err(missing) => missing,
    };
    let builder = std::env::var("REDIS_IMAGE_BUILDER").unwrap_or_default();
    if builder.trim().is_empty() {
        return Err(format!("{missing}, and REDIS_IMAGE_BUILDER names no command that would help"));
    }
    println!("{missing}; running: {builder}");
    let mut command = Command::new("sh");
    command.args(["-c", &builder]).current_dir(crate::root());
    let built = process::run(command, BUILD_LIMIT, Echo::On)?;
    if !built.success {
        return Err(format!("{missing}, and the image builder failed"));
    }
    self::missing().map_err(|missing| format!("{missing}, although the image builder ran"))
}

fn missing() -> Result<Tool, String> {
    if !quiet(&["docker", "info"]) {
        return Err("docker is missing, or its daemon does not answer".into());
    }
    let tool = TOOLS.into_iter().find(|tool| quiet(&[tool.0, &["version"]].concat()));
    let tool = tool.ok_or("docker-compose is missing, and `docker compose` too")?;
    if quiet(&["docker", "image", "inspect", IMAGE]) {
        return Ok(tool);
    }
    let mut pull = Command::new("docker");
    pull.args(["pull", IMAGE]);
    match process::run(pull, PULL_LIMIT, Echo::Off)? {
        done if done.success => Ok(tool),
        _ => Err(format!("image {IMAGE} cannot be pulled")),
    }
}

/// Runs a command for its exit code only.
fn quiet(words: &[&str]) -> bool {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    process::run(command, Duration::from_secs(30), Echo::Off).is_ok_and(|done| done.success)
}

/// What a command prints to standard output; warnings go to standard error.
fn stdout_of(mut command: Command) -> Result<String, String> {
    let output = command.stderr(Stdio::null()).output();
    let output =
        output.map_err(|error| format!("cannot run {:?}: {error}", command.get_program()))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Tool {
    fn command(self, settings: &Settings, args: &[&str]) -> Command {
        let mut command = Command::new(self.0[0]);
        command.args(&self.0[1..]).args(["-p", "redis-reentrant-lock-xtask"]).args(args);
        command.current_dir(crate::root()).env("REDIS_CERTS", &settings.certs);
        for (kind, port) in settings.ports {
            match kind {
                Kind::Single => command.env("REDIS_PORT", port.to_string()),
                Kind::Tls => command.env("REDIS_TLS_PORT", port.to_string()),
                Kind::Sentinel => {
                    command.env("REDIS_SENTINEL_PORTS", format!("{port}-{}", port + 5))
                }
                Kind::Cluster => command.env("REDIS_CLUSTER_PORTS", format!("{port}-{}", port + 5)),
            };
        }
        command
    }

    /// Not through `process::run`: this is also called while the program is being ended.
    fn take_down(self, settings: &Settings) {
        let mut command = self.command(settings, &["down", "-v", "-t", "2"]);
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

impl Stack {
    pub(crate) fn url(&self, kind: Kind) -> String {
        let port = self
            .settings
            .ports
            .iter()
            .find(|(other, _)| *other == kind)
            .map_or(0, |(_, port)| *port);
        kind.url(port)
    }

    /// Takes all services down now, and says so if that fails.
    pub(crate) fn down(self) -> Result<(), String> {
        let Self { tool, settings, cleanup } = self;
        drop(cleanup);
        match stdout_of(tool.command(&settings, &["ps", "-q"]))?.as_str() {
            "" => Ok(()),
            left => Err(format!("services of the compose file were not taken down: {left}")),
        }
    }

    fn wait_until_healthy(&self) -> Result<(), String> {
        let ids = stdout_of(self.tool.command(&self.settings, &["ps", "-q"]))?;
        let started = Instant::now();
        loop {
            let mut inspect = Command::new("docker");
            inspect.args(["inspect", "--format", "{{.Name}} {{.State.Health.Status}}"]);
            let states = stdout_of({
                inspect.args(ids.split_whitespace());
                inspect
            })?;
            let healthy = states.lines().filter(|state| state.ends_with(" healthy")).count();
            if healthy == Kind::ALL.len() {
                return Ok(());
            }
            if started.elapsed() > HEALTHY_LIMIT {
                return Err(format!(
                    "services of the compose file do not become healthy:\n{states}"
                ));
            }
            thread::sleep(Duration::from_millis(200));
        }
    }
}
