//! Plots, written by hand: a frame, lines, a legend.

use super::report::Report;
use super::report::Row;
use super::report::short;

const COLOURS: [&str; 10] =
    ["#999", "#0072b2", "#bbb", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8b4513", "#333"];
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 30.0;

struct Line {
    kind: String,
    points: Vec<(f64, f64)>,
}

/// File names and contents; only of what was measured.
pub(crate) fn all(report: &Report) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for load in ["uncontended", "hand-over"] {
        let lines: Vec<Line> =
            report.rows.iter().filter(|row| row.load == load).filter_map(distribution).collect();
        let title = format!("{load}: time in us by percentile");
        files.push((format!("{load}.svg"), plot(&title, "percentile", false, &lines)));
    }
    for (series, what) in [
        ("distinct-", "tasks, each on its own name"),
        ("one-name-", "tasks on one name"),
        ("queue-", "waiters in 4 processes"),
    ] {
        let lines = against(report, series, Row::median);
        files.push((
            format!("{series}rate.svg"),
            plot(&format!("grants per second: {what}"), what, true, &lines),
        ));
        let lines = against(report, series, |row| row.get("evalsha/grant"));
        files.push((
            format!("{series}commands.svg"),
            plot(&format!("scripts per grant: {what}"), what, true, &lines),
        ));
    }
    files.retain(|(_, svg)| !svg.is_empty());
    files
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
        let Some(x) = row.load.strip_prefix(series).and_then(|x| x.parse::<f64>().ok()) else { continue };
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

fn plot(title: &str, x_title: &str, log_x: bool, lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|line| &line.points);
    if all().next().is_none() {
        return String::new();
    }
    let x_of = |x: f64| if log_x { x.max(1.0).ln() } else { x };
    let (x_low, x_high) = range(all().map(|point| x_of(point.0)));
    let y_high = all().map(|point| point.1).fold(0.0, f64::max) * 1.05;
    let place = |(x, y): (f64, f64)| {
        let share = (x_of(x) - x_low) / (x_high - x_low).max(1e-9);
        (LEFT + share * WIDTH, TOP + HEIGHT * (1.0 - y / y_high.max(1e-9)))
    };
    let mut svg = frame(title, x_title);
    for step in 0..=4 {
        let value = y_high * f64::from(step) / 4.0;
        let (_, y) = place((1.0, value));
        svg.push_str(&format!(
            "<line x1='{LEFT}' y1='{y:.1}' x2='{:.1}' y2='{y:.1}' stroke='#eee'/>",
            LEFT + WIDTH
        ));
        svg.push_str(&text(LEFT - 5.0, y + 4.0, "end", &short(value)));
    }
    let mut marks: Vec<f64> =
        if log_x { all().map(|point| point.0).collect() } else { vec![0.0, 25.0, 50.0, 75.0, 99.0] };
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    for mark in marks {
        let (x, _) = place((mark, 0.0));
        svg.push_str(&text(x, TOP + HEIGHT + 16.0, "middle", &format!("{mark}")));
    }
    for (number, line) in lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let points: Vec<String> =
            line.points.iter().map(|point| place(*point)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        svg.push_str(&format!(
            "<polyline points='{}' fill='none' stroke='{colour}' stroke-width='2'/>",
            points.join(" ")
        ));
        #[expect(clippy::cast_precision_loss, reason = "a few lines")]
        let y = TOP + 12.0 + 18.0 * number as f64;
        let x = LEFT + WIDTH + 12.0;
        svg.push_str(&format!("<rect x='{x}' y='{:.1}' width='12' height='4' fill='{colour}'/>", y - 6.0));
        svg.push_str(&text(x + 18.0, y, "start", &line.kind));
    }
    svg.push_str("</svg>\n");
    svg
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
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
