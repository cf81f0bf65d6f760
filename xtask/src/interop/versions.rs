//! The versions of Redisson that are run, and what is different about them.

use crate::topologies::Kind;

/// One version. What is in the table are the steps that concern a plain lock; the versions beside
/// each step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Redisson {
    pub(crate) version: &'static str,
    /// The profile that a Rust client needs.
    pub(crate) profile: &'static str,
    /// Whether the time of a watched lease can be set.
    pub(crate) watchdog: bool,
    in_cluster: &'static [PubSub],
}

/// Which kind of pub/sub the clients of a run use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PubSub {
    /// PUBLISH, because neither has a choice.
    Plain,
    /// PUBLISH, because both are told to.
    Off,
    /// What both find by themselves: SPUBLISH in a cluster of Redis 7.
    Auto,
}

impl PubSub {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain | Self::Off => "PUBLISH",
            Self::Auto => "SPUBLISH",
        }
    }

    /// What the Rust client is told.
    pub(crate) fn rust(self) -> Option<&'static str> {
        (self != Self::Auto).then_some("sharded=off")
    }

    /// What the Java client is told.
    pub(crate) fn java(self) -> Option<&'static str> {
        (self == Self::Off).then_some("sharded=off")
    }
}

impl Redisson {
    pub(crate) fn pub_sub(&self, kind: Kind) -> &'static [PubSub] {
        if kind == Kind::Cluster { self.in_cluster } else { &[PubSub::Plain] }
    }

    const fn of(version: &'static str, in_cluster: &'static [PubSub]) -> Self {
        Self { version, profile: "redisson", watchdog: true, in_cluster }
    }

    /// Before the time of watched leases could be set.
    const fn ancient(version: &'static str, profile: &'static str) -> Self {
        Self { version, profile, watchdog: false, in_cluster: &[] }
    }
}

pub(crate) const NEWEST: Redisson = Redisson::of("4.7.0", &[PubSub::Auto, PubSub::Off]);

pub(crate) const ALL: &[Redisson] = &[
    NEWEST,
    Redisson::of("4.0.0", &[PubSub::Auto, PubSub::Off]),
    Redisson::of("3.52.0", &[PubSub::Auto, PubSub::Off]),
    Redisson::of("3.44.0", &[PubSub::Auto, PubSub::Off]),
    Redisson::of("3.43.0", &[PubSub::Auto, PubSub::Off]),
    Redisson::of("3.24.3", &[PubSub::Auto]),
    Redisson::of("3.23.5", &[PubSub::Auto]),
    Redisson::of("3.22.0", &[PubSub::Auto]),
    Redisson::of("3.21.3", &[PubSub::Plain]),
    Redisson::ancient("3.2.0", "redisson"),
    Redisson::ancient("3.1.0", "native"),
    Redisson::ancient("3.0.0", "native"),
];

pub(crate) fn named(version: &str) -> Result<Redisson, String> {
    let found = ALL.iter().find(|redisson| redisson.version == version);
    found.copied().ok_or_else(|| {
        let known: Vec<_> = ALL.iter().map(|redisson| redisson.version).collect();
        format!("no such version: {version}; there are: all newest {}", known.join(" "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_builds_the_newest_version_by_default() {
        let pom = std::fs::read_to_string(crate::root().join("tests/interop/pom.xml")).unwrap();
        assert!(
            pom.contains(&format!("<redisson.version>{}<", NEWEST.version)),
            "{}",
            NEWEST.version
        );
    }
}
