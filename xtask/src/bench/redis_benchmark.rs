//! Redis's own benchmark, as a check that the floor is one.

use std::process::Command;
use std::time::Duration;

use crate::process;
use crate::process::Echo;
use crate::servers::Server;

use super::wire::ACQUIRE;
use super::wire::Names;
use super::wire::Stands;

/// Twice the median time, in microseconds, of the acquire script with one connection. Not a number
/// without the program.
pub(crate) fn pair(server: &Server) -> Result<f64, String> {
    let Some(program) = process::find_program("redis-benchmark") else { return Ok(f64::NAN) };
    let mut connection = server.connect().map_err(|error| error.to_string())?;
    let digest = connection
        .text(&["SCRIPT", "LOAD", ACQUIRE.as_str()])
        .map_err(|error| error.to_string())?;
    let url = server.url();
    let port = url.rsplit(':').next().unwrap_or_default();
    let mut command = Command::new(program);
    command.args(["-p", port, "-c", "1", "-n", "3000", "--csv", "EVALSHA"]);
    let field = "6e3d30b7-83b1-433a-9335-5e8b9916d3ac:1";
    command.args(Names::of("pairs:floor").acquire(&digest, field, Stands::InLine));
    let done = process::run(command, Duration::from_secs(60), Echo::Off)?;
    // "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms",...
    let line = done.output.lines().last().unwrap_or_default();
    let p50 =
        line.rsplit("\",\"").nth(3).and_then(|field| field.trim_matches('"').parse::<f64>().ok());
    Ok(p50.map_or(f64::NAN, |ms| 2_000.0 * ms))
}
