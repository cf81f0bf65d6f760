//! How a report is shown: as tables, as JSON, as plots.

use std::path::Path;

use serde_json::Value;
use serde_json::json;

use super::bars;
use super::plots;
use super::report::Report;
use super::report::Row;
use super::report::State;
use super::report::short;
use super::report::unit;

impl Report {
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
        let mut text = format!(
            "\n## {load}\n\n| kind | {unit} (median of blocks) | {} |\n",
            names.join(" | ")
        );
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
