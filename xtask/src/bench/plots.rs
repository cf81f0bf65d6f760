//! Plots, written by hand: a frame, lines, a legend.

use super::report::HAND_OFF_LOADS;
use super::report::Report;
use super::report::Row;
use super::report::short;

/// The same colour for a kind in every plot, and how wide its line is.
const COLOURS: [(&str, &str, u32); 17] = [
    ("current", "#0072b2", 4),
    ("thread", "#d55e00", 4),
    ("floor-current", "#7fb8d8", 2),
    ("floor-thread", "#eaae7f", 2),
    ("thread-no-hand-off", "#8b4513", 2),
    ("rlock", "#009e73", 2),
    ("rslock", "#999999", 2),
    ("async-redis-lock", "#bcbd22", 2),
    ("rueidislock", "#cc79a7", 2),
    ("redsync", "#9467bd", 2),
    ("redisson", "#c00000", 2),
    ("node-redisson", "#333333", 2),
    ("redis-semaphore", "#56b4e9", 2),
    ("one task elsewhere, on", "#0072b2", 4),
    ("one task elsewhere, off", "#7fb8d8", 2),
    ("redisson, on", "#c00000", 4),
    ("redisson, off", "#e08080", 2),
];
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 30.0;

struct Line {
    kind: String,
    points: Vec<(f64, f64)>,
}

/// How a plot is drawn.
struct Axes<'a> {
    title: &'a str,
    x: &'a str,
    log_x: bool,
    log_y: bool,
}

/// File names and contents; only of what was measured.
pub(crate) fn all(report: &Report) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for load in ["uncontended", "hand-over"] {
        let lines = distributions(report, load, "");
        files.push((
            format!("{load}.svg"),
            by_percentile(&format!("{load}: time in us by percentile"), &lines),
        ));
    }
    let mut waits = distributions(report, HAND_OFF_LOADS[0], ", on");
    waits.extend(distributions(report, HAND_OFF_LOADS[1], ", off"));
    waits.retain(|line| !line.kind.starts_with("crowd"));
    let title = "waits in us beside a crowd in another process, its hand-off on and off";
    files.push(("hand-off.svg".to_owned(), by_percentile(title, &waits)));
    for (series, what) in [
        ("distinct-", "tasks, each on its own name"),
        ("one-name-", "tasks on one name"),
        ("queue-", "waiters in 4 processes"),
    ] {
        let title = format!("grants per second: {what}");
        let axes = Axes { title: &title, x: what, log_x: true, log_y: true };
        files.push((
            format!("{series}rate.svg"),
            plot(&axes, &against(report, series, Row::median)),
        ));
        let title = format!("scripts per grant: {what}");
        let axes = Axes { title: &title, x: what, log_x: true, log_y: false };
        let lines = against(report, series, |row| row.get("evalsha/grant"));
        files.push((format!("{series}commands.svg"), plot(&axes, &lines)));
    }
    files.retain(|(_, svg)| !svg.is_empty());
    files
}

fn by_percentile(title: &str, lines: &[Line]) -> String {
    plot(&Axes { title, x: "percentile", log_x: false, log_y: true }, lines)
}

fn distributions(report: &Report, load: &str, suffix: &str) -> Vec<Line> {
    let rows = report.rows.iter().filter(|row| row.load == load);
    let mut lines: Vec<Line> = rows.filter_map(distribution).collect();
    for line in &mut lines {
        line.kind.push_str(suffix);
    }
    lines
}

fn distribution(row: &Row) -> Option<Line> {
    let points: Vec<(f64, f64)> =
        (0_u32..).zip(&row.quantiles).map(|(step, value)| (f64::from(step), *value)).collect();
    // The last of a hundred would set the scale for all.
    let points: Vec<(f64, f64)> = points.into_iter().take(100).collect();
    (!points.is_empty()).then(|| Line { kind: row.kind.clone(), points })
}

/// A line for each kind: the number at the end of the load's name, and a figure.
fn against(report: &Report, series: &str, figure: impl Fn(&Row) -> f64) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in &report.rows {
        let Some(x) = row.load.strip_prefix(series).and_then(|x| x.parse::<f64>().ok()) else {
            continue;
        };
        let y = figure(row);
        if !row.measured() || y.is_nan() {
            continue;
        }
        match lines.iter_mut().find(|line| line.kind == row.kind) {
            Some(line) => line.points.push((x, y)),
            None => lines.push(Line { kind: row.kind.clone(), points: vec![(x, y)] }),
        }
    }
    lines
}

fn plot(axes: &Axes<'_>, lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|line| &line.points);
    if all().next().is_none() {
        return String::new();
    }
    let x_of = |x: f64| if axes.log_x { x.max(1.0).ln() } else { x };
    let (x_low, x_high) = range(all().map(|point| x_of(point.0)));
    let marks_y = marks_y(range(all().map(|point| point.1)), axes.log_y);
    let y_of = |y: f64| if axes.log_y { y.max(1e-3).ln() } else { y };
    let (y_low, y_high) = range(marks_y.iter().copied().map(y_of));
    let place = |(x, y): (f64, f64)| {
        let across = (x_of(x) - x_low) / (x_high - x_low).max(1e-9);
        let up = (y_of(y) - y_low) / (y_high - y_low).max(1e-9);
        (LEFT + across * WIDTH, TOP + HEIGHT * (1.0 - up))
    };
    let mut svg = frame(axes.title, axes.x);
    for value in marks_y {
        let (_, y) = place((1.0, value));
        svg.push_str(&format!(
            "<line x1='{LEFT}' y1='{y:.1}' x2='{:.1}' y2='{y:.1}' stroke='#eee'/>",
            LEFT + WIDTH
        ));
        svg.push_str(&text(LEFT - 5.0, y + 4.0, "end", &short(value)));
    }
    for mark in marks_x(lines, axes.log_x) {
        let (x, _) = place((mark, 0.0));
        svg.push_str(&text(x, TOP + HEIGHT + 16.0, "middle", &format!("{mark}")));
    }
    for (number, line) in lines.iter().enumerate() {
        let points: Vec<(f64, f64)> = line.points.iter().map(|point| place(*point)).collect();
        svg.push_str(&drawn(number, &line.kind, &points));
    }
    svg.push_str("</svg>\n");
    svg
}

/// Around all values: 1, 2 and 5 of each power of ten, or four steps from nought.
fn marks_y((low, high): (f64, f64), log: bool) -> Vec<f64> {
    if !log {
        return (0..=4).map(|step| high.max(1e-9) * 1.05 * f64::from(step) / 4.0).collect();
    }
    let (low, high) = (low.max(1e-2), high.max(2e-2));
    let all = (-2..=9).flat_map(|power| [1.0, 2.0, 5.0].map(|first| first * 10_f64.powi(power)));
    let all: Vec<f64> = all.collect();
    let first = all.iter().rposition(|mark| *mark <= low).unwrap_or(0);
    let last = all.iter().position(|mark| *mark >= high).unwrap_or(all.len() - 1);
    all[first..=last.max(first + 1)].to_vec()
}

fn marks_x(lines: &[Line], log: bool) -> Vec<f64> {
    if !log {
        return vec![0.0, 25.0, 50.0, 75.0, 99.0];
    }
    let mut marks: Vec<f64> =
        lines.iter().flat_map(|line| &line.points).map(|point| point.0).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    marks
}

/// A line, and its part of the legend.
fn drawn(number: usize, kind: &str, points: &[(f64, f64)]) -> String {
    let known = COLOURS.iter().find(|(known, ..)| *known == kind);
    let (_, colour, width) = known.unwrap_or(&("", "#333333", 1));
    let corners: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let mut svg = format!(
        "<polyline points='{}' fill='none' stroke='{colour}' stroke-width='{width}'/>",
        corners.join(" ")
    );
    // A line of few points shows them: there may be only one.
    if points.len() < 10 {
        for (x, y) in points {
            svg.push_str(&format!("<circle cx='{x:.1}' cy='{y:.1}' r='3.5' fill='{colour}'/>"));
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a few lines")]
    let y = TOP + 12.0 + 18.0 * number as f64;
    let x = LEFT + WIDTH + 12.0;
    svg.push_str(&format!(
        "<rect x='{x}' y='{:.1}' width='12' height='4' fill='{colour}'/>",
        y - 6.0
    ));
    svg + &text(x + 18.0, y, "start", kind)
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}

fn frame(title: &str, x_title: &str) -> String {
    let (width, height) = (LEFT + WIDTH + 180.0, TOP + HEIGHT + 45.0);
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' font-family='sans-serif' \
         font-size='12'><rect width='100%' height='100%' fill='white'/>{}{}\
         <rect x='{LEFT}' y='{TOP}' width='{WIDTH}' height='{HEIGHT}' fill='none' stroke='#ccc'/>",
        text(LEFT, 18.0, "start", title),
        text(LEFT + WIDTH / 2.0, TOP + HEIGHT + 36.0, "middle", x_title),
    )
}

fn text(x: f64, y: f64, anchor: &str, text: &str) -> String {
    format!("<text x='{x:.1}' y='{y:.1}' text-anchor='{anchor}'>{text}</text>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_around_all_values() {
        assert_eq!(marks_y((30.0, 450.0), true), [20.0, 50.0, 100.0, 200.0, 500.0]);
        assert_eq!(marks_y((7.0, 7.0), true), [5.0, 10.0]);
        assert_eq!(marks_y((3.0, 4.0), false)[0], 0.0);
    }

    #[test]
    fn a_kind_that_stalled_is_not_drawn() {
        let mut report = Report::empty();
        report.add(Row::new("one-name-8", "thread", vec![5.0]));
        report.add(Row::stalled("one-name-8", "rueidislock", "waited".to_owned()));
        let files = all(&report);
        let (_, svg) =
            files.iter().find(|(name, _)| name == "one-name-rate.svg").expect("one plot");
        assert!(svg.contains(">thread<") && !svg.contains("rueidislock"), "{svg}");
    }
}
