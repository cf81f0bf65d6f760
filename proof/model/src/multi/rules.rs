//! What is explored of the multi-lock, and the rules that can be broken.

use crate::explore::explore;
use crate::multi::Multi;
use crate::multi::Program;
use crate::multi::Scope;
use crate::multi::Want;
use crate::table::LIMIT;
use crate::table::Model;

/// A rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Switch {
    TakesInGivenOrder,
    KeepsWhatComesBehind,
    WaitsWithLaterLock,
    ReadAndWriteAreTwoMembers,
    NeverLetsGo,
    TakesLostForHeld,
}

const fn write(name: u8) -> Want {
    Want { name, write: true }
}

const fn read(name: u8) -> Want {
    Want { name, write: false }
}

const fn multi(acquisitions: &'static [&'static [Want]]) -> Program {
    Program { acquisitions, plain: false }
}

const fn plain(acquisitions: &'static [&'static [Want]]) -> Program {
    Program { acquisitions, plain: true }
}

const fn scope(name: &'static str, owners: &'static [Program], losses: u8) -> Scope {
    Scope { name, owners, losses, leases_end: false }
}

const CROSSED: Scope =
    scope("crossed", &[multi(&[&[write(0), write(1)]]), multi(&[&[write(1), write(0)]])], 1);
const THREE: Scope = scope(
    "three of three",
    &[
        multi(&[&[write(0), write(1), write(2)]]),
        multi(&[&[write(2), write(0)]]),
        multi(&[&[write(2), write(1)]]),
    ],
    1,
);
const READERS: Scope = scope(
    "readers, writers",
    &[
        multi(&[&[read(0), write(1)]]),
        multi(&[&[read(1), write(0)]]),
        multi(&[&[read(1), read(0)]]),
    ],
    1,
);
const ONE_NAME: Scope =
    scope("read and write", &[multi(&[&[read(0), write(0)]]), multi(&[&[write(0), read(0)]])], 1);
const NESTED: Scope = scope(
    "nested",
    &[
        multi(&[&[write(1), write(2)], &[write(0), write(1)]]),
        multi(&[&[write(0), write(2)]]),
        multi(&[&[write(0)], &[write(1), write(2)]]),
    ],
    0,
);
const LOST: Scope = scope(
    "a loss",
    &[
        multi(&[&[write(0), write(1), write(2)]]),
        multi(&[&[write(0), write(1)]]),
        multi(&[&[write(2)]]),
    ],
    2,
);
const PLAIN: Scope = Scope {
    leases_end: true,
    ..scope(
        "plain locks",
        &[plain(&[&[write(1)], &[write(0)]]), multi(&[&[write(0), write(1)]])],
        1,
    )
};

const SCOPES: &[Scope] = &[CROSSED, THREE, READERS, ONE_NAME, NESTED, LOST, PLAIN];

const RULES: &[(Switch, &str, Scope)] = &[
    (Switch::TakesInGivenOrder, "members are taken in the order in which they were given", CROSSED),
    (
        Switch::KeepsWhatComesBehind,
        "what comes behind a member that is waited for is kept",
        CROSSED,
    ),
    (Switch::WaitsWithLaterLock, "an owner waits for what comes before a lock that it has", NESTED),
    (Switch::ReadAndWriteAreTwoMembers, "reading and writing of a name are two members", ONE_NAME),
    (Switch::NeverLetsGo, "it never lets go of what it has while it waits", PLAIN),
    (Switch::TakesLostForHeld, "nobody looks whether all are held in the end", LOST),
];

pub(crate) fn model() -> Model {
    Model::of(
        "multi",
        SCOPES,
        RULES,
        |scope| scope.name,
        |scope, switch| explore(&Multi { scope, switch }, LIMIT),
    )
}
