//! A hold is given up, and its name stays taken for a while.

use crate::kinds::script_tests::tables::Row;

pub(crate) const ROWS: &[Row] = &[
    ("", "+release_at a soon 3M ch PUBLISH t", "0 T", "=", ""),
    // In the place of a writer stands what is nobody's.
    (
        "lock={mode:write,a:write:1}@9",
        "+release_at a soon 3M ch PUBLISH t",
        "2 T 1",
        "lock={mode:write,a:kept:write:0}@3",
        "ch=1",
    ),
    (
        "lock={mode:write,a:write:2,a:1}@3 t:a:rwlock_timeout:1=1@3",
        "release_at a soon 5M ch SPUBLISH t",
        "2 T 1",
        "lock={mode:write,a:kept:write:0}@5",
        "ch=1 sharded",
    ),
    (
        "line=(b:5,c:write:6)@12s lock={mode:write,a:write:1}@9",
        "+release_at a soon 3M ch PUBLISH t",
        "2 T 1",
        "line=(b:5,c:write:6)@12s lock={mode:write,a:kept:write:0}@3",
        "ch=1",
    ),
    (
        "lock={mode:write,a:write:1}@9",
        "+release_at a soon 3M nobody PUBLISH t",
        "2 T 0",
        "lock={mode:write,a:kept:write:0}@3",
        "",
    ),
    ("lock={mode:write,a:kept:write:0}@5", "+release_at a soon 9M ch PUBLISH t", "2 T 0", "=", ""),
    // A reader's field stays, and is alive for so long.
    (
        "lock={mode:read,a:2}@9 t:a:rwlock_timeout:1=1@9",
        "+release_at a soon 3M ch PUBLISH t",
        "2 T 1",
        "lock={mode:read,a:2}@3 t:a:rwlock_timeout:1=1@3",
        "ch=0",
    ),
    (
        "lock={mode:read,a:1}@3 t:a:rwlock_timeout:1=1@3",
        "release_at a soon 5M ch PUBLISH t",
        "2 T 1",
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "ch=0",
    ),
    (
        "lock={mode:read,a:1}@9",
        "+release_at a soon 3M ch PUBLISH t",
        "2 T 1",
        "lock={mode:read,a:1}@3 t:a:rwlock_timeout:1=1@3",
        "ch=0",
    ),
    (
        "line=(c:write:5)@12s lock={mode:read,a:1,b:1}@9 t:a:rwlock_timeout:1=1@9 t:b:rwlock_timeout:1=1@9",
        "+release_at a soon 3M ch PUBLISH t",
        "2 T 0",
        "line=(c:write:5)@12s lock={mode:read,a:1,b:1}@9 t:a:rwlock_timeout:1=1@3 t:b:rwlock_timeout:1=1@9",
        "",
    ),
    (
        "lock={mode:read,a:1,b:1}@3 t:a:rwlock_timeout:1=1@3 t:b:rwlock_timeout:1=1@3",
        "+release_at a soon 9M ch PUBLISH t",
        "2 T 0",
        "lock={mode:read,a:1,b:1}@9 t:a:rwlock_timeout:1=1@9 t:b:rwlock_timeout:1=1@3",
        "",
    ),
    (
        "lock={mode:read,a:1,b:1} t:a:rwlock_timeout:1=1@9",
        "+release_at a soon 3M ch PUBLISH t",
        "2 T 0",
        "lock={mode:read,a:1,b:1} t:a:rwlock_timeout:1=1@3",
        "",
    ),
    // The time is over.
    (
        "line=(b:write:5,c:6)@12s lock={mode:write,a:write:1}@5",
        "+release_at a late 3M ch PUBLISH t",
        "1 T 1",
        "line=(b:write:5)@12s lock={mode:read,c:0}@1.5s t:c:rwlock_timeout:1=1@1.5s",
        "ch=c",
    ),
    (
        "line=(b:write:5,c:6)@12s lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "+release_at a late 3M ch PUBLISH t",
        "1 T 1",
        "line=(c:6)@12s lock={mode:write,b:write:0}@1.5s",
        "ch=b:write",
    ),
    (
        "line=(b:write:5)@12s lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "release_at a late 3M ch PUBLISH t",
        "1 T 1",
        "line=(b:write:5)@12s",
        "ch=0",
    ),
    (
        "lock={mode:read,a:1,b:1}@5 t:a:rwlock_timeout:1=1@5",
        "+release_at a late 3M ch PUBLISH t",
        "1 T 0",
        "lock={mode:read,b:1}@5",
        "",
    ),
    // The owner of an upgrade goes on reading, and others may read beside it.
    (
        "line=(d:5)@12s lock={mode:write,b:1,a:write:1}@5 t:b:rwlock_timeout:1=1@5",
        "+release_at a soon 3M ch PUBLISH t",
        "1 T 1",
        "lock={mode:read,b:1,d:0}@5 t:b:rwlock_timeout:1=1@5 t:d:rwlock_timeout:1=1@1.5s",
        "ch=d",
    ),
    (
        "lock={mode:write,b:1,a:write:1,a:2}@5 t:a:rwlock_timeout:1=1@5",
        "+release_at a soon 3M ch PUBLISH t",
        "1 T 1",
        "lock={mode:read,b:1}@5",
        "ch=1",
    ),
    // Not its own.
    ("lock={mode:write,a:write:0}@1.5s", "+release_at a soon 3M ch PUBLISH t", "-3 T", "=", ""),
    ("lock={mode:read,a:0,b:1}@5", "+release_at a soon 3M ch PUBLISH t", "-3 T", "=", ""),
    ("lock={mode:read,b:1}@5", "+release_at a soon 3M ch PUBLISH t", "-3 T", "=", ""),
    (
        "line=(a:5)@12s lock={mode:write,b:write:1}@5",
        "+release_at a soon 3M ch PUBLISH t",
        "-3 T",
        "=",
        "",
    ),
    ("lock={mode:odd,a:1}@5", "+release_at a soon 3M ch PUBLISH t", "-3 T", "=", ""),
    ("lock={mode:odd,a:kept:write:0}@5", "+release_at a soon 3M ch PUBLISH t", "-3 T", "=", ""),
    ("lock={a:1}@5", "+release_at a soon 3M ch PUBLISH t", "-3 T", "=", ""),
    ("lock=text@5", "+release_at a soon 3M ch PUBLISH t", "-3 T", "=", ""),
];
