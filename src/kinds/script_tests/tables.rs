//! Tables of what scripts do in each state of their keys.

use std::fmt::Write;

use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::observe;
use crate::kinds::script_tests::set_up;
use crate::kinds::script_tests::text::Times;
use crate::kinds::script_tests::text::parse_call;

/// State, call, reply, state afterwards (`=`: the same), published.
pub(crate) type Row = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// What is checked on a server, and its name.
pub(crate) type Check = (&'static str, fn(&mut dyn Server));

/// Runs the rows and reports all that differ.
pub(crate) fn check(
    server: &mut dyn Server,
    rows: impl IntoIterator<Item = (String, String, String, String, String)>,
) {
    let (mut ran, mut wrong) = (0, String::new());
    for (state, call, reply, after, published) in rows {
        set_up(server, &state);
        let parsed = parse_call(server.suite(), &call);
        let seen = observe(server, &parsed, &mut Times::default());
        let after = if after == "=" { state.clone() } else { after };
        if (seen.reply.as_str(), seen.keys.as_str(), seen.published.as_str())
            != (&*reply, &*after, &*published)
        {
            writeln!(
                wrong,
                "[{state}] {call}\n  expected {reply:?} {after:?} {published:?}\n  {seen:?}"
            )
            .unwrap();
        }
        ran += 1;
    }
    assert!(ran > 0, "no rows");
    assert!(wrong.is_empty(), "\n{wrong}");
}

pub(crate) fn check_table(server: &mut dyn Server, rows: &[Row]) {
    check(
        server,
        rows.iter().map(|&(s, c, r, a, p)| (s.into(), c.into(), r.into(), a.into(), p.into())),
    );
}
