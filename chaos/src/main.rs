//! Chaos: processes that take locks, servers that are killed and frozen under them, networks that
//! fail, and checks of all that the processes were told. `cargo xtask chaos` runs it; docs/proof.md
//! tells of it.

#![expect(
    clippy::disallowed_methods,
    reason = "a development program: it holds no leases of its own"
)]

#[path = "../../src/sim/chance.rs"]
#[allow(dead_code, reason = "shared with the simulation, which uses all of it")]
mod chance;
mod checks;
mod clock;
mod crowd;
mod event;
mod history;
mod kind;
mod nemesis;
mod place;
mod plan;
mod process;
mod run;
mod store;
mod support;
mod timeline;
mod votes;
mod watch;
mod wire;
mod worker;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.split_first() {
        Some((first, rest)) if first == "worker" => match worker::Settings::read(rest) {
            Some(settings) => worker::run(settings).map(|()| true),
            None => Err("a worker wants all its settings".to_owned()),
        },
        Some((first, rest)) if first == "waiter" => crowd::waiter(rest).map(|()| true),
        Some((first, rest)) if first == "fair-order" => crowd::run(rest),
        Some((first, rest)) if first == "redlock-votes" => votes::run(rest),
        _ => run::run(&words),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}
