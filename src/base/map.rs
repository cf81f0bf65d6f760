//! Hash maps with keys that this crate chooses. Those with lock names, which others may choose, keep std's hasher.

use std::collections::HashMap;

/// With a hasher that takes a fraction of std's time. Nothing may depend on its order.
pub(crate) type Map<K, V> = HashMap<K, V, Hasher>;

pub(crate) type Hasher = foldhash::fast::RandomState;
