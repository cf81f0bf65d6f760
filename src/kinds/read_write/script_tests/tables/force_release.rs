//! A lock is taken away from a hold.

use crate::kinds::script_tests::tables::Row;

pub(crate) const ROWS: &[Row] = &[
    ("", "+force_release a soon ch PUBLISH t client", "0 T", "=", ""),
    ("lock={mode:write,a:write:1}@5", "+force_release a late ch PUBLISH t client", "-1 T", "=", ""),
    (
        "lock={mode:write,a:write:2,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "+force_release a soon ch PUBLISH t client",
        "1 T 1",
        "",
        "ch=1 client=lock",
    ),
    (
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "force_release a soon ch SPUBLISH t client",
        "1 T 1",
        "",
        "ch=0 sharded client=lock",
    ),
    (
        "line=(b:write:5)@12s lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "force_release a soon ch PUBLISH t client",
        "1 T 1",
        "line=(b:write:5)@12s",
        "ch=0 client=lock",
    ),
    // Others go on reading.
    (
        "line=(c:write:5)@12s lock={mode:read,a:1,b:1}@5 t:a:rwlock_timeout:1=1@5",
        "+force_release a soon ch PUBLISH t client",
        "1 T 0",
        "line=(c:write:5)@12s lock={mode:read,b:1}@5",
        "client=lock",
    ),
    // It is passed on.
    (
        "line=(b:write:5,c:6)@12s lock={mode:write,a:write:1}@5",
        "+force_release a soon ch PUBLISH t client",
        "1 T 1",
        "line=(b:write:5)@12s lock={mode:read,c:0}@1.5s t:c:rwlock_timeout:1=1@1.5s",
        "ch=c client=lock",
    ),
    (
        "line=(b:write:5,c:6)@12s lock={mode:write,a:write:0}@1.5s",
        "+force_release a soon ch PUBLISH t client",
        "1 T 1",
        "line=(c:6)@12s lock={mode:write,b:write:0}@1.5s",
        "ch=b:write client=lock",
    ),
    (
        "line=(b:write:5)@12s lock={mode:read,a:0}@1.5s t:a:rwlock_timeout:1=1@1.5s",
        "+force_release a soon ch PUBLISH t client",
        "1 T 1",
        "lock={mode:write,b:write:0}@1.5s",
        "ch=b:write client=lock",
    ),
    // Reads of the same owner stay.
    (
        "lock={mode:write,b:1,a:write:1}@5 t:b:rwlock_timeout:1=1@5",
        "+force_release a soon ch PUBLISH t client",
        "1 T 1",
        "lock={mode:read,b:1}@5 t:b:rwlock_timeout:1=1@5",
        "ch=1 client=lock",
    ),
    // What a writer has left in its place.
    (
        "lock={mode:write,a:kept:write:0}@5",
        "+force_release a:kept soon ch PUBLISH t client",
        "1 T 1",
        "",
        "ch=1 client=lock",
    ),
    (
        "lock={mode:write,a:write:1}@5",
        "+force_release a soon nobody PUBLISH t client",
        "1 T 0",
        "",
        "client=lock",
    ),
    // Others have it.
    (
        "line=(a:5)@12s lock={mode:write,b:write:1}@5",
        "+force_release a soon ch PUBLISH t client",
        "-3 T",
        "=",
        "",
    ),
    (
        "lock={mode:write,a:kept:write:0}@5",
        "+force_release a soon ch PUBLISH t client",
        "-3 T",
        "=",
        "",
    ),
    ("lock={a:1}@5", "+force_release a soon ch PUBLISH t client", "-3 T", "=", ""),
    ("lock={mode:odd,a:1}@5", "+force_release a soon ch PUBLISH t client", "-3 T", "=", ""),
    ("lock=text@5", "+force_release a soon ch PUBLISH t client", "-3 T", "=", ""),
];
