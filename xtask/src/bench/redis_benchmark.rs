//! Redis's own benchmark, as a check that the floor is one.

use std::process::Command;
use std::time::Duration;

use crate::process;
use crate::process::Echo;
use crate::servers::Server;

/// Twice the median time, in microseconds, of the acquire script with one connection. Not a number
/// without the program.
pub(crate) fn pair(server: &Server) -> Result<f64, String> {
    let Some(program) = process::find_program("redis-benchmark") else { return Ok(f64::NAN) };
    let mut connection = server.connect().map_err(|error| error.to_string())?;
    let read = |path: String| {
        std::fs::read_to_string(crate::root().join(path)).map_err(|error| error.to_string())
    };
    let parts = ["body/pass_on.lua", "body/wait.lua", "acquire.lua", "body/acquire.lua"];
    let script: String =
        parts.iter().map(|part| read(format!("lua/reentrant/{part}"))).collect::<Result<_, _>>()?;
    let digest =
        connection.text(&["SCRIPT", "LOAD", &script]).map_err(|error| error.to_string())?;
    let url = server.url();
    let port = url.rsplit(':').next().unwrap_or_default();
    let mut command = Command::new(program);
    command.args(["-p", port, "-c", "1", "-n", "3000", "--csv", "EVALSHA", &digest, "3"]);
    let field = "6e3d30b7-83b1-433a-9335-5e8b9916d3ac:1";
    command.args([
        "pairs:floor",
        "redisson_lock_fence:{1}",
        "redisson_lock_line__{pairs:floor}",
        field,
        "1",
        "30000",
        "9000000000000000",
        "first",
        "0",
        "0",
    ]);
    let done = process::run(command, Duration::from_secs(60), Echo::Off)?;
    // "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms",...
    let line = done.output.lines().last().unwrap_or_default();
    let p50 =
        line.rsplit("\",\"").nth(3).and_then(|field| field.trim_matches('"').parse::<f64>().ok());
    Ok(p50.map_or(f64::NAN, |ms| 2_000.0 * ms))
}
