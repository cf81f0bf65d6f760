//! The scripts of the lock, and what they are given: for measurements that call them without a
//! client of this crate.

use std::sync::LazyLock;

/// The script that acquires.
pub(crate) static ACQUIRE: LazyLock<String> =
    LazyLock::new(|| whole(include_str!("../../lua/reentrant/acquire.lua")));
pub(crate) static RELEASE: LazyLock<String> =
    LazyLock::new(|| whole(include_str!("../../lua/reentrant/release.lua")));
pub(crate) static RAISE: LazyLock<String> =
    LazyLock::new(|| whole(include_str!("../../lua/reentrant/raise.lua")));
pub(crate) static HAND_OFF: LazyLock<String> =
    LazyLock::new(|| whole(include_str!("../../lua/reentrant/hand_off.lua")));

/// A script with the texts of what it includes.
fn whole(script: &str) -> String {
    let lines = script.lines().map(|line| match line.split_once("-- include ") {
        Some((_, body)) => whole(text_of(body)),
        None => format!("{line}\n"),
    });
    lines.collect()
}

fn text_of(body: &str) -> &'static str {
    match body {
        "reentrant/body/acquire.lua" => include_str!("../../lua/reentrant/body/acquire.lua"),
        "reentrant/body/arguments.lua" => include_str!("../../lua/reentrant/body/arguments.lua"),
        "reentrant/body/give_up.lua" => include_str!("../../lua/reentrant/body/give_up.lua"),
        "reentrant/body/given_arguments.lua" => {
            include_str!("../../lua/reentrant/body/given_arguments.lua")
        }
        "reentrant/body/given_up.lua" => include_str!("../../lua/reentrant/body/given_up.lua"),
        "reentrant/body/grant.lua" => include_str!("../../lua/reentrant/body/grant.lua"),
        "reentrant/body/look.lua" => include_str!("../../lua/reentrant/body/look.lua"),
        "reentrant/body/pass_on.lua" => include_str!("../../lua/reentrant/body/pass_on.lua"),
        "reentrant/body/release.lua" => include_str!("../../lua/reentrant/body/release.lua"),
        "reentrant/body/reserve.lua" => include_str!("../../lua/reentrant/body/reserve.lua"),
        "reentrant/body/wait.lua" => include_str!("../../lua/reentrant/body/wait.lua"),
        other => panic!("a script includes {other}, which is missing here"),
    }
}

const LEASE_MS: &str = "30000";
/// However late it comes.
const NOT_AFTER: &str = "9000000000000000";

pub(crate) struct Names {
    lock: String,
    pub(crate) channel: String,
    fence: String,
    line: String,
}

/// Whether an acquire that is refused stands in line. Then the message of a release names its
/// field.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stands {
    InLine,
    Nowhere,
}

impl Names {
    pub(crate) fn of(name: &str) -> Self {
        Self {
            lock: name.to_owned(),
            channel: format!("redisson_lock__channel__{{{name}}}"),
            fence: format!("redisson_lock_fence:{{{name}}}"),
            line: format!("redisson_lock_line__{{{name}}}"),
        }
    }

    /// What EVALSHA is given, with the script's digest.
    pub(crate) fn acquire<'a>(
        &'a self,
        digest: &'a str,
        field: &'a str,
        stands: Stands,
    ) -> [&'a str; 12] {
        let (mode, hears) = match stands {
            Stands::InLine => ("first", "1"),
            Stands::Nowhere => ("try", "0"),
        };
        let [lock, fence, line] = [&self.lock, &self.fence, &self.line];
        let (no_ticket, once) = ("0", "1");
        [digest, "3", lock, fence, line, field, once, LEASE_MS, NOT_AFTER, mode, no_ticket, hears]
    }

    /// The same for a hand-off.
    pub(crate) fn hand_off<'a>(
        &'a self,
        digest: &'a str,
        from: &'a str,
        to: &'a str,
    ) -> [&'a str; 13] {
        let [lock, fence, line, channel] = [&self.lock, &self.fence, &self.line, &self.channel];
        let (line_first, hears) = ("0", "1");
        [
            digest, "3", lock, fence, line, from, to, LEASE_MS, NOT_AFTER, channel, "PUBLISH",
            line_first, hears,
        ]
    }

    /// The same for raising the token.
    pub(crate) fn raise<'a>(
        &'a self,
        digest: &'a str,
        field: &'a str,
        token: &'a str,
    ) -> [&'a str; 6] {
        [digest, "2", &self.lock, &self.fence, field, token]
    }

    /// The same for a release.
    pub(crate) fn release<'a>(&'a self, digest: &'a str, field: &'a str) -> [&'a str; 8] {
        [digest, "2", &self.lock, &self.line, field, "0", &self.channel, "PUBLISH"]
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_script_has_all_that_it_includes() {
        for script in [&super::ACQUIRE, &super::RELEASE, &super::RAISE, &super::HAND_OFF] {
            assert!(!script.contains("-- include ") && script.contains("redis.call"));
        }
    }
}
