//! `cargo xtask interop`: processes with Redisson and processes with this crate contend for the
//! same locks.

mod client;
mod contention;
mod fair;
pub(crate) mod java;
mod keys;
mod latch;
mod losses;
mod multi;
mod permits;
mod read_write;
mod redis;
mod redlock;
mod stage;
mod together;
mod versions;

use std::time::Duration;
use std::time::Instant;

use crate::certs;
use crate::interop::client::Programs;
use crate::interop::java::Java;
use crate::interop::stage::Scenario;
use crate::interop::stage::Stage;
use crate::interop::versions::PubSub;
use crate::interop::versions::Redisson;
use crate::puppet;
use crate::servers;
use crate::topologies::Kind;
use crate::topologies::Private;

/// What was asked for on the command line.
#[derive(Debug)]
struct Options {
    versions: Vec<Redisson>,
    kinds: Vec<Kind>,
    sections: u64,
    repeat: u32,
    require_java: bool,
    /// Only the scenarios whose titles contain this.
    only: String,
}

/// How the scenarios went with one version on one deployment.
struct Row {
    version: &'static str,
    place: String,
    passed: usize,
    failures: Vec<String>,
    took: Duration,
}

impl Row {
    fn not_run(redisson: &Redisson, reason: String) -> Self {
        println!("{reason}");
        let place = "nothing".to_owned();
        Self {
            version: redisson.version,
            place,
            passed: 0,
            failures: vec![reason],
            took: Duration::ZERO,
        }
    }
}

/// True if every scenario passed, and none of the rows was empty.
pub(crate) fn run(args: &[&str]) -> Result<bool, String> {
    let options = Options::parse(args)?;
    let java = match Java::find(options.require_java) {
        Ok(java) => java,
        Err(reason) if options.require_java => return Err(reason),
        Err(reason) => {
            println!("{reason}\nNOT RUN: interop");
            return Ok(true);
        }
    };
    let redis = servers::find_or_install()?;
    let certs = crate::root().join("target/certs");
    certs::write(&certs, &[])?;
    let rust = puppet::build()?;
    let mut rows = Vec::new();
    for redisson in &options.versions {
        println!("building the puppet with Redisson {}", redisson.version);
        let java = match java.build(redisson) {
            Ok(java) => java,
            Err(reason) => {
                rows.push(Row::not_run(redisson, reason));
                continue;
            }
        };
        let programs = Programs { rust: rust.clone(), java };
        for kind in &options.kinds {
            for pub_sub in redisson.pub_sub(*kind) {
                for _ in 0..options.repeat {
                    let servers = Private::start(*kind, &redis, &certs)?;
                    rows.push(scenarios(&options, redisson, &programs, &servers, *pub_sub)?);
                }
            }
        }
    }
    Ok(print_table(&rows))
}

/// The scenarios on each deployment.
const SCENARIOS: [&[Scenario]; 9] = [
    together::ALL,
    losses::ALL,
    keys::ALL,
    latch::ALL,
    read_write::ALL,
    permits::ALL,
    fair::ALL,
    multi::ALL,
    contention::ALL,
];
/// Those that have servers of their own: they run once, beside the single server.
const OWN_SERVERS: &[Scenario] = redlock::ALL;

/// All scenarios, each in its directions, with one version on one deployment.
fn scenarios(
    options: &Options,
    redisson: &Redisson,
    programs: &Programs,
    servers: &Private,
    pub_sub: PubSub,
) -> Result<Row, String> {
    let place = format!("{} {}", servers.kind.name(), pub_sub.name());
    println!("\n== Redisson {}, {place}: {}", redisson.version, servers.version());
    let started = Instant::now();
    let mut stage = Stage::new(redisson, programs, servers, pub_sub, options.sections)?;
    let mut row = Row {
        version: redisson.version,
        place,
        passed: 0,
        failures: Vec::new(),
        took: Duration::ZERO,
    };
    let own_servers = if servers.kind == Kind::Single { OWN_SERVERS } else { &[] };
    let all = SCENARIOS.into_iter().flatten().chain(own_servers);
    for scenario in all.filter(|scenario| scenario.title.contains(&options.only)) {
        if !redisson.watchdog && scenario.needs_newer {
            println!("  not for this version: {}", scenario.title);
            continue;
        }
        for directions in scenario.directions {
            let title = scenario.title_in(*directions);
            match stage.play(scenario, *directions) {
                Ok(took) => {
                    row.passed += 1;
                    println!("  ok      {title} ({:.1} s)", took.as_secs_f64());
                }
                Err(reason) => {
                    println!("  FAILED  {title}: {reason}");
                    row.failures.push(format!("{title}: {reason}"));
                }
            }
        }
    }
    // A single scenario may have sent nothing to this deployment.
    if options.only.is_empty()
        && let Err(reason) = stage.check_pub_sub()
    {
        row.failures.push(reason);
    }
    stage.finish();
    row.took = started.elapsed();
    Ok(row)
}

/// Prints the closing table. True if nothing failed and nothing was empty.
fn print_table(rows: &[Row]) -> bool {
    println!("\n{:<10} {:<20} {:>7} {:>7} {:>9}", "Redisson", "on", "passed", "failed", "time");
    for Row { version, place, passed, failures, took } in rows {
        let failed = failures.len();
        println!("{version:<10} {place:<20} {passed:>7} {failed:>7} {:>7.1} s", took.as_secs_f64());
    }
    let mut good = !rows.is_empty();
    for Row { version, place, passed, failures, .. } in rows {
        for failure in failures {
            println!("FAILED Redisson {version}, {place}: {failure}");
        }
        if passed + failures.len() == 0 {
            println!("FAILED Redisson {version}, {place}: there are no such scenarios");
        }
        good &= failures.is_empty() && *passed > 0;
    }
    let passed: usize = rows.iter().map(|row| row.passed).sum();
    let failed: usize = rows.iter().map(|row| row.failures.len()).sum();
    println!("\n{passed} passed, {failed} failed");
    good
}

impl Options {
    fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            versions: vec![versions::NEWEST],
            kinds: vec![Kind::Single, Kind::Cluster],
            sections: 10_000,
            repeat: 1,
            require_java: false,
            only: String::new(),
        };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("{word} wants a value"))?;
            let number = || value.parse::<u32>().ok().filter(|number| *number > 0);
            match (*word, *value) {
                ("--versions", "all") => options.versions = versions::ALL.to_vec(),
                ("--versions", "newest") => options.versions = vec![versions::NEWEST],
                ("--versions", some) => {
                    options.versions =
                        some.split(',').map(versions::named).collect::<Result<_, _>>()?;
                }
                ("--sections", _) => {
                    options.sections = number().ok_or("--sections wants a number above 0")?.into();
                }
                ("--repeat", _) => {
                    options.repeat = number().ok_or("--repeat wants a number above 0")?
                }
                ("--on", "single") => options.kinds = vec![Kind::Single],
                ("--on", "cluster") => options.kinds = vec![Kind::Cluster],
                ("--only", _) => options.only = (*value).to_owned(),
                ("--require", "java") => options.require_java = true,
                _ => return Err(format!("not an option of interop: {word} {value}")),
            }
        }
        Ok(options)
    }
}
