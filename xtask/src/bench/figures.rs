//! Medians and percentiles, and what the server says it has done.

use std::io::Result;

use serde_json::Value;

use crate::resp::Connection;

/// The value below which `share` (0 to 1) of all lie.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let at = (last as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

pub(crate) fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

pub(crate) fn number(answer: &Value, field: &str) -> f64 {
    answer[field].as_f64().unwrap_or(f64::NAN)
}

pub(crate) fn numbers(answer: &Value, field: &str) -> Vec<f64> {
    answer[field].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

/// When somebody asked, was granted and gave it up, in nanoseconds.
pub(crate) fn turns(answer: &Value) -> Vec<[f64; 3]> {
    let turns = answer["turns"].as_array().into_iter().flatten();
    turns.map(|turn| [0, 1, 2].map(|at| turn[at].as_f64().unwrap_or(f64::NAN))).collect()
}

/// Commands that clients sent; those inside of scripts, which Redis counts too, are left out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sent {
    pub(crate) scripts: f64,
    pub(crate) subscriptions: f64,
    /// Time that the server spent in scripts, in microseconds.
    pub(crate) usec: f64,
}

impl Sent {
    pub(crate) fn so_far(connection: &mut Connection) -> Result<Self> {
        let text = connection.text(&["INFO", "commandstats"])?;
        let mut sent = Self::default();
        for line in text.lines() {
            let Some((command, stats)) =
                line.strip_prefix("cmdstat_").and_then(|line| line.split_once(':'))
            else {
                continue;
            };
            let stat = |name: &str| {
                let value =
                    stats.split(',').find_map(|stat| stat.strip_prefix(name)?.strip_prefix('='));
                value.and_then(|value| value.parse::<f64>().ok()).unwrap_or(0.0)
            };
            match command {
                "eval" | "evalsha" | "fcall" => {
                    sent.scripts += stat("calls");
                    sent.usec += stat("usec");
                }
                "subscribe" | "unsubscribe" | "ssubscribe" | "sunsubscribe" | "psubscribe" => {
                    sent.subscriptions += stat("calls");
                }
                _ => {}
            }
        }
        Ok(sent)
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            scripts: self.scripts - before.scripts,
            subscriptions: self.subscriptions - before.subscriptions,
            usec: self.usec - before.usec,
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.scripts += other.scripts;
        self.subscriptions += other.subscriptions;
        self.usec += other.usec;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_few_values() {
        let values = [3.0, 1.0, 2.0];
        assert_eq!(median(&values), 2.0);
        assert_eq!((percentile(&values, 0.0), percentile(&values, 1.0)), (1.0, 3.0));
        assert!(median(&[]).is_nan());
    }
}
