//! Patterns, as in SCAN's MATCH.

/// True if a text matches a pattern of `*`, `?`, `[abc]`, `[^a-z]` and `\` before a literal
/// character.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return text.is_empty() };
    if *first == b'*' {
        return (0..=text.len()).any(|skipped| matches(rest, &text[skipped..]));
    }
    let Some((character, left)) = text.split_first() else { return false };
    match (first, rest) {
        (b'?', _) => matches(rest, left),
        (b'[', _) => {
            let (is_in, rest) = class(rest, *character);
            is_in && matches(rest, left)
        }
        (b'\\', [literal, rest @ ..]) => literal == character && matches(rest, left),
        _ => first == character && matches(rest, left),
    }
}

/// Whether a character is in the class that begins after `[`, and the pattern after the class. A
/// class that is not closed extends to the end of the pattern.
fn class(pattern: &[u8], character: u8) -> (bool, &[u8]) {
    let (negated, mut pattern) = match pattern {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, pattern),
    };
    let mut is_in = false;
    loop {
        let (found, rest) = match pattern {
            [b'\\', literal, rest @ ..] => (*literal == character, rest),
            [b']', rest @ ..] => return (is_in != negated, rest),
            [] => return (is_in != negated, pattern),
            [from, b'-', to, rest @ ..] => {
                (((*from.min(to))..=*from.max(to)).contains(&character), rest)
            }
            [literal, rest @ ..] => (*literal == character, rest),
        };
        is_in |= found;
        pattern = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("a**", "a", true),
            ("?", "", false),
            ("h?llo", "hello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[a-f]llo", "hello", true),
            ("h[f-a]llo", "hello", true),
            ("h[\\]]llo", "h]llo", true),
            ("h[e", "he", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("\\", "\\", true),
            ("abc", "ab", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }
}
