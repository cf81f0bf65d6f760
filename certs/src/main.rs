//! `certs DIR [HOST…]`: writes certificates for servers with TLS into a directory.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let [directory, hosts @ ..] = args.as_slice() else {
        eprintln!("usage: certs DIR [HOST…]");
        return ExitCode::FAILURE;
    };
    match certs::write(Path::new(directory), hosts) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}
