//! What the scripts do with the queue, where a reentrant lock does something else. `p` and `q` are
//! waiters of this crate, `j` and `k` are of Redisson, and `x` and `y` do not listen.

use crate::kinds::script_tests::tables::Row;

pub(super) const ALL: &[(&str, &[Row])] = &[
    ("acquire", ACQUIRE),
    ("release", RELEASE),
    ("undo", UNDO),
    ("release_at", RELEASE_AT),
    ("force_release", FORCE_RELEASE),
    ("bad", BAD),
];

pub(super) const ACQUIRE: &[Row] = &[
    // Free, and nobody waits.
    ("", "acquire f 1 3M soon try p:place ch PUBLISH", "1 T T", "fence=T lock={f:1}@3", ""),
    ("", "acquire f 1 3M soon wait p:place ch PUBLISH", "1 T T", "fence=T lock={f:1}@3", ""),
    // Held.
    ("lock={g:1}@5", "acquire f 1 9M soon try p:place ch PUBLISH", "0 T @5 g", "=", ""),
    (
        "lock={g:1}@5",
        "acquire f 1 9M soon wait p:place ch PUBLISH",
        "0 T @5 g 1 0",
        "deadlines=(p:place:@15s) lock={g:1}@5 queue=[p:place]",
        "",
    ),
    // Behind others, whose places may take off what they have added.
    (
        "deadlines=(j:@300s,q:place:@310s) lock={g:1}@5 queue=[j,q:place]",
        "acquire f 1 9M soon wait p:place ch PUBLISH",
        "0 T @5 g 1 2",
        "deadlines=(j:@300s,q:place:@310s,p:place:@315s) lock={g:1}@5 queue=[j,q:place,p:place]",
        "",
    ),
    (
        "deadlines=(q:place:@15s,place:@310s) lock={g:1}@5 queue=[q:place,place]",
        "acquire f 1 9M soon wait p:place ch PUBLISH",
        "0 T @5 g 1 2",
        "deadlines=(q:place:@15s,place:@310s,p:place:@315s) lock={g:1}@5 \
         queue=[q:place,place,p:place]",
        "",
    ),
    (
        "deadlines=(j:@300s,k:@600s,q:place:@610s) lock={g:1}@5 queue=[j,k,q:place]",
        "acquire f 1 9M soon wait p:place ch PUBLISH",
        "0 T @5 g 1 3",
        "deadlines=(j:@300s,k:@600s,q:place:@610s,p:place:@615s) lock={g:1}@5 \
         queue=[j,k,q:place,p:place]",
        "",
    ),
    // Each attempt sets its deadline anew, and leaves it where it is.
    (
        "deadlines=(p:place:@5s) lock={g:1}@5 queue=[p:place]",
        "acquire f 1 9M soon wait p:place ch PUBLISH",
        "0 T @5 g 1 0",
        "deadlines=(p:place:@15s) lock={g:1}@5 queue=[p:place]",
        "",
    ),
    (
        "deadlines=(j:@300s,k:@600s,p:place:@900s) lock={g:1}@5 queue=[j,p:place,k]",
        "acquire f 1 9M soon wait p:place ch PUBLISH",
        "0 T @5 g 1 1",
        "deadlines=(j:@300s,p:place:@315s,k:@600s) lock={g:1}@5 queue=[j,p:place,k]",
        "",
    ),
    (
        "lock={g:1}@5 queue=[p:place]",
        "acquire f 1 9M soon wait p:place ch PUBLISH",
        "0 T @5 g 1 0",
        "deadlines=(p:place:@15s) lock={g:1}@5 queue=[p:place]",
        "",
    ),
    (
        "deadlines=(p:place:@5s) lock={g:1}@5",
        "acquire f 1 9M soon wait p:place ch PUBLISH",
        "0 T @5 g 1 0",
        "deadlines=(p:place:@15s) lock={g:1}@5 queue=[p:place]",
        "",
    ),
    // While it is held nobody loses a place.
    (
        "deadlines=(j:@-5s) lock={g:1}@5 queue=[j]",
        "acquire f 1 9M soon wait p:place ch PUBLISH",
        "0 T @5 g 1 1",
        "deadlines=(j:@-5s,p:place:@315s) lock={g:1}@5 queue=[j,p:place]",
        "",
    ),
    // Free, and it is the first.
    (
        "deadlines=(p:place:@15s,j:@315s,q:place:@320s,k:@620s) queue=[p:place,j,q:place,k]",
        "acquire f 1 3M soon wait p:place ch PUBLISH",
        "1 T T",
        "deadlines=(j:@300s,q:place:@320s,k:@620s) fence=T lock={f:1}@3 queue=[j,q:place,k]",
        "",
    ),
    (
        "deadlines=(p:place:@15s,j:@315s) queue=[p:place,j,p:place]",
        "acquire f 1 3M soon wait p:place ch PUBLISH",
        "1 T T",
        "deadlines=(j:@300s) fence=T lock={f:1}@3 queue=[j]",
        "",
    ),
    (
        "deadlines=(p:place:@-5s) queue=[p:place]",
        "acquire f 1 3M soon try p:place ch PUBLISH",
        "1 T T",
        "fence=T lock={f:1}@3",
        "",
    ),
    // Free, and somebody else is the first, who is told.
    (
        "deadlines=(j:@300s,p:place:@5s) queue=[j,p:place]",
        "acquire f 1 3M soon wait p:place ch PUBLISH",
        "0 T @300s j 1 1",
        "deadlines=(j:@300s,p:place:@315s) queue=[j,p:place]",
        "ch:j=0",
    ),
    (
        "deadlines=(q:place:@10s) queue=[q:place]",
        "acquire f 1 3M soon wait p:place ch SPUBLISH",
        "0 T @12s q:place 1 1",
        "deadlines=(q:place:@10s,p:place:@15s) queue=[q:place,p:place]",
        "ch:q:place=0 sharded",
    ),
    (
        "deadlines=(j:@300s) queue=[j]",
        "acquire f 1 3M soon try p:place ch PUBLISH",
        "0 T @300s j",
        "=",
        "ch:j=0",
    ),
    // Whose deadline has passed is not waited for.
    (
        "deadlines=(j:@-5s,p:place:@15s) queue=[j,p:place]",
        "acquire f 1 3M soon wait p:place ch PUBLISH",
        "1 T T",
        "fence=T lock={f:1}@3",
        "",
    ),
    (
        "deadlines=(j:@0s) queue=[j]",
        "acquire f 1 3M soon wait p:place ch PUBLISH",
        "1 T T",
        "fence=T lock={f:1}@3",
        "",
    ),
    (
        "deadlines=(x:@-10s,y:@-5s,j:@300s) queue=[x,y,j]",
        "acquire f 1 3M soon wait p:place ch PUBLISH",
        "0 T @300s j 1 1",
        "deadlines=(j:@300s,p:place:@315s) queue=[j,p:place]",
        "ch:j=0",
    ),
    (
        "deadlines=(p:place:@15s) queue=[x,p:place]",
        "acquire f 1 3M soon wait p:place ch PUBLISH",
        "1 T T",
        "fence=T lock={f:1}@3",
        "",
    ),
    // It has the lock.
    (
        "lock={f:1}@5",
        "acquire f 1 3M soon wait p:place ch PUBLISH",
        "1 T T",
        "fence=T lock={f:1}@5",
        "",
    ),
    (
        "deadlines=(j:@300s,p:place:@315s,k:@615s) lock={f:1}@5 queue=[j,p:place,k]",
        "acquire f 1 9M soon wait p:place ch PUBLISH",
        "1 T T",
        "deadlines=(j:@300s,k:@600s) fence=T lock={f:1}@9 queue=[j,k]",
        "",
    ),
    (
        "deadlines=(j:@300s) lock={f:1}@5 queue=[j]",
        "acquire f 2 9M soon try p:place ch PUBLISH",
        "1 T 0",
        "deadlines=(j:@300s) lock={f:2}@9 queue=[j]",
        "",
    ),
    ("", "acquire f 2 9M soon try p:place ch PUBLISH", "-2 T", "", ""),
    ("lock={g:1}@5", "acquire f 2 9M soon try p:place ch PUBLISH", "-3 T", "=", ""),
    // Late.
    ("lock={g:1}@5", "acquire f 1 9M late wait p:place ch PUBLISH", "-1 T", "=", ""),
    // Something else is there.
    ("lock=text@5", "acquire f 1 9M soon wait p:place ch PUBLISH", "-4 T 1", "=", ""),
    ("lock={g:1,h:1}@5", "acquire f 1 9M soon wait p:place ch PUBLISH", "-4 T 2", "=", ""),
    ("lock={mode:read}@5", "acquire f 1 9M soon wait p:place ch PUBLISH", "-4 T 4", "=", ""),
    (
        "lock={kind:latch,count:3}@5",
        "acquire f 1 9M soon wait p:place ch PUBLISH",
        "-4 T 10",
        "=",
        "",
    ),
    ("lock={kind:semaphore}@5", "acquire f 1 9M soon wait p:place ch PUBLISH", "-4 T 11", "=", ""),
    (
        "deadlines=(p:place:@5s) fence=word queue=[p:place]",
        "acquire f 1 9M soon wait p:place ch PUBLISH",
        "-4 T 5",
        "=",
        "",
    ),
    ("queue=text", "acquire f 1 9M soon wait p:place ch PUBLISH", "-4 T 15", "=", ""),
    ("deadlines=text", "acquire f 1 9M soon try p:place ch PUBLISH", "-4 T 15", "=", ""),
    ("lock={g:1}@5 queue=(j:1)", "acquire f 1 9M soon wait p:place ch PUBLISH", "-4 T 15", "=", ""),
    (
        "deadlines=[j] lock={g:1}@5 queue=[j]",
        "acquire f 1 9M soon wait p:place ch PUBLISH",
        "-4 T 15",
        "=",
        "",
    ),
];

pub(super) const RELEASE: &[Row] = &[
    ("lock={f:1}@5", "release f 0 ch PUBLISH", "1 T 0", "", ""),
    (
        "deadlines=(j:@300s) lock={f:1}@5 queue=[j]",
        "release f 0 ch PUBLISH",
        "1 T 1",
        "deadlines=(j:@300s) queue=[j]",
        "ch:j=0",
    ),
    (
        "deadlines=(x:@-5s,q:place:@15s) lock={f:2}@5 queue=[x,q:place]",
        "release f 0 ch SPUBLISH",
        "1 T 1",
        "deadlines=(q:place:@15s) queue=[q:place]",
        "ch:q:place=0 sharded",
    ),
    (
        "deadlines=(x:@15s) lock={f:1}@5 queue=[x]",
        "release f 0 ch PUBLISH",
        "1 T 0",
        "deadlines=(x:@15s) queue=[x]",
        "",
    ),
    (
        "deadlines=(j:@300s) lock={f:2}@5 queue=[j]",
        "release f 1 ch PUBLISH",
        "2 T",
        "deadlines=(j:@300s) lock={f:1}@5 queue=[j]",
        "",
    ),
    // It is gone, and whoever is next may not know.
    ("deadlines=(j:@300s) queue=[j]", "release f 0 ch PUBLISH", "0 T", "=", "ch:j=0"),
    ("deadlines=(j:@300s) queue=[j]", "release f 1 ch PUBLISH", "0 T", "=", ""),
    ("deadlines=(j:@300s) lock={g:1}@5 queue=[j]", "release f 0 ch PUBLISH", "-3 T", "=", ""),
    // Data of another program.
    (
        "deadlines=(j:@300s) lock={f:1,x:1}@5 queue=[j]",
        "release f 0 ch PUBLISH",
        "3 T 0",
        "deadlines=(j:@300s) lock={x:1} queue=[j]",
        "",
    ),
    ("lock={mode:read,f:1}@5", "release f 0 ch PUBLISH", "4 T 0", "lock={mode:read}@5", ""),
    ("lock={f:1}@5 queue=text", "release f 0 ch PUBLISH", "1 T 0", "queue=text", ""),
    (
        "deadlines=text lock={f:1}@5 queue=[j]",
        "release f 0 ch PUBLISH",
        "1 T 0",
        "deadlines=text queue=[j]",
        "",
    ),
    ("lock=text", "release f 0 ch PUBLISH", "-3 T", "=", ""),
];

pub(super) const UNDO: &[Row] = &[
    ("", "undo f 0 ch PUBLISH p:place", "0 T", "", ""),
    (
        "deadlines=(j:@300s) lock={f:1}@5 queue=[j]",
        "undo f 0 ch PUBLISH ~",
        "1 T 1",
        "deadlines=(j:@300s) queue=[j]",
        "ch:j=0",
    ),
    // The place stays: its waiter goes on.
    (
        "deadlines=(p:place:@15s) lock={g:1}@5 queue=[p:place]",
        "undo f 0 ch PUBLISH ~",
        "-3 T",
        "=",
        "",
    ),
    // It goes, with what it has added to the deadlines of those behind it.
    (
        "deadlines=(j:@300s,p:place:@315s,k:@615s) lock={g:1}@5 queue=[j,p:place,k]",
        "undo f 0 ch PUBLISH p:place",
        "-3 T",
        "deadlines=(j:@300s,k:@600s) lock={g:1}@5 queue=[j,k]",
        "",
    ),
    (
        "deadlines=(p:place:@15s,j:@315s) lock={g:1}@5 queue=[p:place,x,j]",
        "undo f 0 ch PUBLISH p:place",
        "-3 T",
        "deadlines=(j:@300s) lock={g:1}@5 queue=[x,j]",
        "",
    ),
    (
        "deadlines=(j:@300s,p:place:@315s) lock={g:1}@5 queue=[j]",
        "undo f 0 ch PUBLISH p:place",
        "-3 T",
        "deadlines=(j:@300s) lock={g:1}@5 queue=[j]",
        "",
    ),
    (
        "deadlines=(q:place:@15s,p:place:@15s,j:@315s,k:@615s) lock={g:1}@5 \
         queue=[q:place,p:place,j,k]",
        "undo f 0 ch PUBLISH q:place",
        "-3 T",
        "deadlines=(p:place:@15s,j:@315s,k:@615s) lock={g:1}@5 queue=[p:place,j,k]",
        "",
    ),
    (
        "deadlines=(q:place:@15s,p:place:@15s,j:@315s,k:@615s) lock={g:1}@5 \
         queue=[q:place,p:place,j,k]",
        "undo f 0 ch PUBLISH p:place",
        "-3 T",
        "deadlines=(q:place:@15s,j:@300s,k:@600s) lock={g:1}@5 queue=[q:place,j,k]",
        "",
    ),
    // It was its turn.
    (
        "deadlines=(p:place:@15s,j:@315s) queue=[p:place,j]",
        "undo f 0 ch PUBLISH p:place",
        "0 T",
        "deadlines=(j:@300s) queue=[j]",
        "ch:j=0",
    ),
    (
        "deadlines=(p:place:@15s,q:place:@15s) lock={f:1}@5 queue=[p:place,q:place]",
        "undo f 0 ch SPUBLISH p:place",
        "1 T 1",
        "deadlines=(q:place:@15s) queue=[q:place]",
        "ch:q:place=0 sharded",
    ),
    ("lock={f:1,x:1}@5", "undo f 0 ch PUBLISH p:place", "3 T 0", "lock={x:1}", ""),
    ("lock={g:1}@5 queue=text", "undo f 0 ch PUBLISH p:place", "-3 T", "=", ""),
    (
        "deadlines=text lock={g:1}@5 queue=[p:place,j]",
        "undo f 0 ch PUBLISH p:place",
        "-3 T",
        "deadlines=text lock={g:1}@5 queue=[j]",
        "",
    ),
];

pub(super) const RELEASE_AT: &[Row] = &[
    (
        "deadlines=(j:@300s) lock={f:1}@5 queue=[j]",
        "release_at f 1 9M ch PUBLISH",
        "1 T 1",
        "deadlines=(j:@300s) queue=[j]",
        "ch:j=0",
    ),
    // It stays taken, and the first hears for how long.
    (
        "deadlines=(j:@300s) lock={f:1}@5 queue=[j]",
        "release_at f soon 9M ch SPUBLISH",
        "2 T 1",
        "deadlines=(j:@300s) lock={f:kept:0}@9 queue=[j]",
        "ch:j=0 sharded",
    ),
    ("lock={f:1}@5", "release_at f soon 9M ch PUBLISH", "2 T 0", "lock={f:kept:0}@9", ""),
    ("lock={f:kept:0}@9", "release_at f soon 9M ch PUBLISH", "2 T 0", "=", ""),
    ("deadlines=(j:@300s) queue=[j]", "release_at f soon 9M ch PUBLISH", "0 T", "=", ""),
    ("lock={g:1}@5", "release_at f soon 9M ch PUBLISH", "-3 T", "=", ""),
    ("lock={f:1,x:1}@5", "release_at f soon 9M ch PUBLISH", "3 T 0", "lock={x:1}", ""),
];

pub(super) const FORCE_RELEASE: &[Row] = &[
    (
        "deadlines=(j:@300s) lock={f:1}@5 queue=[j]",
        "force_release f soon ch PUBLISH client",
        "1 T 1",
        "deadlines=(j:@300s) queue=[j]",
        "ch:j=0 client=lock",
    ),
    ("lock={f:1}@5", "force_release f soon ch SPUBLISH client", "1 T 0", "", "client=lock"),
    ("lock={f:1}", "force_release f soon ch PUBLISH client", "1 T 0", "", "client=lock"),
    ("lock={g:1}@5", "force_release f soon ch PUBLISH client", "-3 T", "=", ""),
    ("", "force_release f soon ch PUBLISH client", "0 T", "", ""),
    ("lock={f:1}@5", "force_release f late ch PUBLISH client", "-1 T", "=", ""),
    (
        "lock={f:1,x:1}@5",
        "force_release f soon ch PUBLISH client",
        "3 T 0",
        "lock={x:1}",
        "client=lock",
    ),
];

pub(super) const BAD: &[Row] = &[
    ("", "acquire ~ 1 9M soon wait p:place ch PUBLISH", "-9 T 1", "", ""),
    ("", "acquire f 0 9M soon wait p:place ch PUBLISH", "-9 T 2", "", ""),
    ("", "acquire f 65536 9M soon wait p:place ch PUBLISH", "-9 T 2", "", ""),
    ("", "acquire f 1.5 9M soon wait p:place ch PUBLISH", "-9 T 2", "", ""),
    ("", "acquire f x 9M soon wait p:place ch PUBLISH", "-9 T 2", "", ""),
    (
        "lock={f:1}@5",
        "acquire f 65535 3M soon try p:place ch PUBLISH",
        "1 T 0",
        "lock={f:65535}@5",
        "",
    ),
    ("", "acquire f 1 0 soon wait p:place ch PUBLISH", "-9 T 3", "", ""),
    ("", "acquire f 1 86400001 soon wait p:place ch PUBLISH", "-9 T 3", "", ""),
    ("", "acquire f 1 1.5 soon wait p:place ch PUBLISH", "-9 T 3", "", ""),
    ("", "acquire f 1 x soon wait p:place ch PUBLISH", "-9 T 3", "", ""),
    ("", "acquire f 1 86400000 soon try p:place ch PUBLISH", "1 T T", "fence=T lock={f:1}@86", ""),
    (
        "lock={f:1}@5",
        "acquire f 1 1 soon try p:place ch PUBLISH",
        "1 T T",
        "fence=T lock={f:1}@5",
        "",
    ),
    ("", "acquire f 1 9M -1 wait p:place ch PUBLISH", "-9 T 4", "", ""),
    ("", "acquire f 1 9M 0 wait p:place ch PUBLISH", "-1 T", "", ""),
    ("", "acquire f 1 9M 9007199254740992 wait p:place ch PUBLISH", "-9 T 4", "", ""),
    ("", "acquire f 1 9M 1.5 wait p:place ch PUBLISH", "-9 T 4", "", ""),
    ("", "acquire f 1 9M x wait p:place ch PUBLISH", "-9 T 4", "", ""),
    ("", "acquire f 1 9M soon again p:place ch PUBLISH", "-9 T 5", "", ""),
    ("", "acquire f 1 9M soon wait ~ ch PUBLISH", "-9 T 6", "", ""),
    ("", "acquire f 1 9M soon wait p:place ~ PUBLISH", "-9 T 7", "", ""),
    ("", "acquire f 1 9M soon wait p:place ch publish", "-9 T 8", "", ""),
    ("", "acquire", "-9 T 1", "", ""),
    ("", "acquire f", "-9 T 2", "", ""),
    ("", "acquire f 1", "-9 T 3", "", ""),
    ("", "acquire f 1 9M", "-9 T 4", "", ""),
    ("", "acquire f 1 9M soon", "-9 T 5", "", ""),
    ("", "acquire f 1 9M soon wait", "-9 T 6", "", ""),
    ("", "acquire f 1 9M soon wait p:place", "-9 T 7", "", ""),
    ("", "acquire f 1 9M soon wait p:place ch", "-9 T 8", "", ""),
    ("", "release ~ 0 ch PUBLISH", "-9 T 1", "", ""),
    ("", "release f -1 ch PUBLISH", "-9 T 2", "", ""),
    ("", "release f 0 ~ PUBLISH", "-9 T 3", "", ""),
    ("", "release f 0 ch publish", "-9 T 4", "", ""),
    ("lock={f:1}@5", "undo ~ 0 ch PUBLISH p:place", "-9 T 1", "=", ""),
    ("lock={f:1}@5", "undo f x ch PUBLISH p:place", "-9 T 2", "=", ""),
    ("lock={f:1}@5", "undo f 0 ~ PUBLISH p:place", "-9 T 3", "=", ""),
    ("lock={f:1}@5", "undo f 0 ch publish p:place", "-9 T 4", "=", ""),
    ("lock={f:1}@5", "undo f 0 ch PUBLISH", "-9 T 5", "=", ""),
    ("lock={f:2}@5", "undo f 1 ch PUBLISH ~", "2 T", "lock={f:1}@5", ""),
    ("lock={f:1}@5", "release_at ~ 1 9M ch PUBLISH", "-9 T 1", "=", ""),
    ("lock={f:1}@5", "release_at f -1 9M ch PUBLISH", "-9 T 2", "=", ""),
    ("lock={f:1}@5", "release_at f 1 0 ch PUBLISH", "-9 T 3", "=", ""),
    ("lock={f:1}@5", "release_at f 1 9M ~ PUBLISH", "-9 T 4", "=", ""),
    ("lock={f:1}@5", "release_at f 1 9M ch publish", "-9 T 5", "=", ""),
    ("lock={f:1}@5", "force_release ~ soon ch PUBLISH client", "-9 T 1", "=", ""),
    ("lock={f:1}@5", "force_release f -1 ch PUBLISH client", "-9 T 2", "=", ""),
    ("lock={f:1}@5", "force_release f soon ~ PUBLISH client", "-9 T 3", "=", ""),
    ("lock={f:1}@5", "force_release f soon ch publish client", "-9 T 4", "=", ""),
    ("lock={f:1}@5", "force_release f soon ch PUBLISH ~", "-9 T 5", "=", ""),
];
