//! Does with locks what the process of a test cannot do: it forks, ends, or runs jobs in a pool.
//! `tests/all.rs` starts it, with the address of a server of its own.

#![expect(clippy::disallowed_methods, reason = "it holds no leases that a clock would matter to")]

mod child;
mod ends;
mod forks;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["fork", scenario, url] => forks::run(scenario, url),
        ["end", scenario, url] => ends::run(scenario, url),
        _ => panic!("unknown words: {words:?}"),
    }
    ExitCode::SUCCESS
}
