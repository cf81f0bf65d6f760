//! How several calls are put into one.

use smallvec::SmallVec;

use crate::backend::ScriptCall;
use crate::backend::Several;

/// What the script for several is told besides its keys and what each call says by itself. Redis takes longer to read a word
/// than Lua to look one up.
pub(crate) struct Together<'a> {
    marks: String,
    /// What most calls of a script say: what its first one does.
    usual: SmallVec<[&'a str; 4]>,
    /// Of each call, which of its arguments are usual ones.
    left_out: SmallVec<[&'static [usize]; 16]>,
}

impl<'a> Together<'a> {
    pub(crate) fn new(several: Several, calls: impl Iterator<Item = &'a ScriptCall> + Clone) -> Self {
        let mut together = Self { marks: String::new(), usual: SmallVec::new(), left_out: SmallVec::new() };
        for one in several.of {
            let first = calls.clone().find(|call| call.script.name == one.script.name);
            together.usual.extend(one.usual.iter().map(|&at| first.map_or("", |call| word(call, at))));
        }
        for call in calls {
            together.add(several, call);
        }
        together
    }

    fn add(&mut self, several: Several, call: &ScriptCall) {
        let mut begin = 0;
        for one in several.of {
            if one.script.name == call.script.name {
                let usual = &self.usual[begin..begin + one.usual.len()];
                let as_usual = one.usual.iter().zip(usual).all(|(&at, usual)| word(call, at) == *usual);
                self.marks.push(if as_usual { one.mark } else { one.mark.to_ascii_uppercase() });
                self.left_out.push(if as_usual { one.usual } else { &[] });
            }
            begin += one.usual.len();
        }
    }

    /// The arguments, given the same calls.
    pub(crate) fn args<'b>(
        &'b self,
        calls: impl Iterator<Item = &'b ScriptCall> + Clone,
    ) -> impl Iterator<Item = &'b str> + Clone {
        let own = calls.zip(&self.left_out).flat_map(|(call, left_out)| {
            call.args.iter().enumerate().filter(|(at, _)| !left_out.contains(at)).map(|(_, word)| word)
        });
        self.head().chain(own)
    }

    fn head(&self) -> impl Iterator<Item = &str> + Clone {
        std::iter::once(self.marks.as_str()).chain(self.usual.iter().copied())
    }
}

fn word(call: &ScriptCall, at: usize) -> &str {
    call.args.iter().nth(at).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::backend::OneOf;
    use crate::backend::Script;

    static ONE: Script = Script { name: "one", source: "" };
    static OTHER: Script = Script { name: "other", source: "" };
    static ALL: Script = Script { name: "all", source: "" };
    static OF: [OneOf; 2] =
        [OneOf { script: &ONE, mark: 'x', usual: &[1, 2] }, OneOf { script: &OTHER, mark: 'y', usual: &[0] }];

    fn call(script: &'static Script, args: &[&str]) -> ScriptCall {
        ScriptCall::new(script, ["key"].into(), args.iter().collect())
    }

    fn head(calls: &[ScriptCall]) -> (Vec<String>, Vec<usize>) {
        let together = Together::new(Several { script: &ALL, of: &OF }, calls.iter());
        let left_out = together.left_out.iter().map(|left_out| left_out.len());
        (together.head().map(str::to_owned).collect(), left_out.collect())
    }

    #[test]
    fn what_the_first_of_its_kind_says_is_usual() {
        let calls = [
            call(&ONE, &["a", "1", "30"]),
            call(&OTHER, &["0", "b"]),
            call(&ONE, &["c", "1", "60"]),
            call(&ONE, &["d", "1", "30"]),
            call(&OTHER, &["2", "e"]),
        ];
        let (said, left_out) = head(&calls);
        assert_eq!(
            (said, left_out),
            (["xyXxY", "1", "30", "0"].map(str::to_owned).into(), vec![2, 1, 0, 2, 0])
        );
    }

    #[test]
    fn a_kind_that_nobody_is_of_has_its_places() {
        let (said, left_out) = head(&[call(&OTHER, &["7", "b"])]);
        assert_eq!((said, left_out), (["y", "", "", "7"].map(str::to_owned).into(), vec![1]));
    }
}
