//! Leases are extended.

use crate::kinds::script_tests::tables::Row;

pub(crate) const ROWS: &[Row] = &[
    ("", "renew soon a 3M", "1 T 0", "=", ""),
    ("lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5", "renew late a 9M", "-1 T", "=", ""),
    (
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "renew soon a 9M",
        "1 T 1",
        "lock={mode:read,a:1}@9 t:a:rwlock_timeout:1=1@9",
        "",
    ),
    (
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@3",
        "renew soon a 5M",
        "1 T 1",
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    ("lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5", "renew soon a 3M", "1 T 1", "=", ""),
    ("lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5", "renew soon a 1", "1 T 1", "=", ""),
    (
        "lock={mode:read,a:1,b:1}@9 t:a:rwlock_timeout:1=1@3 t:b:rwlock_timeout:1=1@9",
        "renew soon a 5M",
        "1 T 1",
        "lock={mode:read,a:1,b:1}@9 t:a:rwlock_timeout:1=1@5 t:b:rwlock_timeout:1=1@9",
        "",
    ),
    (
        "lock={mode:read,a:1} t:a:rwlock_timeout:1=1@3",
        "renew soon a 5M",
        "1 T 1",
        "lock={mode:read,a:1} t:a:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "lock={mode:write,a:write:1}@5",
        "renew soon a 9M",
        "1 T 1",
        "lock={mode:write,a:write:1}@9",
        "",
    ),
    (
        "lock={mode:write,a:write:1,a:1}@5 t:a:rwlock_timeout:1=1@3",
        "renew soon a 9M",
        "1 T 1",
        "lock={mode:write,a:write:1,a:1}@9 t:a:rwlock_timeout:1=1@9",
        "",
    ),
    (
        "lock={mode:write,a:write:1,a:1}@5",
        "renew soon a 9M",
        "1 T 1",
        "lock={mode:write,a:write:1,a:1}@9",
        "",
    ),
    // Others count the reader as dead.
    ("lock={mode:read,a:1,b:1}@5", "renew soon a 9M", "1 T 0", "=", ""),
    ("lock={mode:read,a:0}@1.5s t:a:rwlock_timeout:1=1@1.5s", "renew soon a 9M", "1 T -3", "=", ""),
    ("lock={mode:write,a:write:0}@1.5s", "renew soon a 9M", "1 T -3", "=", ""),
    ("lock={mode:read,b:1}@5", "renew soon a 9M", "1 T -3", "=", ""),
    ("lock=text@5", "renew soon a 9M", "1 T -3", "=", ""),
    (
        "lock1={mode:read,a:1}@5 lock2={mode:write,b:write:1}@5 t:a:rwlock_timeout:1=1@5",
        "renew soon a 9M b 9M",
        "1 T 1 1",
        "lock1={mode:read,a:1}@9 lock2={mode:write,b:write:1}@9 t:a:rwlock_timeout:1=1@9",
        "",
    ),
    (
        "lock1={mode:read,a:1}@5 lock2={mode:write,b:write:1}@5 t:a:rwlock_timeout:1=1@5",
        "renew soon a 9M c 9M",
        "1 T 1 -3",
        "lock1={mode:read,a:1}@9 lock2={mode:write,b:write:1}@5 t:a:rwlock_timeout:1=1@9",
        "",
    ),
];
