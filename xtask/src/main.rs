//! Development commands: `cargo xtask help`.

#![expect(
    clippy::disallowed_methods,
    reason = "a development program: it holds no locks and no leases"
)]

mod api;
mod bench;
mod certs;
mod chaos;
mod cleanup;
mod compose;
mod demo;
mod fred;
mod instructions;
mod interop;
mod lab;
mod load;
mod mutants;
mod package;
mod process;
mod proof;
mod puppet;
mod reliability;
mod resp;
mod second_opinion;
mod seeded;
mod servers;
mod sim;
mod soak;
mod test;
mod tools;
mod topologies;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask <command>

  demo [--require-redis]   a timeline of the lock at work between processes, on a private server;
                           without one in memory, unless --require-redis
  test [--compose]         every test, on private servers, the endpoint tests on each kind of deployment;
                           with --compose those once more, against the services of docker-compose.yml
  endpoint [--compose]     the endpoint tests alone
  fred                     the tests of the core over a client of fred, and the endpoint tests
  examples                 runs every example
  repeat N                 runs the integration tests N times
  bench [OPTION…]          this crate, the floors and other locks side by side, on one private server: table, JSON, plots.
                           --quick; --only uncontended,hand-over,one-name,processes,kept,distinct,hand-off,queue,drops,
                           holds,line and, of what several hold at once, alone,readers,read-write,permits,many-permits,
                           flight,reads-held,permits-held,dead-readers;
                           --kinds current,floor-current,rlock,rueidislock,redisson,node-redisson,… ; those in Go, Java and
                           of npm where go, java (17) with mvn, node (20) with npm are; --blocks N (30); --threads N (2);
                           --out DIR (target/bench-report); --plots DIR: the plots there, too
  interop [OPTION…]        processes with Redisson (Java) and with this crate on the same locks; without Java it is
                           not run. --versions newest|all|4.7.0,… (newest), --on single|cluster (both),
                           --sections N (10000), --repeat N (1), --only SCENARIO, --require java: installs it
                           where it can, and fails without it
  chaos [OPTION…]          worker processes on servers that are killed, frozen, failed over; checks all they were told.
                           --histories N (120), --seeds A..B or --seed N; --on single,aof,sentinel,cluster (all),
                           or redlock: a Redlock over five servers (chaos-redlock says the same);
                           --at-once N (3); --keep the files of histories that are good;
                           --bug NAME: with a rule broken, as `seeded` does, which it must find
  fair-order [OPTION…]     grants of one fair lock to processes that are killed and frozen, and whether they go by
                           ticket. --grants N (100000), --seed N
  redlock-votes [--starts N]
                           five clients of a Redlock that start at the same moment, over three and over five servers:
                           how soon each is granted (10000 starts, 45 minutes)
  certs DIR [HOST…]        certificates for TLS servers in tests: ca, server, client, and those of another
                           authority; what is in DIR already stays
  api [--write]            what the library offers, an item a line, held against docs/public-api.txt
  package                  cargo publish --dry-run, and whether the published tests build from what is published
  model [WORDS | --large]  explores small models of the protocol, then breaks each rule; with WORDS of a rule,
                           shows what breaking it leads to, with those of a scope, explores it; --large explores
                           scopes that take some minutes instead
  reliability [--out FILE] [--only PART,PART]
                           everything that is counted; writes the figures to reliability-report.json, and a part of
                           them to docs/proof.md. --only runs some parts anew and leaves the others as they were
  soak --for TIME          what draws by seed, for hours, with other seeds (90m, 8h), after what needs tools of its own;
                           a later call goes on where it ended
  instructions [--write]   counts what the engine takes for a lock and an unlock, and compares it with the record; needs valgrind
  coverage                 the lines of the core that tests run; needs rustup's llvm-tools
  rust-mutants --sample    makes a hundred small mistakes in the code of engine, kinds and backend, always the same
                           ones; --all makes every one. Tests must notice them. Both go on where an earlier run
                           ended; both need cargo-mutants
  rust-mutants --in-diff [BASE]
                           the same with the code that differs from the commit BASE (where this branch left main):
                           the unit tests must notice each mutant
  random-scripts [--sequences N] [--steps N] [--seed N]
                           the same random calls of the scripts in memory and on a private server
  second-opinion [--histories N]
                           histories of chaos (20), which Porcupine checks as well; needs go
  seeded [NAME…]           breaks each rule of src/base/seeded/rules.rs in turn (or those named), and expects the
                           simulation or a unit test to notice it
  sim [OPTION…]            the simulation: --seeds A..B (0..10000) says how many runs fail, --seed N makes a failing
                           run smaller and shows what is left; --trace shows all of it; --threads N (one a core);
                           or --crowds alone: shares of clients that contend for one name
  sim-redlock [--seeds A..B]
                           the simulation of Redlocks in several processes over servers in memory
  threads                  tries the interleavings of the threads that share a hold, a slot, a mailbox
  lua-mutants              makes every small mistake in every script, each of which the script tests must notice
  load [--quick] [--only SCENE]
                           many holds, waiters, operations and losses on a private server (holds, waiters, leak, losses)
  fuzz-smoke INPUTS        that many inputs for each fuzz target, without tools of their own
  small-faults             drops every future after each number of polls, cuts every script off at each byte, answers each
                           with every error, takes each permission away
  fuzz SECONDS             runs each fuzz target that long; needs nightly and cargo-fuzz
  help                     this text

environment
  REDIS_SERVER             redis-server program to use instead of the one on the PATH
  REDIS_IMAGE_BUILDER      command that builds the compose file's image where it cannot be pulled
";

fn main() -> ExitCode {
    cleanup::on_signals();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["demo"] => demo::run(false),
        ["demo", "--require-redis"] => demo::run(true),
        ["test"] => test::all(false),
        ["test", "--compose"] => test::all(true),
        ["endpoint"] => test::endpoints_only(false),
        ["endpoint", "--compose"] => test::endpoints_only(true),
        ["fred"] => fred::run(),
        ["examples"] => test::examples_only(),
        ["repeat", count] => match count.parse() {
            Ok(count) if count > 0 => test::repeat(count),
            _ => Err(format!("repeat wants a number above 0, not `{count}`")),
        },
        ["certs", directory, hosts @ ..] => {
            certs::write(std::path::Path::new(directory), hosts).map(|()| true)
        }
        ["api"] => api::run(false),
        ["api", "--write"] => api::run(true),
        ["package"] => package::run(),
        ["bench", options @ ..] => bench::run(options),
        [bench::awake::COMMAND] => {
            bench::awake::spin();
            Ok(true)
        }
        ["chaos", options @ ..] => chaos::run(options),
        ["chaos-redlock", options @ ..] => chaos::run(&[&["--on", "redlock"], options].concat()),
        ["fair-order", options @ ..] => chaos::run(&[&["fair-order"], options].concat()),
        ["redlock-votes", options @ ..] => chaos::run(&[&["redlock-votes"], options].concat()),
        ["interop", options @ ..] => interop::run(options),
        ["reliability", options @ ..] => reliability::run(options),
        ["random-scripts", options @ ..] => proof::random_scripts(options),
        ["soak", options @ ..] => soak::run(options),
        ["second-opinion", options @ ..] => second_opinion::run(options),
        ["seeded", names @ ..] => seeded::run(names),
        ["sim", options @ ..] => sim::run(options),
        ["sim-redlock", options @ ..] => sim::run(&[&["--redlock"], options].concat()),
        ["load", options @ ..] => load::run(options),
        ["fuzz-smoke", inputs] => proof::fuzz_smoke(inputs),
        ["small-faults"] => proof::small_faults(),
        ["fuzz", seconds] => match seconds.parse() {
            Ok(seconds) => tools::fuzz(seconds),
            Err(_) => Err(format!("fuzz wants a number of seconds, not `{seconds}`")),
        },
        ["coverage"] => tools::coverage(),
        ["instructions"] => instructions::run(false),
        ["instructions", "--write"] => instructions::run(true),
        ["rust-mutants", "--sample"] => mutants::sample(),
        ["rust-mutants", "--all"] => mutants::all(),
        ["rust-mutants", "--in-diff"] => mutants::in_diff(None),
        ["rust-mutants", "--in-diff", base] => mutants::in_diff(Some(base)),
        ["threads"] => proof::threads(),
        ["lua-mutants"] => proof::lua_mutants(),
        ["model", words @ ..] => proof::model(words),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(true)
        }
        _ => {
            eprint!("{HELP}");
            Err(format!("no such command: `{}`", args.join(" ")))
        }
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

/// The root of the repository.
fn root() -> &'static std::path::Path {
    std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
