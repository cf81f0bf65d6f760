//! Rules of the protocol that can be broken on purpose, to show that the checks notice it.
//!
//! Only a debug build with `--cfg seeded` has this. The environment variable `SEEDED_BUG` names the
//! rule that is broken in the process. `cargo xtask seeded` breaks each in turn.

#[cfg(all(seeded, not(debug_assertions)))]
compile_error!(
    "`--cfg seeded` is for tests: it breaks the lock on purpose, and a release build must not have it"
);

/// True if this rule is broken on purpose. The constant `false` without `--cfg seeded`.
#[cfg(seeded)]
macro_rules! seeded {
    ($rule:ident) => {
        $crate::base::seeded::is_broken($crate::base::seeded::Rule::$rule)
    };
}

#[cfg(not(seeded))]
macro_rules! seeded {
    ($rule:ident) => {
        false
    };
}

#[cfg(seeded)]
#[allow(dead_code, reason = "`xtask`, which includes the same file, reads the rest of it")]
mod rules;

#[cfg(seeded)]
pub(crate) use rules::Rule;
#[cfg(seeded)]
use rules::SCRIPTS;

/// The function behind `seeded!`.
#[cfg(seeded)]
pub(crate) fn is_broken(rule: Rule) -> bool {
    use std::sync::LazyLock;

    static BROKEN: LazyLock<Option<Rule>> = LazyLock::new(|| {
        let name = std::env::var("SEEDED_BUG").ok().filter(|name| !name.is_empty())?;
        let rule = Rule::ALL.iter().find(|rule| rule.name() == name);
        assert!(rule.is_some(), "SEEDED_BUG names no rule: {name}");
        rule.copied()
    });
    *BROKEN == Some(rule)
}

/// The text of a script, changed so that it does not keep the broken rule.
#[cfg(seeded)]
pub(crate) fn script_text(source: &'static str) -> &'static str {
    use std::collections::BTreeMap;
    use std::sync::Mutex;
    use std::sync::PoisonError;

    static TEXTS: Mutex<BTreeMap<&str, &str>> = Mutex::new(BTreeMap::new());
    let broken = |source: &str| -> &'static str {
        let lines = SCRIPTS.iter().filter(|(rule, ..)| is_broken(*rule));
        lines.fold(source.to_owned(), |text, (_, from, to)| text.replace(from, to)).leak()
    };
    TEXTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .entry(source)
        .or_insert_with(|| broken(source))
}
