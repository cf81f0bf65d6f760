//! What the scripts do with the line and the marks, where a reentrant lock does something else.

use crate::kinds::script_tests::tables::Row;

pub(super) const ALL: &[(&str, &[Row])] = &[
    ("acquire", ACQUIRE),
    ("release", RELEASE),
    ("undo", UNDO),
    ("release_at", RELEASE_AT),
    ("force_release", FORCE_RELEASE),
];

pub(super) const ACQUIRE: &[Row] = &[
    // Free, and nobody waits.
    ("", "+acquire a 1 3M soon first 0 1 ch PUBLISH", "1 T T", "fence=T lock={a:1}@3", ""),
    ("", "+acquire a 1 3M soon try 0 0 ch PUBLISH", "1 T T", "fence=T lock={a:1}@3", ""),
    ("", "+acquire a 1 3M soon again 5 1 ch PUBLISH", "1 T T", "fence=T lock={a:1}@3", ""),
    (
        "marks=<a,b>@12s",
        "+acquire a 1 3M soon try 0 0 ch PUBLISH",
        "1 T T",
        "fence=T lock={a:1}@3 marks=<b>@12s",
        "",
    ),
    // Without the line nothing is granted but what is reserved.
    ("", "acquire a 1 3M soon first 0 1", "-5 T", "=", ""),
    ("", "acquire a 1 3M soon try 0 0", "-5 T", "=", ""),
    ("lock={b:1}@5", "acquire a 1 3M soon again 5 1", "-5 T", "=", ""),
    ("lock={a:0}@1.5s", "acquire a 1 3M soon again 5 1", "1 T T", "fence=T lock={a:1}@3", ""),
    // A first attempt takes a place, whether it hears or not.
    (
        "lock={b:1}@5",
        "+acquire a 1 9M soon first 0 0 ch PUBLISH",
        "0 T @5 b T 0 0",
        "line=(a:T)@12s lock={b:1}@5",
        "",
    ),
    (
        "line=(a:5)@5 lock={b:1}@5",
        "+acquire a 1 9M soon first 0 1 ch PUBLISH",
        "0 T @5 b 5 0 0",
        "line=(a:5)@12s lock={b:1}@5",
        "",
    ),
    (
        "line=(a:5)@5 lock={b:1}@5",
        "+acquire a 1 9M soon again 5 1 ch PUBLISH",
        "0 T @5 b 5 0 0",
        "line=(a:5)@12s lock={b:1}@5",
        "",
    ),
    (
        "lock={b:0}@1.5s",
        "+acquire a 1 9M soon again 5 1 ch PUBLISH",
        "0 T @1.5s b 5 0 0",
        "line=(a:5)@12s lock={b:0}@1.5s",
        "",
    ),
    // It lets those in line go first.
    (
        "line=(b:5)@12s",
        "+acquire a 1 3M soon first 0 1 ch PUBLISH",
        "0 T @1.5s b T 0 0",
        "line=(a:T)@12s lock={b:0}@1.5s marks=<b>@12s",
        "ch=b",
    ),
    (
        "line=(b:5)@12s",
        "+acquire a 1 3M soon try 0 0 ch PUBLISH",
        "0 T @1.5s b",
        "lock={b:0}@1.5s marks=<b>@12s",
        "ch=b",
    ),
    (
        "line=(b:9000000000000000)@5",
        "+acquire a 1 3M soon again 0 1 nobody PUBLISH",
        "0 T @1.5s b 9000000000000001 0 0",
        "line=(a:9000000000000001)@12s lock={b:0}@1.5s marks=<b>@12s",
        "",
    ),
    // Of equal tickets the one that comes is served.
    (
        "line=(a:5,b:5)@5",
        "+acquire b 1 3M soon again 5 1 ch PUBLISH",
        "1 T T",
        "fence=T line=(a:5)@5 lock={b:1}@3",
        "",
    ),
    (
        "line=(a:5)@12s",
        "+acquire a 1 3M soon again 5 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={a:1}@3",
        "",
    ),
    (
        "line=(a:5,b:6)@12s",
        "+acquire a 1 3M soon again 5 1 ch PUBLISH",
        "1 T T",
        "fence=T line=(b:6)@12s lock={a:1}@3",
        "",
    ),
    (
        "line=(b:6)@12s",
        "+acquire a 1 3M soon again 5 1 ch PUBLISH",
        "1 T T",
        "fence=T line=(b:6)@12s lock={a:1}@3",
        "",
    ),
    // Something else is under the line's key.
    ("line=text", "+acquire a 1 3M soon try 0 0 ch PUBLISH", "-4 T 6", "=", ""),
    ("line=[x] lock={b:1}@5", "+acquire a 1 3M soon try 0 0 ch PUBLISH", "-4 T 6", "=", ""),
    // Places of marked clients are removed; the client that asks is none of these any more.
    (
        "line=(b:1:5,b:2:6,c:7)@5 marks=<b>@12s",
        "+acquire a 1 3M soon again 8 1 ch PUBLISH",
        "0 T @1.5s c 8 0 0",
        "line=(a:8)@12s lock={c:0}@1.5s marks=<b,c>@12s",
        "ch=c",
    ),
    (
        "line=(b:1:5,c:7)@5 marks=<b>@12s",
        "+acquire a 1 3M soon again 6 1 ch PUBLISH",
        "1 T T",
        "fence=T line=(c:7)@5 lock={a:1}@3 marks=<b>@12s",
        "",
    ),
    (
        "line=(b:1:5,b:2:6)@5 marks=<b>@12s",
        "+acquire a 1 3M soon first 0 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={a:1}@3 marks=<b>@12s",
        "",
    ),
    (
        "line=(b:1:5,b:2:6)@5 marks=<b>@12s",
        "+acquire a 1 3M soon try 0 0 ch PUBLISH",
        "1 T T",
        "fence=T lock={a:1}@3 marks=<b>@12s",
        "",
    ),
    (
        "line=(b:1:5,b:2:6)@5 marks=<b>@12s",
        "+acquire b:2 1 3M soon again 6 1 ch PUBLISH",
        "0 T @1.5s b:1 6 0 0",
        "line=(b:2:6)@12s lock={b:1:0}@1.5s marks=<b>@12s",
        "ch=b:1",
    ),
    // Its client stays marked while the lock is reserved for another waiter of it.
    (
        "lock={b:1:0}@1.5s marks=<b>@12s",
        "+acquire b:2 1 3M soon again 6 1 ch PUBLISH",
        "0 T @1.5s b:1 6 0 0",
        "line=(b:2:6)@12s lock={b:1:0}@1.5s marks=<b>@12s",
        "",
    ),
    (
        "lock={b:1:1}@5 marks=<b>@12s",
        "+acquire b:2 1 3M soon again 6 1 ch PUBLISH",
        "0 T @5 b:1 6 0 0",
        "line=(b:2:6)@12s lock={b:1:1}@5",
        "",
    ),
    (
        "lock={b:1:0}@1.5s marks=<b,c>@5",
        "+acquire a 1 3M soon again 6 1 ch PUBLISH",
        "0 T @1.5s b:1 6 0 0",
        "line=(a:6)@12s lock={b:1:0}@1.5s marks=<b,c>@12s",
        "",
    ),
    (
        "lock={b:1:0}@1.5s marks=<b>@12s",
        "+acquire b:1 1 3M soon again 6 1 ch PUBLISH",
        "1 T T",
        "fence=T lock={b:1:1}@3",
        "",
    ),
    // It is told which places of its client are lost.
    (
        "line=(a:1:5,a:2:6)@5 lock={b:1}@5",
        "+acquire a:1 1 3M soon again 5 1 ch PUBLISH a:2 a:3 a:4",
        "0 T @5 b 5 0 0 a:3 a:4",
        "line=(a:1:5,a:2:6)@12s lock={b:1}@5",
        "",
    ),
    (
        "lock={a:2:0}@1.5s",
        "+acquire a:1 1 3M soon again 5 1 ch PUBLISH a:2 a:3",
        "0 T @1.5s a:2 5 0 0 a:3",
        "line=(a:1:5)@12s lock={a:2:0}@1.5s",
        "",
    ),
    // Something else is under the key of the marks: it stays as it is, and nobody is marked.
    (
        "line=(b:5)@12s marks=text",
        "+acquire a 1 3M soon first 0 1 ch PUBLISH",
        "0 T @1.5s b T 0 0",
        "line=(a:T)@12s lock={b:0}@1.5s marks=text",
        "ch=b",
    ),
    (
        "line=(b:5)@12s marks=text@5",
        "+acquire a 1 3M soon first 0 1 ch PUBLISH",
        "0 T @1.5s b T 0 0",
        "line=(a:T)@12s lock={b:0}@1.5s marks=text@5",
        "ch=b",
    ),
    (
        "line=(b:5,c:6)@12s",
        "+acquire a 1 3M soon again 9 1 ch PUBLISH",
        "0 T @1.5s b 9 1 0",
        "line=(c:6,a:9)@12s lock={b:0}@1.5s marks=<b>@12s",
        "ch=b",
    ),
    (
        "line=(a:1:5)@5 lock={b:1}@5",
        "+acquire a:1 1 3M soon again 5 1 ch PUBLISH a:2",
        "0 T @5 b 5 0 0 a:2",
        "line=(a:1:5)@12s lock={b:1}@5",
        "",
    ),
    // The channel is named with the line.
    ("", "+acquire a 1 3M soon first 0 1 ~ PUBLISH", "-9 T 8", "=", ""),
    ("", "+acquire a 1 3M soon try 0 0 ch publish", "-9 T 9", "=", ""),
];

pub(super) const RELEASE: &[Row] = &[
    (
        "line=(b:5)@12s lock={a:1}@5",
        "+release a 0 nobody PUBLISH",
        "1 T 0",
        "lock={b:0}@1.5s marks=<b>@12s",
        "",
    ),
    // Places of marked clients are passed over, and who releases is not marked any more.
    (
        "line=(b:1:5,b:2:6,c:7)@12s lock={a:1}@5 marks=<a,b>@12s",
        "+release a 0 ch PUBLISH",
        "1 T 1",
        "lock={c:0}@1.5s marks=<b,c>@12s",
        "ch=c",
    ),
    (
        "line=(b:1:5,b:2:6)@12s lock={a:1}@5 marks=<b>@12s",
        "+release a 0 ch PUBLISH",
        "1 T 1",
        "marks=<b>@12s",
        "ch=0",
    ),
    (
        "line=(b:1:5)@12s lock={b:2:0}@1.5s marks=<b>@12s",
        "+release b:2 0 ch PUBLISH",
        "1 T 1",
        "lock={b:1:0}@1.5s marks=<b>@12s",
        "ch=b:1",
    ),
    ("lock={c:1}@5 marks=<b>@12s", "+release b:1 0 ch PUBLISH", "-3 T", "lock={c:1}@5", ""),
    (
        "lock={a:3}@5 marks=<a>@12s",
        "+release a 1 ch PUBLISH",
        "2 T",
        "lock={a:1}@5 marks=<a>@12s",
        "",
    ),
    ("marks=<b>@12s", "+release b:1 0 ch PUBLISH", "0 T", "", ""),
];

pub(super) const UNDO: &[Row] = &[
    ("", "+undo a 0 ch PUBLISH", "0 T", "", ""),
    (
        "line=(a:5,b:7)@12s lock={c:1}@5",
        "+undo a 0 ch PUBLISH",
        "5 T 5",
        "line=(b:7)@12s lock={c:1}@5",
        "",
    ),
    (
        "line=(a:5,b:7)@12s",
        "+undo a 0 ch PUBLISH",
        "5 T 5",
        "lock={b:0}@1.5s marks=<b>@12s",
        "ch=b",
    ),
    (
        "line=(b:7)@12s lock={a:1}@5",
        "+undo a 0 ch PUBLISH",
        "1 T 1",
        "lock={b:0}@1.5s marks=<b>@12s",
        "ch=b",
    ),
    (
        "line=(b:7)@12s lock={a:0}@1.5s marks=<a>@12s",
        "+undo a 0 ch PUBLISH",
        "1 T 1",
        "lock={b:0}@1.5s marks=<b>@12s",
        "ch=b",
    ),
    ("lock={c:1}@5", "+undo a 0 ch PUBLISH", "-3 T", "=", ""),
    ("lock={a:1}@5", "undo a 0 ch PUBLISH", "1 T 1", "", "ch=0"),
    ("line=(a:5)@12s lock={c:1}@5", "undo a 0 ch PUBLISH", "-3 T", "=", ""),
    ("line=text lock={c:1}@5", "+undo a 0 ch PUBLISH", "-3 T", "=", ""),
    ("", "+undo ~ 0 ch PUBLISH", "-9 T 1", "=", ""),
    ("", "+undo a -1 ch PUBLISH", "-9 T 2", "=", ""),
    ("", "+undo a 0 ~ PUBLISH", "-9 T 3", "=", ""),
    ("", "+undo a 0 ch publish", "-9 T 4", "=", ""),
];

pub(super) const RELEASE_AT: &[Row] = &[(
    "line=(b:1:5,c:7)@12s lock={a:1}@5 marks=<a,b>@12s",
    "+release_at a 1 9M ch PUBLISH",
    "1 T 1",
    "lock={c:0}@1.5s marks=<b,c>@12s",
    "ch=c",
)];

pub(super) const FORCE_RELEASE: &[Row] = &[
    (
        "line=(b:2:5,c:7)@12s lock={b:1:0}@1.5s marks=<b>@12s",
        "+force_release b:1 soon ch PUBLISH client",
        "1 T 1",
        "line=(c:7)@12s lock={b:2:0}@1.5s marks=<b>@12s",
        "ch=b:2 client=lock",
    ),
    (
        "line=(b:2:5,c:7)@12s lock={a:1}@5 marks=<b>@12s",
        "+force_release a soon ch PUBLISH client",
        "1 T 1",
        "lock={c:0}@1.5s marks=<b,c>@12s",
        "ch=c client=lock",
    ),
];

/// One script removes 64 places, and no more. These rows are not tried with refused commands: who
/// asks has the lock if a place cannot be removed.
pub(super) const LIMIT: &[Row] = &[
    (
        "line=(b:1:1,b:2:2,b:3:3,b:4:4,b:5:5,b:6:6,b:7:7,b:8:8,b:9:9,b:10:10,b:11:11,b:12:12,b:13:13,b:14:14,b:15:15,b:16:16,b:17:17,b:18:18,b:19:19,b:20:20,b:21:21,b:22:22,b:23:23,b:24:24,b:25:25,b:26:26,b:27:27,b:28:28,b:29:29,b:30:30,b:31:31,b:32:32,b:33:33,b:34:34,b:35:35,b:36:36,b:37:37,b:38:38,b:39:39,b:40:40,b:41:41,b:42:42,b:43:43,b:44:44,b:45:45,b:46:46,b:47:47,b:48:48,b:49:49,b:50:50,b:51:51,b:52:52,b:53:53,b:54:54,b:55:55,b:56:56,b:57:57,b:58:58,b:59:59,b:60:60,b:61:61,b:62:62,b:63:63,b:64:64,b:65:65)@12s marks=<b>@12s",
        "+acquire a 1 3M soon again 99 1 ch PUBLISH",
        "0 T 0 b:65 99 1 0",
        "line=(b:65:65,a:99)@12s marks=<b>@12s",
        "ch=0",
    ),
    (
        "line=(b:1:1,b:2:2,b:3:3,b:4:4,b:5:5,b:6:6,b:7:7,b:8:8,b:9:9,b:10:10,b:11:11,b:12:12,b:13:13,b:14:14,b:15:15,b:16:16,b:17:17,b:18:18,b:19:19,b:20:20,b:21:21,b:22:22,b:23:23,b:24:24,b:25:25,b:26:26,b:27:27,b:28:28,b:29:29,b:30:30,b:31:31,b:32:32,b:33:33,b:34:34,b:35:35,b:36:36,b:37:37,b:38:38,b:39:39,b:40:40,b:41:41,b:42:42,b:43:43,b:44:44,b:45:45,b:46:46,b:47:47,b:48:48,b:49:49,b:50:50,b:51:51,b:52:52,b:53:53,b:54:54,b:55:55,b:56:56,b:57:57,b:58:58,b:59:59,b:60:60,b:61:61,b:62:62,b:63:63,b:64:64,b:65:65)@12s marks=<b>@12s",
        "+acquire a 1 3M soon again 99 1 nobody PUBLISH",
        "0 T 0 b:65 99 1 0",
        "line=(b:65:65,a:99)@12s marks=<b>@12s",
        "",
    ),
    (
        "line=(b:1:1,b:2:2,b:3:3,b:4:4,b:5:5,b:6:6,b:7:7,b:8:8,b:9:9,b:10:10,b:11:11,b:12:12,b:13:13,b:14:14,b:15:15,b:16:16,b:17:17,b:18:18,b:19:19,b:20:20,b:21:21,b:22:22,b:23:23,b:24:24,b:25:25,b:26:26,b:27:27,b:28:28,b:29:29,b:30:30,b:31:31,b:32:32,b:33:33,b:34:34,b:35:35,b:36:36,b:37:37,b:38:38,b:39:39,b:40:40,b:41:41,b:42:42,b:43:43,b:44:44,b:45:45,b:46:46,b:47:47,b:48:48,b:49:49,b:50:50,b:51:51,b:52:52,b:53:53,b:54:54,b:55:55,b:56:56,b:57:57,b:58:58,b:59:59,b:60:60,b:61:61,b:62:62,b:63:63,b:64:64,b:65:65)@12s marks=<b>@12s",
        "+acquire a 1 3M soon try 0 0 ch PUBLISH",
        "0 T 0 b:65",
        "line=(b:65:65)@12s marks=<b>@12s",
        "ch=0",
    ),
    (
        "line=(b:1:1,b:2:2,b:3:3,b:4:4,b:5:5,b:6:6,b:7:7,b:8:8,b:9:9,b:10:10,b:11:11,b:12:12,b:13:13,b:14:14,b:15:15,b:16:16,b:17:17,b:18:18,b:19:19,b:20:20,b:21:21,b:22:22,b:23:23,b:24:24,b:25:25,b:26:26,b:27:27,b:28:28,b:29:29,b:30:30,b:31:31,b:32:32,b:33:33,b:34:34,b:35:35,b:36:36,b:37:37,b:38:38,b:39:39,b:40:40,b:41:41,b:42:42,b:43:43,b:44:44,b:45:45,b:46:46,b:47:47,b:48:48,b:49:49,b:50:50,b:51:51,b:52:52,b:53:53,b:54:54,b:55:55,b:56:56,b:57:57,b:58:58,b:59:59,b:60:60,b:61:61,b:62:62,b:63:63,b:64:64,c:70)@12s marks=<b>@12s",
        "+acquire a 1 3M soon again 99 1 ch PUBLISH",
        "0 T @1.5s c 99 0 0",
        "line=(a:99)@12s lock={c:0}@1.5s marks=<b,c>@12s",
        "ch=c",
    ),
];

/// The same of a release.
pub(super) const LIMIT_OF_RELEASE: &[Row] = &[(
    "line=(b:1:1,b:2:2,b:3:3,b:4:4,b:5:5,b:6:6,b:7:7,b:8:8,b:9:9,b:10:10,b:11:11,b:12:12,b:13:13,b:14:14,b:15:15,b:16:16,b:17:17,b:18:18,b:19:19,b:20:20,b:21:21,b:22:22,b:23:23,b:24:24,b:25:25,b:26:26,b:27:27,b:28:28,b:29:29,b:30:30,b:31:31,b:32:32,b:33:33,b:34:34,b:35:35,b:36:36,b:37:37,b:38:38,b:39:39,b:40:40,b:41:41,b:42:42,b:43:43,b:44:44,b:45:45,b:46:46,b:47:47,b:48:48,b:49:49,b:50:50,b:51:51,b:52:52,b:53:53,b:54:54,b:55:55,b:56:56,b:57:57,b:58:58,b:59:59,b:60:60,b:61:61,b:62:62,b:63:63,b:64:64,b:65:65)@12s lock={a:1}@5 marks=<b>@12s",
    "+release a 0 ch PUBLISH",
    "1 T 1",
    "line=(b:65:65)@12s marks=<b>@12s",
    "ch=0",
)];
