//! `cargo xtask demo`: what the lock does, between processes, as a timeline; every claim is
//! checked.

mod scenes;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::process;
use crate::process::Echo;
use crate::process::cargo;
use crate::puppet;
use crate::puppet::PATIENCE;
use crate::puppet::Puppet;
use crate::puppet::boot_ns;
use crate::resp::Connection;
use crate::resp::Reply;
use crate::servers;
use crate::servers::Server;
use crate::test;

const BUILD_LIMIT: Duration = Duration::from_secs(900);
const IN_MEMORY_LIMIT: Duration = Duration::from_secs(60);

/// True if every claim held.
pub(crate) fn run(require_redis: bool) -> Result<bool, String> {
    println!("1 of 3: looking for redis-server");
    let redis = match servers::find_or_install() {
        Ok(redis) => redis,
        Err(reason) if require_redis => return Err(reason),
        Err(reason) => {
            println!("{reason}\nso the demo runs on the in-memory backend, in one process");
            return in_memory();
        }
    };
    println!("2 of 3: building the processes of the demo; the first time takes a minute or two");
    let puppet = puppet::build()?;
    println!(
        "3 of 3: {} scenes, on a private server and in processes that end with this command",
        scenes::ALL.len()
    );
    let mut stage = Stage::new(redis.clone(), Server::start(&redis)?, puppet)?;
    println!("{}, pid {}, {}\n", stage.server.version()?, stage.server.pid, stage.server.url());
    let mut failed = 0;
    for (title, scene) in scenes::ALL {
        stage.narrate(&format!("--- {title}"));
        if let Err(reason) = scene(&mut stage) {
            failed += 1;
            println!("FAILED: {reason}");
        }
        println!();
    }
    let took = Duration::from_nanos(boot_ns() - stage.started_ns).as_secs_f64();
    let Stage { checks, processes, .. } = stage;
    let scenes = scenes::ALL.len();
    println!(
        "{scenes} scenes, {failed} failed; {checks} claims checked; {processes} processes; {took:.1} s"
    );
    Ok(failed == 0)
}

fn in_memory() -> Result<bool, String> {
    let command = cargo(&["build", "--example", "demo_in_memory", test::FEATURES]);
    if !process::run(command, BUILD_LIMIT, Echo::On)?.success {
        return Err("the in-memory demo does not build".into());
    }
    let command: Command =
        cargo(&["run", "--quiet", "--example", "demo_in_memory", test::FEATURES]);
    Ok(process::run(command, IN_MEMORY_LIMIT, Echo::On)?.success)
}

/// What the scenes share: the server, the way to start processes, the timeline.
struct Stage {
    /// The program of servers.
    program: PathBuf,
    server: Server,
    redis: Connection,
    puppet: PathBuf,
    started_ns: u64,
    processes: u32,
    checks: u32,
}

impl Stage {
    fn new(program: PathBuf, server: Server, puppet: PathBuf) -> Result<Self, String> {
        let redis = server.connect().map_err(|error| error.to_string())?;
        let started_ns = boot_ns();
        Ok(Self { program, server, redis, puppet, started_ns, processes: 0, checks: 0 })
    }

    /// Starts a process, named by the next letter.
    fn puppet(&mut self, settings: &[&str]) -> Result<Puppet, String> {
        self.puppet_at(&self.server.url(), settings)
    }

    /// The same with other servers.
    fn puppet_at(&mut self, servers: &str, settings: &[&str]) -> Result<Puppet, String> {
        let letter = char::from(b'A' + u8::try_from(self.processes % 26).unwrap_or(0));
        self.processes += 1;
        let mut command = Command::new(&self.puppet);
        command.arg(servers).args(settings);
        let (puppet, _) = Puppet::start(command, letter, PATIENCE)?;
        let settings = settings.join(" ");
        self.tell(
            &puppet,
            boot_ns(),
            &format!("connected as client {} {settings}", &puppet.uuid[..8]),
        );
        Ok(puppet)
    }

    /// One line of the timeline about a process.
    fn tell(&self, puppet: &Puppet, boot_ns: u64, text: &str) {
        println!("{} {} pid {:<7} {text}", self.at(boot_ns), puppet.letter, puppet.pid);
    }

    /// One line of the timeline about nobody in particular.
    fn narrate(&self, text: &str) {
        println!("{} {text}", self.at(boot_ns()));
    }

    fn at(&self, boot_ns: u64) -> String {
        let since = Duration::from_nanos(boot_ns.saturating_sub(self.started_ns));
        format!("{:>10.6} s ", since.as_secs_f64())
    }

    /// A claim: printed if it holds, the end of the scene if it does not.
    fn check(&mut self, holds: bool, claim: &str) -> Result<(), String> {
        self.checks += 1;
        if !holds {
            return Err(format!("this does not hold: {claim}"));
        }
        self.narrate(&format!("  checked: {claim}"));
        Ok(())
    }

    fn info(&mut self, section: &str) -> Result<String, String> {
        self.redis.text(&["INFO", section]).map_err(|error| format!("INFO: {error}"))
    }

    /// How many EVALSHA the server has run.
    fn evalsha_calls(&mut self) -> Result<u64, String> {
        let info = self.info("commandstats")?;
        let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        let calls = line.and_then(|line| line.split(',').next()).unwrap_or("0");
        calls.parse().map_err(|_| format!("commandstats are not understood: {calls}"))
    }

    /// How many connections are subscribed to the lock channel of a name.
    fn subscribers(&mut self, name: &str) -> Result<i64, String> {
        self.listeners(&format!("redisson_lock__channel__{{{name}}}"))
    }

    /// How many connections are subscribed to a channel.
    fn listeners(&mut self, channel: &str) -> Result<i64, String> {
        match self.redis.command(&["PUBSUB", "NUMSUB", channel]) {
            Ok(Reply::List(list)) => match list.get(1) {
                Some(Reply::Int(number)) => Ok(*number),
                other => Err(format!("PUBSUB NUMSUB: {other:?}")),
            },
            other => Err(format!("PUBSUB NUMSUB: {other:?}")),
        }
    }

    fn pttl(&mut self, name: &str) -> Result<i64, String> {
        self.redis.int(&["PTTL", name]).map_err(|error| format!("PTTL: {error}"))
    }

    /// Prints the hash of a lock, and gives the hold count in it; 0 if there is none.
    fn show_hash(&mut self, name: &str) -> Result<u32, String> {
        let reply =
            self.redis.command(&["HGETALL", name]).map_err(|error| format!("HGETALL: {error}"))?;
        let Reply::List(fields) = reply else { return Err(format!("HGETALL: {reply:?}")) };
        match fields.as_slice() {
            [] => {
                self.narrate(&format!("  redis> HGETALL {name}  ->  (empty: the key is gone)"));
                Ok(0)
            }
            [Reply::Text(field), Reply::Text(count)] => {
                let pttl = self.pttl(name)?;
                self.narrate(&format!(
                    "  redis> HGETALL {name}  ->  {{ {field}: {count} }}  PTTL {pttl} ms"
                ));
                count.parse().map_err(|_| format!("the count is not a number: {count}"))
            }
            other => Err(format!("the hash has more than one field: {other:?}")),
        }
    }
}
