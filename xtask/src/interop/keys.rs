//! What lies beside the lock in Redis, and what looks like one and is none.

use crate::interop::client::Client;
use crate::interop::client::Lang;
use crate::interop::client::Lease;
use crate::interop::client::ONCE;
use crate::interop::stage::Scenario;
use crate::interop::stage::Stage;
use crate::interop::stage::check;
use crate::resp::Reply;
use crate::topologies::Kind;

pub(crate) const ALL: &[Scenario] = &[
    Scenario { title: "Java's unlock latches", run: latches, directions: ONCE, needs_newer: false },
    Scenario { title: "our fence counters", run: fences, directions: ONCE, needs_newer: false },
    Scenario { title: "a fair lock's keys", run: fair, directions: ONCE, needs_newer: false },
    Scenario {
        title: "a read-write lock's key",
        run: read_write,
        directions: ONCE,
        needs_newer: false,
    },
];

/// A latch that Java may still need is neither read nor written, whatever Rust does with the lock.
fn latches(stage: &mut Stage<'_>, _: Lang, _: Lang) -> Result<(), String> {
    let name = stage.name("latch");
    let latch = format!("redisson_unlock_latch:{{{name}}}:0123456789abcdef0123456789abcdef");
    stage.redis.command(&["SET", &latch, "1", "PX", "600000"])?;
    let (mut java, mut rust) = stage.pair(Lang::Java, Lang::Rust, Lease::Long)?;
    everything(&mut rust, &mut java, &name)?;
    let value = stage.redis.command(&["GET", &latch])?;
    check(value == Reply::Text("1".into()), || format!("the latch is {value:?}"))?;
    let left = stage.redis.pttl(&latch)?;
    check((1..600_000).contains(&left), || format!("the latch's time to live is {left}"))?;
    stage.redis.command(&["DEL", &latch])?;
    if stage.kind == Kind::Single {
        // By the commands themselves: what each says when it is alone.
        let name = stage.name("latch");
        let said = stage.redis.told(|| alone(&mut rust, &name))?;
        let about =
            |what: &str, said: &[String]| said.iter().filter(|line| line.contains(what)).count();
        check(about("redisson_unlock_latch", &said) == 0, || {
            format!("Rust uses latches: {said:#?}")
        })?;
        let said = stage.redis.told(|| alone(&mut java, &name))?;
        check(about("redisson_lock_fence", &said) == 0, || {
            format!("Java uses fence counters: {said:#?}")
        })?;
        let latches = about("redisson_unlock_latch", &said);
        stage.note(&format!("alone, Java names its latches in {latches} commands, Rust in none"));
    }
    stage.give_back([java, rust]);
    Ok(())
}

fn alone(client: &mut Client, name: &str) -> Result<(), String> {
    let (outer, _) = client.lock(name, "owner=o")?;
    let (inner, _) = client.lock(name, "owner=o")?;
    client.unlock(&inner)?;
    client.unlock(&outer)?;
    Ok(())
}

/// Our counters stay as they are, whatever Java does with the lock, and tokens grow across Java's
/// holds.
fn fences(stage: &mut Stage<'_>, _: Lang, _: Lang) -> Result<(), String> {
    const PREFIX: &str = "redisson_lock_fence:";
    let name = stage.name("fence");
    let (mut java, mut rust) = stage.pair(Lang::Java, Lang::Rust, Lease::Long)?;
    let (lock, first) = rust.lock(&name, "")?;
    rust.unlock(&lock)?;
    let before = stage.redis.strings(PREFIX)?;
    check(!before.is_empty(), || "there is no fence counter".to_owned())?;
    let fresh = stage.name("fence");
    for name in [&name, &fresh] {
        let (outer, _) = java.lock(name, "owner=o")?;
        let (inner, _) = java.lock(name, "owner=o")?;
        java.unlock(&inner)?;
        java.unlock(&outer)?;
        java.lock(name, "")?;
        java.ask("force", name, "", "info")?;
        java.lock(name, "lease_ms=20")?;
        stage.eventually("the lease is over", |stage| {
            stage.redis.exists(name).map(|exists| !exists)
        })?;
    }
    let after = stage.redis.strings(PREFIX)?;
    check(before == after, || format!("Java changed the fence counters: {before:?} {after:?}"))?;
    let (lock, second) = rust.lock(&name, "")?;
    let (first, second) = (first.number("token")?, second.number("token")?);
    check(second > first, || format!("the token went from {first} to {second}"))?;
    rust.unlock(&lock)?;
    stage.give_back([java, rust]);
    Ok(())
}

/// All that a client can do with a lock: nested, contended, fixed, forced.
fn everything(client: &mut Client, other: &mut Client, name: &str) -> Result<(), String> {
    let (outer, _) = client.lock(name, "owner=o")?;
    let (inner, _) = client.lock(name, "owner=o")?;
    let waiting = other.wait(name, "")?;
    client.unlock(&inner)?;
    client.unlock(&outer)?;
    other.expect(&waiting, "granted")?;
    let again = client.wait(name, "")?;
    other.unlock(&waiting)?;
    client.expect(&again, "granted")?;
    client.unlock(&again)?;
    let (fixed, _) = client.lock(name, "lease_ms=20000")?;
    client.ask("query", name, "", "info")?;
    client.ask("force", name, "", "info")?;
    client.unlock_lost(&fixed)
}

/// A fair lock has a plain lock's hash, so it is simply held; its queue and deadlines are no locks.
fn fair(stage: &mut Stage<'_>, _: Lang, _: Lang) -> Result<(), String> {
    let name = stage.name("fair");
    let (mut java, mut rust) = stage.pair(Lang::Java, Lang::Rust, Lease::Long)?;
    let (lock, granted) = java.lock(&name, "kind=fair")?;
    let waiting = java.wait(&name, "kind=fair")?;
    let beside = ["queue", "timeout"].map(|what| format!("redisson_lock_{what}:{{{name}}}"));
    let before = contents(stage, &name, &beside)?;
    rust.denied(&name)?;
    check(stage.redis.exists(&beside[0])?, || format!("there is no {}", beside[0]))?;
    for key in &beside {
        // The oldest versions keep their deadlines otherwise.
        if stage.redis.exists(key)? {
            conflict(&mut rust, key)?;
        }
    }
    let after = contents(stage, &name, &beside)?;
    check(before == after, || format!("the keys were touched: {before:?} {after:?}"))?;
    stage.check_hash(&name, granted.text("holder"), 1)?;
    java.unlock(&lock)?;
    java.expect(&waiting, "granted")?;
    java.unlock(&waiting)?;
    stage.check_free(&name)?;
    stage.give_back([java, rust]);
    Ok(())
}

fn contents(stage: &mut Stage<'_>, name: &str, beside: &[String; 2]) -> Result<[Reply; 3], String> {
    Ok([
        stage.redis.command(&["HGETALL", name])?,
        stage.redis.command(&["LRANGE", &beside[0], "0", "-1"])?,
        stage.redis.command(&["ZRANGE", &beside[1], "0", "-1", "WITHSCORES"])?,
    ])
}

fn read_write(stage: &mut Stage<'_>, _: Lang, _: Lang) -> Result<(), String> {
    let (mut java, mut rust) = stage.pair(Lang::Java, Lang::Rust, Lease::Long)?;
    for kind in ["read", "write"] {
        let name = stage.name(kind);
        let (lock, _) = java.lock(&name, &format!("kind={kind}"))?;
        let before = stage.redis.fields(&name)?;
        conflict(&mut rust, &name)?;
        let after = stage.redis.fields(&name)?;
        check(before == after, || format!("the key was touched: {before:?} {after:?}"))?;
        java.unlock(&lock)?;
        stage.check_free(&name)?;
    }
    stage.give_back([java, rust]);
    Ok(())
}

/// Waiting or not, taking by force or not: an error that says what is the matter.
fn conflict(rust: &mut Client, name: &str) -> Result<(), String> {
    for verb in ["try", "lock", "force"] {
        let error = rust.ask(verb, name, "", "error")?;
        check(error.text("kind") == "key_conflict", || format!("`{verb}` of {name}: {error:?}"))?;
    }
    Ok(())
}
