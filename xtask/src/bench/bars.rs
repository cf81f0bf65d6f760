//! The bars, and whether what was measured reaches them.

use super::programs::OWN;
use super::programs::RAW;
use super::report::Report;
use super::report::Row;
use super::shared::ALONE;
use super::shared::MULTI;

pub(crate) struct Bar {
    pub(crate) what: String,
    /// Not a number where a kind that it takes was not run.
    pub(crate) measured: f64,
    pub(crate) wanted: String,
    pub(crate) holds: Option<bool>,
}

/// All of them.
pub(crate) fn judge(report: &Report) -> Vec<Bar> {
    let mut judge = Judge { report, bars: Vec::new() };
    judge.uncontended();
    judge.hand_over();
    judge.crowds();
    judge.wide();
    judge.line();
    judge.shared();
    judge.bars
}

struct Judge<'a> {
    report: &'a Report,
    bars: Vec<Bar>,
}

impl Judge<'_> {
    fn uncontended(&mut self) {
        for (own, floor) in [("current", "floor-current"), ("thread", "floor-thread")] {
            self.ratio_at_most("uncontended", own, floor, 1.10);
            self.figure_at_most("uncontended", own, "evalsha/grant", 2.0);
        }
        for peer in ["rlock", "rueidislock"] {
            self.ratio_at_most("uncontended", "current", peer, 1.0);
        }
        let floor = self.report.row("uncontended", "floor-current").map_or(f64::NAN, Row::median);
        let check = self.report.noted("redis-benchmark").unwrap_or(f64::NAN);
        self.at_most("floor-current / redis-benchmark -c 1", floor / check, 2.0);
        for own in ["current", "thread"] {
            self.ratio_at_most("acquire-script", own, "redisson", 2.0);
        }
    }

    fn hand_over(&mut self) {
        for (own, floor) in [("current", "floor-current"), ("thread", "floor-thread")] {
            self.ratio_at_most("hand-over", own, floor, 1.2);
            // Of all blocks together it would be that of the worst minute that somebody had.
            let p99 = |row: &Row| row.get("p99 of a block");
            let p99 = self.of("hand-over", own, floor, |own, floor| p99(own) / p99(floor));
            self.at_most(&format!("hand-over p99: {own} / {floor}"), p99, 2.0);
            self.ratio_at_most("hand-over", own, "rueidislock", 1.0);
            self.ratio_at_most("hand-over", own, "redisson", 0.25);
        }
    }

    fn crowds(&mut self) {
        for own in ["current", "thread"] {
            for load in ["distinct-64", "distinct-1000"] {
                self.ratio_at_least(load, own, "rlock", 1.0);
            }
            self.figure_at_most("one-name-64", own, "evalsha/grant", 1.15);
            self.figure_at_most("one-name-64", own, "max/mean", 3.0);
            self.ratio_at_least("one-name-64", own, "rueidislock", 2.0);
            self.ratio_at_least("one-name-64", own, "redisson", 10.0);
            self.ratio_at_least("processes-4x16", own, "redisson", 10.0);
            self.figure_at_least("processes-4x16", own, "least share", 0.5);
            self.figure_at_most("processes-4x16", own, "most share", 2.0);
            self.figure_at_least("kept-8x1", own, "least share", 0.5);
        }
        for (own, floor) in [("current", "floor-current"), ("thread", "floor-thread")] {
            self.ratio_at_least("processes-4x16", own, floor, 1.0);
        }
    }

    fn wide(&mut self) {
        for own in ["current", "thread"] {
            self.figure_at_most("queue-1000", own, "evalsha/grant", 5.0);
            self.figure_at_most("drops", own, "max ms", 250.0);
            self.figure_at_most("drops", own, "left", 0.0);
            self.figure_at_most("holds", own, "client cpu %", 3.0);
            self.figure_at_most("holds", own, "server cpu %", 3.0);
            self.figure_at_most("holds", own, "bytes/hold", 512.0);
            self.figure_at_most("holds", own, "lost", 0.0);
        }
    }

    fn line(&mut self) {
        let load =
            |report: &Report, load: &str| report.row(load, "thread").map_or(f64::NAN, Row::median);
        let [alone, listened] = ["line", "line, listened to"].map(|name| load(self.report, name));
        self.figure_at_least("line", "thread", "least share", 0.97);
        self.figure_at_most("line", "thread", "longest wait / 7 holds", 1.3);
        self.figure_at_most("line", "thread", "out of order", 0.0);
        self.at_least("line: listened to / not listened to", listened / alone, 0.95);
        self.figure_at_least("line, one is far away", "thread", "share of the last", 0.8);
        self.figure_at_most("line, a thousand wait", "thread", "attempts/hand-over", 12.0);
        self.figure_at_most("line, the head is frozen", "thread", "next grant after s", 2.5);
        self.figure_at_most("line, the head is frozen", "thread", "scripts", 50.0);
    }

    fn shared(&mut self) {
        for own in OWN {
            let [(_, lock), others @ ..] = ALONE;
            for (_, load) in others {
                self.figure_at_most(load, own, "evalsha/grant", 2.0);
                let rows = self.report.row(load, own).zip(self.report.row(lock, own));
                let ratio = rows.map_or(f64::NAN, |(own, lock)| own.ratio_to(lock));
                self.at_most(&format!("{load} / {lock}: {own}"), ratio, 1.25);
            }
            self.ratio_at_least("readers-4x16", own, "redisson", 5.0);
            let load = "read-write-4+4";
            for figure in ["least share, reading", "least share, writing"] {
                self.figure_at_least(load, own, figure, 0.8);
            }
            for figure in ["part of reads", "part of writes"] {
                self.figure_at_least(load, own, figure, 0.15);
            }
            for peer in ["redisson", "redis-semaphore"] {
                self.ratio_at_least("permits-4x16", own, peer, 5.0);
            }
            let load = "permits-4x16-counted";
            self.figure_at_most(load, own, "held at most, worst block", 8.0);
            self.figure_at_most("many-permits", own, "wait of 8 / mean, worst block", 3.0);
            self.figure_at_most("flight-1000", own, "computed", 1.0);
            self.figure_at_most("flight-1000", own, "looks of a process after it", 1.0);
            self.figure_at_most("flight-1000", own, "scripts of a process after it", 1.0);
            self.figure_at_most("flight-1000", own, "last answer, ms", 50.0);
            for load in ["reads-held", "permits-held"] {
                self.figure_at_most(load, own, "bytes/hold", 600.0);
                self.figure_at_most(load, own, "behind many / first", 1.1);
            }
            self.figure_at_most("dead-readers", own, "longest, s", 5.0);
            self.ratio_at_least("fair-4x16", own, "redisson", 5.0);
            self.figure_at_most("fair-4x16", own, "evalsha/grant", 3.0);
            self.ratio_at_most("redlock", own, RAW, 1.2);
            for peer in ["rslock", "redsync", "redisson"] {
                self.ratio_at_most("redlock", own, peer, 1.0);
            }
            let [(_, one), (_, all)] = MULTI;
            let rows = self.report.row(all, own).zip(self.report.row(one, own));
            let ratio = rows.map_or(f64::NAN, |(all, one)| all.ratio_to(one));
            self.at_most(&format!("{all} / {one}: {own}"), ratio, 2.5);
            self.figure_at_least("multi-8x1", own, "least share", 0.5);
        }
    }

    fn ratio_at_most(&mut self, load: &str, own: &str, other: &str, limit: f64) {
        let ratio = self.of(load, own, other, Row::ratio_to);
        self.at_most(&format!("{load}: {own} / {other}"), ratio, limit);
    }

    fn ratio_at_least(&mut self, load: &str, own: &str, other: &str, limit: f64) {
        let ratio = self.of(load, own, other, Row::ratio_to);
        self.at_least(&format!("{load}: {own} / {other}"), ratio, limit);
    }

    fn of(&self, load: &str, own: &str, other: &str, value: impl FnOnce(&Row, &Row) -> f64) -> f64 {
        let rows = self.report.row(load, own).zip(self.report.row(load, other));
        rows.map_or(f64::NAN, |(own, other)| value(own, other))
    }

    fn figure_at_most(&mut self, load: &str, own: &str, figure: &str, limit: f64) {
        self.at_most(&format!("{load}: {own}, {figure}"), self.figure(load, own, figure), limit);
    }

    fn figure_at_least(&mut self, load: &str, own: &str, figure: &str, limit: f64) {
        self.at_least(&format!("{load}: {own}, {figure}"), self.figure(load, own, figure), limit);
    }

    fn figure(&self, load: &str, own: &str, figure: &str) -> f64 {
        self.report.row(load, own).map_or(f64::NAN, |row| row.get(figure))
    }

    fn at_most(&mut self, what: &str, measured: f64, limit: f64) {
        self.push(what, measured, format!("at most {limit}"), measured <= limit);
    }

    fn at_least(&mut self, what: &str, measured: f64, limit: f64) {
        self.push(what, measured, format!("at least {limit}"), measured >= limit);
    }

    fn push(&mut self, what: &str, measured: f64, wanted: String, holds: bool) {
        let holds = (!measured.is_nan()).then_some(holds);
        self.bars.push(Bar { what: what.to_owned(), measured, wanted, holds });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_needs_both_that_it_compares() {
        let mut report = Report::empty();
        report.add(Row::new("uncontended", "current", vec![2.0, 2.0]));
        report.add(Row::new("uncontended", "rlock", vec![4.0, 1.0]));
        report.add(Row::new("hand-over", "current", vec![1.0]));
        report.add(Row::new("hand-over", "redisson", vec![8.0]));
        report.add(Row::absent("uncontended", "rueidislock", "go is missing"));
        let bars = judge(&report);
        let of = |what: &str| bars.iter().find(|bar| bar.what == what).map(|bar| bar.holds);
        assert_eq!(of("uncontended: current / rlock"), Some(Some(false)));
        assert_eq!(of("hand-over: current / redisson"), Some(Some(true)));
        assert_eq!(of("uncontended: current / rueidislock"), Some(None));
    }
}
