//! What INFO and TIME say about a server.

use std::time::Duration;
use std::time::SystemTime;

use crate::client::preflight::PreflightReport;
use crate::kinds::command::ServerTime;
use crate::settings::config::Topology;

/// The text of INFO, read by its fields.
struct InfoFields<'a>(&'a str);

impl InfoFields<'_> {
    fn text(&self, name: &str) -> &str {
        let mut lines = self.0.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| *key == name).map_or("", |(_, value)| value.trim())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name).parse().ok()
    }
}

/// True for the in-memory server.
pub(super) fn is_in_memory(info: &str) -> bool {
    InfoFields(info).text("in_memory") == "1"
}

/// Adds what INFO says to the report.
pub(super) fn judge(report: &mut PreflightReport, info: &str, topology: Topology) {
    if is_in_memory(info) {
        return report.note(
            "server",
            "in memory, within this process: for tests; other processes cannot reach it",
            None,
        );
    }
    let info = InfoFields(info);
    version(report, &info);
    role(report, &info);
    persistence(report, &info);
    memory(report, &info);
    replication(report, &info, topology);
    cluster(report, &info, topology);
}

fn version(report: &mut PreflightReport, info: &InfoFields<'_>) {
    let (name, version) = match info.text("server_name") {
        "valkey" => ("Valkey", info.text("valkey_version")),
        _ => ("Redis", info.text("redis_version")),
    };
    report.ok("server", format!("{name} {version}"));
}

fn role(report: &mut PreflightReport, info: &InfoFields<'_>) {
    match info.text("role") {
        "master" | "" => report.ok("role", "primary"),
        _ => report.error(
            "role",
            "it is a replica: it can grant nothing",
            Some("connect to the primary, or through the sentinels".to_owned()),
        ),
    }
}

fn persistence(report: &mut PreflightReport, info: &InfoFields<'_>) {
    if info.text("loading") == "1" {
        report.warn(
            "persistence",
            "it is loading its data and does not answer commands",
            "wait until it has finished",
        );
    }
    if info.text("aof_enabled") != "1" {
        report.note(
            "persistence",
            "no append-only file: a restart of the server loses the held locks",
            Some("set appendonly yes if two holders at once would do damage, and check fencing tokens"),
        );
    } else if info.text("aof_last_write_status") == "err" {
        report.error(
            "persistence",
            "it cannot write its append-only file",
            Some("check its disk".to_owned()),
        );
    } else {
        report.ok("persistence", "append-only file");
    }
    if info.text("rdb_last_bgsave_status") == "err" {
        report.warn(
            "persistence",
            "its last snapshot failed; with stop-writes-on-bgsave-error it refuses every grant (MISCONF)",
            "check its disk and its log",
        );
    }
}

fn memory(report: &mut PreflightReport, info: &InfoFields<'_>) {
    let (policy, limit) = (info.text("maxmemory_policy"), info.number("maxmemory").unwrap_or(0));
    if !policy.is_empty() && policy != "noeviction" {
        let now = if limit == 0 { "; not now, since maxmemory is 0" } else { "" };
        let found = format!(
            "maxmemory-policy {policy}: held locks are deleted when memory runs short{now}"
        );
        return report.warn(
            "memory",
            found,
            "maxmemory-policy noeviction, or a server of its own for locks",
        );
    }
    let used = info.number("used_memory").unwrap_or(0);
    if limit > 0 && used > limit / 10 * 9 {
        let found =
            format!("{used} of {limit} bytes are used; at the limit, nothing is granted (OOM)");
        return report.warn("memory", found, "raise maxmemory, or remove what fills it");
    }
    report.ok(
        "memory",
        format!("maxmemory-policy {}", if policy.is_empty() { "unknown" } else { policy }),
    );
}

fn replication(report: &mut PreflightReport, info: &InfoFields<'_>, topology: Topology) {
    let replicas = info.number("connected_slaves").unwrap_or(0);
    // Only reported if `min-replicas-to-write` is set.
    let good = info.number("min_slaves_good_slaves");
    match (replicas, good) {
        (_, Some(0)) => report.error(
            "replication",
            "min-replicas-to-write is set and no replica is in good state: every grant is refused (NOREPLICAS)",
            Some("bring the replicas back".to_owned()),
        ),
        (0, _) if topology == Topology::Single => {
            report.note("replication", "no replica: locks end with this machine", None);
        }
        (0, _) => report.warn(
            "replication",
            "no replica is connected: none can be promoted",
            "bring the replicas back",
        ),
        (_, Some(good)) => report
            .ok("replication", format!("{replicas} replicas, {good} in good state, min-replicas-to-write is set")),
        (_, None) => report.note(
            "replication",
            format!("{replicas} replicas; a failover can lose the last grants"),
            Some("min-replicas-to-write 1 makes that rarer; fencing tokens prevent its damage"),
        ),
    }
}

fn cluster(report: &mut PreflightReport, info: &InfoFields<'_>, topology: Topology) {
    match (info.text("cluster_enabled") == "1", topology) {
        (true, Topology::Cluster) => {
            report.ok("cluster", "a primary of the cluster that has the lock's slot")
        }
        (true, _) => report.error(
            "cluster",
            "it is a node of a cluster, and serves only some of the slots",
            Some("connect with redis-cluster://".to_owned()),
        ),
        (false, _) => {}
    }
}

/// Compares the server's wall clock with ours, and judges the round trip. `None`: the server is in
/// memory and has no wall clock.
///
/// A wall clock that is far off does no harm while one server grants; it shows that the clocks are
/// not synchronized.
pub(super) fn judge_clock(
    report: &mut PreflightReport,
    wall_clock: Option<ServerTime>,
    round_trip: Duration,
    command_timeout: Duration,
) {
    let answer = format!("an answer takes {} µs", round_trip.as_micros());
    let (apart, found) = match wall_clock {
        Some(time) => {
            let (apart, where_to) = apart_from_ours(time, round_trip);
            (apart, format!("{} ms {where_to} of ours; {answer}", apart.as_millis()))
        }
        None => (Duration::ZERO, format!("that of this process; {answer}")),
    };
    if round_trip > command_timeout / 4 {
        report.warn("clock", found, "a command timeout of at least ten times the round trip");
    } else if apart > Duration::from_secs(2) {
        let fix = "let NTP set both clocks: a replica whose clock is ahead frees locks early when it is promoted";
        report.note("clock", found, Some(fix));
    } else {
        report.ok("clock", found);
    }
}

/// How far a wall clock is from ours, apart from what the round trip may account for.
fn apart_from_ours(time: ServerTime, round_trip: Duration) -> (Duration, &'static str) {
    let ours = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let theirs = Duration::from_micros(u64::try_from(time.0).unwrap_or(0));
    let (apart, where_to) = match theirs.checked_sub(ours) {
        Some(ahead) => (ahead, "ahead"),
        None => (ours.saturating_sub(theirs), "behind"),
    };
    (apart.saturating_sub(round_trip), where_to)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::client::preflight::Severity;

    const GOOD: &str = "redis_version:7.0.15\r\nrole:master\r\nconnected_slaves:1\r\nmin_slaves_good_slaves:1\r\n\
                        aof_enabled:1\r\naof_last_write_status:ok\r\nrdb_last_bgsave_status:ok\r\nmaxmemory:0\r\n\
                        maxmemory_policy:noeviction\r\nused_memory:1000\r\ncluster_enabled:0\r\n";

    fn judged(change: &str, topology: Topology) -> PreflightReport {
        let mut report = PreflightReport::new("lock", "n");
        judge(&mut report, &format!("{change}\r\n{GOOD}"), topology);
        report
    }

    #[test]
    fn nothing_is_said_against_a_good_server() {
        let report = judged("", Topology::Single);
        assert_eq!(report.severity(), Severity::Ok, "{report}");
        assert!(report.to_string().contains("Redis 7.0.15"), "{report}");
        let report = judged("server_name:valkey\r\nvalkey_version:8.0.1", Topology::Single);
        assert!(report.to_string().contains("Valkey 8.0.1"), "{report}");
    }

    #[test]
    fn each_flaw_has_a_topic_a_severity_and_a_fix() {
        use Severity as S;
        for (change, topology, topic, severity, words) in [
            ("role:slave", Topology::Single, "role", S::Error, "replica"),
            ("aof_enabled:0", Topology::Single, "persistence", S::Note, "appendonly yes"),
            ("aof_last_write_status:err", Topology::Single, "persistence", S::Error, "disk"),
            ("rdb_last_bgsave_status:err", Topology::Single, "persistence", S::Warning, "MISCONF"),
            ("loading:1", Topology::Single, "persistence", S::Warning, "loading"),
            ("maxmemory_policy:allkeys-lru", Topology::Single, "memory", S::Warning, "noeviction"),
            ("maxmemory:1050", Topology::Single, "memory", S::Warning, "OOM"),
            ("min_slaves_good_slaves:0", Topology::Single, "replication", S::Error, "NOREPLICAS"),
            (
                "connected_slaves:0\r\nmin_slaves_good_slaves:x",
                Topology::Single,
                "replication",
                S::Note,
                "machine",
            ),
            (
                "connected_slaves:0\r\nmin_slaves_good_slaves:x",
                Topology::Sentinel,
                "replication",
                S::Warning,
                "promoted",
            ),
            ("min_slaves_good_slaves:x", Topology::Sentinel, "replication", S::Note, "failover"),
            ("cluster_enabled:1", Topology::Single, "cluster", S::Error, "redis-cluster://"),
            ("cluster_enabled:1", Topology::Cluster, "cluster", S::Ok, "slot"),
            ("in_memory:1", Topology::Single, "server", S::Note, "in memory"),
        ] {
            let report = judged(change, topology);
            assert_eq!(report.severity(), severity, "{change}: {report}");
            let found = report.about(topic).find(|finding| finding.severity == severity).unwrap();
            assert!(format!("{found:?}").contains(words), "{change}: {found:?}");
        }
    }

    #[test]
    fn clocks_and_distances() {
        let judged = |ahead: i64, round_trip| {
            let mut report = PreflightReport::new("lock", "n");
            let ours =
                SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros();
            let time = ServerTime(i64::try_from(ours).unwrap() + ahead * 1_000_000);
            let round_trip = Duration::from_millis(round_trip);
            judge_clock(&mut report, Some(time), round_trip, Duration::from_secs(1));
            report.severity()
        };
        assert_eq!(judged(0, 1), Severity::Ok);
        assert_eq!((judged(60, 1), judged(-60, 1)), (Severity::Note, Severity::Note));
        assert_eq!(judged(0, 300), Severity::Warning);
    }

    #[test]
    fn a_clock_that_is_no_wall_clock_is_not_compared() {
        let mut report = PreflightReport::new("lock", "n");
        judge_clock(&mut report, None, Duration::from_micros(70), Duration::from_secs(1));
        assert_eq!(report.severity(), Severity::Ok, "{report}");
        assert!(report.to_string().contains("an answer takes 70 µs"), "{report}");
    }
}
