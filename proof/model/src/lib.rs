//! The protocol of the lock as small models, explored in full.
//!
//! [`leases`] is about who has the lock and for how long, [`wakeups`] about who hears that it is
//! free, [`line`] about who gets it next; that one is ahead of what is shipped. [`fair`] is what a fair lock adds.
//! [`flights`] is about
//! many callers of whom one computes a value, [`latches`] about calls that count once, and
//! [`read_write`] is what a read-write lock adds. [`permits`] and [`numbers`] are about the
//! semaphore: who has its permits and who gets them next, and how many there are. [`multi`] is about
//! several locks that are taken together, [`redlock`] about one on several servers. In each, the
//! correct protocol keeps every promise in every state, and each rule, broken alone, leads to a
//! state in which a promise is broken: so no rule is there for nothing, and the models can see.

pub mod explore;
pub mod fair;
pub mod flights;
pub mod latches;
pub mod leases;
pub mod line;
pub mod multi;
pub mod numbers;
pub mod permits;
pub mod read_write;
pub mod redlock;
pub mod table;
pub mod wakeups;
