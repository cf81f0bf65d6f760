//! What was measured: as tables, as JSON, as plots.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use serde_json::json;

use crate::process;
use crate::servers::Server;

use super::bars;
use super::figures::median;
use super::plots;

/// What became of a kind under a load.
pub(crate) enum State {
    Measured,
    /// Did not come to its end, and how.
    Stalled(String),
    /// Could not be run here, and why.
    NotPresent(String),
}

impl State {
    fn word(&self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Stalled(_) => "stalled",
            Self::NotPresent(_) => "not present",
        }
    }

    fn reason(&self) -> Option<&str> {
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
        Self { load, kind, blocks, figures: Vec::new(), quantiles: Vec::new(), state: State::Measured }
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
    notes: Vec<(String, f64)>,
    machine: Vec<(&'static str, String)>,
}

impl Report {
    pub(crate) fn new(server: &Server, options: &[&str]) -> Result<Self, String> {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let command = ["cargo xtask bench"].iter().chain(options).copied().collect::<Vec<_>>().join(" ");
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

    pub(crate) fn print(&self) {
        print!("{}", self.text());
    }

    fn text(&self) -> String {
        let mut text = String::from("\n");
        for (what, value) in &self.machine {
            text.push_str(&format!("{what}: {value}\n"));
        }
        for (what, value) in &self.notes {
            text.push_str(&format!("{what}: {}\n", short(*value)));
        }
        for load in self.loads() {
            text.push_str(&self.table(load));
        }
        text.push_str("\n## bars\n\n| bar | measured | wanted | |\n|---|---|---|---|\n");
        for bar in bars::judge(self) {
            let verdict = match bar.holds {
                Some(true) => "holds",
                Some(false) => "MISSED",
                None => "not measured",
            };
            text.push_str(&format!(
                "| {} | {} | {} | {verdict} |\n",
                bar.what,
                short(bar.measured),
                bar.wanted
            ));
        }
        text
    }

    fn table(&self, load: &str) -> String {
        let mut rows: Vec<&Row> = self.rows.iter().filter(|row| row.load == load).collect();
        rows.sort_by_key(|row| matches!(row.state, State::NotPresent(_)));
        let unit = unit(load);
        let names: Vec<&str> = rows
            .iter()
            .find(|row| !row.blocks.is_empty())
            .map_or(Vec::new(), |row| row.figures.iter().map(|(name, _)| name.as_str()).collect());
        let mut text =
            format!("\n## {load}\n\n| kind | {unit} (median of blocks) | {} |\n", names.join(" | "));
        text.push_str(&format!("|---|{}\n", "---:|".repeat(names.len() + 1)));
        for row in rows {
            let figures: Vec<String> = names.iter().map(|name| short(row.get(name))).collect();
            let main = match &row.state {
                State::Measured => short(row.median()),
                State::Stalled(_) if !row.blocks.is_empty() => {
                    format!("{} in {} blocks, then stalled", short(row.median()), row.blocks.len())
                }
                state => state.word().to_owned(),
            };
            text.push_str(&format!("| {} | {main} | {} |\n", row.kind, figures.join(" | ")));
        }
        text
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        std::fs::create_dir_all(folder).map_err(failed)?;
        std::fs::write(folder.join("report.md"), self.text()).map_err(failed)?;
        let json = serde_json::to_string_pretty(&self.json()).map_err(|error| error.to_string())?;
        std::fs::write(folder.join("report.json"), json).map_err(failed)?;
        self.write_plots(folder)
    }

    pub(crate) fn write_plots(&self, folder: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        std::fs::create_dir_all(folder).map_err(failed)?;
        for (name, svg) in plots::all(self) {
            std::fs::write(folder.join(name), svg).map_err(failed)?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let figures: serde_json::Map<_, _> =
                    row.figures.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
                json!({
                    "load": row.load, "kind": row.kind, "unit": unit(&row.load), "median": row.median(),
                    "blocks": row.blocks, "figures": figures, "quantiles": row.quantiles, "state": row.state.word(), "reason": row.state.reason(),
                })
            })
            .collect();
        let machine: serde_json::Map<_, _> =
            self.machine.iter().map(|(what, value)| ((*what).to_owned(), json!(value))).collect();
        let bars: Vec<Value> = bars::judge(self)
            .iter()
            .map(|bar| {
                json!({ "bar": bar.what, "measured": bar.measured, "wanted": bar.wanted, "holds": bar.holds })
            })
            .collect();
        json!({ "machine": machine, "notes": self.notes, "rows": rows, "bars": bars })
    }
}

fn unit(load: &str) -> &'static str {
    match load {
        "uncontended" | "hand-over" | "hand-over-asleep" => "us",
        "hand-off-on" | "hand-off-off" => "us of waiting",
        "acquire-script" => "us at the server",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_there_is_told() {
        let mut report = Report::empty();
        report.add(Row::new("uncontended", "current", vec![2.0]));
        report.add(Row::absent("uncontended", "rueidislock", "go is missing"));
        assert!(report.text().contains("| rueidislock | not present |"), "{}", report.text());
        let rows = report.json()["rows"].clone();
        assert_eq!(rows[1]["reason"], "go is missing");
        assert_eq!(rows[0]["state"], "measured");
    }
}
