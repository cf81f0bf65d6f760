//! What each script does in each state of its keys.

use crate::kinds::read_write::script_tests::parse_call;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::observe;
use crate::kinds::script_tests::set_up;
use crate::kinds::script_tests::tables::Row;
use crate::kinds::script_tests::tables::check;
use crate::kinds::script_tests::text::Times;

pub(super) const ACQUIRE: &[Row] = &[
    // Free.
    (
        "",
        "acquire a 1 0 3M soon try 0 0 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:read,a:1}@3 t:a:rwlock_timeout:1=1@3",
        "",
    ),
    (
        "",
        "acquire a 0 1 3M soon try 0 0 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:write,a:write:1}@3",
        "",
    ),
    (
        "fence=7",
        "acquire a 0 1 86400000 soon first 0 1 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:write,a:write:1}@86",
        "",
    ),
    (
        "fence=9000000000000000",
        "acquire a 1 0 3M soon try 0 0 ch PUBLISH t",
        "1 T 9000000000000001",
        "fence=9000000000000001 lock={mode:read,a:1}@3 t:a:rwlock_timeout:1=1@3",
        "",
    ),
    (
        "fence=9007199254740990",
        "acquire a 0 1 3M soon try 0 0 ch PUBLISH t",
        "1 T 9007199254740991",
        "fence=9007199254740991 lock={mode:write,a:write:1}@3",
        "",
    ),
    ("fence=9007199254740991", "acquire a 1 0 3M soon try 0 0 ch PUBLISH t", "-4 T 5", "=", ""),
    ("fence=-1", "acquire a 1 0 3M soon try 0 0 ch PUBLISH t", "-4 T 5", "=", ""),
    (
        "fence=0",
        "acquire a 1 0 3M soon try 0 0 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:read,a:1}@3 t:a:rwlock_timeout:1=1@3",
        "",
    ),
    ("fence=1.5", "acquire a 1 0 3M soon try 0 0 ch PUBLISH t", "-4 T 5", "=", ""),
    ("fence=word", "acquire a 0 1 3M soon try 0 0 ch PUBLISH t", "-4 T 5", "=", ""),
    ("fence=[1]", "acquire a 0 1 3M soon try 0 0 ch PUBLISH t", "-4 T 5", "=", ""),
    ("", "acquire a 1 0 3M late try 0 0 ch PUBLISH t", "-1 T", "=", ""),
    ("", "acquire a 2 0 3M soon try 0 0 ch PUBLISH t", "-2 T", "=", ""),
    ("", "acquire a 0 2 3M soon try 0 0 ch PUBLISH t", "-2 T", "=", ""),
    ("", "acquire a 1 1 3M soon try 0 0 ch PUBLISH t", "-2 T", "=", ""),
    // A timeout key that a hold of the same id has left: exactly the lease.
    (
        "t:a:rwlock_timeout:1=1@9",
        "acquire a 1 0 3M soon try 0 0 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:read,a:1}@3 t:a:rwlock_timeout:1=1@3",
        "",
    ),
    // Somebody else's value.
    ("lock=text@5", "acquire a 1 0 3M soon try 0 0 ch PUBLISH t", "-4 T 1", "=", ""),
    ("lock=[x]@5", "acquire a 0 1 3M soon try 0 0 ch PUBLISH t", "-4 T 1", "=", ""),
    ("lock={b:1}@5", "acquire a 1 0 3M soon try 0 0 ch PUBLISH t", "-4 T 7", "=", ""),
    ("lock={mode:odd,a:1}@5", "acquire a 1 0 3M soon try 0 0 ch PUBLISH t", "-4 T 7", "=", ""),
    ("lock={mode:read,b:1}", "acquire a 1 0 3M soon try 0 0 ch PUBLISH t", "-4 T 3", "=", ""),
    (
        "lock={mode:write,b:write:1}",
        "acquire a 0 1 3M soon first 0 1 ch PUBLISH t",
        "-4 T 3",
        "=",
        "",
    ),
    (
        "line=text",
        "acquire a 1 0 3M soon try 0 0 ch PUBLISH t",
        "1 T T",
        "fence=T line=text lock={mode:read,a:1}@3 t:a:rwlock_timeout:1=1@3",
        "",
    ),
    // Beside readers: the lock lasts as long as the longest lease.
    (
        "lock={mode:read,b:1}@5 t:b:rwlock_timeout:1=1@5",
        "acquire a 1 0 3M soon try 0 0 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:read,b:1,a:1}@5 t:a:rwlock_timeout:1=1@3 t:b:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "lock={mode:read,b:1}@5 t:b:rwlock_timeout:1=1@5",
        "acquire a 1 0 9M soon first 0 1 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:read,b:1,a:1}@9 t:a:rwlock_timeout:1=1@9 t:b:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "line=text lock={mode:read,b:1}@5",
        "acquire a 1 0 3M soon try 0 0 ch PUBLISH t",
        "-4 T 6",
        "=",
        "",
    ),
    // Held: a try is told so, a waiter enters the line.
    (
        "lock={mode:write,b:write:1}@5",
        "acquire a 1 0 3M soon try 0 0 ch PUBLISH t",
        "0 T @5 b:write",
        "=",
        "",
    ),
    (
        "lock={mode:write,b:write:1}@5",
        "acquire a 1 0 3M soon first 0 1 ch PUBLISH t",
        "0 T @5 b:write T 0",
        "line=(a:T)@12s lock={mode:write,b:write:1}@5",
        "",
    ),
    (
        "lock={mode:write,b:write:1}@5",
        "acquire a 0 1 3M soon first 0 1 ch PUBLISH t",
        "0 T @5 b:write T 0",
        "line=(a:write:T)@12s lock={mode:write,b:write:1}@5",
        "",
    ),
    (
        "lock={mode:write,b:write:1}@5",
        "acquire a 0 1 3M soon first 0 0 ch PUBLISH t",
        "0 T @5 b:write T 0",
        "=",
        "",
    ),
    ("lock={mode:read,b:1}@5", "acquire a 0 1 3M soon try 0 0 ch PUBLISH t", "0 T @5 b", "=", ""),
    (
        "lock={mode:read,b:1}@5",
        "acquire a 0 1 3M soon first 0 1 ch PUBLISH t",
        "0 T @5 b T 0 0 b",
        "line=(a:write:T)@12s lock={mode:read,b:1}@5",
        "",
    ),
    (
        "lock={mode:read,b:1,c:0}@5",
        "acquire a 0 1 3M soon again 7 1 ch PUBLISH t",
        "0 T @5 b 7 0 0 b c",
        "line=(a:write:7)@12s lock={mode:read,b:1,c:0}@5",
        "",
    ),
    (
        "line=(c:5)@12s lock={mode:write,b:write:1}@5",
        "acquire a 1 0 3M soon again 7 1 ch PUBLISH t",
        "0 T @5 b:write 7 1",
        "line=(c:5,a:7)@12s lock={mode:write,b:write:1}@5",
        "",
    ),
    (
        "line=(c:9)@5 lock={mode:write,b:write:1}@5",
        "acquire a 1 0 3M soon again 7 1 ch PUBLISH t",
        "0 T @5 b:write 7 0",
        "line=(a:7,c:9)@12s lock={mode:write,b:write:1}@5",
        "",
    ),
    (
        "line=(c:9000000000000000)@12s lock={mode:write,b:write:1}@5",
        "acquire a 1 0 3M soon first 0 1 ch PUBLISH t",
        "0 T @5 b:write 9000000000000001 1",
        "line=(c:9000000000000000,a:9000000000000001)@12s lock={mode:write,b:write:1}@5",
        "",
    ),
    (
        "line=(c:3,d:4,f:9000000000000000)@12s lock={mode:write,b:write:1}@5",
        "acquire a 1 0 3M soon first 0 1 ch PUBLISH t",
        "0 T @5 b:write 9000000000000001 3",
        "line=(c:3,d:4,f:9000000000000000,a:9000000000000001)@12s lock={mode:write,b:write:1}@5",
        "",
    ),
    ("lock={mode:write}@5", "acquire a 0 1 3M soon try 0 0 ch PUBLISH t", "0 T @5 ~", "=", ""),
    (
        "line=(a:5,c:6)@12s lock={mode:write,b:write:1}@5",
        "acquire a 1 0 3M soon again 9 0 ch PUBLISH t",
        "0 T @5 b:write 5 0",
        "line=(c:6)@12s lock={mode:write,b:write:1}@5",
        "",
    ),
    (
        "line=(a:5)@5 lock={mode:write,b:write:1}@5",
        "acquire a 1 0 3M soon again 9 1 ch PUBLISH t",
        "0 T @5 b:write 5 0",
        "line=(a:5)@12s lock={mode:write,b:write:1}@5",
        "",
    ),
    (
        "line=text lock={mode:write,b:write:1}@5",
        "acquire a 1 0 3M soon first 0 1 ch PUBLISH t",
        "-4 T 6",
        "=",
        "",
    ),
    // A reader waits behind a writer that came first, and before one that came later.
    (
        "line=(c:write:5)@12s lock={mode:read,b:1}@5",
        "acquire a 1 0 3M soon try 0 0 ch PUBLISH t",
        "0 T @5 b",
        "=",
        "",
    ),
    (
        "line=(c:write:5)@12s lock={mode:read,b:1}@5",
        "acquire a 1 0 3M soon first 0 1 ch PUBLISH t",
        "0 T @5 b T 1",
        "line=(c:write:5,a:T)@12s lock={mode:read,b:1}@5",
        "",
    ),
    (
        "line=(c:write:5)@12s lock={mode:read,b:1}@5",
        "acquire a 1 0 3M soon again 4 1 ch PUBLISH t",
        "1 T T",
        "fence=T line=(c:write:5)@12s lock={mode:read,b:1,a:1}@5 t:a:rwlock_timeout:1=1@3",
        "",
    ),
    (
        "line=(a:4,c:write:5)@12s lock={mode:read,b:1}@5",
        "acquire a 1 0 3M soon again 4 1 ch PUBLISH t",
        "1 T T",
        "fence=T line=(c:write:5)@12s lock={mode:read,b:1,a:1}@5 t:a:rwlock_timeout:1=1@3",
        "",
    ),
    (
        "line=(c:write:5)@12s lock={mode:read,b:1}@5",
        "acquire a 1 0 3M soon again 1 1 ch PUBLISH t",
        "1 T T",
        "fence=T line=(c:write:5)@12s lock={mode:read,b:1,a:1}@5 t:a:rwlock_timeout:1=1@3",
        "",
    ),
    // Readers before it in the line go first.
    (
        "line=(c:4,d:write:5,f:6)@12s lock={mode:read,b:1}@5",
        "acquire a 1 0 3M soon first 0 1 ch PUBLISH t",
        "0 T @5 b T 2",
        "line=(d:write:5,f:6,a:T)@12s lock={mode:read,b:1,c:0}@5 t:c:rwlock_timeout:1=1@1.5s",
        "ch=c",
    ),
    (
        "line=(c:4,d:5)@12s lock={mode:read,b:1}@5",
        "acquire a 1 0 3M soon try 0 0 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:read,b:1,c:0,d:0,a:1}@5 t:a:rwlock_timeout:1=1@3 t:c:rwlock_timeout:1=1@1.5s t:d:rwlock_timeout:1=1@1.5s",
        "ch=c d",
    ),
    (
        "line=(c:4,a:5)@12s lock={mode:read,b:1}@5",
        "acquire a 1 0 3M soon again 5 1 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:read,b:1,c:0,a:1}@5 t:a:rwlock_timeout:1=1@3 t:c:rwlock_timeout:1=1@1.5s",
        "ch=c a",
    ),
    (
        "line=(c:4,d:write:5)@12s lock={mode:read,b:1}@5",
        "acquire a 1 0 3M soon first 0 1 ch PUBLISH t",
        "0 T @5 b T 1",
        "line=(d:write:5,a:T)@12s lock={mode:read,b:1,c:0}@5 t:c:rwlock_timeout:1=1@1.5s",
        "ch=c",
    ),
    // A free lock goes to the first in line if somebody asks again.
    (
        "line=(b:write:5)@12s",
        "acquire a 1 0 3M soon try 0 0 ch PUBLISH t",
        "1 T T",
        "fence=T line=(b:write:5)@12s lock={mode:read,a:1}@3 t:a:rwlock_timeout:1=1@3",
        "",
    ),
    (
        "line=(b:write:5)@12s",
        "acquire a 1 0 3M soon first 0 1 ch PUBLISH t",
        "1 T T",
        "fence=T line=(b:write:5)@12s lock={mode:read,a:1}@3 t:a:rwlock_timeout:1=1@3",
        "",
    ),
    (
        "line=(b:write:5)@12s",
        "acquire a 0 1 3M soon again 7 1 ch PUBLISH t",
        "0 T @1.5s b:write 7 0",
        "line=(a:write:7)@12s lock={mode:write,b:write:0}@1.5s",
        "ch=b:write",
    ),
    (
        "line=(b:write:5)@12s",
        "acquire a 1 0 3M soon again 7 1 ch PUBLISH t",
        "0 T @1.5s b:write 7 0",
        "line=(a:7)@12s lock={mode:write,b:write:0}@1.5s",
        "ch=b:write",
    ),
    (
        "line=(b:5)@12s",
        "acquire a 0 1 3M soon again 7 1 ch PUBLISH t",
        "0 T @1.5s b 7 0 0 b",
        "line=(a:write:7)@12s lock={mode:read,b:0}@1.5s t:b:rwlock_timeout:1=1@1.5s",
        "ch=b",
    ),
    (
        "line=(b:5,a:7)@12s",
        "acquire a 1 0 3M soon again 7 1 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:read,b:0,a:1}@3 t:a:rwlock_timeout:1=1@3 t:b:rwlock_timeout:1=1@1.5s",
        "ch=b a",
    ),
    (
        "line=(b:5,c:write:6)@12s",
        "acquire a 1 0 3M soon again 7 1 ch PUBLISH t",
        "0 T @1.5s b 7 1",
        "line=(c:write:6,a:7)@12s lock={mode:read,b:0}@1.5s t:b:rwlock_timeout:1=1@1.5s",
        "ch=b",
    ),
    (
        "line=(b:write:5)@12s",
        "acquire a 0 1 3M soon again 7 1 ch SPUBLISH t",
        "0 T @1.5s b:write 7 0",
        "line=(a:write:7)@12s lock={mode:write,b:write:0}@1.5s",
        "ch=b:write sharded",
    ),
    (
        "line=(b:write:5,c:6)@12s",
        "acquire a 0 1 3M soon again 7 1 ch PUBLISH t",
        "0 T @1.5s b:write 7 1",
        "line=(c:6,a:write:7)@12s lock={mode:write,b:write:0}@1.5s",
        "ch=b:write",
    ),
    (
        "line=(b:write:5)@12s",
        "acquire a 0 1 3M soon again 4 1 ch PUBLISH t",
        "1 T T",
        "fence=T line=(b:write:5)@12s lock={mode:write,a:write:1}@3",
        "",
    ),
    (
        "line=(a:write:5,b:write:6)@12s",
        "acquire a 0 1 3M soon again 5 1 ch PUBLISH t",
        "1 T T",
        "fence=T line=(b:write:6)@12s lock={mode:write,a:write:1}@3",
        "",
    ),
    (
        "",
        "acquire a 0 1 3M soon again 7 1 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:write,a:write:1}@3",
        "",
    ),
    // What is reserved is picked up, with exactly the lease if nobody else has the lock.
    (
        "lock={mode:write,a:write:0}@1.5s",
        "acquire a 0 1 3M soon again 5 1 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:write,a:write:1}@3",
        "",
    ),
    (
        "lock={mode:write,a:write:0}@9",
        "acquire a 0 1 3M soon again 5 1 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:write,a:write:1}@3",
        "",
    ),
    (
        "lock={mode:read,a:0}@9 t:a:rwlock_timeout:1=1@1.5s",
        "acquire a 1 0 3M soon again 5 1 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:read,a:1}@3 t:a:rwlock_timeout:1=1@3",
        "",
    ),
    (
        "lock={mode:read,a:0,b:1}@9 t:a:rwlock_timeout:1=1@1.5s",
        "acquire a 1 0 3M soon again 5 1 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:read,a:1,b:1}@9 t:a:rwlock_timeout:1=1@3",
        "",
    ),
    (
        "line=(c:write:5)@12s lock={mode:read,a:0,b:0}@1.5s",
        "acquire a 1 0 3M soon try 0 0 ch PUBLISH t",
        "1 T T",
        "fence=T line=(c:write:5)@12s lock={mode:read,a:1,b:0}@3 t:a:rwlock_timeout:1=1@3",
        "",
    ),
    (
        "lock={mode:write,a:write:0}@1.5s",
        "acquire b 0 1 3M soon first 0 1 ch PUBLISH t",
        "0 T @1.5s a:write T 0",
        "line=(b:write:T)@12s lock={mode:write,a:write:0}@1.5s",
        "",
    ),
    ("lock={mode:read,a:0}@1.5s", "acquire a 2 0 3M soon try 0 0 ch PUBLISH t", "-3 T", "=", ""),
    // Dead readers.
    (
        "lock={mode:read,b:1}@5",
        "acquire a 0 1 3M soon again 5 1 ch PUBLISH t b",
        "1 T T",
        "fence=T lock={mode:write,a:write:1}@3",
        "",
    ),
    (
        "lock={mode:read,b:1}@5 t:b:rwlock_timeout:1=1@3",
        "acquire a 0 1 3M soon again 5 1 ch PUBLISH t b",
        "0 T @5 b 5 0 0 b",
        "line=(a:write:5)@12s lock={mode:read,b:1}@5 t:b:rwlock_timeout:1=1@3",
        "",
    ),
    (
        "lock={mode:read,b:1,c:1}@5 t:c:rwlock_timeout:1=1@5",
        "acquire a 0 1 3M soon again 5 1 ch PUBLISH t b c",
        "0 T @5 c 5 0 1 c",
        "line=(a:write:5)@12s lock={mode:read,c:1}@5 t:c:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "lock={mode:read,b:0,c:2}@5",
        "acquire a 0 1 3M soon again 5 1 ch PUBLISH t b c",
        "1 T T",
        "fence=T lock={mode:write,a:write:1}@3",
        "",
    ),
    (
        "line=(d:write:4)@12s lock={mode:read,b:1}@5",
        "acquire a 0 1 3M soon again 5 1 ch PUBLISH t b",
        "0 T @1.5s d:write 5 0",
        "line=(a:write:5)@12s lock={mode:write,d:write:0}@1.5s",
        "ch=d:write",
    ),
    (
        "lock={mode:read,b:1}@5",
        "acquire a 0 1 3M soon try 0 0 ch PUBLISH t b",
        "1 T T",
        "fence=T lock={mode:write,a:write:1}@3",
        "",
    ),
    (
        "lock={mode:read,b:1}@5",
        "acquire a 1 0 3M soon try 0 0 ch PUBLISH t b",
        "1 T T",
        "fence=T lock={mode:read,b:1,a:1}@5 t:a:rwlock_timeout:1=1@3",
        "",
    ),
    (
        "lock={mode:write,b:write:1}@5",
        "acquire a 0 1 3M soon try 0 0 ch PUBLISH t b:write",
        "0 T @5 b:write",
        "=",
        "",
    ),
    (
        "lock={mode:read,b:1}@5",
        "acquire a 0 1 3M soon again 5 1 ch PUBLISH t mode",
        "0 T @5 b 5 0 0 b",
        "line=(a:write:5)@12s lock={mode:read,b:1}@5",
        "",
    ),
    (
        "lock={mode:read}@5",
        "acquire a 0 1 3M soon first 0 1 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:write,a:write:1}@3",
        "",
    ),
    (
        "lock={mode:write}@5",
        "acquire a 0 1 3M soon again 5 1 ch PUBLISH t",
        "0 T @5 ~ 5 0",
        "line=(a:write:5)@12s lock={mode:write}@5",
        "",
    ),
    // A repeat of the first attempt.
    (
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "acquire a 1 0 3M soon try 0 0 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "fence=7 lock={mode:read,a:2}@5 t:a:rwlock_timeout:1=1@5",
        "acquire a 1 0 9M soon try 0 0 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:read,a:2}@9 t:a:rwlock_timeout:1=1@9",
        "",
    ),
    (
        "lock={mode:write,a:write:1}@5",
        "acquire a 0 1 9M soon try 0 0 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:write,a:write:1}@9",
        "",
    ),
    (
        "lock={mode:write,a:write:1,a:1}@5 t:a:rwlock_timeout:1=1@3",
        "acquire a 0 1 9M soon try 0 0 ch PUBLISH t",
        "1 T T",
        "fence=T lock={mode:write,a:write:1,a:1}@9 t:a:rwlock_timeout:1=1@9",
        "",
    ),
    (
        "fence=9000000000000000 lock={mode:write,a:write:1}@5",
        "acquire a 0 1 9M soon try 0 0 ch PUBLISH t",
        "1 T 9000000000000001",
        "fence=9000000000000001 lock={mode:write,a:write:1}@9",
        "",
    ),
    (
        "fence=word lock={mode:write,a:write:1}@5",
        "acquire a 0 1 9M soon try 0 0 ch PUBLISH t",
        "-4 T 5",
        "=",
        "",
    ),
    // A late copy brings no write back, and a reader that others count as dead does not come back.
    (
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "acquire a 0 1 3M soon try 0 0 ch PUBLISH t",
        "-3 T",
        "=",
        "",
    ),
    (
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "acquire a 1 1 3M soon try 0 0 ch PUBLISH t",
        "-3 T",
        "=",
        "",
    ),
    (
        "lock={mode:write,a:write:1}@5",
        "acquire a 1 0 3M soon try 0 0 ch PUBLISH t",
        "-3 T",
        "=",
        "",
    ),
    ("lock={mode:read,a:1,b:1}@5", "acquire a 1 0 3M soon try 0 0 ch PUBLISH t", "-2 T", "=", ""),
    ("lock={mode:read,a:1,b:1}@5", "acquire a 2 0 3M soon try 0 0 ch PUBLISH t", "-2 T", "=", ""),
    // Counts are set, never added.
    (
        "fence=7 lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@3",
        "acquire a 2 0 3M soon try 0 0 ch PUBLISH t",
        "1 T 0",
        "fence=7 lock={mode:read,a:2}@5 t:a:rwlock_timeout:1=1@3",
        "",
    ),
    (
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@3",
        "acquire a 65535 0 9M soon try 0 0 ch PUBLISH t",
        "1 T 0",
        "lock={mode:read,a:65535}@9 t:a:rwlock_timeout:1=1@9",
        "",
    ),
    (
        "lock={mode:write,a:write:1}@5",
        "acquire a 0 2 3M soon try 0 0 ch PUBLISH t",
        "1 T 0",
        "lock={mode:write,a:write:2}@5",
        "",
    ),
    (
        "lock={mode:write,a:write:2}@5",
        "acquire a 1 1 3M soon try 0 0 ch PUBLISH t",
        "1 T 0",
        "lock={mode:write,a:write:1,a:1}@5 t:a:rwlock_timeout:1=1@3",
        "",
    ),
    (
        "lock={mode:write,a:write:1}@5",
        "acquire a 1 1 3M soon try 0 0 ch PUBLISH t",
        "1 T 0",
        "lock={mode:write,a:write:1,a:1}@5 t:a:rwlock_timeout:1=1@3",
        "",
    ),
    (
        "lock={mode:write,a:write:2,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "acquire a 0 3 9M soon try 0 0 ch PUBLISH t",
        "1 T 0",
        "lock={mode:write,a:write:3,a:1}@9 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    ("lock={mode:read,b:1}@5", "acquire a 2 0 3M soon try 0 0 ch PUBLISH t", "-3 T", "=", ""),
    (
        "lock={mode:read,a:1} t:a:rwlock_timeout:1=1@5",
        "acquire a 2 0 9M soon try 0 0 ch PUBLISH t",
        "1 T 0",
        "lock={mode:read,a:2} t:a:rwlock_timeout:1=1@9",
        "",
    ),
];

pub(super) const RELEASE: &[Row] = &[
    ("", "release a 0 0 ch PUBLISH t", "0 T", "=", ""),
    ("", "+release a 0 0 ch PUBLISH t", "0 T", "=", ""),
    ("", "+release a 1 0 ch PUBLISH t", "0 T", "=", ""),
    // The last one frees the lock.
    (
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "+release a 0 0 ch PUBLISH t",
        "1 T 1",
        "",
        "ch=0",
    ),
    (
        "lock={mode:read,a:3}@5 t:a:rwlock_timeout:1=1@5",
        "release a 0 0 ch PUBLISH t",
        "1 T 1",
        "t:a:rwlock_timeout:1=1@5",
        "ch=0",
    ),
    ("lock={mode:write,a:write:1}@5", "+release a 0 0 ch PUBLISH t", "1 T 1", "", "ch=0"),
    (
        "lock={mode:write,a:write:2,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "+release a 0 0 ch SPUBLISH t",
        "1 T 1",
        "",
        "ch=0 sharded",
    ),
    ("lock={mode:write,a:write:1}@5", "+release a 0 0 nobody PUBLISH t", "1 T 0", "", ""),
    // Others go on reading.
    (
        "lock={mode:read,a:1,b:1}@5 t:a:rwlock_timeout:1=1@5 t:b:rwlock_timeout:1=1@5",
        "+release a 0 0 ch PUBLISH t",
        "1 T 0",
        "lock={mode:read,b:1}@5 t:b:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "line=(c:write:5)@12s lock={mode:read,a:1,b:1}@5",
        "+release a 0 0 ch PUBLISH t",
        "1 T 0",
        "line=(c:write:5)@12s lock={mode:read,b:1}@5",
        "",
    ),
    (
        "lock={mode:read,a:0,b:1}@5 t:a:rwlock_timeout:1=1@1.5s",
        "+release a 0 0 ch PUBLISH t",
        "1 T 0",
        "lock={mode:read,b:1}@5",
        "",
    ),
    // After a writer all readers that wait go next, else the first in line.
    (
        "line=(b:write:5,c:6,d:7)@12s lock={mode:write,a:write:1}@5",
        "+release a 0 0 ch PUBLISH t",
        "1 T 1",
        "line=(b:write:5)@12s lock={mode:read,c:0,d:0}@1.5s t:c:rwlock_timeout:1=1@1.5s t:d:rwlock_timeout:1=1@1.5s",
        "ch=c d",
    ),
    (
        "line=(b:write:5,c:write:6)@12s lock={mode:write,a:write:1}@5",
        "+release a 0 0 ch PUBLISH t",
        "1 T 1",
        "line=(c:write:6)@12s lock={mode:write,b:write:0}@1.5s",
        "ch=b:write",
    ),
    (
        "line=(b:write:5,c:6)@12s lock={mode:read,a:1}@5",
        "+release a 0 0 ch PUBLISH t",
        "1 T 1",
        "line=(c:6)@12s lock={mode:write,b:write:0}@1.5s",
        "ch=b:write",
    ),
    (
        "line=(b:5,c:write:6,d:7)@12s lock={mode:read,a:1}@5",
        "+release a 0 0 ch PUBLISH t",
        "1 T 1",
        "line=(c:write:6,d:7)@12s lock={mode:read,b:0}@1.5s t:b:rwlock_timeout:1=1@1.5s",
        "ch=b",
    ),
    (
        "line=(b:write:5,c:6)@12s lock={mode:write,a:write:0}@1.5s",
        "+release a 0 0 ch PUBLISH t",
        "1 T 1",
        "line=(c:6)@12s lock={mode:write,b:write:0}@1.5s",
        "ch=b:write",
    ),
    (
        "line=(b:5)@12s lock={mode:read,a:0}@1.5s t:a:rwlock_timeout:1=1@1.5s",
        "+release a 0 0 ch PUBLISH t",
        "1 T 1",
        "lock={mode:read,b:0}@1.5s t:b:rwlock_timeout:1=1@1.5s",
        "ch=b",
    ),
    (
        "line=(b:5)@12s lock={mode:write,a:write:1}@5",
        "release a 0 0 ch PUBLISH t",
        "1 T 1",
        "line=(b:5)@12s",
        "ch=0",
    ),
    (
        "line=text lock={mode:write,a:write:1}@5",
        "+release a 0 0 ch PUBLISH t",
        "1 T 1",
        "line=text",
        "ch=0",
    ),
    // A place is left, and whoever may have the lock then goes next.
    (
        "line=(a:5)@12s lock={mode:write,b:write:1}@5",
        "+release a 0 0 ch PUBLISH t",
        "0 T",
        "lock={mode:write,b:write:1}@5",
        "",
    ),
    (
        "line=(a:write:5,c:6)@12s lock={mode:read,b:1}@5",
        "+release a 0 0 ch PUBLISH t",
        "0 T",
        "lock={mode:read,b:1,c:0}@5 t:c:rwlock_timeout:1=1@1.5s",
        "ch=c",
    ),
    (
        "line=(a:write:5,c:6,d:write:7,f:8)@12s lock={mode:read,b:1}@5",
        "+release a 0 0 ch PUBLISH t",
        "0 T",
        "line=(d:write:7,f:8)@12s lock={mode:read,b:1,c:0}@5 t:c:rwlock_timeout:1=1@1.5s",
        "ch=c",
    ),
    (
        "line=(a:write:5,c:6)@12s lock={mode:read,b:1}",
        "+release a 0 0 ch PUBLISH t",
        "0 T",
        "line=(c:6)@12s lock={mode:read,b:1}",
        "",
    ),
    (
        "line=(a:5,c:6)@12s lock={mode:write,b:write:1}@5",
        "+release a 0 0 ch PUBLISH t",
        "0 T",
        "line=(c:6)@12s lock={mode:write,b:write:1}@5",
        "",
    ),
    (
        "line=(c:6,d:write:7)@12s lock={mode:write,a:write:1,a:2}@5 t:a:rwlock_timeout:1=1@5",
        "+release a 0 0 ch PUBLISH t",
        "1 T 1",
        "line=(d:write:7)@12s lock={mode:read,c:0}@1.5s t:c:rwlock_timeout:1=1@1.5s",
        "ch=c",
    ),
    (
        "line=(a:write:5,c:write:6)@12s",
        "+release a 0 0 ch PUBLISH t",
        "0 T",
        "lock={mode:write,c:write:0}@1.5s",
        "ch=c:write",
    ),
    (
        "line=(c:5)@12s",
        "+release a 0 0 ch PUBLISH t",
        "0 T",
        "lock={mode:read,c:0}@1.5s t:c:rwlock_timeout:1=1@1.5s",
        "ch=c",
    ),
    ("line=(c:write:5)@12s lock={mode:read,b:1}@5", "+release a 0 0 ch PUBLISH t", "0 T", "=", ""),
    ("t:a:rwlock_timeout:1=1@5", "+release a 0 0 ch PUBLISH t", "0 T", "", ""),
    // Reads of the same owner stay when the hold is given up to which they were upgraded.
    (
        "lock={mode:write,b:1,a:write:1}@5 t:b:rwlock_timeout:1=1@5",
        "+release a 0 0 ch PUBLISH t",
        "1 T 1",
        "lock={mode:read,b:1}@5 t:b:rwlock_timeout:1=1@5",
        "ch=0",
    ),
    (
        "line=(c:write:4,d:5)@12s lock={mode:write,b:1,a:write:1}@5",
        "+release a 0 0 ch PUBLISH t",
        "1 T 1",
        "line=(c:write:4)@12s lock={mode:read,b:1,d:0}@5 t:d:rwlock_timeout:1=1@1.5s",
        "ch=d",
    ),
    (
        "lock={mode:write,b:1,a:write:1}@5 t:b:rwlock_timeout:1=1@5",
        "+release b 0 0 ch PUBLISH t",
        "1 T 0",
        "lock={mode:write,a:write:1}@5",
        "",
    ),
    (
        "lock={mode:write,b:1,a:write:1,a:2}@5",
        "+release a 0 0 ch PUBLISH t",
        "1 T 1",
        "lock={mode:read,b:1}@5",
        "ch=0",
    ),
    // What is no read-write lock stays as it is.
    ("lock=text@5", "+release a 0 0 ch PUBLISH t", "-3 T", "=", ""),
    ("lock={a:1}@5", "+release a 0 0 ch PUBLISH t", "-3 T", "=", ""),
    ("lock={mode:odd,a:1}@5", "+release a 0 0 ch PUBLISH t", "-3 T", "=", ""),
    (
        "line=(a:5,b:6)@12s lock={x:1}",
        "+release a 0 0 ch PUBLISH t",
        "-3 T",
        "line=(b:6)@12s lock={x:1}",
        "",
    ),
    ("lock=text@5", "+release a 1 0 ch PUBLISH t", "-3 T", "=", ""),
    ("lock={a:2}@5", "+release a 1 0 ch PUBLISH t", "-3 T", "=", ""),
    // A part is given up.
    (
        "lock={mode:read,a:3}@5 t:a:rwlock_timeout:1=1@5",
        "+release a 2 0 ch PUBLISH t",
        "2 T",
        "lock={mode:read,a:2}@5 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "lock={mode:write,a:write:3}@5",
        "+release a 0 2 ch PUBLISH t",
        "2 T",
        "lock={mode:write,a:write:2}@5",
        "",
    ),
    (
        "lock={mode:write,a:write:1,a:2}@5 t:a:rwlock_timeout:1=1@5",
        "+release a 1 1 ch PUBLISH t",
        "2 T",
        "lock={mode:write,a:write:1,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "lock={mode:write,a:write:1,a:2}@5 t:a:rwlock_timeout:1=1@5",
        "+release a 0 1 ch PUBLISH t",
        "2 T",
        "lock={mode:write,a:write:1}@5",
        "",
    ),
    (
        "lock={mode:write,a:write:1,a:2}@5 t:a:rwlock_timeout:1=1@5",
        "release a 0 1 ch PUBLISH t",
        "2 T",
        "lock={mode:write,a:write:1}@5 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "lock={mode:write,a:write:2}@5",
        "+release a 1 1 ch PUBLISH t",
        "2 T",
        "lock={mode:write,a:write:1}@5",
        "",
    ),
    ("lock={mode:write,a:write:1,a:1}@5", "+release a 1 0 ch PUBLISH t", "-3 T", "=", ""),
    ("lock={mode:read,a:1}@5", "+release a 0 1 ch PUBLISH t", "-3 T", "=", ""),
    ("lock={mode:read,a:0}@5", "+release a 1 0 ch PUBLISH t", "-3 T", "=", ""),
    ("lock={mode:write,a:write:0}@5", "+release a 0 1 ch PUBLISH t", "-3 T", "=", ""),
    ("lock={mode:read,b:1}@5", "+release a 1 0 ch PUBLISH t", "-3 T", "=", ""),
];

pub(super) const DOWNGRADE: &[Row] = &[
    ("", "downgrade a 1 3M ch PUBLISH t", "0 T", "=", ""),
    (
        "lock={mode:write,a:write:1}@5",
        "downgrade a 1 3M ch PUBLISH t",
        "1 T 1",
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "ch=0",
    ),
    (
        "lock={mode:write,a:write:1}@3",
        "downgrade a 1 5M ch SPUBLISH t",
        "1 T 1",
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "ch=0 sharded",
    ),
    (
        "lock={mode:write,a:write:2,a:1}@5 t:a:rwlock_timeout:1=1@3",
        "downgrade a 2 3M nobody PUBLISH t",
        "1 T 0",
        "lock={mode:read,a:2}@5 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "lock={mode:write,a:write:1}",
        "downgrade a 1 3M ch PUBLISH t",
        "1 T 1",
        "lock={mode:read,a:1}@3 t:a:rwlock_timeout:1=1@3",
        "ch=0",
    ),
    // All readers that wait go beside it, and no writer.
    (
        "line=(b:write:5,c:6,d:7)@12s lock={mode:write,a:write:1}@5",
        "downgrade a 1 3M ch PUBLISH t",
        "1 T 1",
        "line=(b:write:5)@12s lock={mode:read,a:1,c:0,d:0}@5 t:a:rwlock_timeout:1=1@5 t:c:rwlock_timeout:1=1@1.5s t:d:rwlock_timeout:1=1@1.5s",
        "ch=c d",
    ),
    (
        "line=(b:write:5)@12s lock={mode:write,a:write:1}@5",
        "downgrade a 1 3M ch PUBLISH t",
        "1 T 1",
        "line=(b:write:5)@12s lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "ch=0",
    ),
    // Once more.
    (
        "line=(b:5)@12s lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "downgrade a 1 9M ch PUBLISH t",
        "2 T",
        "=",
        "",
    ),
    (
        "lock={mode:read,a:3}@5 t:a:rwlock_timeout:1=1@5",
        "downgrade a 1 9M ch PUBLISH t",
        "2 T",
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    // Not its own.
    ("lock={mode:write,a:write:0}@1.5s", "downgrade a 1 3M ch PUBLISH t", "-3 T", "=", ""),
    ("lock={mode:read,a:0}@1.5s", "downgrade a 1 3M ch PUBLISH t", "-3 T", "=", ""),
    ("lock={mode:read,b:1}@5", "downgrade a 1 3M ch PUBLISH t", "-3 T", "=", ""),
    ("lock=text@5", "downgrade a 1 3M ch PUBLISH t", "-3 T", "=", ""),
];

pub(super) const RENEW: &[Row] = &[
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

pub(super) const UPGRADE: &[Row] = &[
    (
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "upgrade a u 3M soon",
        "1 T T",
        "fence=T lock={mode:write,a:1,u:write:1}@5 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "fence=9000000000000000 lock={mode:read,a:2}@5 t:a:rwlock_timeout:1=1@5",
        "upgrade a u 9M soon",
        "1 T 9000000000000001",
        "fence=9000000000000001 lock={mode:write,a:2,u:write:1}@9 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "lock={mode:read,a:1} t:a:rwlock_timeout:1=1@5",
        "upgrade a u 9M soon",
        "1 T T",
        "fence=T lock={mode:write,a:1,u:write:1} t:a:rwlock_timeout:1=1@5",
        "",
    ),
    ("lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5", "upgrade a u 9M late", "-1 T", "=", ""),
    (
        "fence=word lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "upgrade a u 9M soon",
        "-4 T 5",
        "=",
        "",
    ),
    (
        "fence=-1 lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "upgrade a u 9M soon",
        "-4 T 5",
        "=",
        "",
    ),
    (
        "fence=0 lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "upgrade a u 3M soon",
        "1 T T",
        "fence=T lock={mode:write,a:1,u:write:1}@5 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "fence=1.5 lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "upgrade a u 9M soon",
        "-4 T 5",
        "=",
        "",
    ),
    (
        "fence=[1] lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "upgrade a u 9M soon",
        "-4 T 5",
        "=",
        "",
    ),
    (
        "fence=9007199254740991 lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "upgrade a u 9M soon",
        "-4 T 5",
        "=",
        "",
    ),
    (
        "fence=9007199254740990 lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "upgrade a u 3M soon",
        "1 T 9007199254740991",
        "fence=9007199254740991 lock={mode:write,a:1,u:write:1}@5 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    // Others read, or are about to.
    (
        "lock={mode:read,a:1,b:1}@5 t:a:rwlock_timeout:1=1@5",
        "upgrade a u 3M soon",
        "0 T 0 a b",
        "=",
        "",
    ),
    (
        "lock={b:1,mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "upgrade a u 3M soon",
        "0 T 0 b a",
        "=",
        "",
    ),
    (
        "lock={mode:read,b:0,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "upgrade a u 3M soon",
        "0 T 0 b a",
        "=",
        "",
    ),
    (
        "lock={mode:read,a:1,b:1}@5 t:a:rwlock_timeout:1=1@5 t:b:rwlock_timeout:1=1@5",
        "upgrade a u 3M soon b",
        "0 T 0 a b",
        "=",
        "",
    ),
    (
        "lock={mode:read,a:1,b:1,c:1}@5 t:a:rwlock_timeout:1=1@5 t:c:rwlock_timeout:1=1@5",
        "upgrade a u 3M soon b c",
        "0 T 1 a c",
        "lock={mode:read,a:1,c:1}@5 t:a:rwlock_timeout:1=1@5 t:c:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "lock={mode:read,a:1,b:1}@5 t:a:rwlock_timeout:1=1@5",
        "upgrade a u 3M soon b",
        "1 T T",
        "fence=T lock={mode:write,a:1,u:write:1}@5 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "lock={mode:read,a:1,b:1}@5 t:a:rwlock_timeout:1=1@5",
        "upgrade a u 3M soon mode",
        "0 T 0 a b",
        "=",
        "",
    ),
    // Not its reads any more.
    ("", "upgrade a u 3M soon", "-2 T", "=", ""),
    ("lock=text@5", "upgrade a u 3M soon", "-2 T", "=", ""),
    ("lock={a:1}@5 t:a:rwlock_timeout:1=1@5", "upgrade a u 3M soon", "-2 T", "=", ""),
    ("lock={mode:read,a:1}@5", "upgrade a u 3M soon", "-2 T", "=", ""),
    ("lock={mode:read,a:0}@5 t:a:rwlock_timeout:1=1@5", "upgrade a u 3M soon", "-2 T", "=", ""),
    ("lock={mode:read,b:1}@5 t:a:rwlock_timeout:1=1@5", "upgrade a u 3M soon", "-2 T", "=", ""),
    (
        "lock={mode:write,a:write:1,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "upgrade a u 3M soon",
        "-2 T",
        "=",
        "",
    ),
    // Once more.
    (
        "fence=7 lock={mode:write,a:1,u:write:1}@5 t:a:rwlock_timeout:1=1@5",
        "upgrade a u 9M soon",
        "1 T T",
        "fence=T lock={mode:write,a:1,u:write:1}@9 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "lock={mode:write,u:write:1}@5",
        "upgrade a u 3M soon",
        "1 T T",
        "fence=T lock={mode:write,u:write:1}@5",
        "",
    ),
];

pub(super) const ALL: &[(&str, &[Row])] = &[
    ("acquire", ACQUIRE),
    ("release", RELEASE),
    ("downgrade", DOWNGRADE),
    ("renew", RENEW),
    ("upgrade", UPGRADE),
];

/// A good call, and for each of its arguments what is not allowed there.
const BAD: &[(&str, &[&[&str]])] = &[
    (
        "acquire a 1 0 3M soon try 0 0 ch PUBLISH t",
        &[
            &["~"],
            &["-1", "65536", "1.5", "x"],
            &["-1", "65536", "1.5", "x"],
            &["0", "86400001", "1.5", "x"],
            &["-1", "9007199254740992", "1.5", "x"],
            &["wait", "~"],
            &["-1", "9007199254740992", "1.5", "x"],
            &["2", "~"],
            &["~"],
            &["publish", "~"],
            &["~"],
        ],
    ),
    (
        "+release a 1 0 ch PUBLISH t",
        &[
            &["~"],
            &["-1", "65536", "1.5", "x"],
            &["-1", "65536", "1.5", "x"],
            &["~"],
            &["publish", "~"],
            &["~"],
        ],
    ),
    (
        "downgrade a 1 3M ch PUBLISH t",
        &[
            &["~"],
            &["0", "65536", "1.5", "x"],
            &["0", "86400001", "1.5", "x"],
            &["~"],
            &["publish", "~"],
            &["~"],
        ],
    ),
    (
        "upgrade a u 3M soon",
        &[
            &["~"],
            &["~", "a"],
            &["0", "86400001", "1.5", "x"],
            &["-1", "9007199254740992", "1.5", "x"],
        ],
    ),
    (
        "renew soon a 3M",
        &[&["-1", "9007199254740992", "1.5", "x"], &["~"], &["0", "86400001", "1.5", "x"]],
    ),
];

/// Each is named, and nothing is done.
pub(super) fn check_bad_arguments(server: &mut dyn Server) {
    let mut rows = Vec::new();
    for (good, arguments) in BAD {
        let words: Vec<&str> = good.split(' ').collect();
        for (index, bad) in arguments.iter().enumerate() {
            for word in *bad {
                let mut words = words.clone();
                words[index + 1] = word;
                rows.push((words.join(" "), index + 1));
            }
            if !good.contains("renew") {
                rows.push((words[..=index].join(" "), index + 1));
            }
        }
    }
    let pairs = [
        ("acquire a 0 0 3M soon try 0 0 ch PUBLISH t", 3),
        ("acquire a 2 -1 3M soon try 0 0 ch PUBLISH t", 3),
        ("renew soon", 1),
    ];
    rows.extend(pairs.map(|(call, place)| (call.to_owned(), place)));
    rows.extend([("renew soon a 9M b", 4), ("renew", 1)].map(|(c, n)| (c.to_owned(), n)));
    let states = ["", "fence=7 lock={mode:read,a:1}@5", "lock=text", "line=(b:5)@12s"];
    check(
        server,
        rows.iter().flat_map(|(call, number)| {
            states.map(|state| {
                (state.into(), call.clone(), format!("-9 T {number}"), "=".into(), String::new())
            })
        }),
    );
}

const OOM: &str = "! OOM command not allowed when used memory > 'maxmemory'.";

/// Short of memory nothing is granted, and what is held can be given up and renewed.
pub(super) fn check_out_of_memory(server: &mut dyn Server) {
    let rows = [
        ("", "acquire a 1 0 9M soon try 0 0 ch PUBLISH t", OOM, "=", ""),
        ("", "acquire a 0 1 9M soon try 0 0 ch PUBLISH t", OOM, "=", ""),
        (
            "lock={mode:write,a:write:1}@5",
            "acquire a 0 2 9M soon try 0 0 ch PUBLISH t",
            OOM,
            "=",
            "",
        ),
        (
            "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
            "+release a 0 0 ch PUBLISH t",
            "1 T 1",
            "",
            "ch=0",
        ),
        (
            "line=(b:5)@12s lock={mode:write,a:write:1}@5",
            "+release a 0 0 ch PUBLISH t",
            "1 T 1",
            "lock={mode:read,b:0}@1.5s t:b:rwlock_timeout:1=1@1.5s",
            "ch=b",
        ),
        (
            "lock={mode:write,b:1,a:write:1}@5 t:b:rwlock_timeout:1=1@5",
            "+release a 0 0 ch PUBLISH t",
            "1 T 1",
            "lock={mode:read,b:1}@5 t:b:rwlock_timeout:1=1@5",
            "ch=0",
        ),
        (
            "lock={mode:write,a:write:1}@5",
            "downgrade a 1 3M ch PUBLISH t",
            "1 T 1",
            "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
            "ch=0",
        ),
        (
            "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
            "renew soon a 9M",
            "1 T 1",
            "lock={mode:read,a:1}@9 t:a:rwlock_timeout:1=1@9",
            "",
        ),
    ];
    for (state, call, reply, after, published) in rows {
        server.set_out_of_memory(false);
        set_up(server, state);
        server.set_out_of_memory(true);
        let seen = observe(server, &parse_call(call), &mut Times::default());
        let after = if after == "=" { state } else { after };
        assert_eq!(
            (&*seen.reply, &*seen.keys, &*seen.published),
            (reply, after, published),
            "[{state}] {call}"
        );
    }
    server.set_out_of_memory(false);
}
