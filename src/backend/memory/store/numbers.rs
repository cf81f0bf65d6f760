//! Numbers in arguments and replies, as Redis reads and writes them.

use std::ops::Range;

use super::Refusal;

/// Redis's error for an argument or a value that [`integer`] does not accept.
pub(super) const NOT_AN_INTEGER: Refusal =
    Refusal::new("ERR value is not an integer or out of range");

/// A 64-bit integer in its canonical spelling: without plus sign, leading zeros or spaces.
pub(super) fn integer(text: &str) -> Result<i64, Refusal> {
    let number = text.parse::<i64>().ok().filter(|number| number.to_string() == text);
    number.ok_or(NOT_AN_INTEGER)
}

/// A count: an integer that is not negative.
pub(super) fn number_of(text: &str) -> Result<usize, Refusal> {
    let number = integer(text).ok().and_then(|number| usize::try_from(number).ok());
    number.ok_or(Refusal::new("ERR value is out of range, must be positive"))
}

/// A score. Hexadecimal numbers, which Redis reads as well, are refused.
pub(super) fn score(text: &str) -> Result<f64, Refusal> {
    let number = text
        .parse::<f64>()
        .ok()
        .filter(|number| !number.is_nan() && !is_out_of_range(*number, text));
    number.ok_or(Refusal::new("ERR value is not a valid float"))
}

/// True if a number was parsed as infinite or zero only because it is too large or too small for
/// its type.
fn is_out_of_range(number: f64, text: &str) -> bool {
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let has_digits = |digits: &[char]| mantissa.contains(digits);
    let digits = ['1', '2', '3', '4', '5', '6', '7', '8', '9'];
    (number.is_infinite() || number == 0.0) && has_digits(&digits)
}

/// One limit of a range of scores. C's `strtod` parses it, to which the empty text is zero.
pub(super) fn end_of_scores(text: &str) -> Option<f64> {
    if text.is_empty() {
        return Some(0.0);
    }
    let number = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']).parse::<f64>();
    number.ok().filter(|number| !number.is_nan())
}

/// The positions from `start` to `stop`, both included. Negative ones count from the end.
pub(super) fn positions(start: i64, stop: i64, length: usize) -> Range<usize> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let from_the_beginning =
        |position: i64| if position < 0 { length + position } else { position };
    let start = from_the_beginning(start).clamp(0, length);
    let end = from_the_beginning(stop).saturating_add(1).clamp(start, length);
    usize::try_from(start).unwrap_or(0)..usize::try_from(end).unwrap_or(0)
}

/// A number as Redis writes it in a reply, and as an argument of `redis.call`: C's `%.17g`, so that
/// a fencing token keeps its digits.
pub(in crate::backend::memory) fn text_of(number: f64) -> String {
    const DIGITS: i32 = 17;
    if number.fract() == 0.0 && number.abs() < 1e15 && !(number == 0.0 && number.is_sign_negative())
    {
        return (number as i64).to_string();
    }
    if !number.is_finite() {
        let sign = if number.is_sign_negative() { "-" } else { "" };
        return format!("{sign}{}", if number.is_nan() { "nan" } else { "inf" });
    }
    let scientific = format!("{number:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        let decimals = usize::try_from(DIGITS - 1 - exponent).unwrap_or(0);
        return without_zeros(&format!("{number:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
}

fn without_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_what_c_prints() {
        let table = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.79e15 + 7.0, "1790000000000007"),
            (9_007_199_254_740_991.0, "9007199254740991"),
            (0.1, "0.10000000000000001"),
            (-2.5, "-2.5"),
            (1e20, "1e+20"),
            (1e-7, "9.9999999999999995e-08"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (number, text) in table {
            assert_eq!(text_of(number), text);
        }
    }

    #[test]
    fn a_whole_number_has_one_spelling() {
        for text in ["0", "-1", "9223372036854775807", "-9223372036854775808"] {
            assert_eq!(integer(text).unwrap().to_string(), text);
        }
        for text in ["", "+1", "01", "-0", " 1", "1 ", "1.0", "1e3", "9223372036854775808", "x"] {
            assert_eq!(integer(text), Err(NOT_AN_INTEGER), "{text:?}");
        }
    }

    #[test]
    fn scores_are_what_c_reads_whole() {
        for (text, number) in [
            ("1", 1.0),
            ("+1.50", 1.5),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e2", 100.0),
            ("-0", 0.0),
            ("0e-999", 0.0),
        ] {
            assert_eq!(score(text), Ok(number), "{text:?}");
        }
        for text in ["inf", "+INF", "Infinity"] {
            assert_eq!(score(text), Ok(f64::INFINITY), "{text:?}");
        }
        for text in ["", " 1", "1 ", "nan", "1e999", "-1e999", "1e-999", "1e", ".", "x"] {
            assert!(score(text).is_err(), "{text:?}");
        }
        assert_eq!((end_of_scores(""), end_of_scores(" 1")), (Some(0.0), Some(1.0)));
        assert_eq!((end_of_scores("1e999"), end_of_scores("nan")), (Some(f64::INFINITY), None));
        assert_eq!((end_of_scores("1 "), end_of_scores(" ")), (None, None));
    }

    #[test]
    fn positions_are_cut_to_what_is_there() {
        for (start, stop, expected) in [
            (0, -1, 0..3),
            (1, 1, 1..2),
            (-2, -1, 1..3),
            (-9, 0, 0..1),
            (2, 1, 2..2),
            (3, 9, 3..3),
            (0, -9, 0..0),
            (i64::MIN, i64::MAX, 0..3),
            (i64::MAX, i64::MIN, 3..3),
        ] {
            assert_eq!(positions(start, stop, 3), expected, "{start} {stop}");
        }
        assert_eq!(positions(0, -1, 0), 0..0);
    }
}
