//! Hash maps for what is looked up several times in each operation.

use std::collections::HashMap;

/// With a hasher that takes a fraction of std's time, seeded for each process: lock names come from users.
///
/// Nothing may depend on its order.
pub(crate) type Map<K, V> = HashMap<K, V, Hasher>;

pub(crate) type Hasher = foldhash::fast::RandomState;
