//! What was measured.

use std::process::Command;

use crate::process;
use crate::servers::Server;

use super::figures::median;

/// Waits beside a crowd whose hand-off is on, and off.
pub(crate) const HAND_OFF_LOADS: [&str; 2] = ["hand-off-on", "hand-off-off"];

/// What became of a kind under a load.
pub(crate) enum State {
    Measured,
    /// Did not come to its end, and how.
    Stalled(String),
    /// Could not be run here, and why.
    NotPresent(String),
}

impl State {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Stalled(_) => "stalled",
            Self::NotPresent(_) => "not present",
        }
    }

    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Self::Measured => None,
            Self::Stalled(reason) | Self::NotPresent(reason) => Some(reason),
        }
    }
}

/// One kind under one load.
pub(crate) struct Row {
    pub(crate) load: String,
    pub(crate) kind: String,
    /// What is compared, one for each block.
    pub(crate) blocks: Vec<f64>,
    pub(crate) figures: Vec<(String, f64)>,
    /// Of the single times, from the 0th to the 100th percentile.
    pub(crate) quantiles: Vec<f64>,
    pub(crate) state: State,
}

impl Row {
    pub(crate) fn new(load: &str, kind: &str, blocks: Vec<f64>) -> Self {
        let (load, kind) = (load.to_owned(), kind.to_owned());
        Self {
            load,
            kind,
            blocks,
            figures: Vec::new(),
            quantiles: Vec::new(),
            state: State::Measured,
        }
    }

    pub(crate) fn absent(load: &str, kind: &str, reason: &str) -> Self {
        Self { state: State::NotPresent(reason.to_owned()), ..Self::new(load, kind, Vec::new()) }
    }

    pub(crate) fn stalled(load: &str, kind: &str, reason: String) -> Self {
        Self { state: State::Stalled(reason), ..Self::new(load, kind, Vec::new()) }
    }

    pub(crate) fn measured(&self) -> bool {
        matches!(self.state, State::Measured)
    }

    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        self.figures.push((name.to_owned(), value));
    }

    pub(crate) fn get(&self, name: &str) -> f64 {
        self.figures.iter().find(|(known, _)| known == name).map_or(f64::NAN, |(_, value)| *value)
    }

    pub(crate) fn median(&self) -> f64 {
        median(&self.blocks)
    }

    /// The median over blocks of the ratio to another kind in the same block.
    pub(crate) fn ratio_to(&self, other: &Self) -> f64 {
        let ratios: Vec<f64> =
            self.blocks.iter().zip(&other.blocks).map(|(own, other)| own / other).collect();
        median(&ratios)
    }
}

pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    pub(crate) notes: Vec<(String, f64)>,
    pub(crate) machine: Vec<(&'static str, String)>,
}

impl Report {
    pub(crate) fn new(server: &Server, options: &[&str]) -> Result<Self, String> {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let command =
            ["cargo xtask bench"].iter().chain(options).copied().collect::<Vec<_>>().join(" ");
        let mut machine = vec![
            ("command", command),
            ("commit", said("git", &["rev-parse", "--short", "HEAD"])),
            ("cores", cores.to_string()),
            ("processor", processor()),
            ("load at start", load_average()),
            ("server", server.version()?),
            ("rustc", said("rustc", &["--version"])),
        ];
        for (what, option) in [("go", "version"), ("java", "--version"), ("node", "--version")] {
            if process::find_program(what).is_some() {
                machine.push((what, said(what, &[option])));
            }
        }
        Ok(Self { rows: Vec::new(), notes: Vec::new(), machine })
    }

    /// Of nothing yet, and no machine.
    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        Self { rows: Vec::new(), notes: Vec::new(), machine: Vec::new() }
    }

    pub(crate) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub(crate) fn note(&mut self, what: &str, value: f64) {
        self.notes.push((what.to_owned(), value));
    }

    /// Something about the machine.
    pub(crate) fn tell(&mut self, what: &'static str, value: String) {
        self.machine.push((what, value));
    }

    pub(crate) fn noted(&self, begins: &str) -> Option<f64> {
        self.notes.iter().find(|(what, _)| what.starts_with(begins)).map(|(_, value)| *value)
    }

    pub(crate) fn row(&self, load: &str, kind: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.load == load && row.kind == kind)
    }

    pub(crate) fn loads(&self) -> Vec<&str> {
        let mut loads: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !loads.contains(&row.load.as_str()) {
                loads.push(&row.load);
            }
        }
        loads
    }
}

pub(crate) fn unit(load: &str) -> &'static str {
    match load {
        "uncontended" | "hand-over" | "hand-over-asleep" => "us",
        load if load.starts_with("alone-") || load.ends_with("-of-4") => "us",
        "readers-4x16" => "reads/s",
        "flight-1000" => "ms until all have the value",
        "hand-off-on" | "hand-off-off" => "us of waiting",
        "acquire-script" => "us at the server",
        "line, a thousand wait" => "scripts per hand-over",
        "line, the head is frozen" => "s until the next grant",
        "reads-held" | "permits-held" => "us of one behind 10,000",
        "dead-readers" => "s until the writer is done",
        "drops" => "ms until all are free",
        "holds" => "% of a core",
        _ => "grants/s",
    }
}

/// Three digits that matter.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "-".to_owned(),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn said(program: &str, args: &[&str]) -> String {
    let line = process::first_line(Command::new(program).args(args).current_dir(crate::root()));
    if line.is_empty() { "?".to_owned() } else { line }
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    line.map_or_else(|| "?".to_owned(), |line| line.trim_start_matches([' ', '\t', ':']).to_owned())
}

/// Others on the machine make noise: how much.
fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}
