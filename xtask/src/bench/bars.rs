//! The bars, and whether what was measured is above them.

use super::report::Report;
use super::report::Row;

pub(crate) struct Bar {
    pub(crate) what: String,
    pub(crate) measured: f64,
    pub(crate) wanted: String,
    pub(crate) holds: bool,
}

/// Those for which there is a measurement.
pub(crate) fn judge(report: &Report) -> Vec<Bar> {
    let mut judge = Judge { report, bars: Vec::new() };
    judge.uncontended();
    judge.hand_over();
    judge.crowds();
    judge.wide();
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
        if let (Some(check), Some(floor)) =
            (self.report.noted("redis-benchmark"), self.report.row("uncontended", "floor-current"))
        {
            self.at_most("floor-current / redis-benchmark -c 1", floor.median() / check, 2.0);
        }
    }

    fn hand_over(&mut self) {
        for (own, floor) in [("current", "floor-current"), ("thread", "floor-thread")] {
            self.ratio_at_most("hand-over", own, floor, 1.2);
            self.of("hand-over", own, floor, |own, floor| own.get("p99") / floor.get("p99"), "p99", 2.0);
            self.ratio_at_most("hand-over", own, "rueidislock", 1.0);
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
            self.figure_at_least("processes-4x16", own, "least share", 0.5);
            self.figure_at_most("processes-4x16", own, "most share", 2.0);
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

    fn ratio_at_most(&mut self, load: &str, own: &str, other: &str, limit: f64) {
        self.of(load, own, other, Row::ratio_to, "", limit);
    }

    fn ratio_at_least(&mut self, load: &str, own: &str, other: &str, limit: f64) {
        let rows = (self.report.row(load, own), self.report.row(load, other));
        if let (Some(own_row), Some(other_row)) = rows {
            self.at_least(&format!("{load}: {own} / {other}"), own_row.ratio_to(other_row), limit);
        }
    }

    fn of(
        &mut self,
        load: &str,
        own: &str,
        other: &str,
        value: impl FnOnce(&Row, &Row) -> f64,
        what: &str,
        limit: f64,
    ) {
        let rows = (self.report.row(load, own), self.report.row(load, other));
        if let (Some(own_row), Some(other_row)) = rows {
            self.at_most(&format!("{load} {what}: {own} / {other}"), value(own_row, other_row), limit);
        }
    }

    fn figure_at_most(&mut self, load: &str, own: &str, figure: &str, limit: f64) {
        if let Some(row) = self.report.row(load, own) {
            self.at_most(&format!("{load}: {own}, {figure}"), row.get(figure), limit);
        }
    }

    fn figure_at_least(&mut self, load: &str, own: &str, figure: &str, limit: f64) {
        if let Some(row) = self.report.row(load, own) {
            self.at_least(&format!("{load}: {own}, {figure}"), row.get(figure), limit);
        }
    }

    fn at_most(&mut self, what: &str, measured: f64, limit: f64) {
        self.push(what, measured, format!("at most {limit}"), measured <= limit);
    }

    fn at_least(&mut self, what: &str, measured: f64, limit: f64) {
        self.push(what, measured, format!("at least {limit}"), measured >= limit);
    }

    fn push(&mut self, what: &str, measured: f64, wanted: String, holds: bool) {
        if !measured.is_nan() {
            self.bars.push(Bar { what: what.to_owned(), measured, wanted, holds });
        }
    }
}
