//! What only the embedded Lua can be made to do.

use crate::kinds::fair::script_tests::SUITE;
use crate::kinds::fair::script_tests::tables;
use crate::kinds::script_tests::Edge;
use crate::kinds::script_tests::memory::Memory;
use crate::kinds::script_tests::observe;
use crate::kinds::script_tests::set_up;
use crate::kinds::script_tests::text::Times;
use crate::kinds::script_tests::text::parse_call;

pub(super) const CHECKS: &[Edge] = &[("publishing is refused", publishing_is_refused)];

/// The lock is free all the same.
fn publishing_is_refused(memory: &mut Memory) {
    let calls = [
        "+release a 0 ch SPUBLISH",
        "+undo a 0 ch SPUBLISH",
        "+release_at a 1 9M ch SPUBLISH",
        "+force_release a soon ch SPUBLISH client",
    ];
    for call in calls {
        for line in ["", "line=(b:5)@12s "] {
            set_up(memory, &format!("{line}lock={{a:1}}@5"));
            memory.keyspace.refuse_commands(&["SPUBLISH"], "NOPERM no");
            let seen = observe(memory, &parse_call(&SUITE, call), &mut Times::default());
            memory.keyspace.refuse_commands(&[], "");
            assert_eq!((&*seen.reply, &*seen.keys), ("1 T -1", line.trim()), "{call}");
        }
    }
    // More places of a marked client than one script removes.
    for &(state, call, _, after, _) in tables::LIMIT_OF_RELEASE {
        set_up(memory, state);
        memory.keyspace.refuse_commands(&["PUBLISH"], "NOPERM no");
        let seen = observe(memory, &parse_call(&SUITE, call), &mut Times::default());
        memory.keyspace.refuse_commands(&[], "");
        assert_eq!((&*seen.reply, &*seen.keys), ("1 T -1", after), "{call}");
    }
}
