//! Hash maps with keys that this crate chooses. Maps with lock names, which attackers may choose,
//! keep std's hasher.

use std::collections::HashMap;

/// Its hasher takes a fraction of the time of std's. Nothing may depend on the order.
pub(crate) type Map<K, V> = HashMap<K, V, Hasher>;

pub(crate) type Hasher = foldhash::fast::RandomState;
