//! Certificates for servers with TLS, written by the package `certs`, which is built only for
//! commands that need them.

use std::path::Path;
use std::time::Duration;

use crate::process;
use crate::process::Echo;
use crate::process::cargo;

const LIMIT: Duration = Duration::from_secs(600);

/// Writes what servers with TLS need into a directory; what is there already is left as it is.
pub(crate) fn write(directory: &Path, more_hosts: &[&str]) -> Result<(), String> {
    let directory = std::path::absolute(directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    println!("certificates for servers with TLS: {}", directory.display());
    let mut command = cargo(&["run", "--quiet", "--package", "certs", "--"]);
    command.arg(&directory).args(more_hosts);
    let done = process::run(command, LIMIT, Echo::Off)?;
    if done.success { Ok(()) } else { Err(format!("no certificates: {}", done.output.trim_end())) }
}
