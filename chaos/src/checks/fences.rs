//! Tokens grow from grant to grant.

use crate::checks::Verdict;
use crate::history::Hold;

/// `holds` are those of one name, in the order of their grants. No breach excuses anything here: it
/// would need lost data and a clock that goes back, and nobody sets clocks.
pub(super) fn check(holds: &[&Hold], verdict: &mut Verdict) {
    let mut called = holds.to_vec();
    called.sort_by_key(|hold| hold.called);
    let mut granted = holds.iter().peekable();
    let mut largest: Option<&Hold> = None;
    for hold in called {
        while let Some(done) = granted.next_if(|other| other.granted < hold.called) {
            if largest.is_none_or(|largest| largest.token < done.token) {
                largest = Some(done);
            }
        }
        let Some(largest) = largest.filter(|largest| largest.token >= hold.token) else { continue };
        let what = format!(
            "{} has token {}, {} had {} before",
            hold.id, hold.token, largest.id, largest.token
        );
        verdict.wrong(hold.granted, &hold.name, what);
    }
    let mut tokens = holds.to_vec();
    tokens.sort_by_key(|hold| hold.token);
    for pair in tokens.windows(2).filter(|pair| pair[0].token == pair[1].token) {
        let what =
            format!("{} and {} have the same token {}", pair[0].id, pair[1].id, pair[0].token);
        verdict.wrong(pair[1].granted, &pair[1].name, what);
    }
}

#[cfg(test)]
mod tests {
    use crate::checks::examples::Made;

    #[test]
    fn a_smaller_token_later_is_found_in_a_breach_too() {
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 5).unlock("a:1", 11, 12, 0).breach(13, 14).grant("b:1", 20, 30, 4);
        made.says("b:1 has token 4, a:1 had 5 before");
    }

    #[test]
    fn equal_tokens_are_found_even_of_grants_that_overlap() {
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 5).unlock("a:1", 11, 12, 0).grant("b:1", 5, 13, 5);
        made.says("same token");
    }

    #[test]
    fn concurrent_grants_may_be_answered_in_any_order() {
        let mut made = Made::default();
        made.grant("a:1", 0, 30, 5)
            .unlock("a:1", 31, 32, 0)
            .grant("b:1", 5, 20, 6)
            .look("a:1", 30, true, 30);
        made.unlock("b:1", 21, 22, 0);
        let wrong = made.wrong();
        assert!(!wrong.iter().any(|what| what.contains("has token")), "{wrong:?}");
    }
}
