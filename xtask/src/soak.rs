//! `cargo xtask soak`: the checks that draw by seed, for hours, with seeds that were not tried
//! before; and those that need tools of their own. All traffic is on the loopback interface.

use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::process;
use crate::process::Echo;
use crate::reliability::figures;
use crate::reliability::ourselves;
use crate::reliability::pairs;

/// Beyond the seeds of the tests and of the report.
const FIRST: u64 = 1_000_000;
/// Seeds of one round of a few minutes: of the simulation, of random script calls, of chaos.
const ROUND: [u64; 3] = [50_000, 2_000, 24];

/// What needs more than Rust and a Redis; it is run once, at the beginning.
const TOOLS: &[&[&str]] = &[&["coverage"], &["fuzz", "60"], &["rust-mutants", "--sample"]];

/// True if nothing failed. What was done is kept in `target/soak.json`: the next call goes on from
/// there.
pub(crate) fn run(args: &[&str]) -> Result<bool, String> {
    let [("--for", text)] = pairs(args)?[..] else {
        return Err("soak wants --for TIME, as 90m or 8h".into());
    };
    let end =
        Instant::now() + duration(text).ok_or("a time is a number and s, m or h, up to 30 days")?;
    let state = crate::root().join("target/soak.json");
    let mut done = Done::read(&state);
    println!("round {} on, for {text}; {}", done.rounds, state.display());
    if done.rounds == 0 {
        for words in TOOLS {
            if let Step::Failed = step(words, &mut done, end)? {
                return Ok(false);
            }
        }
    }
    loop {
        for words in round(done.rounds) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match step(&words, &mut done, end)? {
                Step::Passed => {}
                Step::OutOfTime => return Ok(true),
                Step::Failed => return Ok(false),
            }
        }
        done.rounds += 1;
        done.write(&state)?;
        println!("{}", done.value());
    }
}

fn round(number: u64) -> Vec<Vec<String>> {
    let [seeds, sequences, histories] = ROUND;
    let range = |each| {
        let first = FIRST + number * each;
        format!("{first}..{}", first + each)
    };
    let words = |text: String| text.split(' ').map(str::to_owned).collect();
    vec![
        words(format!("sim --seeds {}", range(seeds))),
        words(format!(
            "random-scripts --sequences {sequences} --steps 50 --seed {}",
            FIRST + number
        )),
        words(format!("chaos --seeds {}", range(histories))),
    ]
}

enum Step {
    Passed,
    Failed,
    /// Cut short: what it did is not counted, and done again by the next call.
    OutOfTime,
}

fn step(words: &[&str], done: &mut Done, end: Instant) -> Result<Step, String> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(Step::OutOfTime);
    }
    println!("== {}", words.join(" "));
    let finished = process::run(ourselves(words)?, left, Echo::Off)?;
    if finished.timed_out {
        return Ok(Step::OutOfTime);
    }
    if !finished.success {
        println!("{}\nFAILED {}", finished.output.trim_end(), words.join(" "));
        return Ok(Step::Failed);
    }
    for line in finished.output.lines().filter(|line| line.starts_with("NOT RUN")) {
        println!("{line}");
    }
    figures(&finished.output).iter().for_each(|line| done.add(line));
    Ok(Step::Passed)
}

/// What was done by this call and those before it.
#[derive(Debug, Default, PartialEq)]
struct Done {
    rounds: u64,
    /// The sum of each field of each part.
    parts: Map<String, Value>,
}

impl Done {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let known: Value = serde_json::from_str(&text).unwrap_or_default();
        let parts = known["parts"].as_object().cloned().unwrap_or_default();
        Self { rounds: known["rounds"].as_u64().unwrap_or(0), parts }
    }

    fn value(&self) -> Value {
        json!({"rounds": self.rounds, "parts": self.parts})
    }

    fn write(&self, path: &Path) -> Result<(), String> {
        let text =
            serde_json::to_string_pretty(&self.value()).map_err(|error| error.to_string())?;
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn add(&mut self, line: &Value) {
        let (Some(part), Some(fields)) = (line["part"].as_str(), line.as_object()) else { return };
        let Some(sums) = self.parts.entry(part).or_insert_with(|| json!({})).as_object_mut() else {
            return;
        };
        for (field, more) in
            fields.iter().filter_map(|(field, value)| Some((field, value.as_u64()?)))
        {
            let sum = sums.get(field).and_then(Value::as_u64).unwrap_or(0);
            sums.insert(field.clone(), json!(sum.saturating_add(more)));
        }
    }
}

fn duration(text: &str) -> Option<Duration> {
    let unit = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        _ => return None,
    };
    let number: u64 = text[..text.len() - 1].parse().ok()?;
    number.checked_mul(unit).filter(|seconds| *seconds <= 30 * 86_400).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(duration("8h"), Some(Duration::from_secs(28_800)));
        assert_eq!(duration("90m"), Some(Duration::from_secs(5_400)));
        for wrong in ["8", "", "h", "-1s", "721h", "99999999999999999999s", "18446744073709551615h"]
        {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn rounds_go_on_where_the_last_ones_ended() {
        let path = std::env::temp_dir().join(format!("soak-{}", std::process::id()));
        assert_eq!(Done::read(&path), Done::default());
        let mut done = Done { rounds: 3, ..Done::default() };
        done.add(&json!({"part": "simulation", "seeds": 5, "words": "x"}));
        done.add(&json!({"part": "simulation", "seeds": 6}));
        done.write(&path).unwrap();
        let read = Done::read(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read, done);
        assert_eq!(read.parts["simulation"], json!({"seeds": 11}));
        assert_eq!(round(0)[0].last().unwrap(), "1000000..1050000");
        assert_eq!(round(1)[0].last().unwrap(), "1050000..1100000");
    }
}
