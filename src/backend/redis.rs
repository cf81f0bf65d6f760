//! On fred: the only place that names it.
