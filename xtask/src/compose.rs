//! The server of `docker-compose.yml`: up, healthy, down again whatever happens.

use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use crate::cleanup::Cleanup;
use crate::process;
use crate::process::Echo;
use crate::servers;

const IMAGE: &str = "redis:7";
const PULL_LIMIT: Duration = Duration::from_secs(120);
const BUILD_LIMIT: Duration = Duration::from_secs(300);
const HEALTHY_LIMIT: Duration = Duration::from_secs(60);

/// Whether the server could be brought up.
pub(crate) enum Outcome {
    Up(Stack),
    /// This machine cannot: no Docker, or no image.
    Impossible(String),
}

/// The running service. Taken down when dropped.
pub(crate) struct Stack {
    tool: Tool,
    port: u16,
    cleanup: Cleanup,
}

/// Compose v2, `docker compose`, or `docker-compose` 1.29.
#[derive(Debug, Clone, Copy)]
struct Tool(&'static [&'static str]);

const TOOLS: [Tool; 2] = [Tool(&["docker", "compose"]), Tool(&["docker-compose"])];

pub(crate) fn up() -> Result<Outcome, String> {
    let tool = match prepare() {
        Ok(tool) => tool,
        Err(reason) => return Ok(Outcome::Impossible(reason)),
    };
    let port = match std::env::var("REDIS_PORT") {
        Ok(port) => port.parse().map_err(|_| format!("REDIS_PORT is not a port: `{port}`"))?,
        Err(_) => servers::free_port()?,
    };
    // Registered first: half a start is taken down as well.
    let stack = Stack { tool, port, cleanup: Cleanup::new(move || tool.take_down(port)) };
    let done = process::run(tool.command(port, &["up", "-d"]), HEALTHY_LIMIT, Echo::On)?;
    if !done.success {
        return Err("the compose file's server does not start".into());
    }
    stack.wait_until_healthy()?;
    Ok(Outcome::Up(stack))
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
        return Err("no Docker daemon answers".into());
    }
    let tool = TOOLS.into_iter().find(|tool| quiet(&[tool.0, &["version"]].concat()));
    let tool = tool.ok_or("neither `docker compose` nor `docker-compose` works")?;
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
    let output = output.map_err(|error| format!("cannot run {:?}: {error}", command.get_program()))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Tool {
    fn command(self, port: u16, args: &[&str]) -> Command {
        let mut command = Command::new(self.0[0]);
        command.args(&self.0[1..]).args(["-p", "redis-reentrant-lock-xtask"]).args(args);
        command.current_dir(crate::root()).env("REDIS_PORT", port.to_string());
        command
    }

    /// Not through `process::run`: this is also called while the program is being ended.
    fn take_down(self, port: u16) {
        let mut command = self.command(port, &["down", "-v", "-t", "2"]);
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

impl Stack {
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Takes the server down now, and says so if that fails.
    pub(crate) fn down(self) -> Result<(), String> {
        let Self { tool, port, cleanup } = self;
        drop(cleanup);
        match stdout_of(tool.command(port, &["ps", "-q"]))?.as_str() {
            "" => Ok(()),
            left => Err(format!("the compose file's server was not taken down: {left}")),
        }
    }

    fn wait_until_healthy(&self) -> Result<(), String> {
        let id = stdout_of(self.tool.command(self.port, &["ps", "-q"]))?;
        let started = Instant::now();
        loop {
            let mut inspect = Command::new("docker");
            inspect.args(["inspect", "--format", "{{.State.Health.Status}}", &id]);
            match stdout_of(inspect)?.as_str() {
                "healthy" => return Ok(()),
                state if started.elapsed() > HEALTHY_LIMIT => {
                    return Err(format!("the compose file's server does not become healthy: {state}"));
                }
                _ => thread::sleep(Duration::from_millis(200)),
            }
        }
    }
}
