//! What each script does in each state.

use crate::kinds::script_tests::tables::Row;

pub(super) const ALL: &[(&str, &[Row])] = &[
    ("acquire", ACQUIRE),
    ("release", RELEASE),
    ("release_at", RELEASE_AT),
    ("renew", RENEW),
    ("force_release", FORCE_RELEASE),
    ("set_permits", SET_PERMITS),
    ("inspect", INSPECT),
];

pub(super) const ACQUIRE: &[Row] = &[
    // Nobody has permits.
    (
        "",
        "+acquire a:1:2 3M soon first 0 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={kind:semaphore}@3 permits=(a:1:2:1:@3)@3",
        "",
    ),
    (
        "fence=7",
        "+acquire a:2:2 3M soon try 0 0 ch SPUBLISH",
        "1 T T",
        "fence=T lock={kind:semaphore}@3 permits=(a:2:2:1:@3,a:2:2:2:@3)@3",
        "",
    ),
    (
        "",
        "+acquire a:1:1 3M soon again 5 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={kind:semaphore}@3 permits=(a:1:1:1:@3)@3",
        "",
    ),
    ("", "+acquire a:1:2 3M late first 0 1 ch PUBLISH", "-1 T", "=", ""),
    ("", "acquire a:1:2 3M soon try 0 1 ch PUBLISH", "-5 T", "=", ""),
    ("", "acquire a:1:2 3M soon again 5 1 ch PUBLISH", "-5 T", "=", ""),
    // Tokens.
    (
        "fence=9000000000000000",
        "+acquire a:1:2 3M soon try 0 1 ch PUBLISH",
        "1 T 9000000000000001",
        "fence=9000000000000001 lock={kind:semaphore}@3 permits=(a:1:2:1:@3)@3",
        "",
    ),
    (
        "fence=9007199254740990",
        "+acquire a:1:2 3M soon try 0 1 ch PUBLISH",
        "1 T 9007199254740991",
        "fence=9007199254740991 lock={kind:semaphore}@3 permits=(a:1:2:1:@3)@3",
        "",
    ),
    (
        "fence=0",
        "+acquire a:1:2 3M soon try 0 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={kind:semaphore}@3 permits=(a:1:2:1:@3)@3",
        "",
    ),
    ("fence=9007199254740991", "+acquire a:1:2 3M soon try 0 1 ch PUBLISH", "-4 T 5", "=", ""),
    ("fence=-1", "+acquire a:1:2 3M soon try 0 1 ch PUBLISH", "-4 T 5", "=", ""),
    ("fence=1.5", "+acquire a:1:2 3M soon try 0 1 ch PUBLISH", "-4 T 5", "=", ""),
    ("fence=word", "+acquire a:1:2 3M soon try 0 1 ch PUBLISH", "-4 T 5", "=", ""),
    ("fence=[1]", "+acquire a:1:2 3M soon try 0 1 ch PUBLISH", "-4 T 5", "=", ""),
    // Beside others: the keys live for the longer of both.
    (
        "lock={kind:semaphore}@5 permits=(b:1:2:1:@5)@5",
        "+acquire a:1:2 3M soon first 0 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={kind:semaphore}@5 permits=(a:1:2:1:@3,b:1:2:1:@5)@5",
        "",
    ),
    (
        "lock={kind:semaphore}@5 permits=(b:1:2:1:@5)@5",
        "+acquire a:1:2 9M soon first 0 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={kind:semaphore}@9 permits=(b:1:2:1:@5,a:1:2:1:@9)@9",
        "",
    ),
    // A key without an end keeps none.
    (
        "lock={kind:semaphore} permits=(b:1:2:1:@5)",
        "+acquire a:1:2 9M soon first 0 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={kind:semaphore} permits=(b:1:2:1:@5,a:1:2:1:@9)",
        "",
    ),
    // What has run out comes back.
    (
        "lock={kind:semaphore}@5 permits=(c:1:2:1:@-1,b:1:2:1:@5)@5",
        "+acquire a:1:2 3M soon first 0 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={kind:semaphore}@5 permits=(a:1:2:1:@3,b:1:2:1:@5)@5",
        "",
    ),
    (
        "lock={kind:semaphore}@5 permits=(c:2:2:1:@0,c:2:2:2:@0)@5",
        "+acquire a:2:2 3M soon first 0 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={kind:semaphore}@5 permits=(a:2:2:1:@3,a:2:2:2:@3)@3",
        "",
    ),
    // The number that was set counts, and then the key stays.
    (
        "lock={kind:semaphore,permits:1}",
        "+acquire a:1:2 3M soon first 0 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={kind:semaphore,permits:1} permits=(a:1:2:1:@3)@3",
        "",
    ),
    (
        "lock={kind:semaphore,permits:3} permits=(b:2:2:1:@5,b:2:2:2:@5)@5",
        "+acquire a:1:2 3M soon first 0 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={kind:semaphore,permits:3} permits=(a:1:2:1:@3,b:2:2:1:@5,b:2:2:2:@5)@5",
        "",
    ),
    (
        "lock={kind:semaphore,permits:1} permits=(b:1:2:1:@5)@5",
        "+acquire a:1:2 3M soon try 0 1 ch PUBLISH",
        "0 T @5 b:1:2",
        "=",
        "",
    ),
    // More than there are. Who hears so leaves the line, and those behind go on.
    ("", "+acquire a:3:2 3M soon first 0 1 ch PUBLISH", "-6 T 2", "=", ""),
    (
        "lock={kind:semaphore,permits:1}",
        "+acquire a:2:2 3M soon again 5 1 ch PUBLISH",
        "-6 T 1",
        "=",
        "",
    ),
    (
        "heard=(a:3:2:1:@5)@5 line=(a:3:2:5,b:1:2:6)@12s lock={kind:semaphore}@5 \
         permits=(c:1:2:1:@5)@5",
        "+acquire a:3:2 3M soon again 5 1 ch SPUBLISH",
        "-6 T 2",
        "lock={kind:semaphore}@5 permits=(b:1:2:1:@0,c:1:2:1:@5)@5",
        "ch=b:1:2 sharded",
    ),
    (
        "line=(a:3:2:5)@12s lock={kind:semaphore}@5",
        "+acquire a:3:2 3M soon again 5 1 ch PUBLISH",
        "-6 T 2",
        "lock={kind:semaphore}@5",
        "",
    ),
    // Too few are free: who hears enters the line behind all others, or at the ticket that it names.
    (
        "lock={kind:semaphore}@5 permits=(b:2:2:1:@5,b:2:2:2:@5)@5",
        "+acquire a:1:2 9M soon first 0 1 ch PUBLISH",
        "0 T @5 b:2:2 T 0",
        "heard=(a:1:2:1:@0)@12s line=(a:1:2:T)@12s lock={kind:semaphore}@5 \
         permits=(b:2:2:1:@5,b:2:2:2:@5)@5",
        "",
    ),
    (
        "lock={kind:semaphore}@5 permits=(b:1:2:1:@5)@5",
        "+acquire a:2:2 9M soon first 0 1 ch PUBLISH",
        "0 T @5 b:1:2 T 0",
        "heard=(a:2:2:1:@0)@12s line=(a:2:2:T)@12s lock={kind:semaphore}@5 permits=(b:1:2:1:@5)@5",
        "",
    ),
    (
        "lock={kind:semaphore}@1.5s permits=(c:1:2:1:@3,b:1:2:1:@5)@5",
        "+acquire a:1:2 9M soon again 7 1 ch PUBLISH",
        "0 T @3 c:1:2 7 0",
        "heard=(a:1:2:1:@0)@12s line=(a:1:2:7)@12s lock={kind:semaphore}@13.5s \
         permits=(c:1:2:1:@3,b:1:2:1:@5)@5",
        "",
    ),
    (
        "permits=(c:1:2:1:@3,b:1:2:1:@5)@5",
        "+acquire a:1:2 9M soon first 0 1 ch PUBLISH",
        "0 T @3 c:1:2 T 0",
        "heard=(a:1:2:1:@0)@12s line=(a:1:2:T)@12s lock={kind:semaphore}@13.5s \
         permits=(c:1:2:1:@3,b:1:2:1:@5)@5",
        "",
    ),
    (
        "line=(c:1:2:5,d:1:2:7)@5 lock={kind:semaphore}@5 permits=(b:2:2:1:@5,b:2:2:2:@5)@5",
        "+acquire a:1:2 9M soon again 6 1 ch PUBLISH",
        "0 T @5 b:2:2 6 1",
        "heard=(a:1:2:1:@0)@12s line=(c:1:2:5,a:1:2:6,d:1:2:7)@12s lock={kind:semaphore}@5 \
         permits=(b:2:2:1:@5,b:2:2:2:@5)@5",
        "",
    ),
    (
        "heard=(x:9:9:1:@-1,c:1:2:1:@3)@5 line=(c:1:2:9000000000000000)@5 \
         lock={kind:semaphore}@5 permits=(b:2:2:1:@5,b:2:2:2:@5)@5",
        "+acquire a:1:2 9M soon first 0 1 ch PUBLISH",
        "0 T @5 b:2:2 9000000000000001 1",
        "heard=(a:1:2:1:@0,c:1:2:1:@3)@5 line=(c:1:2:9000000000000000,a:1:2:9000000000000001)@12s \
         lock={kind:semaphore}@5 \
         permits=(b:2:2:1:@5,b:2:2:2:@5)@5",
        "",
    ),
    (
        "line=(c:1:2:9000000000000000,d:1:2:9000000000000005,e:1:2:9000000000000007)@5 lock={kind:semaphore}@5 \
         permits=(b:2:2:1:@5,b:2:2:2:@5)@5",
        "+acquire a:1:2 9M soon first 0 1 ch PUBLISH",
        "0 T @5 b:2:2 9000000000000008 3",
        "heard=(a:1:2:1:@0)@12s \
         line=(c:1:2:9000000000000000,d:1:2:9000000000000005,e:1:2:9000000000000007,a:1:2:9000000000000008)@12s \
         lock={kind:semaphore}@5 permits=(b:2:2:1:@5,b:2:2:2:@5)@5",
        "",
    ),
    // Also if it cannot be remembered when it was heard of.
    (
        "heard=text lock={kind:semaphore}@5 permits=(b:2:2:1:@5,b:2:2:2:@5)@5",
        "+acquire a:1:2 9M soon first 0 1 ch PUBLISH",
        "0 T @5 b:2:2 T 0",
        "heard=text line=(a:1:2:T)@12s lock={kind:semaphore}@5 permits=(b:2:2:1:@5,b:2:2:2:@5)@5",
        "",
    ),
    (
        "heard=text line=(a:1:2:5)@12s lock={kind:semaphore}@5 permits=(b:2:2:1:@5,b:2:2:2:@5)@5",
        "+acquire a:1:2 9M soon again 5 0 ch PUBLISH",
        "0 T @5 b:2:2 5 0",
        "heard=text lock={kind:semaphore}@5 permits=(b:2:2:1:@5,b:2:2:2:@5)@5",
        "",
    ),
    (
        "heard=text line=(a:1:2:5)@12s lock={kind:semaphore}@5",
        "+acquire a:1:2 9M soon again 5 1 ch PUBLISH",
        "1 T T",
        "fence=T heard=text lock={kind:semaphore}@9 permits=(a:1:2:1:@9)@9",
        "",
    ),
    (
        "heard=text line=(a:3:2:5)@12s lock={kind:semaphore}@5",
        "+acquire a:3:2 9M soon again 5 1 ch PUBLISH",
        "-6 T 2",
        "heard=text lock={kind:semaphore}@5",
        "",
    ),
    // A place stays as it is, whatever ticket is named.
    (
        "heard=(c:2:2:1:@1)@5 line=(c:2:2:5,a:1:2:6)@5 lock={kind:semaphore}@5 \
         permits=(b:1:2:1:@5)@5",
        "+acquire a:1:2 9M soon again 1 1 ch PUBLISH",
        "0 T @5 b:1:2 6 1",
        "heard=(a:1:2:1:@0,c:2:2:1:@1)@5 line=(c:2:2:5,a:1:2:6)@12s lock={kind:semaphore}@5 \
         permits=(b:1:2:1:@5)@5",
        "",
    ),
    // Who does not hear has a ticket, but no place; those behind the place that it had go on.
    (
        "lock={kind:semaphore}@5 permits=(b:2:2:1:@5,b:2:2:2:@5)@5",
        "+acquire a:1:2 9M soon first 0 0 ch PUBLISH",
        "0 T @5 b:2:2 T 0",
        "=",
        "",
    ),
    (
        "heard=(a:2:2:1:@5,c:1:2:1:@5)@5 line=(a:2:2:5,c:1:2:6)@12s lock={kind:semaphore}@5 \
         permits=(b:1:2:1:@5)@5",
        "+acquire a:2:2 9M soon again 5 0 ch PUBLISH",
        "0 T @5 b:1:2 5 0",
        "lock={kind:semaphore}@5 permits=(c:1:2:1:@0,b:1:2:1:@5)@5",
        "ch=c:1:2",
    ),
    // Who does not wait has neither, and overtakes nobody.
    (
        "heard=(c:2:2:1:@5)@5 line=(c:2:2:5)@12s lock={kind:semaphore}@5 permits=(b:1:2:1:@5)@5",
        "+acquire a:1:2 9M soon try 0 1 ch PUBLISH",
        "0 T @5 b:1:2",
        "=",
        "",
    ),
    (
        "heard=text line=(c:1:1:5)@12s lock={kind:semaphore}@5",
        "+acquire a:1:1 9M soon try 4 1 ch PUBLISH",
        "0 T @1.5s c:1:1",
        "heard=text lock={kind:semaphore}@5 permits=(c:1:1:1:@0)@1.5s",
        "ch=c:1:1",
    ),
    // Nor does somebody who comes later; who names a lower ticket goes first.
    (
        "heard=(c:2:2:1:@5)@5 line=(c:2:2:5)@12s lock={kind:semaphore}@5 permits=(b:1:2:1:@5)@5",
        "+acquire a:1:2 9M soon first 0 1 ch PUBLISH",
        "0 T @5 b:1:2 T 1",
        "heard=(a:1:2:1:@0,c:2:2:1:@5)@5 line=(c:2:2:5,a:1:2:T)@12s lock={kind:semaphore}@5 \
         permits=(b:1:2:1:@5)@5",
        "",
    ),
    // But who was not heard of for long keeps nobody waiting, if anything is free.
    (
        "heard=(c:2:2:1:@0)@5 line=(c:2:2:5)@12s lock={kind:semaphore}@5 permits=(b:1:2:1:@5)@5",
        "+acquire a:1:2 9M soon first 0 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={kind:semaphore}@9 permits=(b:1:2:1:@5,a:1:2:1:@9)@9",
        "ch=c:2:2",
    ),
    (
        "line=(c:2:3:5)@12s lock={kind:semaphore}@5 permits=(b:1:3:1:@5,b:1:3:2:@5)@5",
        "+acquire a:1:3 9M soon try 0 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={kind:semaphore}@9 permits=(b:1:3:1:@5,b:1:3:2:@5,a:1:3:1:@9)@9",
        "ch=c:2:3",
    ),
    (
        "heard=text line=(c:2:2:5)@12s lock={kind:semaphore}@5 permits=(b:1:2:1:@5)@5",
        "+acquire a:1:2 9M soon try 0 1 ch PUBLISH",
        "0 T @5 b:1:2",
        "=",
        "",
    ),
    (
        "heard=(c:2:2:1:@5)@5 line=(c:2:2:5)@12s lock={kind:semaphore}@5 permits=(b:1:2:1:@5)@5",
        "+acquire a:1:2 9M soon again 4 1 ch PUBLISH",
        "1 T T",
        "fence=T heard=(c:2:2:1:@5)@5 line=(c:2:2:5)@12s lock={kind:semaphore}@9 permits=(b:1:2:1:@5,a:1:2:1:@9)@9",
        "",
    ),
    (
        "heard=(c:2:2:1:@5)@5 line=(c:2:2:5)@12s lock={kind:semaphore}@5 permits=(b:1:2:1:@5)@5",
        "+acquire a:1:2 9M soon again 5 1 ch PUBLISH",
        "1 T T",
        "fence=T heard=(c:2:2:1:@5)@5 line=(c:2:2:5)@12s lock={kind:semaphore}@9 permits=(b:1:2:1:@5,a:1:2:1:@9)@9",
        "",
    ),
    // What is free is reserved for those before it, in their order, each want whole.
    (
        "heard=(c:1:3:1:@5,d:2:3:1:@5)@5 line=(c:1:3:5,d:2:3:6,e:1:3:7)@12s \
         lock={kind:semaphore}@5 permits=(b:1:3:1:@5)@5",
        "+acquire a:1:3 9M soon first 0 1 ch PUBLISH",
        "0 T @1.5s c:1:3 T 2",
        "heard=(a:1:3:1:@0,d:2:3:1:@5)@5 line=(d:2:3:6,e:1:3:7,a:1:3:T)@12s lock={kind:semaphore}@5 \
         permits=(c:1:3:1:@0,b:1:3:1:@5)@5",
        "ch=c:1:3",
    ),
    (
        "line=(c:2:3:5)@12s lock={kind:semaphore}@5",
        "+acquire a:1:3 9M soon first 0 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={kind:semaphore}@9 permits=(c:2:3:1:@0,c:2:3:2:@0,a:1:3:1:@9)@9",
        "ch=c:2:3",
    ),
    (
        "line=(c:3:3:9007199254740991)@12s lock={kind:semaphore}@5",
        "+acquire a:1:3 9M soon try 0 1 ch SPUBLISH",
        "0 T @1.5s c:3:3",
        "lock={kind:semaphore}@5 permits=(c:3:3:1:@0,c:3:3:2:@0,c:3:3:3:@0)@1.5s",
        "ch=c:3:3 sharded",
    ),
    // Who is first is granted, and what is left goes to those behind.
    (
        "heard=(a:1:3:1:@5,d:2:3:1:@5)@5 line=(a:1:3:5,c:1:3:6,d:2:3:7)@12s \
         lock={kind:semaphore}@5",
        "+acquire a:1:3 9M soon again 5 1 ch PUBLISH",
        "1 T T",
        "fence=T heard=(d:2:3:1:@5)@5 line=(d:2:3:7)@12s lock={kind:semaphore}@9 permits=(c:1:3:1:@0,a:1:3:1:@9)@9",
        "ch=c:1:3",
    ),
    // Each has its own number, as long as none was set.
    (
        "line=(c:1:2:5)@12s lock={kind:semaphore}@5 permits=(b:2:3:1:@5,b:2:3:2:@5)@5",
        "+acquire a:1:9 9M soon first 0 1 ch PUBLISH",
        "0 T @5 b:2:3 T 1",
        "heard=(a:1:9:1:@0)@12s line=(c:1:2:5,a:1:9:T)@12s lock={kind:semaphore}@5 permits=(b:2:3:1:@5,b:2:3:2:@5)@5",
        "",
    ),
    // Who wants more than there are is told, and is out of the way; so is what is no hold.
    (
        "line=(c:2:3:5,x:6,d:1:3:7)@12s lock={kind:semaphore,permits:1} permits=(b:1:3:1:@5)@5",
        "+acquire a:1:3 9M soon first 0 1 ch PUBLISH",
        "0 T @5 b:1:3 T 1",
        "heard=(a:1:3:1:@0)@12s line=(d:1:3:7,a:1:3:T)@12s lock={kind:semaphore,permits:1} \
         permits=(b:1:3:1:@5)@5",
        "ch=c:2:3 ch=x",
    ),
    // Reserved for the one that asks: picked up, for exactly the lease; also without the line.
    (
        "fence=7 lock={kind:semaphore}@5 permits=(a:2:2:1:@1,a:2:2:2:@1)@5",
        "acquire a:2:2 3M soon again 5 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={kind:semaphore}@5 permits=(a:2:2:1:@3,a:2:2:2:@3)@5",
        "",
    ),
    (
        "lock={kind:semaphore}@5 permits=(a:1:2:1:@9)@9",
        "+acquire a:1:2 3M soon first 0 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={kind:semaphore}@5 permits=(a:1:2:1:@3)@9",
        "",
    ),
    // If somebody has removed a part of that, it is asked for like something new.
    (
        "line=(c:1:2:5)@12s lock={kind:semaphore}@5 permits=(a:2:2:1:@1,b:1:2:1:@5)@5",
        "+acquire a:2:2 3M soon again 4 1 ch PUBLISH",
        "0 T @1 a:2:2 4 0",
        "heard=(a:2:2:1:@0)@12s line=(a:2:2:4,c:1:2:5)@12s lock={kind:semaphore}@5 \
         permits=(a:2:2:1:@1,b:1:2:1:@5)@5",
        "",
    ),
    (
        "lock={kind:semaphore}@5 permits=(a:2:3:2:@1)@5",
        "acquire a:2:3 3M soon again 5 1 ch PUBLISH",
        "-5 T",
        "=",
        "",
    ),
    // More than there are by now, but reserved.
    (
        "lock={kind:semaphore,permits:1} permits=(a:2:2:1:@1,a:2:2:2:@1)@5",
        "+acquire a:2:2 3M soon again 5 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={kind:semaphore,permits:1} permits=(a:2:2:1:@3,a:2:2:2:@3)@5",
        "",
    ),
    // A pick-up passes on what was left by a script that had reserved enough.
    (
        "line=(c:1:2:5)@12s lock={kind:semaphore}@5 permits=(a:1:2:1:@1)@5",
        "+acquire a:1:2 3M soon again 5 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={kind:semaphore}@5 permits=(c:1:2:1:@0,a:1:2:1:@3)@5",
        "ch=c:1:2",
    ),
    (
        "line=(c:1:1:5)@12s lock={kind:semaphore}@5 permits=(a:1:1:1:@1)@5",
        "+acquire a:1:1 3M soon again 5 1 ch PUBLISH",
        "1 T T",
        "fence=T line=(c:1:1:5)@12s lock={kind:semaphore}@5 permits=(a:1:1:1:@3)@5",
        "",
    ),
    // The permits of another program count, and have no holder.
    ("permits=(x:@5)@5", "+acquire a:1:1 3M soon try 0 1 ch PUBLISH", "0 T @5 x", "=", ""),
    // Another kind of lock, or other data.
    ("lock=text", "+acquire a:1:2 3M soon try 0 1 ch PUBLISH", "-4 T 1", "=", ""),
    ("lock={mode:read,b:1}@5", "+acquire a:1:2 3M soon try 0 1 ch PUBLISH", "-4 T 4", "=", ""),
    ("lock={b:1}@5", "+acquire a:1:2 3M soon try 0 1 ch PUBLISH", "-4 T 8", "=", ""),
    (
        "lock={kind:latch,count:1}@5",
        "+acquire a:1:2 3M soon try 0 1 ch PUBLISH",
        "-4 T 10",
        "=",
        "",
    ),
    (
        "lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1}@5",
        "+acquire a:1:2 3M soon try 0 1 ch PUBLISH",
        "-4 T 12",
        "=",
        "",
    ),
    (
        "lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1,a:1}@5",
        "+acquire a:1:2 3M soon try 0 1 ch PUBLISH",
        "-4 T 8",
        "=",
        "",
    ),
    ("permits=text", "+acquire a:1:2 3M soon try 0 1 ch PUBLISH", "-4 T 9", "=", ""),
    ("permits=[x]", "acquire a:1:2 3M soon again 5 1 ch PUBLISH", "-4 T 9", "=", ""),
    ("line=text", "+acquire a:1:2 3M soon try 0 1 ch PUBLISH", "-4 T 6", "=", ""),
    ("line={a:1}", "+acquire a:1:2 3M soon first 0 1 ch PUBLISH", "-4 T 6", "=", ""),
];

pub(super) const RELEASE: &[Row] = &[
    (
        "lock={kind:semaphore}@5 permits=(a:1:2:1:@5)@5",
        "+release a:1:2 ch PUBLISH",
        "1 T 1",
        "",
        "ch=0",
    ),
    (
        "lock={kind:semaphore}@5 permits=(a:2:2:1:@5,a:2:2:2:@5)@5",
        "+release a:2:2 ch SPUBLISH",
        "1 T 1",
        "",
        "ch=0 sharded",
    ),
    (
        "lock={kind:semaphore}@5 permits=(a:1:2:1:@5)@5",
        "+release a:1:2 nobody PUBLISH",
        "1 T 0",
        "",
        "",
    ),
    (
        "lock={kind:semaphore}@5 permits=(a:1:2:1:@3,b:1:2:1:@5)@5",
        "+release a:1:2 ch PUBLISH",
        "1 T 1",
        "lock={kind:semaphore}@5 permits=(b:1:2:1:@5)@5",
        "ch=0",
    ),
    // The number stays, and so does what others have put there.
    (
        "lock={kind:semaphore,permits:4} permits=(a:1:2:1:@5)@5",
        "+release a:1:2 ch PUBLISH",
        "1 T 1",
        "lock={kind:semaphore,permits:4}",
        "ch=0",
    ),
    (
        "lock={kind:semaphore,other:1}@5 permits=(a:1:2:1:@5)@5",
        "+release a:1:2 ch PUBLISH",
        "1 T 1",
        "lock={other:1}@5",
        "ch=0",
    ),
    (
        "lock={b:1}@5 permits=(a:1:2:1:@5)@5",
        "+release a:1:2 ch PUBLISH",
        "1 T 1",
        "lock={b:1}@5",
        "ch=0",
    ),
    ("lock=text permits=(a:1:2:1:@5)@5", "+release a:1:2 ch PUBLISH", "1 T 1", "lock=text", "ch=0"),
    // Without the line.
    (
        "line=(c:1:2:5)@12s lock={kind:semaphore}@5 permits=(a:1:2:1:@5)@5",
        "release a:1:2 ch PUBLISH",
        "1 T 1",
        "line=(c:1:2:5)@12s lock={kind:semaphore}@5",
        "ch=0",
    ),
    ("line=(a:1:2:5)@12s", "release a:1:2 ch PUBLISH", "0 T", "=", ""),
    // What is free goes to those in line, in their order.
    (
        "heard=(b:1:3:1:@5,d:2:3:1:@5)@5 line=(b:1:3:5,c:1:3:6,d:2:3:7)@12s \
         lock={kind:semaphore}@5 permits=(a:2:3:1:@5,a:2:3:2:@5)@5",
        "+release a:2:3 ch PUBLISH",
        "1 T 1",
        "heard=(d:2:3:1:@5)@5 line=(d:2:3:7)@12s lock={kind:semaphore}@5 \
         permits=(b:1:3:1:@0,c:1:3:1:@0)@1.5s",
        "ch=b:1:3 ch=c:1:3",
    ),
    (
        "heard=(b:2:2:1:@5)@5 line=(b:2:2:5)@12s lock={kind:semaphore}@5 \
         permits=(a:1:2:1:@5,c:1:2:1:@5)@5",
        "+release a:1:2 ch PUBLISH",
        "1 T 0",
        "heard=(b:2:2:1:@5)@5 line=(b:2:2:5)@12s lock={kind:semaphore}@5 permits=(c:1:2:1:@5)@5",
        "",
    ),
    // Who was not heard of for long keeps nobody waiting, if anything is free.
    (
        "heard=(b:2:2:1:@0,d:1:2:1:@5)@5 line=(b:2:2:5,d:1:2:9007199254740991)@12s \
         lock={kind:semaphore}@5 permits=(a:1:2:1:@5,c:1:2:1:@5)@5",
        "+release a:1:2 ch PUBLISH",
        "1 T 1",
        "lock={kind:semaphore}@5 permits=(d:1:2:1:@0,c:1:2:1:@5)@5",
        "ch=b:2:2 ch=d:1:2",
    ),
    (
        "line=(b:2:2:5)@12s lock={kind:semaphore}@5 permits=(a:1:2:1:@5,c:1:2:1:@5)@5",
        "+release a:1:2 ch PUBLISH",
        "1 T 1",
        "lock={kind:semaphore}@5 permits=(c:1:2:1:@5)@5",
        "ch=b:2:2",
    ),
    (
        "heard=text line=(b:2:2:5)@12s lock={kind:semaphore}@5 permits=(a:1:2:1:@5,c:1:2:1:@5)@5",
        "+release a:1:2 ch PUBLISH",
        "1 T 0",
        "heard=text line=(b:2:2:5)@12s lock={kind:semaphore}@5 permits=(c:1:2:1:@5)@5",
        "",
    ),
    (
        "heard=text line=(b:1:2:5)@12s lock={kind:semaphore}@5 permits=(a:1:2:1:@5)",
        "+release a:1:2 ch PUBLISH",
        "1 T 1",
        "heard=text lock={kind:semaphore}@5 permits=(b:1:2:1:@0)@1.5s",
        "ch=b:1:2",
    ),
    (
        "heard=text line=(a:1:2:5)@12s lock={kind:semaphore}@5",
        "+release a:1:2 ch PUBLISH",
        "0 T",
        "heard=text",
        "",
    ),
    // A key without an end keeps none.
    (
        "line=(b:1:2:5)@12s lock={kind:semaphore}@5 permits=(a:1:2:1:@5,c:1:2:1:@5)",
        "+release a:1:2 ch PUBLISH",
        "1 T 1",
        "lock={kind:semaphore}@5 permits=(b:1:2:1:@0,c:1:2:1:@5)",
        "ch=b:1:2",
    ),
    // What is no hold is out of the way.
    (
        "line=(x:5,b:1:2:6)@12s lock={kind:semaphore}@5 permits=(a:1:2:1:@5)@5",
        "+release a:1:2 ch SPUBLISH",
        "1 T 1",
        "lock={kind:semaphore}@5 permits=(b:1:2:1:@0)@1.5s",
        "ch=x sharded ch=b:1:2 sharded",
    ),
    (
        "lock={kind:latch}@5 permits=(a:1:2:1:@5)@5",
        "+release a:1:2 ch PUBLISH",
        "1 T 1",
        "lock={kind:latch}@5",
        "ch=0",
    ),
    // With what has run out.
    (
        "line=(b:2:2:5)@12s lock={kind:semaphore}@5 permits=(c:1:2:1:@-1,a:1:2:1:@5)@5",
        "+release a:1:2 ch PUBLISH",
        "1 T 1",
        "lock={kind:semaphore}@5 permits=(b:2:2:1:@0,b:2:2:2:@0)@1.5s",
        "ch=b:2:2",
    ),
    (
        "line=(b:2:2:5)@12s lock={kind:semaphore}@5 permits=(c:1:2:1:@0,a:1:2:1:@5)@5",
        "+release a:1:2 nobody PUBLISH",
        "1 T 0",
        "lock={kind:semaphore}@5 permits=(b:2:2:1:@0,b:2:2:2:@0)@1.5s",
        "",
    ),
    // The number that was set counts for them.
    (
        "line=(b:1:2:5,c:1:2:6)@12s lock={kind:semaphore,permits:1} permits=(a:1:2:1:@5)@5",
        "+release a:1:2 ch PUBLISH",
        "1 T 1",
        "line=(c:1:2:6)@12s lock={kind:semaphore,permits:1} permits=(b:1:2:1:@0)@1.5s",
        "ch=b:1:2",
    ),
    (
        "line=(b:2:2:5,c:1:2:6)@12s lock={kind:semaphore,permits:1} permits=(a:1:2:1:@5)@5",
        "+release a:1:2 ch PUBLISH",
        "1 T 1",
        "lock={kind:semaphore,permits:1} permits=(c:1:2:1:@0)@1.5s",
        "ch=b:2:2 ch=c:1:2",
    ),
    (
        "line=(b:1:1:5,c:1:3:6)@12s lock={permits:1,x:1}@5 permits=(a:1:2:1:@5,d:1:2:1:@5)@5",
        "+release a:1:2 ch PUBLISH",
        "1 T 0",
        "line=(b:1:1:5,c:1:3:6)@12s lock={permits:1,x:1}@5 permits=(d:1:2:1:@5)@5",
        "",
    ),
    // A reservation is given up like permits.
    (
        "line=(b:1:1:5)@12s lock={kind:semaphore}@5 permits=(a:1:1:1:@1)@5",
        "+release a:1:1 ch PUBLISH",
        "1 T 1",
        "lock={kind:semaphore}@5 permits=(b:1:1:1:@0)@1.5s",
        "ch=b:1:1",
    ),
    // Who had nothing leaves the line, and those behind go on.
    ("", "+release a:1:2 ch PUBLISH", "0 T", "=", ""),
    ("lock={kind:semaphore}@5", "+release a:1:2 ch PUBLISH", "0 T", "", ""),
    ("lock={kind:semaphore}@5 permits=(a:1:3:1:@5)@5", "+release a:1:2 ch PUBLISH", "0 T", "=", ""),
    (
        "heard=(a:2:2:1:@5)@5 line=(a:2:2:5,b:1:2:6)@12s lock={kind:semaphore}@5 \
         permits=(c:1:2:1:@5)@5",
        "+release a:2:2 ch PUBLISH",
        "0 T",
        "lock={kind:semaphore}@5 permits=(b:1:2:1:@0,c:1:2:1:@5)@5",
        "ch=b:1:2",
    ),
    ("line=(a:1:2:5)@12s lock={kind:semaphore}@5", "+release a:1:2 ch PUBLISH", "0 T", "", ""),
    // Values of others stay.
    (
        "line=(a:1:2:5,b:1:2:6)@12s permits=text",
        "+release a:1:2 ch PUBLISH",
        "-3 T",
        "line=(b:1:2:6)@12s permits=text",
        "",
    ),
    ("permits=[x]@5", "release a:1:2 ch PUBLISH", "-3 T", "=", ""),
    (
        "line=text lock={kind:semaphore}@5 permits=(a:1:2:1:@5)@5",
        "+release a:1:2 ch PUBLISH",
        "1 T 1",
        "line=text lock={kind:semaphore}@5",
        "ch=0",
    ),
    ("line=text lock={kind:semaphore}@5", "+release a:1:2 ch PUBLISH", "0 T", "=", ""),
];

pub(super) const RELEASE_AT: &[Row] = &[
    (
        "lock={kind:semaphore}@5 permits=(a:2:2:1:@5,a:2:2:2:@5)@5",
        "release_at a:2:2 soon 3M ch PUBLISH",
        "2 T 1",
        "lock={kind:semaphore}@5 permits=(a:2:2:1:@3,a:2:2:2:@3)@5",
        "ch=0",
    ),
    (
        "lock={kind:semaphore}@5 permits=(a:1:2:1:@5)@5",
        "release_at a:1:2 soon 9M ch SPUBLISH",
        "2 T 1",
        "lock={kind:semaphore}@5 permits=(a:1:2:1:@9)@9",
        "ch=0 sharded",
    ),
    (
        "lock={kind:semaphore}@5 permits=(a:1:2:1:@5)@5",
        "release_at a:1:2 soon 86400000 nobody PUBLISH",
        "2 T 0",
        "lock={kind:semaphore}@5 permits=(a:1:2:1:@86)@86",
        "",
    ),
    // Nothing is left until then.
    (
        "lock={kind:semaphore}@5 permits=(a:1:2:1:@5)@5",
        "release_at a:1:2 late 3M ch PUBLISH",
        "1 T 1",
        "lock={kind:semaphore}@5",
        "ch=0",
    ),
    (
        "permits=(a:2:2:1:@5,a:2:2:2:@5,b:1:2:1:@9)@9",
        "release_at a:2:2 late 3M nobody SPUBLISH",
        "1 T 0",
        "permits=(b:1:2:1:@9)@9",
        "",
    ),
    // A key without an end keeps none.
    (
        "permits=(a:1:2:1:@5)",
        "release_at a:1:2 soon 9M ch PUBLISH",
        "2 T 1",
        "permits=(a:1:2:1:@9)",
        "ch=0",
    ),
    ("", "release_at a:1:2 late 3M ch PUBLISH", "0 T", "=", ""),
    // The hold has none.
    ("", "release_at a:1:2 soon 3M ch PUBLISH", "0 T", "=", ""),
    (
        "lock={kind:semaphore}@5 permits=(b:1:2:1:@5)@5",
        "release_at a:1:2 soon 3M ch PUBLISH",
        "0 T",
        "=",
        "",
    ),
    ("permits=text", "release_at a:1:2 soon 3M ch PUBLISH", "-3 T", "=", ""),
    ("permits=text", "release_at a:1:2 late 3M ch PUBLISH", "-3 T", "=", ""),
];

pub(super) const RENEW: &[Row] = &[
    (
        "lock={kind:semaphore}@5 permits=(a:2:2:1:@5,a:2:2:2:@5)@5",
        "renew soon a:2:2 9M",
        "1 T 1",
        "lock={kind:semaphore}@9 permits=(a:2:2:1:@9,a:2:2:2:@9)@9",
        "",
    ),
    // Never shorter.
    ("lock={kind:semaphore}@5 permits=(a:1:2:1:@5)@5", "renew soon a:1:2 3M", "1 T 1", "=", ""),
    (
        "lock={kind:semaphore}@9 permits=(a:1:2:1:@3,b:1:2:1:@9)@9",
        "renew soon a:1:2 5M",
        "1 T 1",
        "lock={kind:semaphore}@9 permits=(a:1:2:1:@5,b:1:2:1:@9)@9",
        "",
    ),
    // Keys that have no end keep none.
    (
        "lock={kind:semaphore,permits:2} permits=(a:1:2:1:@5)",
        "renew soon a:1:2 9M",
        "1 T 1",
        "lock={kind:semaphore,permits:2} permits=(a:1:2:1:@9)",
        "",
    ),
    // A question.
    ("lock={kind:semaphore}@5 permits=(a:1:2:1:@5)@5", "renew soon a:1:2 1", "1 T 1", "=", ""),
    ("lock={kind:semaphore}@5 permits=(b:1:2:1:@5)@5", "renew soon a:1:2 1", "1 T 0", "=", ""),
    ("lock={kind:semaphore}@5 permits=(a:1:2:1:@5)@5", "renew late a:1:2 9M", "-1 T", "=", ""),
    // All permits, or none.
    ("", "renew soon a:1:2 9M", "1 T 0", "=", ""),
    ("lock={kind:semaphore}@5 permits=(a:2:2:1:@5)@5", "renew soon a:2:2 9M", "1 T 0", "=", ""),
    ("lock={kind:semaphore}@5 permits=(a:2:2:2:@5)@5", "renew soon a:2:2 9M", "1 T 0", "=", ""),
    ("lock={kind:semaphore}@5 permits=(a:1:2:1:@-1)@5", "renew soon a:1:2 9M", "1 T 0", "=", ""),
    ("lock={kind:semaphore}@5 permits=(a:1:2:1:@0)@5", "renew soon a:1:2 9M", "1 T 0", "=", ""),
    // What is under the name is left alone if it is another's.
    (
        "lock={b:1}@5 permits=(a:1:2:1:@5)@5",
        "renew soon a:1:2 9M",
        "1 T 1",
        "lock={b:1}@5 permits=(a:1:2:1:@9)@9",
        "",
    ),
    (
        "lock=text@5 permits=(a:1:2:1:@5)@5",
        "renew soon a:1:2 9M",
        "1 T 1",
        "lock=text@5 permits=(a:1:2:1:@9)@9",
        "",
    ),
    (
        "permits=(a:1:2:1:@5)@5",
        "renew soon a:1:2 86400000",
        "1 T 1",
        "permits=(a:1:2:1:@86)@86",
        "",
    ),
    ("permits=text", "renew soon a:1:2 9M", "1 T -3", "=", ""),
    // Many at once.
    (
        "lock1={kind:semaphore}@5 lock2={kind:semaphore}@3 permits1=(a:1:2:1:@5)@5 \
         permits2=(b:1:2:1:@3)@3",
        "renew soon a:1:2 9M b:1:2 5M",
        "1 T 1 1",
        "lock1={kind:semaphore}@9 lock2={kind:semaphore}@5 permits1=(a:1:2:1:@9)@9 \
         permits2=(b:1:2:1:@5)@5",
        "",
    ),
    (
        "lock1={kind:semaphore}@5 permits1=(a:1:2:1:@5)@5 permits2=text",
        "renew soon a:1:2 9M b:1:2 5M c:1:2 3M",
        "1 T 1 -3 0",
        "lock1={kind:semaphore}@9 permits1=(a:1:2:1:@9)@9 permits2=text",
        "",
    ),
];

pub(super) const FORCE_RELEASE: &[Row] = &[
    (
        "lock={kind:semaphore}@5 permits=(a:2:2:1:@5,a:2:2:2:@5)@5",
        "force_release a:2:2 soon ch PUBLISH client",
        "1 T 1",
        "lock={kind:semaphore}@5",
        "ch=0 client=lock",
    ),
    (
        "lock={kind:semaphore}@5 permits=(a:1:2:1:@5)@5",
        "force_release a:1:2 soon nobody SPUBLISH nobody",
        "1 T 0",
        "lock={kind:semaphore}@5",
        "",
    ),
    (
        "permits=(b:1:2:1:@3,a:1:1:1:@5)@5",
        "force_release a:1:1 soon ch SPUBLISH client",
        "1 T 1",
        "permits=(b:1:2:1:@3)@5",
        "ch=0 sharded client=lock",
    ),
    (
        "lock={kind:semaphore}@5 permits=(b:1:2:1:@5)@5",
        "force_release a:1:2 soon ch PUBLISH client",
        "0 T",
        "=",
        "",
    ),
    ("", "force_release a:1:2 soon ch PUBLISH client", "0 T", "=", ""),
    (
        "lock={kind:semaphore}@5 permits=(a:1:2:1:@5)@5",
        "force_release a:1:2 late ch PUBLISH client",
        "-1 T",
        "=",
        "",
    ),
    ("permits=text", "force_release a:1:2 soon ch PUBLISH client", "-3 T", "=", ""),
];

pub(super) const SET_PERMITS: &[Row] = &[
    (
        "",
        "set_permits set 7 2 soon 9M ch PUBLISH",
        "1 T 7",
        "lock={kind:semaphore,permits:7} operation=7@86",
        "ch=0",
    ),
    (
        "lock={kind:semaphore}@5 permits=(a:1:2:1:@5)@5",
        "set_permits set 1000000 2 soon 9M ch SPUBLISH",
        "1 T 1000000",
        "lock={kind:semaphore,permits:1000000} operation=1000000@86 permits=(a:1:2:1:@5)@5",
        "ch=0 sharded",
    ),
    // Nobody loses permits.
    (
        "lock={kind:semaphore,permits:4} permits=(a:2:4:1:@5,a:2:4:2:@5)@5",
        "set_permits set 1 2 soon 9M nobody PUBLISH",
        "1 T 1",
        "lock={kind:semaphore,permits:1} operation=1@86 permits=(a:2:4:1:@5,a:2:4:2:@5)@5",
        "",
    ),
    ("", "set_permits set 7 2 late 9M ch PUBLISH", "-1 T", "=", ""),
    // A copy that comes late does not undo what was set since.
    (
        "lock={kind:semaphore,permits:4} operation=9@5",
        "set_permits set 9 2 soon 9M nobody PUBLISH",
        "1 T 9",
        "=",
        "",
    ),
    // To the number that was set, else to one's own; once.
    (
        "",
        "set_permits add 3 2 soon 9M ch PUBLISH",
        "1 T 5",
        "lock={kind:semaphore,permits:5} operation=5@86",
        "ch=0",
    ),
    (
        "lock={kind:semaphore,permits:4}",
        "set_permits add 3 2 soon 86400000 ch PUBLISH",
        "1 T 7",
        "lock={kind:semaphore,permits:7} operation=7@86",
        "ch=0",
    ),
    (
        "lock={kind:semaphore,permits:9} operation=7@5",
        "set_permits add 3 2 soon 9M ch PUBLISH",
        "1 T 7",
        "=",
        "",
    ),
    (
        "lock={kind:semaphore,permits:9} operation=7@5",
        "set_permits add 3 2 late 9M ch PUBLISH",
        "1 T 7",
        "=",
        "",
    ),
    ("lock={kind:semaphore,permits:9}", "set_permits add 3 2 late 9M ch PUBLISH", "-1 T", "=", ""),
    (
        "lock={kind:semaphore,permits:999999}",
        "set_permits add 1 2 soon 9M ch PUBLISH",
        "1 T 1000000",
        "lock={kind:semaphore,permits:1000000} operation=1000000@86",
        "ch=0",
    ),
    (
        "lock={kind:semaphore,permits:999999}",
        "set_permits add 2 2 soon 9M ch PUBLISH",
        "-6 T 999999",
        "=",
        "",
    ),
    ("", "set_permits add 1000000 2 soon 9M ch PUBLISH", "-6 T 2", "=", ""),
    // Another kind of lock, or other data.
    ("lock=text", "set_permits set 7 2 soon 9M ch PUBLISH", "-4 T 1", "=", ""),
    ("lock={mode:read}@5", "set_permits add 7 2 soon 9M ch PUBLISH", "-4 T 4", "=", ""),
    ("lock={b:1}@5", "set_permits set 7 2 soon 9M ch PUBLISH", "-4 T 8", "=", ""),
    ("lock={kind:latch}@5", "set_permits set 7 2 soon 9M ch PUBLISH", "-4 T 10", "=", ""),
    (
        "lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1}@5",
        "set_permits add 7 2 soon 9M ch PUBLISH",
        "-4 T 12",
        "=",
        "",
    ),
    // A field that is like that of a lock, but is none, or not the only one.
    (
        "lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1,a:1}@5",
        "set_permits add 7 2 soon 9M ch PUBLISH",
        "-4 T 8",
        "=",
        "",
    ),
];

pub(super) const INSPECT: &[Row] = &[
    ("", "inspect", "4 T -2 -1 0", "=", ""),
    ("lock={kind:semaphore,permits:7}", "inspect", "4 T -1 7 0", "=", ""),
    (
        "lock={kind:semaphore}@5 permits=(c:1:2:1:@-1,d:1:2:1:@0,a:1:2:1:@3,b:1:2:1:@5)@5",
        "inspect",
        "4 T @5 -1 2",
        "=",
        "",
    ),
    ("permits=(a:1:2:1:@3)@5", "inspect", "4 T -2 -1 1", "=", ""),
    ("lock={kind:semaphore,permits:word}", "inspect", "4 T -1 -1 0", "=", ""),
    ("lock=text@5", "inspect", "2 T @5 string", "=", ""),
    ("lock=[x]", "inspect", "2 T -1 list", "=", ""),
    ("lock={mode:read}@5", "inspect", "6 T @5 4", "=", ""),
    ("lock={b:1}@5", "inspect", "6 T @5 8", "=", ""),
    ("lock={kind:latch}", "inspect", "6 T -1 10", "=", ""),
    ("lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1}@5", "inspect", "6 T @5 12", "=", ""),
    ("lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1,a:1}@5", "inspect", "6 T @5 8", "=", ""),
];

/// Each argument by its place; the limits are allowed.
pub(super) const BAD: &[Row] = &[
    ("", "+acquire ~ 3M late first 0 1 ch PUBLISH", "-9 T 1", "=", ""),
    ("", "+acquire a:1 3M late first 0 1 ch PUBLISH", "-9 T 1", "=", ""),
    ("", "+acquire a:x:2 3M late first 0 1 ch PUBLISH", "-9 T 1", "=", ""),
    ("", "+acquire a:0:2 3M late first 0 1 ch PUBLISH", "-9 T 1", "=", ""),
    ("", "+acquire a:1001:2000 3M late first 0 1 ch PUBLISH", "-9 T 1", "=", ""),
    ("", "+acquire a:1000:2000 3M late first 0 1 ch PUBLISH", "-1 T", "=", ""),
    ("", "+acquire a:1:0 3M late first 0 1 ch PUBLISH", "-9 T 1", "=", ""),
    ("", "+acquire a:1:1 3M late first 0 1 ch PUBLISH", "-1 T", "=", ""),
    ("", "+acquire a:1:1000001 3M late first 0 1 ch PUBLISH", "-9 T 1", "=", ""),
    ("", "+acquire a:1:1000000 3M late first 0 1 ch PUBLISH", "-1 T", "=", ""),
    ("", "+acquire a:1:2 x late first 0 1 ch PUBLISH", "-9 T 2", "=", ""),
    ("", "+acquire a:1:2 0 late first 0 1 ch PUBLISH", "-9 T 2", "=", ""),
    ("", "+acquire a:1:2 1 late first 0 1 ch PUBLISH", "-1 T", "=", ""),
    ("", "+acquire a:1:2 1.5 late first 0 1 ch PUBLISH", "-9 T 2", "=", ""),
    ("", "+acquire a:1:2 86400000 late first 0 1 ch PUBLISH", "-1 T", "=", ""),
    ("", "+acquire a:1:2 86400001 late first 0 1 ch PUBLISH", "-9 T 2", "=", ""),
    ("", "+acquire a:1:2 3M x first 0 1 ch PUBLISH", "-9 T 3", "=", ""),
    ("", "+acquire a:1:2 3M -1 first 0 1 ch PUBLISH", "-9 T 3", "=", ""),
    ("", "+acquire a:1:2 3M 0 first 0 1 ch PUBLISH", "-1 T", "=", ""),
    ("", "+acquire a:1:2 3M 1.5 first 0 1 ch PUBLISH", "-9 T 3", "=", ""),
    ("", "+acquire a:1:2 3M 9007199254740992 first 0 1 ch PUBLISH", "-9 T 3", "=", ""),
    ("", "+acquire a:1:2 3M late wait 0 1 ch PUBLISH", "-9 T 4", "=", ""),
    ("", "+acquire a:1:2 3M late try x 1 ch PUBLISH", "-9 T 5", "=", ""),
    ("", "+acquire a:1:2 3M late try -1 1 ch PUBLISH", "-9 T 5", "=", ""),
    ("", "+acquire a:1:2 3M late try 1.5 1 ch PUBLISH", "-9 T 5", "=", ""),
    ("", "+acquire a:1:2 3M late try 9007199254740991 1 ch PUBLISH", "-1 T", "=", ""),
    ("", "+acquire a:1:2 3M late try 9007199254740992 1 ch PUBLISH", "-9 T 5", "=", ""),
    ("", "+acquire a:1:2 3M late try 0 2 ch PUBLISH", "-9 T 6", "=", ""),
    ("", "+acquire a:1:2 3M late try 0 0 ch PUBLISH", "-1 T", "=", ""),
    ("", "+acquire a:1:2 3M late again 0 1 ~ PUBLISH", "-9 T 7", "=", ""),
    ("", "+acquire a:1:2 3M late again 0 1 c SPUBLISH", "-1 T", "=", ""),
    ("", "+acquire a:1:2 3M late again 0 1 ch publish", "-9 T 8", "=", ""),
    ("", "+release a:1 ch PUBLISH", "-9 T 1", "=", ""),
    ("", "+release a:1:2 ~ PUBLISH", "-9 T 2", "=", ""),
    ("", "+release a:1:2 c PUBLISH", "0 T", "=", ""),
    ("", "+release a:1:2 ch publish", "-9 T 3", "=", ""),
    ("", "release_at a:1 late 3M ch PUBLISH", "-9 T 1", "=", ""),
    ("", "release_at a:1:2 x 3M ch PUBLISH", "-9 T 2", "=", ""),
    ("", "release_at a:1:2 -1 3M ch PUBLISH", "-9 T 2", "=", ""),
    ("", "release_at a:1:2 0 3M ch PUBLISH", "0 T", "=", ""),
    ("", "release_at a:1:2 1.5 3M ch PUBLISH", "-9 T 2", "=", ""),
    ("", "release_at a:1:2 9007199254740992 3M ch PUBLISH", "-9 T 2", "=", ""),
    ("", "release_at a:1:2 late x ch PUBLISH", "-9 T 3", "=", ""),
    ("", "release_at a:1:2 late 0 ch PUBLISH", "-9 T 3", "=", ""),
    ("", "release_at a:1:2 late 1 ch PUBLISH", "0 T", "=", ""),
    ("", "release_at a:1:2 late 1.5 ch PUBLISH", "-9 T 3", "=", ""),
    ("", "release_at a:1:2 late 86400001 ch PUBLISH", "-9 T 3", "=", ""),
    ("", "release_at a:1:2 late 3M ~ PUBLISH", "-9 T 4", "=", ""),
    ("", "release_at a:1:2 late 3M c PUBLISH", "0 T", "=", ""),
    ("", "release_at a:1:2 late 3M ch publish", "-9 T 5", "=", ""),
    ("", "renew x a:1:2 3M", "-9 T 1", "=", ""),
    ("", "renew -1 a:1:2 3M", "-9 T 1", "=", ""),
    ("", "renew 0 a:1:2 3M", "-1 T", "=", ""),
    ("", "renew 1.5 a:1:2 3M", "-9 T 1", "=", ""),
    ("", "renew 9007199254740992 a:1:2 3M", "-9 T 1", "=", ""),
    ("", "renew late a:1:2", "-9 T 2", "=", ""),
    ("", "renew late a:1 3M", "-9 T 2", "=", ""),
    ("", "renew late a:1:2 x", "-9 T 3", "=", ""),
    ("", "renew late a:1:2 0", "-9 T 3", "=", ""),
    ("", "renew late a:1:2 1.5", "-9 T 3", "=", ""),
    ("", "renew late a:1:2 86400000", "-1 T", "=", ""),
    ("", "renew late a:1:2 86400001", "-9 T 3", "=", ""),
    ("", "renew late a:1:2 3M b:1:2 0", "-9 T 5", "=", ""),
    ("", "set_permits x 7 2 late 9M ch PUBLISH", "-9 T 1", "=", ""),
    ("", "set_permits set x 2 late 9M ch PUBLISH", "-9 T 2", "=", ""),
    ("", "set_permits set 0 2 late 9M ch PUBLISH", "-9 T 2", "=", ""),
    ("", "set_permits set 1 2 late 9M ch PUBLISH", "-1 T", "=", ""),
    ("", "set_permits set 1.5 2 late 9M ch PUBLISH", "-9 T 2", "=", ""),
    ("", "set_permits set 1000001 2 late 9M ch PUBLISH", "-9 T 2", "=", ""),
    ("", "set_permits set 7 x late 9M ch PUBLISH", "-9 T 3", "=", ""),
    ("", "set_permits set 7 0 late 9M ch PUBLISH", "-9 T 3", "=", ""),
    ("", "set_permits set 7 1 late 9M ch PUBLISH", "-1 T", "=", ""),
    ("", "set_permits set 7 1.5 late 9M ch PUBLISH", "-9 T 3", "=", ""),
    ("", "set_permits set 7 1000000 late 9M ch PUBLISH", "-1 T", "=", ""),
    ("", "set_permits set 7 1000001 late 9M ch PUBLISH", "-9 T 3", "=", ""),
    ("", "set_permits set 7 2 x 9M ch PUBLISH", "-9 T 4", "=", ""),
    ("", "set_permits set 7 2 -1 9M ch PUBLISH", "-9 T 4", "=", ""),
    ("", "set_permits set 7 2 0 9M ch PUBLISH", "-1 T", "=", ""),
    ("", "set_permits set 7 2 1.5 9M ch PUBLISH", "-9 T 4", "=", ""),
    ("", "set_permits set 7 2 9007199254740992 9M ch PUBLISH", "-9 T 4", "=", ""),
    ("", "set_permits set 7 2 late x ch PUBLISH", "-9 T 5", "=", ""),
    ("", "set_permits set 7 2 late 0 ch PUBLISH", "-9 T 5", "=", ""),
    ("", "set_permits set 7 2 late 1 ch PUBLISH", "-1 T", "=", ""),
    ("", "set_permits set 7 2 late 1.5 ch PUBLISH", "-9 T 5", "=", ""),
    ("", "set_permits set 7 2 late 86400001 ch PUBLISH", "-9 T 5", "=", ""),
    ("", "set_permits set 7 2 late 9M ~ PUBLISH", "-9 T 6", "=", ""),
    ("", "set_permits set 7 2 late 9M c PUBLISH", "-1 T", "=", ""),
    ("", "set_permits set 7 2 late 9M ch publish", "-9 T 7", "=", ""),
    ("", "force_release a:1 late ch PUBLISH client", "-9 T 1", "=", ""),
    ("", "force_release a:1:2 x ch PUBLISH client", "-9 T 2", "=", ""),
    ("", "force_release a:1:2 -1 ch PUBLISH client", "-9 T 2", "=", ""),
    ("", "force_release a:1:2 0 ch PUBLISH client", "-1 T", "=", ""),
    ("", "force_release a:1:2 1.5 ch PUBLISH client", "-9 T 2", "=", ""),
    ("", "force_release a:1:2 9007199254740992 ch PUBLISH client", "-9 T 2", "=", ""),
    ("", "force_release a:1:2 late ~ PUBLISH client", "-9 T 3", "=", ""),
    ("", "force_release a:1:2 late c PUBLISH client", "-1 T", "=", ""),
    ("", "force_release a:1:2 late ch publish client", "-9 T 4", "=", ""),
    ("", "force_release a:1:2 late ch PUBLISH ~", "-9 T 5", "=", ""),
    ("", "force_release a:1:2 late ch PUBLISH c", "-1 T", "=", ""),
];
