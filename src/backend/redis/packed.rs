//! The arguments of a command as parts of one text: each by itself would be an allocation.

use fred::bytes::Bytes;
use fred::types::Value as FredValue;

/// Room for the arguments of a usual call.
const TEXT: usize = 256;
const PARTS: usize = 9;

/// The texts that `fill` adds, in their order.
pub(crate) fn packed(fill: impl FnOnce(&mut dyn FnMut(&str))) -> Vec<FredValue> {
    let mut text = String::with_capacity(TEXT);
    let mut ends = Vec::with_capacity(PARTS);
    fill(&mut |part| {
        text.push_str(part);
        ends.push(text.len());
    });
    let text = Bytes::from(text);
    let mut from = 0;
    let part = |end| {
        let part = text.slice(from..end);
        from = end;
        FredValue::Bytes(part)
    };
    ends.into_iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_what_was_added() {
        let long = "x".repeat(10_000);
        let texts = ["", "a", &long, "ä", "", "0"];
        let parts = packed(|add| texts.iter().for_each(|text| add(text)));
        let read: Vec<_> = parts.iter().map(|part| part.as_str().map(|text| text.into_owned())).collect();
        assert_eq!(read, texts.map(|text| Some(text.to_owned())));
        assert_eq!(packed(|_| {}), []);
    }
}
