//! The read-write lock: any number of readers, or one writer.
//!
//! [`holds`] is about who has the lock and for how long, [`order`] about who gets it next and who is
//! told. What both leave out (subscriptions, lost lines, slots that move) is the same for every kind
//! of lock, and is in [`crate::line`].

pub mod holds;
pub mod order;
