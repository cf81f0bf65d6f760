//! `cargo xtask fred`: the tests of the core over a user's client of fred. It is a command of its
//! own, because fred has to be built for it, and the library once more.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::process;
use crate::process::Echo;
use crate::process::cargo;
use crate::servers;
use crate::test;
use crate::test::Kind;
use crate::topologies;
use crate::topologies::Private;

/// The last one is for the sentinels of the tests, which have passwords of their own.
const FEATURES: &str = "--features=in-memory,rustls,fred,redis,fred/sentinel-auth";
/// The setting that makes the tests connect over fred.
pub(crate) const TRANSPORT: (&str, &str) = ("LOCK_TRANSPORT", "fred");

/// The unit tests of this backend and of the settings of other clients.
const UNIT: &[&str] = &["--lib", "--", "backend::fred", "backend::redis::config", "client::"];
/// The tests of what holds over every backend, and those of the methods for users of fred and
/// redis.
const INTEGRATION: &[&str] = &[
    "--test",
    "it",
    "--",
    "reentrant::",
    "cancellation::",
    "faults::",
    "outages::",
    "fred::",
    "redis_rs::",
];
/// The examples of the builder, of which three need these features.
const DOC: &[&str] = &["--doc", "--", "client::builder"];
/// A cluster is refused.
const DEPLOYMENTS: [topologies::Kind; 3] =
    [topologies::Kind::Single, topologies::Kind::Tls, topologies::Kind::Sentinel];

const LIMIT: Duration = Duration::from_secs(900);

/// True if all passed.
pub(crate) fn run() -> Result<bool, String> {
    let redis = servers::find_or_install()?;
    let mut kinds = Vec::new();
    for (name, args) in [("unit", UNIT), ("integration", INTEGRATION), ("doc", DOC)] {
        kinds.push(row(name, tests(args, &redis))?);
    }
    let certs = test::certificates()?;
    for kind in DEPLOYMENTS {
        let servers = Private::start(kind, &redis, &certs)?;
        let mut command = tests(&["--test", "it", "--", "endpoint::"], &redis);
        command.env("REDIS_URL", servers.url()).env("REDIS_CA", certs.join("ca.crt"));
        kinds.push(row(kind.name(), command)?);
    }
    Ok(test::print_table(&kinds))
}

fn tests(args: &[&str], redis: &Path) -> Command {
    let mut command = cargo(&["test", FEATURES]);
    command.args(args).env("REDIS_SERVER", redis).env(TRANSPORT.0, TRANSPORT.1);
    command
}

fn row(name: &str, command: Command) -> Result<Kind, String> {
    println!("\n== over fred: {name}");
    Ok(test::kind(&format!("fred {name}"), process::run(command, LIMIT, Echo::On)?))
}
