//! What the report says, compared with what is wanted, and as the list in docs/proof.md.

use std::path::Path;

use serde_json::Value;
use serde_json::json;

/// Where docs/proof.md quotes the report.
const BEGIN: &str = "<!-- from reliability-report.json: cargo xtask reliability writes it -->\n";
const END: &str = "<!-- end of the report's figures -->\n";

/// Lines of that page are no longer than this.
const WIDTH: usize = 100;

/// The runs of a report; none if there is no report yet.
pub(super) fn read(path: &Path) -> Result<Vec<Value>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.map_err(|error| failed(&error))?,
    };
    let report: Value = serde_json::from_str(&text).map_err(|error| failed(&error))?;
    report["runs"].as_array().cloned().ok_or_else(|| failed(&"it has no `runs`"))
}

pub(super) fn write(path: &Path, runs: &[Value]) -> Result<(), String> {
    let report = json!({ "runs": runs });
    let text = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
    std::fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
}

/// The sum of a field over all lines of a part; none if no line has it.
pub(super) fn figure(report: &Value, part: &str, field: &str) -> Option<u64> {
    let runs = report["runs"].as_array()?.iter();
    let lines = runs
        .filter_map(|run| run["figures"].as_array())
        .flatten()
        .filter(|line| line["part"] == part);
    lines.filter_map(|line| line[field].as_u64()).reduce(u64::saturating_add)
}

/// A part, its field, a number, and what it is called.
type Bar = (&'static str, &'static str, u64, &'static str);

/// Prints what was wanted and what was got. True if every bar whose part was run is met: at least,
/// then at most.
pub(super) fn print_bars(report: &Value, bars: &[Bar], limits: &[Bar]) -> bool {
    let mut met = true;
    println!("\n{:<66} {:>10} {:>10}", "", "wanted", "got");
    let least = bars.iter().map(|bar| (bar, true));
    for ((part, field, wanted, what), at_least) in
        least.chain(limits.iter().map(|bar| (bar, false)))
    {
        let sign = if at_least { "" } else { "<= " };
        let wanted_text = format!("{sign}{wanted}");
        let Some(got) = figure(report, part, field) else {
            println!("{what:<66} {wanted_text:>10} {:>10}", "not run");
            continue;
        };
        let good = if at_least { got >= *wanted } else { got <= *wanted };
        println!("{what:<66} {wanted_text:>10} {got:>10}{}", if good { "" } else { "  NOT MET" });
        met &= good;
    }
    met
}

/// The list of the page: each sentence with the report's figures in place of `{part.field}`.
pub(super) fn list(report: &Value, sentences: &[&str]) -> Result<String, String> {
    sentences.iter().map(|sentence| Ok(wrapped(&filled(report, sentence)?))).collect()
}

fn filled(report: &Value, sentence: &str) -> Result<String, String> {
    let mut pieces = sentence.split('{');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) =
            piece.split_once('}').ok_or_else(|| format!("a `{{` without end: {sentence}"))?;
        let said =
            name.split_once('.').and_then(|(part, field)| figure(report, part, field)).map(grouped);
        text += &said.ok_or_else(|| format!("the report has no {name}"))?;
        text += rest;
    }
    Ok(text)
}

/// As one item of a list.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::from("*")];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("begun with one");
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(format!("  {word}"));
        } else {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.join("\n") + "\n"
}

/// With a comma between each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Puts the list where the page quotes the report.
pub(super) fn quote(page: &Path, list: &str) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", page.display());
    let text = std::fs::read_to_string(page).map_err(failed)?;
    let quoted = quoted(&text).ok_or_else(|| format!("{} has no place for it", page.display()))?;
    let (start, end) = (quoted.start, quoted.end);
    std::fs::write(page, format!("{}{list}{}", &text[..start], &text[end..])).map_err(failed)
}

fn quoted(page: &str) -> Option<std::ops::Range<usize>> {
    let start = page.find(BEGIN)? + BEGIN.len();
    let length = page[start..].find(END)?;
    Some(start..start + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_summed_over_the_lines_of_their_part() {
        let report = json!({"runs": [{"figures": [
            {"part": "bytes", "requests": 3},
            {"part": "bytes", "requests": 4, "replies": 1},
            {"part": "polls", "requests": 9},
        ]}]});
        assert_eq!(figure(&report, "bytes", "requests"), Some(7));
        assert_eq!(figure(&report, "bytes", "replies"), Some(1));
        assert_eq!(figure(&report, "polls", "replies"), None);
    }

    #[test]
    fn sentences_are_filled_or_refused() {
        let report = json!({"runs": [{"figures": [{"part": "sim", "seeds": 1_234_567}]}]});
        assert_eq!(list(&report, &["{sim.seeds} runs."]).unwrap(), "* 1,234,567 runs.\n");
        assert_eq!(list(&report, &["{sim.losses}"]).unwrap_err(), "the report has no sim.losses");
        let long = list(&report, &["word ".repeat(30).as_str()]).unwrap();
        assert!(
            long.lines().all(|line| line.len() <= WIDTH) && long.lines().count() == 2,
            "{long}"
        );
    }

    #[test]
    fn bars_are_met_or_not() {
        let report = json!({"runs": [{"figures": [{"part": "sim", "seeds": 10}]}]});
        assert!(print_bars(
            &report,
            &[("sim", "seeds", 10, "runs"), ("other", "runs", 5, "not run")],
            &[]
        ));
        assert!(!print_bars(&report, &[("sim", "seeds", 11, "runs")], &[]));
        assert!(print_bars(&report, &[], &[("sim", "seeds", 10, "runs")]));
        assert!(!print_bars(&report, &[], &[("sim", "seeds", 9, "runs")]));
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(
            [grouped(1_234_567), grouped(123), grouped(1_000)],
            ["1,234,567", "123", "1,000"]
        );
    }

    #[test]
    fn the_page_says_what_the_report_says_and_every_bar_is_met() {
        let report = json!({ "runs": read(&crate::root().join(super::super::REPORT)).unwrap() });
        let page = std::fs::read_to_string(crate::root().join(super::super::PAGE)).unwrap();
        let list = list(&report, super::super::SENTENCES).unwrap();
        assert_eq!(&page[quoted(&page).unwrap()], list, "cargo xtask reliability writes it");
        let bars = [super::super::BARS, super::super::LIMITS];
        for (part, field, ..) in bars.into_iter().flatten() {
            assert!(figure(&report, part, field).is_some(), "{part}.{field} was not run");
        }
        assert!(print_bars(&report, super::super::BARS, super::super::LIMITS));
        let failed =
            report["runs"].as_array().into_iter().flatten().find(|run| run["passed"] != true);
        assert_eq!(failed, None);
    }
}
