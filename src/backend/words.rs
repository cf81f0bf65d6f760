//! A list of strings in one allocation.

use std::fmt;

use smallvec::SmallVec;

/// The keys or arguments of a call. They are made for each call, so all texts share one allocation.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Words {
    text: String,
    /// Where each text ends.
    ends: SmallVec<[u32; 8]>,
}

impl Words {
    /// Reserves room for this many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { text: String::with_capacity(bytes), ends: SmallVec::new() }
    }

    pub(crate) fn with(self, word: &str) -> Self {
        self.with_written(|text| text.push_str(word))
    }

    /// Adds the text that `add` writes.
    pub(crate) fn with_written(mut self, add: impl FnOnce(&mut String)) -> Self {
        add(&mut self.text);
        self.ends.push(u32::try_from(self.text.len()).unwrap_or(u32::MAX));
        self
    }

    pub(crate) fn with_number(self, number: impl itoa::Integer) -> Self {
        self.with(itoa::Buffer::new().format(number))
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn first(&self) -> Option<&str> {
        self.iter().next()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        let mut begin = 0;
        self.ends.iter().map(move |&end| {
            let end = end as usize;
            let word = &self.text[begin..end];
            begin = end;
            word
        })
    }
}

impl<S: AsRef<str>> FromIterator<S> for Words {
    fn from_iter<I: IntoIterator<Item = S>>(words: I) -> Self {
        words.into_iter().fold(Self::default(), |all, word| all.with(word.as_ref()))
    }
}

impl<S: AsRef<str>, const N: usize> From<[S; N]> for Words {
    fn from(words: [S; N]) -> Self {
        words.into_iter().collect()
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_as_they_were_put() {
        let words = Words::with_capacity(1).with("lock").with("").with("{ä}").with_number(-7);
        assert_eq!(words.iter().collect::<Vec<_>>(), ["lock", "", "{ä}", "-7"]);
        assert_eq!((words.len(), words.iter().len(), words.first()), (4, 4, Some("lock")));
        assert_eq!(words, Words::from(["lock", "", "{ä}", "-7"]));
        assert_ne!(Words::from(["ab", "c"]), Words::from(["a", "bc"]));
        assert_eq!(format!("{words:?}"), r#"["lock", "", "{ä}", "-7"]"#);
        assert_eq!(Words::default().first(), None);
    }
}
