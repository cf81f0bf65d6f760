//! A writer becomes a reader.

use crate::kinds::script_tests::tables::Row;

pub(crate) const ROWS: &[Row] = &[
    ("", "+downgrade a 1 3M ch PUBLISH t", "0 T", "=", ""),
    (
        "lock={mode:write,a:write:1}@5",
        "+downgrade a 1 3M ch PUBLISH t",
        "1 T 1",
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "ch=1",
    ),
    (
        "lock={mode:write,a:write:1}@3",
        "+downgrade a 1 5M ch SPUBLISH t",
        "1 T 1",
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "ch=1 sharded",
    ),
    (
        "lock={mode:write,a:write:2,a:1}@5 t:a:rwlock_timeout:1=1@3",
        "+downgrade a 2 3M nobody PUBLISH t",
        "1 T 0",
        "lock={mode:read,a:2}@5 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "lock={mode:write,a:write:1}",
        "+downgrade a 1 3M ch PUBLISH t",
        "1 T 1",
        "lock={mode:read,a:1}@3 t:a:rwlock_timeout:1=1@3",
        "ch=1",
    ),
    // All readers that wait go beside it, and no writer.
    (
        "line=(b:write:5,c:6,d:7)@12s lock={mode:write,a:write:1}@5",
        "+downgrade a 1 3M ch PUBLISH t",
        "1 T 1",
        "line=(b:write:5)@12s lock={mode:read,a:1,c:0,d:0}@5 t:a:rwlock_timeout:1=1@5 t:c:rwlock_timeout:1=1@1.5s t:d:rwlock_timeout:1=1@1.5s",
        "ch=c d",
    ),
    (
        "line=(b:write:5)@12s lock={mode:write,a:write:1}@5",
        "+downgrade a 1 3M ch PUBLISH t",
        "1 T 1",
        "line=(b:write:5)@12s lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "ch=1",
    ),
    // Without a line all are told, as in the profile `Redisson`.
    (
        "line=(b:write:5,c:6,d:7)@12s lock={mode:write,a:write:1}@5",
        "downgrade a 1 3M ch PUBLISH t",
        "1 T 1",
        "line=(b:write:5,c:6,d:7)@12s lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "ch=1",
    ),
    // Once more.
    (
        "line=(b:5)@12s lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "+downgrade a 1 9M ch PUBLISH t",
        "2 T",
        "=",
        "",
    ),
    (
        "lock={mode:read,a:3}@5 t:a:rwlock_timeout:1=1@5",
        "+downgrade a 1 9M ch PUBLISH t",
        "2 T",
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    // Not its own.
    ("lock={mode:write,a:write:0}@1.5s", "+downgrade a 1 3M ch PUBLISH t", "-3 T", "=", ""),
    ("lock={mode:read,a:0}@1.5s", "+downgrade a 1 3M ch PUBLISH t", "-3 T", "=", ""),
    ("lock={mode:read,b:1}@5", "+downgrade a 1 3M ch PUBLISH t", "-3 T", "=", ""),
    ("lock=text@5", "+downgrade a 1 3M ch PUBLISH t", "-3 T", "=", ""),
];
