//! What the scenarios share: servers, clients, names.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use crate::interop::client;
use crate::interop::client::Client;
use crate::interop::client::Direction;
use crate::interop::client::Lang;
use crate::interop::client::Lease;
use crate::interop::client::Programs;
use crate::interop::redis::Redis;
use crate::interop::versions::PubSub;
use crate::interop::versions::Redisson;
use crate::topologies::Kind;
use crate::topologies::Private;

/// A wait that ends later than that was ended by something else than a message: our fallback comes
/// after 4.5 s at the earliest, a Java client's when the lease of the holder is over.
pub(crate) const WAKE_UP_LIMIT: Duration = Duration::from_secs(4);
const EVENTUALLY: Duration = Duration::from_secs(15);

pub(crate) struct Scenario {
    pub(crate) title: &'static str,
    pub(crate) run: fn(&mut Stage<'_>, Lang, Lang) -> Result<(), String>,
    pub(crate) directions: &'static [Direction],
    /// Not for the oldest versions: their watched leases are 30 s, which is too long for it, or they
    /// do not have the kind.
    pub(crate) needs_newer: bool,
}

impl Scenario {
    pub(crate) fn title_in(&self, (first, second): Direction) -> String {
        if self.directions.len() == 1 {
            return self.title.to_owned();
        }
        format!("{}, {} then {}", self.title, first.name(), second.name())
    }
}

pub(crate) struct Stage<'a> {
    pub(crate) redis: Redis,
    pub(crate) redisson: &'a Redisson,
    pub(crate) sections: u64,
    pub(crate) kind: Kind,
    programs: &'a Programs,
    url: String,
    pub_sub: PubSub,
    /// Clients that wait for the next scenario.
    idle: Vec<Client>,
    names: u32,
    directory: PathBuf,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(
        redisson: &'a Redisson,
        programs: &'a Programs,
        servers: &Private,
        pub_sub: PubSub,
        sections: u64,
    ) -> Result<Self, String> {
        let directory = std::env::temp_dir().join(format!("xtask-interop-{}", std::process::id()));
        std::fs::create_dir_all(&directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        Ok(Self {
            redis: Redis::new(servers.ports()),
            redisson,
            sections,
            kind: servers.kind,
            programs,
            url: servers.url(),
            pub_sub,
            idle: Vec::new(),
            names: 0,
            directory,
        })
    }

    pub(crate) fn play(
        &mut self,
        scenario: &Scenario,
        direction: Direction,
    ) -> Result<Duration, String> {
        let started = Instant::now();
        (scenario.run)(self, direction.0, direction.1)?;
        Ok(started.elapsed())
    }

    pub(crate) fn note(&self, text: &str) {
        println!("          {text}");
    }

    /// A name that no other scenario has.
    pub(crate) fn name(&mut self, word: &str) -> String {
        self.names += 1;
        format!("{word}:{}", self.names)
    }

    /// The lock channel of a name without braces.
    pub(crate) fn channel(&self, name: &str) -> String {
        match self.redisson.profile {
            "native" => format!("redisson_lock__channel__{{{name}}}"),
            _ => format!("redisson_lock__channel:{{{name}}}"),
        }
    }

    /// A file with a counter that is 0.
    pub(crate) fn counter(&mut self) -> Result<PathBuf, String> {
        let name = self.name("counter");
        let file = self.directory.join(name);
        std::fs::write(&file, format!("{:020}\n", 0))
            .map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(file)
    }

    // ---- clients

    /// A client without anything in hand: an idle one, or a new one.
    pub(crate) fn client(&mut self, lang: Lang, lease: Lease) -> Result<Client, String> {
        self.client_with(lang, lease, &[])
    }

    pub(crate) fn client_with(
        &mut self,
        lang: Lang,
        lease: Lease,
        more: &[&str],
    ) -> Result<Client, String> {
        let settings = self.settings(lang, lease, more);
        let fits = |client: &Client| client.lang == lang && client.settings == settings;
        match self.idle.iter().position(fits) {
            Some(at) => Ok(self.idle.swap_remove(at)),
            None => Client::start(self.programs, lang, &self.url, settings),
        }
    }

    /// A new client of other servers than those of this deployment.
    pub(crate) fn client_of(
        &self,
        url: &str,
        lang: Lang,
        lease: Lease,
        more: &[&str],
    ) -> Result<Client, String> {
        Client::start(self.programs, lang, url, self.settings(lang, lease, more))
    }

    fn settings(&self, lang: Lang, lease: Lease, more: &[&str]) -> Vec<String> {
        let profile = format!("profile={}", self.redisson.profile);
        let (common, sharded) = match lang {
            Lang::Rust => (Some(profile.as_str()), self.pub_sub.rust()),
            Lang::Java => (None, self.pub_sub.java()),
        };
        let words: Vec<&str> =
            common.into_iter().chain(sharded).chain(more.iter().copied()).collect();
        client::settings(lease, &words)
    }

    /// Two clients, with watched leases of the same length.
    pub(crate) fn pair(
        &mut self,
        first: Lang,
        second: Lang,
        lease: Lease,
    ) -> Result<(Client, Client), String> {
        Ok((self.client(first, lease)?, self.client(second, lease)?))
    }

    /// Gives clients back that hold nothing and wait for nothing. What is not given back ends.
    pub(crate) fn give_back(&mut self, clients: impl IntoIterator<Item = Client>) {
        self.idle.extend(clients);
    }

    // ---- looking

    /// Waits until something is true.
    pub(crate) fn eventually(
        &mut self,
        what: &str,
        mut condition: impl FnMut(&mut Self) -> Result<bool, String>,
    ) -> Result<(), String> {
        let until = Instant::now() + EVENTUALLY;
        while !condition(self)? {
            if Instant::now() > until {
                return Err(format!("it did not happen in {EVENTUALLY:?} that {what}"));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The key of a lock: one field, of this client, with this hold count.
    pub(crate) fn check_hash(
        &mut self,
        name: &str,
        holder: &str,
        count: u32,
    ) -> Result<(), String> {
        let fields = self.redis.fields(name)?;
        let wanted = vec![(holder.to_owned(), count.to_string())];
        check(fields == wanted, || format!("the hash of {name} is {fields:?}, not {wanted:?}"))?;
        let pttl = self.redis.pttl(name)?;
        check(pttl > 0, || format!("the time to live of {name} is {pttl}"))
    }

    pub(crate) fn check_free(&mut self, name: &str) -> Result<(), String> {
        let exists = self.redis.exists(name)?;
        check(!exists, || format!("{name} should be free"))
    }

    /// Whether a release is told how many clients have received its message. In a cluster PUBLISH
    /// counts those of one node only.
    pub(crate) fn counts_receivers(&self) -> bool {
        self.kind == Kind::Single || self.pub_sub == PubSub::Auto
    }

    /// Whether the locks were announced by the command that this run is about, and only by that.
    pub(crate) fn check_pub_sub(&mut self) -> Result<(), String> {
        let sharded = self.redis.calls("spublish")?;
        let plain = self.redis.calls("publish")?;
        println!("  messages: {plain} by PUBLISH, {sharded} by SPUBLISH");
        let good = match self.pub_sub {
            PubSub::Auto => sharded > plain,
            PubSub::Plain | PubSub::Off => sharded == 0 && plain > 0,
        };
        check(good, || format!("{plain} messages by PUBLISH, {sharded} by SPUBLISH"))
    }

    pub(crate) fn finish(self) {
        for client in self.idle {
            client.kill();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Releases what another client waits for; how long until that was granted it, by a wake-up.
pub(crate) fn pass_on(
    holder: &mut Client,
    lock: &str,
    other: &mut Client,
    waiting: &str,
) -> Result<Duration, String> {
    let released = holder.unlock(lock)?;
    let granted = other.expect(waiting, "granted")?;
    let took = Duration::from_nanos(granted.boot_ns.saturating_sub(released));
    check(took < WAKE_UP_LIMIT, || format!("a wake-up was missed: {took:?}"))?;
    Ok(took)
}

pub(crate) fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
