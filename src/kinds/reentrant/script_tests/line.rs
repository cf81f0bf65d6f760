//! What each script does with the line, and with reservations.

use crate::kinds::script_tests::tables::Row;

pub(in crate::kinds) const ACQUIRE: &[Row] = &[
    // Held by another. Who hears enters the line behind all others, or at the ticket that it names.
    (
        "lock={b:1}@5",
        "+acquire a 1 9M soon first 0 1",
        "0 T @5 b T 0",
        "line=(a:T)@12s lock={b:1}@5",
        "",
    ),
    (
        "lock={b:1}",
        "+acquire a 1 9M soon first 0 1",
        "0 T -1 b T 0",
        "line=(a:T)@12s lock={b:1}",
        "",
    ),
    (
        "line=(c:5)@5 lock={b:1}@5",
        "+acquire a 1 9M soon first 0 1",
        "0 T @5 b T 1",
        "line=(c:5,a:T)@12s lock={b:1}@5",
        "",
    ),
    (
        "line=(c:9000000000000000) lock={b:1}@5",
        "+acquire a 1 9M soon again 0 1 ch PUBLISH",
        "0 T @5 b 9000000000000001 1",
        "line=(c:9000000000000000,a:9000000000000001)@12s lock={b:1}@5",
        "",
    ),
    (
        "line=(c:5,d:7)@5 lock={b:1}@5",
        "+acquire a 1 9M soon again 6 1 ch PUBLISH",
        "0 T @5 b 6 1",
        "line=(c:5,a:6,d:7)@12s lock={b:1}@5",
        "",
    ),
    (
        "line=(c:5,d:6,e:9000000000000000) lock={b:1}@5",
        "+acquire a 1 9M soon first 0 1",
        "0 T @5 b 9000000000000001 3",
        "line=(c:5,d:6,e:9000000000000000,a:9000000000000001)@12s lock={b:1}@5",
        "",
    ),
    // A place stays as it is, whatever ticket is named.
    (
        "line=(c:5,a:6)@5 lock={b:1}@5",
        "+acquire a 1 9M soon again 1 1 ch SPUBLISH",
        "0 T @5 b 6 1",
        "line=(c:5,a:6)@12s lock={b:1}@5",
        "",
    ),
    (
        "line=(c:5,a:6)@5 lock={b:1}@5",
        "+acquire a 1 9M soon first 0 1",
        "0 T @5 b 6 1",
        "line=(c:5,a:6)@12s lock={b:1}@5",
        "",
    ),
    (
        "line=(a:5,c:5)@5 lock={b:1}@5",
        "+acquire c 1 9M soon again 5 1 ch PUBLISH",
        "0 T @5 b 5 0",
        "line=(a:5,c:5)@12s lock={b:1}@5",
        "",
    ),
    // Who does not hear has a ticket, but no place.
    ("lock={b:1}@5", "+acquire a 1 9M soon first 0 0", "0 T @5 b T 0", "=", ""),
    (
        "line=(c:5)@5 lock={b:1}@5",
        "+acquire a 1 9M soon again 6 0 ch PUBLISH",
        "0 T @5 b 6 1",
        "=",
        "",
    ),
    (
        "line=(a:5,c:6)@5 lock={b:1}@5",
        "+acquire a 1 9M soon again 7 0 ch PUBLISH",
        "0 T @5 b 5 0",
        "line=(c:6)@5 lock={b:1}@5",
        "",
    ),
    (
        "line=(a:5)@5 lock={b:1}@5",
        "+acquire a 1 9M soon again 5 0 ch PUBLISH",
        "0 T @5 b 5 0",
        "lock={b:1}@5",
        "",
    ),
    // Who does not wait, or names no line, has neither.
    ("line=(a:5)@5 lock={b:1}@5", "+acquire a 1 9M soon try 0 1", "0 T @5 b", "=", ""),
    ("line=(a:5)@5 lock={b:1}@5", "acquire a 1 9M soon first 0 1", "0 T @5 b", "=", ""),
    ("line=(a:5)@5 lock={b:1}@5", "acquire a 1 9M soon again 5 1", "-5 T", "=", ""),
    // Reserved for another: as if it were held.
    (
        "lock={b:0}@1.5s",
        "+acquire a 1 9M soon first 0 1",
        "0 T @1.5s b T 0",
        "line=(a:T)@12s lock={b:0}@1.5s",
        "",
    ),
    ("lock={b:0}@1.5s", "+acquire a 1 9M soon try 0 0", "0 T @1.5s b", "=", ""),
    ("lock={b:0}@1.5s", "acquire a 1 9M soon again 5 1", "-5 T", "=", ""),
    ("lock={b:0}@1.5s", "acquire a 2 9M soon try 0 0", "-3 T", "=", ""),
    // Reserved for the one that asks: picked up, for exactly the lease.
    (
        "fence=7 lock={a:0}@1.5s",
        "+acquire a 1 3M soon again 5 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={a:1}@3",
        "",
    ),
    (
        "line=(b:7)@12s lock={a:0}@1.5s",
        "+acquire a 1 3M soon again 5 0 ch PUBLISH",
        "1 T T",
        "fence=T line=(b:7)@12s lock={a:1}@3",
        "",
    ),
    ("lock={a:0}@1.5s", "acquire a 1 3M soon again 5 1", "1 T T", "fence=T lock={a:1}@3", ""),
    ("lock={a:0}@9", "+acquire a 1 3M soon first 0 1", "1 T T", "fence=T lock={a:1}@3", ""),
    ("lock={a:0}@9", "+acquire a 1 3M soon try 0 0", "1 T T", "fence=T lock={a:1}@3", ""),
    ("lock={a:0}", "acquire a 1 3M soon try 0 0", "1 T T", "fence=T lock={a:1}@3", ""),
    ("lock={a:0}@1.5s", "acquire a 2 3M soon try 0 0", "-3 T", "=", ""),
    ("fence=word lock={a:0}@1.5s", "acquire a 1 3M soon try 0 0", "-4 T 5", "=", ""),
    // Another program has put something beside the reservation: nobody may have the lock.
    ("lock={a:0,b:1}@5", "acquire a 1 3M soon try 0 0", "-4 T 2", "=", ""),
    ("lock={a:0,b:1}@5", "acquire a 2 3M soon try 0 0", "-4 T 2", "=", ""),
    ("lock={a:0,mode:read}@5", "acquire a 1 3M soon try 0 0", "-4 T 4", "=", ""),
    // A repeat.
    ("lock={a:2}@5", "acquire a 1 3M soon again 5 1", "1 T T", "fence=T lock={a:2}@5", ""),
    (
        "line=(b:5)@12s lock={a:1}@5",
        "+acquire a 1 9M soon again 7 1 ch PUBLISH",
        "1 T T",
        "fence=T line=(b:5)@12s lock={a:1}@9",
        "",
    ),
    ("lock={b:1}@5", "+acquire a 2 9M soon again 5 1 ch PUBLISH", "-3 T", "=", ""),
    ("line=(b:5)@12s", "+acquire a 2 9M soon again 5 1 ch PUBLISH", "-2 T", "=", ""),
    // Free, and nobody was told to wait: granted, whoever is in the line.
    (
        "line=(b:5)@12s",
        "+acquire a 1 3M soon first 0 1",
        "1 T T",
        "fence=T line=(b:5)@12s lock={a:1}@3",
        "",
    ),
    ("line=text", "+acquire a 1 3M soon try 0 0", "1 T T", "fence=T line=text lock={a:1}@3", ""),
    // Free, and asked for again: it is the first in line's.
    ("", "acquire a 1 3M soon again 5 1", "-5 T", "=", ""),
    ("line=(a:5)@12s", "acquire a 1 3M soon again 5 1", "-5 T", "=", ""),
    ("", "+acquire a 1 3M soon again 0 1 ch PUBLISH", "1 T T", "fence=T lock={a:1}@3", ""),
    (
        "line=(a:5,b:7)@5",
        "+acquire a 1 3M soon again 5 1 ch PUBLISH",
        "1 T T",
        "fence=T line=(b:7)@5 lock={a:1}@3",
        "",
    ),
    (
        "line=(a:5)@12s",
        "+acquire a 1 3M soon again 0 0 ch SPUBLISH",
        "1 T T",
        "fence=T lock={a:1}@3",
        "",
    ),
    (
        "line=(b:5,c:6)@5",
        "+acquire a 1 3M soon again 7 1 ch PUBLISH",
        "0 T @1.5s b 7 1",
        "line=(c:6,a:7)@12s lock={b:0}@1.5s",
        "ch=b",
    ),
    (
        "line=(b:5)@5",
        "+acquire a 1 3M soon again 0 1 ch SPUBLISH",
        "0 T @1.5s b T 0",
        "line=(a:T)@12s lock={b:0}@1.5s",
        "ch=b sharded",
    ),
    (
        "line=(b:9000000000000000)@5",
        "+acquire a 1 3M soon again 0 1 nobody PUBLISH",
        "0 T @1.5s b 9000000000000001 0",
        "line=(a:9000000000000001)@12s lock={b:0}@1.5s",
        "",
    ),
    (
        "line=(b:5,c:6)@5",
        "+acquire a 1 3M soon again 7 0 ch PUBLISH",
        "0 T @1.5s b 7 1",
        "line=(c:6)@5 lock={b:0}@1.5s",
        "ch=b",
    ),
    (
        "line=(b:5,a:6)@5",
        "+acquire a 1 3M soon again 6 0 ch PUBLISH",
        "0 T @1.5s b 6 0",
        "lock={b:0}@1.5s",
        "ch=b",
    ),
    // Who has lost its place is first at a lower ticket, and at an equal one: the place with that is
    // of an earlier id of the same client.
    (
        "line=(b:5)@12s",
        "+acquire a 1 3M soon again 4 1 ch PUBLISH",
        "1 T T",
        "fence=T line=(b:5)@12s lock={a:1}@3",
        "",
    ),
    (
        "line=(b:5)@12s",
        "+acquire a 1 3M soon again 5 1 ch PUBLISH",
        "1 T T",
        "fence=T line=(b:5)@12s lock={a:1}@3",
        "",
    ),
    // A place counts, and not the ticket that is named.
    (
        "line=(b:5,a:7)@5",
        "+acquire a 1 3M soon again 4 1 ch PUBLISH",
        "0 T @1.5s b 7 0",
        "line=(a:7)@12s lock={b:0}@1.5s",
        "ch=b",
    ),
    (
        "line=(a:5,b:5)@5",
        "+acquire b 1 3M soon again 5 1 ch PUBLISH",
        "0 T @1.5s a 5 0",
        "line=(b:5)@12s lock={a:0}@1.5s",
        "ch=a",
    ),
    ("fence=word line=(a:5)@5", "+acquire a 1 3M soon again 5 1 ch PUBLISH", "-4 T 5", "=", ""),
    (
        "fence=word line=(b:5)@5",
        "+acquire a 1 3M soon again 7 1 ch PUBLISH",
        "0 T @1.5s b 7 0",
        "fence=word line=(a:7)@12s lock={b:0}@1.5s",
        "ch=b",
    ),
    // What is no line is told to those who would use it.
    ("line=text", "+acquire a 1 3M soon again 5 1 ch PUBLISH", "-4 T 6", "=", ""),
    ("line={a:1} lock={b:1}@5", "+acquire a 1 3M soon first 0 1", "-4 T 6", "=", ""),
    ("line=[x] lock={b:1}@5", "+acquire a 1 3M soon try 0 0", "0 T @5 b", "=", ""),
    ("line=text lock=text", "+acquire a 1 3M soon again 5 1 ch PUBLISH", "-4 T 1", "=", ""),
];

pub(in crate::kinds) const RELEASE: &[Row] = &[
    // The lock goes to the first in line.
    (
        "line=(b:5,c:6)@5 lock={a:3}@5",
        "+release a 0 ch PUBLISH",
        "1 T 1",
        "line=(c:6)@5 lock={b:0}@1.5s",
        "ch=b",
    ),
    (
        "line=(b:5)@12s lock={a:1}",
        "+release a 0 ch SPUBLISH",
        "1 T 1",
        "lock={b:0}@1.5s",
        "ch=b sharded",
    ),
    ("line=(b:5)@12s lock={a:1}@5", "+release a 0 nobody PUBLISH", "1 T 0", "lock={b:0}@1.5s", ""),
    ("lock={a:1}@5", "+release a 0 ch PUBLISH", "1 T 1", "", "ch=0"),
    ("line=text lock={a:1}@5", "+release a 0 ch PUBLISH", "1 T 1", "line=text", "ch=0"),
    ("line=(b:5)@12s lock={a:1}@5", "release a 0 ch PUBLISH", "1 T 1", "line=(b:5)@12s", "ch=0"),
    // A reservation is refused.
    ("lock={a:0}@1.5s", "release a 0 ch PUBLISH", "1 T 1", "", "ch=0"),
    (
        "line=(b:5)@12s lock={a:0}@1.5s",
        "+release a 0 ch PUBLISH",
        "1 T 1",
        "lock={b:0}@1.5s",
        "ch=b",
    ),
    // With data of another program nobody can have the lock.
    (
        "line=(b:5)@12s lock={a:1,x:1}@5",
        "+release a 0 ch PUBLISH",
        "3 T 1",
        "line=(b:5)@12s lock={x:1}",
        "ch=0",
    ),
    (
        "line=(b:5)@12s lock={a:0,mode:read}@5",
        "+release a 0 ch PUBLISH",
        "4 T 1",
        "line=(b:5)@12s lock={mode:read}@5",
        "ch=0",
    ),
    // A place is given up.
    (
        "line=(a:5,b:6)@5 lock={c:1}@5",
        "+release a 0 ch PUBLISH",
        "-3 T",
        "line=(b:6)@5 lock={c:1}@5",
        "",
    ),
    ("line=(a:5)@5 lock={c:0}@1.5s", "+release a 0 ch PUBLISH", "-3 T", "lock={c:0}@1.5s", ""),
    ("line=(a:5)@5 lock=text", "+release a 0 ch PUBLISH", "-3 T", "lock=text", ""),
    ("line=(a:5)@5 lock={x:1,y:1}", "+release a 0 ch PUBLISH", "-3 T", "lock={x:1,y:1}", ""),
    ("line=(a:5)@5 lock={c:1}@5", "release a 0 ch PUBLISH", "-3 T", "=", ""),
    ("line=(b:5)@5 lock={c:1}@5", "+release a 0 ch PUBLISH", "-3 T", "=", ""),
    ("line=text lock={c:1}@5", "+release a 0 ch PUBLISH", "-3 T", "=", ""),
    // A free lock is passed on, whoever asks; without a line nobody is told anything.
    (
        "line=(a:5,b:6,c:7)@5",
        "+release a 0 ch PUBLISH",
        "0 T",
        "line=(c:7)@5 lock={b:0}@1.5s",
        "ch=b",
    ),
    ("line=(b:6)@5", "+release a 0 ch SPUBLISH", "0 T", "lock={b:0}@1.5s", "ch=b sharded"),
    ("line=(a:5)@5", "+release a 0 ch PUBLISH", "0 T", "", ""),
    ("line=(a:5,b:6)@5", "release a 0 ch PUBLISH", "0 T", "=", ""),
    ("line=text", "+release a 0 ch PUBLISH", "0 T", "=", ""),
    ("", "+release a 0 ch PUBLISH", "0 T", "=", ""),
    // A count is set for a hold only, and has nothing to do with the line.
    (
        "line=(a:5,b:6)@5 lock={a:3}@5",
        "+release a 2 ch PUBLISH",
        "2 T",
        "line=(a:5,b:6)@5 lock={a:2}@5",
        "",
    ),
    ("line=(a:5,b:6)@5", "+release a 1 ch PUBLISH", "0 T", "=", ""),
    ("line=(a:5)@5 lock={c:1}@5", "+release a 1 ch PUBLISH", "-3 T", "=", ""),
    ("line=(a:5)@5 lock=text", "+release a 1 ch PUBLISH", "-3 T", "=", ""),
    ("lock={a:0}@1.5s", "+release a 1 ch PUBLISH", "-3 T", "=", ""),
];

pub(in crate::kinds) const RELEASE_MANY: &[Row] = &[
    (
        "line=(b:5,c:6)@5 lock={a:3}@5",
        "+release_many PUBLISH a ch",
        "1 T 1",
        "line=(c:6)@5 lock={b:0}@1.5s",
        "ch=b",
    ),
    (
        "line=(b:5)@12s lock={a:1}@5",
        "release_many SPUBLISH a ch",
        "1 T 1",
        "line=(b:5)@12s",
        "ch=0 sharded",
    ),
    ("lock={a:1}@5", "+release_many PUBLISH a ch", "1 T 1", "", "ch=0"),
    (
        "line=(b:5)@12s lock={a:0}@1.5s",
        "+release_many PUBLISH a ch",
        "1 T 1",
        "lock={b:0}@1.5s",
        "ch=b",
    ),
    ("line=(a:5,b:6)@12s lock={b:1}@5", "+release_many PUBLISH a ch", "1 T -5", "=", ""),
    ("line=(a:5,b:6)@12s", "+release_many PUBLISH a ch", "1 T -5", "=", ""),
    ("line=(b:5)@12s lock={a:1,x:1}@5", "+release_many PUBLISH a ch", "1 T -5", "=", ""),
    // Each with the line of its own.
    (
        "line1=(x:5)@12s line2=(y:6,z:7)@5 lock1={a:1}@5 lock2={b:1}@5 lock3={c:1}@5",
        "+release_many PUBLISH a ch b client c ch",
        "1 T 1 1 1",
        "line2=(z:7)@5 lock1={x:0}@1.5s lock2={y:0}@1.5s",
        "ch=x client=y ch=0",
    ),
];

pub(in crate::kinds) const RELEASE_AT: &[Row] = &[
    // The line hears of the new time to live, and stays.
    (
        "line=(b:5)@12s lock={a:1}@5",
        "+release_at a soon 3M ch PUBLISH",
        "2 T 1",
        "line=(b:5)@12s lock={a:kept:0}@3",
        "ch=0",
    ),
    (
        "line=(b:5,c:6)@5 lock={a:2}@5",
        "+release_at a late 3M ch SPUBLISH",
        "1 T 1",
        "line=(c:6)@5 lock={b:0}@1.5s",
        "ch=b sharded",
    ),
    (
        "line=(b:5)@12s lock={a:2}@5",
        "release_at a late 3M ch PUBLISH",
        "1 T 1",
        "line=(b:5)@12s",
        "ch=0",
    ),
    ("lock={a:2}@5", "+release_at a late 3M ch PUBLISH", "1 T 1", "", "ch=0"),
    (
        "line=(b:5)@12s lock={a:2,x:1}@5",
        "+release_at a late 3M ch PUBLISH",
        "3 T 1",
        "line=(b:5)@12s lock={x:1}",
        "ch=0",
    ),
    ("lock={a:0}@1.5s", "+release_at a soon 3M ch PUBLISH", "-3 T", "=", ""),
    ("line=(b:5)@12s lock={a:0}@1.5s", "+release_at a late 3M ch PUBLISH", "-3 T", "=", ""),
    ("line=(b:5)@12s", "+release_at a late 3M ch PUBLISH", "0 T", "=", ""),
];

pub(in crate::kinds) const RENEW: &[Row] = &[
    ("lock={a:0}@1.5s", "renew soon a 9M", "1 T -3", "=", ""),
    ("lock={a:0}@1.5s", "renew soon a 1", "1 T -3", "=", ""),
    (
        "lock1={a:0}@1.5s lock2={b:1}@5",
        "renew soon a 9M b 9M",
        "1 T -3 1",
        "lock1={a:0}@1.5s lock2={b:1}@9",
        "",
    ),
];

pub(in crate::kinds) const INSPECT: &[Row] =
    &[("lock={a:0}@1.5s", "inspect", "1 T @1.5s 1 a 0", "=", "")];

pub(in crate::kinds) const HAND_OFF: &[Row] = &[
    // The line is not looked at.
    (
        "fence=7 line=(c:5)@5 lock={a:1}@5",
        "+hand_off a b 3M soon ch PUBLISH 0 1",
        "1 T T",
        "fence=T line=(c:5)@5 lock={b:1}@3",
        "",
    ),
    (
        "line=(c:5)@5 lock={a:1}@5",
        "hand_off a b 3M soon ch PUBLISH 1 1",
        "1 T T",
        "fence=T line=(c:5)@5 lock={b:1}@3",
        "",
    ),
    // The first in line goes first, and `to` waits behind all that are there.
    (
        "fence=7 line=(c:5,d:6)@5 lock={a:1}@5",
        "+hand_off a b 3M soon ch PUBLISH 1 1",
        "5 T @1.5s c T 1",
        "fence=T line=(d:6,b:T)@12s lock={c:0}@1.5s",
        "ch=c",
    ),
    (
        "line=(c:9000000000000000)@5 lock={a:1}",
        "+hand_off a b 3M soon ch SPUBLISH 1 1",
        "5 T @1.5s c 9000000000000001 0",
        "fence=T line=(b:9000000000000001)@12s lock={c:0}@1.5s",
        "ch=c sharded",
    ),
    (
        "line=(c:5,d:6)@5 lock={a:1}@5",
        "+hand_off a b 3M soon nobody PUBLISH 1 0",
        "5 T @1.5s c T 1",
        "fence=T line=(d:6)@5 lock={c:0}@1.5s",
        "",
    ),
    (
        "line=(c:5,d:6,e:9000000000000000)@5 lock={a:1}@5",
        "+hand_off a b 3M soon ch PUBLISH 1 1",
        "5 T @1.5s c 9000000000000001 2",
        "fence=T line=(d:6,e:9000000000000000,b:9000000000000001)@12s lock={c:0}@1.5s",
        "ch=c",
    ),
    // Beyond what clients do: `to` has a place.
    (
        "line=(c:5,d:5)@5 lock={a:1}@5",
        "+hand_off a d 3M soon ch PUBLISH 1 1",
        "5 T @1.5s c 5 0",
        "fence=T line=(d:5)@12s lock={c:0}@1.5s",
        "ch=c",
    ),
    (
        "line=(c:5,b:6,d:7)@5 lock={a:1}@5",
        "+hand_off a b 3M soon ch PUBLISH 1 0",
        "5 T @1.5s c 6 0",
        "fence=T line=(d:7)@5 lock={c:0}@1.5s",
        "ch=c",
    ),
    (
        "line=(c:5,b:6,d:7)@5 lock={a:1}@5",
        "+hand_off a b 3M soon ch PUBLISH 1 1",
        "5 T @1.5s c 6 0",
        "fence=T line=(b:6,d:7)@12s lock={c:0}@1.5s",
        "ch=c",
    ),
    (
        "line=(b:6,d:7)@5 lock={a:1}@5",
        "+hand_off a b 3M soon ch PUBLISH 1 1",
        "1 T T",
        "fence=T line=(b:6,d:7)@5 lock={b:1}@3",
        "",
    ),
    // Nobody is there.
    ("lock={a:1}@5", "+hand_off a b 3M soon ch PUBLISH 1 1", "1 T T", "fence=T lock={b:1}@3", ""),
    (
        "line=text lock={a:1}@5",
        "+hand_off a b 3M soon ch PUBLISH 1 1",
        "1 T T",
        "fence=T line=text lock={b:1}@3",
        "",
    ),
    // Nothing is granted: the lock is passed on.
    (
        "line=(c:5)@5 lock={a:1}@5",
        "+hand_off a b 3M late ch PUBLISH 0 1",
        "-1 T 1",
        "lock={c:0}@1.5s",
        "ch=c",
    ),
    (
        "fence=word line=(c:5,d:6)@5 lock={a:1}@5",
        "+hand_off a b 3M soon ch SPUBLISH 1 1",
        "2 T 1",
        "fence=word line=(d:6)@5 lock={c:0}@1.5s",
        "ch=c sharded",
    ),
    (
        "fence={x:1} line=(c:5)@5 lock={a:1}@5",
        "+hand_off a b 3M soon ch PUBLISH 0 1",
        "2 T 1",
        "fence={x:1} lock={c:0}@1.5s",
        "ch=c",
    ),
    (
        "line=(c:5)@5 lock={a:1,x:1}@5",
        "+hand_off a b 3M soon ch PUBLISH 1 1",
        "3 T 1",
        "line=(c:5)@5 lock={x:1}",
        "ch=0",
    ),
    // `to` has the lock already.
    (
        "line=(c:5)@5 lock={b:1}@5",
        "+hand_off a b 9M soon ch PUBLISH 1 1",
        "1 T T",
        "fence=T line=(c:5)@5 lock={b:1}@9",
        "",
    ),
    ("line=(c:5)@5 lock={b:1}@5", "+hand_off a b 9M late ch PUBLISH 1 1", "-1 T 0", "=", ""),
    (
        "line=(c:5)@5 lock={a:1,b:2}@5",
        "+hand_off a b 9M late ch PUBLISH 1 1",
        "-1 T 1",
        "line=(c:5)@5 lock={b:2}@5",
        "ch=0",
    ),
    // A reservation is no hold.
    ("lock={a:0}@1.5s", "+hand_off a b 3M soon ch PUBLISH 1 1", "-3 T", "=", ""),
    ("lock={b:0}@1.5s", "+hand_off a b 3M soon ch PUBLISH 0 1", "-3 T", "=", ""),
    ("line=(c:5)@5 lock={b:0}@1.5s", "+hand_off a b 3M late ch PUBLISH 0 1", "-3 T", "=", ""),
    ("lock={a:1,b:0}@5", "+hand_off a b 3M soon ch PUBLISH 0 1", "3 T 1", "lock={b:0}", "ch=0"),
    (
        "lock={a:0,b:1}@5",
        "+hand_off a b 9M soon ch PUBLISH 0 1",
        "1 T T",
        "fence=T lock={a:0,b:1}@9",
        "",
    ),
    ("line=(c:5)@5", "+hand_off a b 3M soon ch PUBLISH 1 1", "0 T", "=", ""),
];

pub(in crate::kinds) const FORCE_RELEASE: &[Row] = &[
    (
        "line=(b:5,c:6)@5 lock={a:3}@5",
        "+force_release a soon ch PUBLISH client",
        "1 T 1",
        "line=(c:6)@5 lock={b:0}@1.5s",
        "ch=b client=lock",
    ),
    (
        "line=(b:5)@12s lock={a:0}@1.5s",
        "+force_release a soon ch SPUBLISH client",
        "1 T 1",
        "lock={b:0}@1.5s",
        "ch=b sharded client=lock",
    ),
    ("lock={a:0}@1.5s", "force_release a soon ch PUBLISH client", "1 T 1", "", "ch=0 client=lock"),
    (
        "line=(b:5)@12s lock={a:1}@5",
        "force_release a soon ch PUBLISH client",
        "1 T 1",
        "line=(b:5)@12s",
        "ch=0 client=lock",
    ),
    (
        "line=(b:5)@12s lock={a:1,x:1}@5",
        "+force_release a soon ch PUBLISH client",
        "3 T 1",
        "line=(b:5)@12s lock={x:1}",
        "ch=0 client=lock",
    ),
    ("line=(a:5,b:6)@5", "+force_release a soon ch PUBLISH client", "0 T", "=", ""),
    ("line=(a:5)@5 lock={b:0}@1.5s", "+force_release a soon ch PUBLISH client", "-3 T", "=", ""),
    ("line=(b:5)@5 lock={a:1}@5", "+force_release a late ch PUBLISH client", "-1 T", "=", ""),
];
