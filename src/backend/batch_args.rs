//! Builds the arguments of the script that runs a batch of calls.

use smallvec::SmallVec;

use crate::backend::BatchScript;
use crate::backend::ScriptCall;

/// The arguments of the batch script. What most calls have in common is given once, because Redis
/// takes longer to parse an argument than Lua to look one up.
pub(crate) struct BatchArgs<'a> {
    marks: String,
    /// For each script, the common arguments: those of its first call.
    common: SmallVec<[&'a str; 4]>,
    /// For each call, the positions of the arguments that are left out because they are the common
    /// ones.
    left_out: SmallVec<[&'static [usize]; 16]>,
}

impl<'a> BatchArgs<'a> {
    pub(crate) fn new(
        several: BatchScript,
        calls: impl Iterator<Item = &'a ScriptCall> + Clone,
    ) -> Self {
        let mut together = Self {
            marks: several.begin.into(),
            common: SmallVec::new(),
            left_out: SmallVec::new(),
        };
        for one in several.of {
            let first = calls.clone().find(|call| call.script.name == one.script.name);
            together
                .common
                .extend(one.common.iter().map(|&at| first.map_or("", |call| word(call, at))));
        }
        for call in calls {
            together.add(several, call);
        }
        together
    }

    fn add(&mut self, several: BatchScript, call: &ScriptCall) {
        let mut begin = 0;
        for one in several.of {
            if one.script.name == call.script.name {
                let common = &self.common[begin..begin + one.common.len()];
                let as_usual =
                    one.common.iter().zip(common).all(|(&at, common)| word(call, at) == *common);
                self.marks.push(if as_usual { one.mark } else { one.mark.to_ascii_uppercase() });
                self.left_out.push(if as_usual { one.common } else { &[] });
            }
            begin += one.common.len();
        }
    }

    /// The arguments. `calls` must be those that were given to `new`.
    pub(crate) fn args<'b>(
        &'b self,
        calls: impl Iterator<Item = &'b ScriptCall> + Clone,
    ) -> impl Iterator<Item = &'b str> + Clone {
        let own = calls.zip(&self.left_out).flat_map(|(call, left_out)| {
            call.args
                .iter()
                .enumerate()
                .filter(|(at, _)| !left_out.contains(at))
                .map(|(_, word)| word)
        });
        self.head().chain(own)
    }

    fn head(&self) -> impl Iterator<Item = &str> + Clone {
        std::iter::once(self.marks.as_str()).chain(self.common.iter().copied())
    }
}

fn word(call: &ScriptCall, at: usize) -> &str {
    call.args.iter().nth(at).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::backend::BatchableScript;
    use crate::backend::Script;

    static ONE: Script = Script { name: "one", source: "" };
    static OTHER: Script = Script { name: "other", source: "" };
    static ALL: Script = Script { name: "all", source: "" };
    static OF: [BatchableScript; 2] = [
        BatchableScript { script: &ONE, mark: 'x', keys: 1, args: 3, common: &[1, 2] },
        BatchableScript { script: &OTHER, mark: 'y', keys: 1, args: 2, common: &[0] },
    ];

    fn call(script: &'static Script, args: &[&str]) -> ScriptCall {
        ScriptCall::new(script, ["key"].into(), args.iter().collect())
    }

    fn head(calls: &[ScriptCall]) -> (Vec<String>, Vec<usize>) {
        let together =
            BatchArgs::new(BatchScript { script: &ALL, begin: '+', of: &OF }, calls.iter());
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
            (["+xyXxY", "1", "30", "0"].map(str::to_owned).into(), vec![2, 1, 0, 2, 0])
        );
    }

    #[test]
    fn a_kind_that_nobody_is_of_has_its_places() {
        let (said, left_out) = head(&[call(&OTHER, &["7", "b"])]);
        assert_eq!((said, left_out), (["+y", "", "", "7"].map(str::to_owned).into(), vec![1]));
    }
}
