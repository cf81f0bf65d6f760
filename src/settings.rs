//! The settings of users, after they were checked.

pub(crate) mod address_map;
pub(crate) mod config;
pub(crate) mod credentials;
pub(crate) mod tls;
