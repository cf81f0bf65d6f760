//! What each script does in each state of the key.

use crate::backend::ScriptCall;
use crate::backend::words::Words;
use crate::kinds::command::PERMISSIONS;
use crate::kinds::reentrant::script_tests::line;
use crate::kinds::reentrant::script_tests::parse_call;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::observe;
use crate::kinds::script_tests::set_up;
use crate::kinds::script_tests::tables::Row;
use crate::kinds::script_tests::tables::check;
use crate::kinds::script_tests::tables::check_table;
use crate::kinds::script_tests::text::Times;

/// Everything that may be under a name without being a lock that `a` or `b` holds.
const FOREIGN: [&str; 6] = [
    "lock=text@5",
    "lock=[x,y]@5",
    "lock={b:1,c:1}@5",
    "lock={mode:write,b:1}@5",
    "lock={b:1}@5",
    "lock={b:1}",
];

pub(in crate::kinds) const ACQUIRE: &[Row] = &[
    // Free.
    ("", "acquire a 1 3M soon try 0 0", "1 T T", "fence=T lock={a:1}@3", ""),
    ("fence=7", "acquire a 1 3M soon try 0 0", "1 T T", "fence=T lock={a:1}@3", ""),
    ("fence=7@2", "acquire a 1 3M soon try 0 0", "1 T T", "fence=T lock={a:1}@3", ""),
    ("", "acquire a 1 86400000 soon try 0 0", "1 T T", "fence=T lock={a:1}@86", ""),
    ("", "acquire a 2 3M soon try 0 0", "-2 T", "=", ""),
    ("", "acquire a 65535 3M soon try 0 0", "-2 T", "=", ""),
    // A fence ahead of the clock, as after a clock step: counted on, with every digit.
    (
        "fence=9000000000000000",
        "acquire a 1 3M soon try 0 0",
        "1 T 9000000000000001",
        "fence=9000000000000001 lock={a:1}@3",
        "",
    ),
    (
        "fence=9007199254740990",
        "acquire a 1 3M soon try 0 0",
        "1 T 9007199254740991",
        "fence=9007199254740991 lock={a:1}@3",
        "",
    ),
    // A fence that is no counter.
    ("fence=9007199254740991", "acquire a 1 3M soon try 0 0", "-4 T 5", "=", ""),
    ("fence=-1", "acquire a 1 3M soon try 0 0", "-4 T 5", "=", ""),
    ("fence=1.5", "acquire a 1 3M soon try 0 0", "-4 T 5", "=", ""),
    ("fence=nan", "acquire a 1 3M soon try 0 0", "-4 T 5", "=", ""),
    ("fence=word", "acquire a 1 3M soon try 0 0", "-4 T 5", "=", ""),
    ("fence={a:1}", "acquire a 1 3M soon try 0 0", "-4 T 5", "=", ""),
    ("fence=[1]", "acquire a 1 3M soon try 0 0", "-4 T 5", "=", ""),
    // A repeat: never shortens, never counts, mints again.
    ("fence=7 lock={a:1}@5", "acquire a 1 3M soon try 0 0", "1 T T", "fence=T lock={a:1}@5", ""),
    ("fence=7 lock={a:1}@5", "acquire a 1 9M soon try 0 0", "1 T T", "fence=T lock={a:1}@9", ""),
    ("fence=7 lock={a:3}@5", "acquire a 1 3M soon try 0 0", "1 T T", "fence=T lock={a:3}@5", ""),
    ("lock={a:3}@5", "acquire a 1 3M soon try 0 0", "1 T T", "fence=T lock={a:3}@5", ""),
    ("lock={a:1}", "acquire a 1 3M soon try 0 0", "1 T T", "fence=T lock={a:1}@3", ""),
    ("lock={a:1,b:1}@5", "acquire a 1 3M soon try 0 0", "1 T T", "fence=T lock={a:1,b:1}@5", ""),
    ("fence=word lock={a:1}@5", "acquire a 1 9M soon try 0 0", "-4 T 5", "=", ""),
    // Counting: the number wanted, never one more; the fence is left alone.
    ("fence=7 lock={a:1}@5", "acquire a 2 3M soon try 0 0", "1 T 0", "fence=7 lock={a:2}@5", ""),
    ("fence=7 lock={a:2}@5", "acquire a 2 3M soon try 0 0", "1 T 0", "fence=7 lock={a:2}@5", ""),
    (
        "fence=7 lock={a:1}@5",
        "acquire a 65535 9M soon try 0 0",
        "1 T 0",
        "fence=7 lock={a:65535}@9",
        "",
    ),
    (
        "fence=word lock={a:9}@5",
        "acquire a 2 3M soon try 0 0",
        "1 T 0",
        "fence=word lock={a:2}@5",
        "",
    ),
    ("lock={a:1}", "acquire a 2 3M soon try 0 0", "1 T 0", "lock={a:2}@3", ""),
    ("lock={a:1,b:1}@5", "acquire a 2 3M soon try 0 0", "1 T 0", "lock={a:2,b:1}@5", ""),
    // Held by another.
    ("fence=7 lock={b:4}@5", "acquire a 1 3M soon try 0 0", "0 T @5 b", "=", ""),
    ("fence=word lock={b:4}@5", "acquire a 1 9M soon try 0 0", "0 T @5 b", "=", ""),
    ("lock={b:4}@5", "acquire a 2 9M soon try 0 0", "-3 T", "=", ""),
    // One without a time to live is for the client to judge.
    ("lock={b:1}", "acquire a 1 3M soon try 0 0", "0 T -1 b", "=", ""),
    ("lock={b:1}", "acquire a 2 3M soon try 0 0", "-3 T", "=", ""),
    // Conflicts.
    ("lock=text@5", "acquire a 1 3M soon try 0 0", "-4 T 1", "=", ""),
    ("lock=text", "acquire a 2 3M soon try 0 0", "-4 T 1", "=", ""),
    ("lock=[x,y]@5", "acquire a 1 3M soon try 0 0", "-4 T 1", "=", ""),
    ("lock=[x,y]@5", "acquire a 2 3M soon try 0 0", "-4 T 1", "=", ""),
    ("lock={b:1,c:1}@5", "acquire a 1 3M soon try 0 0", "-4 T 2", "=", ""),
    ("lock={b:1,c:1}@5", "acquire a 2 3M soon try 0 0", "-4 T 2", "=", ""),
    ("lock={mode:read}", "acquire a 1 3M soon try 0 0", "-4 T 4", "=", ""),
    ("lock={kind:latch,count:3}", "acquire a 1 3M soon try 0 0", "-4 T 10", "=", ""),
    ("lock={kind:latch,count:3}@5", "acquire a 2 3M soon try 0 0", "-4 T 10", "=", ""),
    ("lock={kind:semaphore,permits:3}", "acquire a 1 3M soon try 0 0", "-4 T 11", "=", ""),
    // A semaphore whose number was not set.
    ("lock={kind:semaphore}@5", "acquire a 1 3M soon try 0 0", "-4 T 11", "=", ""),
    ("lock={kind:semaphore}@5", "+acquire a 1 3M soon first 0 1", "-4 T 11", "=", ""),
    ("lock={kind:semaphore}@5", "acquire a 2 3M soon try 0 0", "-4 T 11", "=", ""),
    ("lock={kind:x}@5", "acquire a 2 3M soon try 0 0", "-3 T", "=", ""),
    // A hash that is none of these.
    ("lock={kind:x}@5", "acquire a 1 3M soon try 0 0", "0 T @5 kind", "=", ""),
    ("lock={kind:x,b:1}@5", "acquire a 1 3M soon try 0 0", "-4 T 2", "=", ""),
    ("lock={a:0,kind:latch}@5", "acquire a 1 3M soon try 0 0", "-4 T 10", "=", ""),
    ("lock={mode:write,b:1}@5", "acquire a 1 3M soon try 0 0", "-4 T 4", "=", ""),
    ("lock={mode:write,b:1}@5", "acquire a 2 3M soon try 0 0", "-4 T 4", "=", ""),
];

pub(in crate::kinds) const RELEASE: &[Row] = &[
    ("", "release a 0 ch PUBLISH", "0 T", "=", ""),
    ("", "release a 1 ch PUBLISH", "0 T", "=", ""),
    ("fence=7 lock={a:1}@5", "release a 0 ch PUBLISH", "1 T 1", "fence=7", "ch=0"),
    ("lock={a:1}@5", "release a 0 ch SPUBLISH", "1 T 1", "", "ch=0 sharded"),
    ("lock={a:1}@5", "release a 0 nobody PUBLISH", "1 T 0", "", ""),
    ("lock={a:3}@5", "release a 0 ch PUBLISH", "1 T 1", "", "ch=0"),
    ("lock={a:1}", "release a 0 ch PUBLISH", "1 T 1", "", "ch=0"),
    // Data of another program beside it stays, and does not end with our lease.
    ("lock={a:1,b:1}@5", "release a 0 ch PUBLISH", "3 T 1", "lock={b:1}", "ch=0"),
    (
        "lock={data:x,a:3,more:y}@5",
        "release a 0 nobody SPUBLISH",
        "3 T 0",
        "lock={data:x,more:y}",
        "",
    ),
    ("lock={a:1,data:x}", "release a 0 ch PUBLISH", "3 T 1", "lock={data:x}", "ch=0"),
    (
        "lock={a:1,mode:read,b:1}@5",
        "release a 0 ch PUBLISH",
        "4 T 1",
        "lock={mode:read,b:1}@5",
        "ch=0",
    ),
    ("lock={a:3,data:x}@5", "release a 1 ch PUBLISH", "2 T", "lock={a:1,data:x}@5", ""),
    ("lock={b:1,data:x}@5", "release a 0 ch PUBLISH", "-3 T", "=", ""),
    // The number wanted, whatever it was; the time to live stays.
    ("lock={a:3}@5", "release a 2 ch PUBLISH", "2 T", "lock={a:2}@5", ""),
    ("lock={a:3}@5", "release a 3 ch PUBLISH", "2 T", "lock={a:3}@5", ""),
    ("lock={a:1}@5", "release a 65535 ch PUBLISH", "2 T", "lock={a:65535}@5", ""),
    ("lock={a:3}", "release a 1 ch PUBLISH", "2 T", "lock={a:1}", ""),
];

pub(in crate::kinds) const RELEASE_MANY: &[Row] = &[
    ("", "release_many PUBLISH a ch", "1 T -5", "=", ""),
    ("fence=7 lock={a:3}@5", "release_many PUBLISH a ch", "1 T 1", "fence=7", "ch=0"),
    ("lock={a:1}", "release_many SPUBLISH a ch", "1 T 1", "", "ch=0 sharded"),
    ("lock={a:1}@5", "release_many PUBLISH a nobody", "1 T 0", "", ""),
    // A hold with data beside it is left to `release`, which reports the data.
    ("lock={a:1,b:1}@5", "release_many PUBLISH a ch", "1 T -5", "=", ""),
    ("lock={b:1}@5", "release_many PUBLISH a ch", "1 T -5", "=", ""),
    // Each key by itself, announced on its own channel.
    (
        "lock1={a:1}@5 lock2={b:1}@5 lock4=text lock5={e:2}@5 lock6={f:1}@5",
        "release_many PUBLISH a ch x ch c ch d ch e client f nobody",
        "1 T 1 -5 -5 -5 1 0",
        "lock2={b:1}@5 lock4=text",
        "ch=0 client=0",
    ),
];

pub(in crate::kinds) const RELEASE_AT: &[Row] = &[
    ("", "release_at a soon 3M ch PUBLISH", "0 T", "=", ""),
    ("", "release_at a late 3M ch PUBLISH", "0 T", "=", ""),
    // The time is not over: what stands there is no hold any more, for exactly the rest.
    (
        "fence=7 lock={a:1}@5",
        "release_at a soon 3M ch PUBLISH",
        "2 T 1",
        "fence=7 lock={a:kept:0}@3",
        "ch=0",
    ),
    (
        "lock={a:3}@5",
        "release_at a soon 9M ch SPUBLISH",
        "2 T 1",
        "lock={a:kept:0}@9",
        "ch=0 sharded",
    ),
    ("lock={a:1}", "release_at a soon 3M nobody PUBLISH", "2 T 0", "lock={a:kept:0}@3", ""),
    // A repeat changes nothing, whatever it says.
    ("lock={a:kept:0}@3", "release_at a soon 9M ch PUBLISH", "2 T 0", "=", ""),
    ("lock={a:kept:0}@3", "release_at a late 9M ch PUBLISH", "2 T 0", "=", ""),
    ("lock={a:kept:0,x:1}@3", "release_at a soon 9M ch PUBLISH", "2 T 0", "=", ""),
    // Over.
    ("fence=7 lock={a:3}@5", "release_at a late 3M ch PUBLISH", "1 T 1", "fence=7", "ch=0"),
    ("lock={a:1}", "release_at a late 3M nobody PUBLISH", "1 T 0", "", ""),
    ("lock={b:1}@5", "release_at a late 3M ch PUBLISH", "-3 T", "=", ""),
    ("lock={b:kept:0}@5", "release_at a soon 3M ch PUBLISH", "-3 T", "=", ""),
    // With data of another program nobody can have the lock anyway.
    ("lock={a:1,x:1}@5", "release_at a soon 3M ch PUBLISH", "3 T 1", "lock={x:1}", "ch=0"),
    ("lock={x:1,a:3,y:1}@5", "release_at a late 3M ch PUBLISH", "3 T 1", "lock={x:1,y:1}", "ch=0"),
    (
        "lock={a:1,mode:read}@5",
        "release_at a soon 3M ch PUBLISH",
        "4 T 1",
        "lock={mode:read}@5",
        "ch=0",
    ),
    // To everybody else it is held by another, and the old hold is over.
    ("lock={a:kept:0}@3", "acquire b 1 9M soon try 0 0", "0 T @3 a:kept", "=", ""),
    ("lock={a:kept:0}@3", "acquire a 1 9M soon try 0 0", "0 T @3 a:kept", "=", ""),
    ("lock={a:kept:0}@3", "acquire a 2 9M soon try 0 0", "-3 T", "=", ""),
    ("lock={a:kept:0}@3", "release a 0 ch PUBLISH", "-3 T", "=", ""),
    ("lock={a:kept:0}@3", "release_many PUBLISH a ch", "1 T -5", "=", ""),
    ("lock={a:kept:0}@3", "renew soon a 9M", "1 T -3", "=", ""),
    ("lock={a:kept:0}@3", "hand_off a b 9M soon ch PUBLISH 0 0", "-3 T", "=", ""),
    ("lock={a:kept:0}@3", "force_release a soon ch PUBLISH client", "-3 T", "=", ""),
    (
        "lock={a:kept:0}@3",
        "force_release a:kept soon ch PUBLISH client",
        "1 T 1",
        "",
        "ch=0 client=lock",
    ),
    ("lock={a:kept:0}@3", "inspect", "1 T @3 1 a:kept 0", "=", ""),
];

pub(in crate::kinds) const RENEW: &[Row] = &[
    ("", "renew soon a 3M", "1 T 0", "=", ""),
    ("lock={a:1}@5", "renew soon a 9M", "1 T 1", "lock={a:1}@9", ""),
    ("lock={a:2}@5", "renew soon a 3M", "1 T 1", "=", ""),
    ("lock={a:1}", "renew soon a 3M", "1 T 1", "lock={a:1}@3", ""),
    ("lock={a:1,b:1}@5", "renew soon a 9M", "1 T 1", "lock={a:1,b:1}@9", ""),
    // 1 ms asks and extends nothing, not even a key without time to live.
    ("lock={a:1}@5", "renew soon a 1", "1 T 1", "=", ""),
    ("lock={a:1}", "renew soon a 1", "1 T 1", "=", ""),
    // Each key by itself.
    (
        "lock1={a:1}@5 lock2={b:1}@5 lock4=text lock5={e:2}@5",
        "renew soon a 9M b 3M c 9M d 9M e 7M",
        "1 T 1 1 0 -3 1",
        "lock1={a:1}@9 lock2={b:1}@5 lock4=text lock5={e:2}@7",
        "",
    ),
    ("lock1={b:1}@5 lock2={a:1}@5", "renew soon a 9M b 9M", "1 T -3 -3", "=", ""),
    ("lock={a:1}@5", "renew late a 9M", "-1 T", "=", ""),
];

pub(in crate::kinds) const HAND_OFF: &[Row] = &[
    ("", "hand_off a b 3M soon ch PUBLISH 0 0", "0 T", "=", ""),
    ("fence=7", "hand_off a b 3M soon ch PUBLISH 0 0", "0 T", "=", ""),
    (
        "fence=7 lock={a:1}@5",
        "hand_off a b 3M soon ch PUBLISH 0 0",
        "1 T T",
        "fence=T lock={b:1}@3",
        "",
    ),
    (
        "fence=7 lock={a:9}@5",
        "hand_off a b 9M soon ch PUBLISH 0 0",
        "1 T T",
        "fence=T lock={b:1}@9",
        "",
    ),
    ("lock={a:1}", "hand_off a b 9M soon ch PUBLISH 0 0", "1 T T", "fence=T lock={b:1}@9", ""),
    (
        "fence=9007199254740990 lock={a:1}@5",
        "hand_off a b 3M soon ch PUBLISH 0 0",
        "1 T 9007199254740991",
        "fence=9007199254740991 lock={b:1}@3",
        "",
    ),
    // A repeat: never shortens, never counts, mints again.
    (
        "fence=7 lock={b:1}@5",
        "hand_off a b 3M soon ch PUBLISH 0 0",
        "1 T T",
        "fence=T lock={b:1}@5",
        "",
    ),
    (
        "fence=7 lock={b:2}@5",
        "hand_off a b 9M soon ch PUBLISH 0 0",
        "1 T T",
        "fence=T lock={b:2}@9",
        "",
    ),
    // A fence that is no counter: `from` is free all the same.
    (
        "fence=word lock={a:1}@5",
        "hand_off a b 3M soon ch PUBLISH 0 0",
        "2 T 1",
        "fence=word",
        "ch=0",
    ),
    (
        "fence={x:1} lock={a:1}@5",
        "hand_off a b 3M soon ch SPUBLISH 0 0",
        "2 T 1",
        "fence={x:1}",
        "ch=0 sharded",
    ),
    (
        "fence=9007199254740991 lock={a:1}@5",
        "hand_off a b 3M soon ch PUBLISH 0 0",
        "2 T 1",
        "fence=9007199254740991",
        "ch=0",
    ),
    ("fence=word lock={b:1}@5", "hand_off a b 3M soon ch PUBLISH 0 0", "-3 T", "=", ""),
    // Data of another program in the same hash: only `from` goes, late or not, and nothing is
    // granted.
    (
        "fence=7 lock={a:1,x:1}@5",
        "hand_off a b 3M soon ch PUBLISH 0 0",
        "3 T 1",
        "fence=7 lock={x:1}",
        "ch=0",
    ),
    (
        "lock={x:1,a:1}@5",
        "hand_off a b 3M late ch SPUBLISH 0 0",
        "3 T 1",
        "lock={x:1}",
        "ch=0 sharded",
    ),
    (
        "lock={a:1,mode:read}@5",
        "hand_off a b 3M soon ch PUBLISH 0 0",
        "4 T 1",
        "lock={mode:read}@5",
        "ch=0",
    ),
    (
        "fence=7 lock={b:1,x:1}@5",
        "hand_off a b 9M soon ch PUBLISH 0 0",
        "1 T T",
        "fence=T lock={b:1,x:1}@9",
        "",
    ),
    ("lock={x:1,y:1}@5", "hand_off a b 9M soon ch PUBLISH 0 0", "-3 T", "=", ""),
    (
        "fence=7 lock={a:1,b:2}@5",
        "hand_off a b 9M soon ch PUBLISH 0 0",
        "1 T T",
        "fence=T lock={a:1,b:2}@9",
        "",
    ),
    ("lock={a:1,b:2}@5", "hand_off a b 9M late ch PUBLISH 0 0", "-1 T 1", "lock={b:2}@5", "ch=0"),
    // Late.
    ("", "hand_off a b 3M late ch PUBLISH 0 0", "0 T", "=", ""),
    ("fence=7 lock={a:2}@5", "hand_off a b 3M late ch PUBLISH 0 0", "-1 T 1", "fence=7", "ch=0"),
    ("lock={a:2}@5", "hand_off a b 3M late nobody PUBLISH 0 0", "-1 T 0", "", ""),
    ("lock={b:1}@5", "hand_off a b 9M late ch PUBLISH 0 0", "-1 T 0", "=", ""),
    ("lock={c:1}@5", "hand_off a b 9M late ch PUBLISH 0 0", "-3 T", "=", ""),
    ("lock=text", "hand_off a b 9M late ch PUBLISH 0 0", "-3 T", "=", ""),
];

pub(in crate::kinds) const INSPECT: &[Row] = &[
    ("", "inspect", "0 T", "=", ""),
    ("lock={a:3}@5", "inspect", "1 T @5 1 a 3", "=", ""),
    ("lock={a:3}", "inspect", "1 T -1 1 a 3", "=", ""),
    ("lock={a:3,b:1}@5", "inspect", "1 T @5 2 ~ ~", "=", ""),
    ("lock={mode:read}", "inspect", "3 T -1", "=", ""),
    ("lock={kind:latch,count:3}", "inspect", "6 T -1 10", "=", ""),
    ("lock={kind:semaphore,permits:3}", "inspect", "6 T -1 11", "=", ""),
    ("lock={kind:semaphore}@5", "inspect", "6 T @5 11", "=", ""),
    ("lock={kind:x}@5", "inspect", "1 T @5 1 kind x", "=", ""),
    ("lock={mode:write,a:1}@5", "inspect", "3 T @5", "=", ""),
    ("lock=text@5", "inspect", "2 T @5 string", "=", ""),
    ("lock=[x]", "inspect", "2 T -1 list", "=", ""),
];

pub(in crate::kinds) const RAISE: &[Row] = &[
    ("lock={a:3}@5", "raise a 12", "1 T", "fence=12 lock={a:3}@5", ""),
    ("fence=11 lock={a:1}@5", "raise a 12", "1 T", "fence=12 lock={a:1}@5", ""),
    ("fence=12 lock={a:1}@5", "raise a 12", "1 T", "=", ""),
    ("fence=13 lock={a:1}@5", "raise a 12", "1 T", "=", ""),
    ("fence=0 lock={a:1}@5", "raise a 1", "1 T", "fence=1 lock={a:1}@5", ""),
    ("lock={a:1}@5", "raise a 9007199254740990", "1 T", "fence=9007199254740990 lock={a:1}@5", ""),
    ("fence=9007199254740990 lock={a:1}@5", "raise a 12", "1 T", "=", ""),
    // Only a hold may raise it.
    ("", "raise a 12", "0 T", "=", ""),
    ("fence=7", "raise a 12", "0 T", "=", ""),
    ("fence=7 lock={a:0}@1.5s", "raise a 12", "0 T", "=", ""),
    ("fence=7 lock={b:1}@5", "raise a 12", "0 T", "=", ""),
    ("fence=7 lock={a:0,b:1}@5", "raise b 12", "1 T", "fence=12 lock={a:0,b:1}@5", ""),
    ("fence=7 lock=text@5", "raise a 12", "0 T", "=", ""),
    ("fence=7 lock=[x]", "raise a 12", "0 T", "=", ""),
    // A counter that is no number.
    ("fence=word lock={a:1}@5", "raise a 12", "-4 T 5", "=", ""),
    ("fence=-1 lock={a:1}@5", "raise a 12", "-4 T 5", "=", ""),
    ("fence=1.5 lock={a:1}@5", "raise a 12", "-4 T 5", "=", ""),
    ("fence=9007199254740991 lock={a:1}@5", "raise a 12", "-4 T 5", "=", ""),
    ("fence=[1] lock={a:1}@5", "raise a 12", "-4 T 5", "=", ""),
    ("fence={a:1} lock={a:1}@5", "raise a 12", "-4 T 5", "=", ""),
];

pub(in crate::kinds) const FORCE_RELEASE: &[Row] = &[
    ("", "force_release a soon ch PUBLISH client", "0 T", "=", ""),
    (
        "fence=7 lock={a:3}@5",
        "force_release a soon ch PUBLISH client",
        "1 T 1",
        "fence=7",
        "ch=0 client=lock",
    ),
    (
        "lock={a:3}",
        "force_release a soon ch SPUBLISH client",
        "1 T 1",
        "",
        "ch=0 sharded client=lock",
    ),
    ("lock={a:3}@5", "force_release a soon nobody PUBLISH client", "1 T 0", "", "client=lock"),
    ("lock={a:3}@5", "force_release a late ch PUBLISH client", "-1 T", "=", ""),
    // Data of another program beside it stays.
    (
        "lock={a:1,b:1}@5",
        "force_release a soon ch PUBLISH client",
        "3 T 1",
        "lock={b:1}",
        "ch=0 client=lock",
    ),
    ("lock={a:1,data:x}@5", "force_release a late ch PUBLISH client", "-1 T", "=", ""),
    ("lock={x:1,data:x}@5", "force_release a soon ch PUBLISH client", "-3 T", "=", ""),
    ("lock={mode:write,a:1}@5", "force_release a soon ch PUBLISH client", "-3 T", "=", ""),
    ("lock={mode:1}@5", "force_release mode soon ch PUBLISH client", "-3 T", "=", ""),
];

/// A good call, and for each of its arguments what is not allowed.
const BAD: &[(&str, &[&[&str]])] = &[
    ("acquire a 1 9M soon try 0 0", &[&["~"], COUNTS, LEASES, DEADLINES, MODES, DEADLINES, FLAGS]),
    (
        "+acquire a 1 9M soon again 5 1 ch PUBLISH",
        &[&["~"], COUNTS, LEASES, DEADLINES, MODES, DEADLINES, FLAGS, &["~"], VERBS],
    ),
    (
        "release a 0 ch PUBLISH",
        &[&["~"], &["-1", "65536", "1.5", "x", "~", "nan", "inf"], &["~"], VERBS],
    ),
    (
        "+release a 0 ch SPUBLISH",
        &[&["~"], &["-1", "65536", "1.5", "x", "~", "nan", "inf"], &["~"], VERBS],
    ),
    ("+release_many PUBLISH a ch", &[VERBS, &["~"], &["~"]]),
    ("+release_many PUBLISH a ch b ch", &[VERBS, &["~"], &["~"], &["~"], &["~"]]),
    ("+release_at a soon 9M ch PUBLISH", &[&["~"], DEADLINES, LEASES, &["~"], VERBS]),
    ("+force_release a soon ch PUBLISH client", &[&["~"], DEADLINES, &["~"], VERBS, &["~"]]),
    ("release_many PUBLISH a ch", &[VERBS, &["~"], &["~"]]),
    ("release_many PUBLISH a ch b ch", &[VERBS, &["~"], &["~"], &["~"], &["~"]]),
    ("release_at a soon 9M ch PUBLISH", &[&["~"], DEADLINES, LEASES, &["~"], VERBS]),
    ("raise a 12", &[&["~"], TOKENS]),
    ("renew soon a 9M", &[DEADLINES, &["~"], LEASES]),
    ("renew soon a 9M b 9M", &[DEADLINES, &["~"], LEASES, &["~"], LEASES]),
    (
        "hand_off a b 9M soon ch PUBLISH 0 0",
        &[&["~"], &["~", "a"], LEASES, DEADLINES, &["~"], VERBS, FLAGS, FLAGS],
    ),
    (
        "+hand_off a b 9M soon ch PUBLISH 1 1",
        &[&["~"], &["~", "a"], LEASES, DEADLINES, &["~"], VERBS, FLAGS, FLAGS],
    ),
    ("force_release a soon ch PUBLISH client", &[&["~"], DEADLINES, &["~"], VERBS, &["~"]]),
];
const COUNTS: &[&str] = &["0", "-1", "65536", "1.5", "x", "~", "nan", "inf"];
const MODES: &[&str] = &["~", "Try", "wait"];
const FLAGS: &[&str] = &["~", "2", "00", "true"];
const LEASES: &[&str] = &["0", "-1", "86400001", "1.5", "x", "~", "nan", "inf"];
const DEADLINES: &[&str] = &["-1", "1.5", "9007199254740992", "x", "~", "nan", "inf"];
const TOKENS: &[&str] = &["0", "-1", "9007199254740991", "1.5", "x", "~", "nan", "inf"];
const VERBS: &[&str] = &["~", "publish", "DEL"];

/// A foreign value under the key is never touched, whatever is asked of it.
pub(in crate::kinds) fn check_foreign(server: &mut dyn Server) {
    let calls = [
        ("release a 0 ch PUBLISH", "-3 T"),
        ("release a 2 ch PUBLISH", "-3 T"),
        ("+release a 0 ch PUBLISH", "-3 T"),
        ("+release_many PUBLISH a ch", "1 T -5"),
        ("+release_at a late 9M ch PUBLISH", "-3 T"),
        ("+hand_off a d 9M late ch PUBLISH 1 1", "-3 T"),
        ("+force_release a soon ch PUBLISH client", "-3 T"),
        ("release_many PUBLISH a ch", "1 T -5"),
        ("release_at a soon 9M ch PUBLISH", "-3 T"),
        ("release_at a late 9M ch PUBLISH", "-3 T"),
        ("renew soon a 9M", "1 T -3"),
        ("hand_off a d 9M soon ch PUBLISH 0 0", "-3 T"),
        ("hand_off a d 9M late ch PUBLISH 0 0", "-3 T"),
        ("force_release a soon ch PUBLISH client", "-3 T"),
    ];
    let rows =
        FOREIGN.iter().flat_map(|state| calls.map(|(call, reply)| (*state, call, reply, "=", "")));
    check_table(server, &rows.collect::<Vec<_>>());
}

/// Nothing is granted late, and what carries a deadline changes nothing.
pub(in crate::kinds) fn check_late(server: &mut dyn Server) {
    let calls = [
        "acquire a 1 9M late try 0 0",
        "acquire a 2 9M late try 0 0",
        "+acquire a 1 9M late first 0 1",
        "+acquire a 1 9M late again 5 1 ch PUBLISH",
        "+force_release a late ch PUBLISH client",
        "renew late a 9M",
        "force_release a late ch PUBLISH client",
    ];
    let own = [
        "",
        "fence=7",
        "fence=word",
        "lock={a:1}@5",
        "lock={a:1}",
        "lock={a:1,b:1}@5",
        "lock={a:0}@1.5s",
        "line=(a:5)@12s",
        "line=(b:5)@12s lock={b:0}@1.5s",
    ];
    let states = FOREIGN.iter().chain(&own);
    let rows = states.flat_map(|state| calls.map(|call| (*state, call, "-1 T", "=", "")));
    check_table(server, &rows.collect::<Vec<_>>());
}

/// A bad argument, or one that is missing, is named and nothing is written.
pub(in crate::kinds) fn check_bad_arguments(server: &mut dyn Server) {
    let mut rows = Vec::new();
    for (good, arguments) in BAD {
        let words: Vec<&str> = good.split(' ').collect();
        for (index, bad) in arguments.iter().enumerate() {
            for word in *bad {
                let mut words = words.clone();
                words[index + 1] = word;
                rows.push((words.join(" "), index + 1));
            }
            if !good.contains("renew") && !good.contains("release_many") {
                rows.push((words[..=index].join(" "), index + 1));
            }
        }
    }
    // The number of arguments goes with that of the keys.
    rows.extend(
        [
            ("renew soon", 1),
            ("renew soon a", 2),
            ("renew soon a 9M b", 4),
            ("release_many PUBLISH", 1),
            ("release_many PUBLISH a", 2),
            ("release_many PUBLISH a ch b", 4),
            ("+release_many PUBLISH", 1),
            ("+release_many PUBLISH a", 2),
            ("+release_many PUBLISH a ch b", 4),
        ]
        .map(|(c, n)| (c.to_owned(), n)),
    );
    rows.extend(["renew", "release_many", "+release_many"].map(|call| (call.to_owned(), 1)));
    let states =
        ["", "fence=7 lock={a:1}@5", "lock=text", "line=(b:5)@12s", "lock1={a:1}@5 lock2={b:1}@5"];
    check(
        server,
        rows.iter().flat_map(|(call, number)| {
            states.map(|state| {
                (state.into(), call.clone(), format!("-9 T {number}"), "=".into(), String::new())
            })
        }),
    );
}

/// Tokens grow with every grant, through lost data too.
pub(in crate::kinds) fn check_tokens(server: &mut dyn Server) {
    let mut last = 0;
    for round in 0..20 {
        if round % 5 == 0 {
            server.flush();
        }
        for call in [
            "acquire a 1 9M soon try 0 0",
            "acquire a 1 9M soon try 0 0",
            "hand_off a b 9M soon ch PUBLISH 0 0",
        ] {
            let token = token(server, call);
            assert!(token > last, "{token} after {last}");
            last = token;
        }
        server.run(&parse_call("release b 0 ch PUBLISH")).unwrap();
    }
}

fn token(server: &mut dyn Server, call: &str) -> i64 {
    let crate::backend::Value::List(reply) = server.run(&parse_call(call)).unwrap() else {
        panic!("no list")
    };
    let crate::backend::Value::Int(token) = reply[2] else { panic!("no token") };
    token
}

/// What is freed is published once, and only once.
pub(in crate::kinds) fn check_freed_once(server: &mut dyn Server) {
    set_up(server, "lock={a:3}@5");
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(
            observe(server, &parse_call("release a 0 ch PUBLISH"), &mut Times::default()).published,
        );
    }
    assert_eq!(seen, ["ch=0", "", ""]);
}

const OOM: &str = "! OOM command not allowed when used memory > 'maxmemory'.";

/// Short of memory nothing is granted and nothing left half done, but locks can be freed and
/// renewed.
pub(in crate::kinds) fn check_out_of_memory(server: &mut dyn Server) {
    let rows = [
        ("", "acquire a 1 9M soon try 0 0", OOM, "=", ""),
        ("fence=7 lock={a:1}@5", "acquire a 1 9M soon try 0 0", OOM, "=", ""),
        ("fence=7 lock={a:1}@5", "acquire a 2 9M soon try 0 0", OOM, "=", ""),
        ("lock={b:1}@5", "acquire a 1 9M soon try 0 0", "0 T @5 b", "=", ""),
        ("fence=7 lock={a:1}@5", "hand_off a b 9M soon ch PUBLISH 0 0", OOM, "=", ""),
        ("fence=7 lock={b:1}@5", "hand_off a b 9M soon ch PUBLISH 0 0", OOM, "=", ""),
        (
            "fence=7 lock={a:1}@5",
            "hand_off a b 9M late ch PUBLISH 0 0",
            "-1 T 1",
            "fence=7",
            "ch=0",
        ),
        ("lock={a:3}@5", "release a 2 ch PUBLISH", OOM, "=", ""),
        ("fence=7 lock={a:3}@5", "release a 0 ch PUBLISH", "1 T 1", "fence=7", "ch=0"),
        ("lock={a:3}@5", "release_many PUBLISH a ch", "1 T 1", "", "ch=0"),
        ("lock={a:3}@5", "release_at a soon 3M ch PUBLISH", "2 T 1", "lock={a:kept:0}@3", "ch=0"),
        ("lock={a:3}@5", "release_at a late 3M ch PUBLISH", "1 T 1", "", "ch=0"),
        ("lock={a:3}@5", "renew soon a 9M", "1 T 1", "lock={a:3}@9", ""),
        ("lock={a:3}@5", "inspect", "1 T @5 1 a 3", "=", ""),
        // A place is so small, and is gone so soon, that it is taken all the same.
        (
            "lock={b:1}@5",
            "+acquire a 1 9M soon first 0 1",
            "0 T @5 b T 0",
            "line=(a:T)@12s lock={b:1}@5",
            "",
        ),
        ("line=(a:5)@12s", "+acquire a 1 9M soon again 5 1 ch PUBLISH", OOM, "=", ""),
        ("lock={a:0}@1.5s", "+acquire a 1 9M soon again 5 1 ch PUBLISH", OOM, "=", ""),
        (
            "line=(b:5)@12s",
            "+acquire a 1 9M soon again 7 1 ch PUBLISH",
            "0 T @1.5s b 7 0",
            "line=(a:7)@12s lock={b:0}@1.5s",
            "ch=b",
        ),
        (
            "line=(b:5)@12s lock={a:3}@5",
            "+release a 0 ch PUBLISH",
            "1 T 1",
            "lock={b:0}@1.5s",
            "ch=b",
        ),
        ("line=(b:5)@12s", "+release a 0 ch PUBLISH", "0 T", "lock={b:0}@1.5s", "ch=b"),
        ("line=(c:5)@12s lock={a:1}@5", "+hand_off a b 9M soon ch PUBLISH 1 1", OOM, "=", ""),
        ("lock={a:3}@5", "force_release a soon ch PUBLISH client", "1 T 1", "", "ch=0 client=lock"),
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

/// Of each pair whether it is allowed; nothing is touched.
pub(in crate::kinds) fn check_permissions(server: &mut dyn Server) {
    let call =
        |pairs: &[&str]| ScriptCall::new(&PERMISSIONS, Words::default(), pairs.iter().collect());
    server.forbid("hset");
    for (pairs, reply) in [
        (&[][..], "1 T"),
        (&["get", "x"], "1 T 1"),
        (&["get", "y"], "1 T 0"),
        (&["hset", "x"], "1 T 0"),
        (&["get", "x", "hset", "x"], "1 T 1 0"),
        (&["nonsense", "x", "get", "x"], "1 T -1 1"),
        (&["hset", "x", "get", "x", "get", "y", "del", "x1"], "1 T 0 1 0 1"),
    ] {
        let seen = observe(server, &call(pairs), &mut Times::default());
        assert_eq!((&*seen.reply, &*seen.keys), (reply, ""), "{pairs:?}");
    }
}

pub(in crate::kinds) const ALL: &[(&str, &[Row])] = &[
    ("acquire", ACQUIRE),
    ("release", RELEASE),
    ("release_many", RELEASE_MANY),
    ("release_at", RELEASE_AT),
    ("renew", RENEW),
    ("hand_off", HAND_OFF),
    ("inspect", INSPECT),
    ("raise", RAISE),
    ("force_release", FORCE_RELEASE),
    ("acquire", line::ACQUIRE),
    ("release", line::RELEASE),
    ("release_many", line::RELEASE_MANY),
    ("release_at", line::RELEASE_AT),
    ("renew", line::RENEW),
    ("hand_off", line::HAND_OFF),
    ("inspect", line::INSPECT),
    ("force_release", line::FORCE_RELEASE),
];
