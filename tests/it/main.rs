//! One binary for all integration tests.

mod acl;
mod address_map;
mod allocations;
mod bad_input;
mod blocking;
mod cancellation;
mod cluster;
mod credentials;
mod endpoint;
mod every_byte;
#[cfg(feature = "in-memory")]
mod every_poll;
mod examples;
mod fair_lock;
mod fair_queue;
mod faults;
#[cfg(feature = "fred")]
mod fred;
#[cfg(feature = "in-memory")]
mod in_memory;
mod kinds;
mod latch;
mod line;
mod links;
mod many_holds;
mod many_names;
mod multi_lock;
#[cfg(feature = "in-memory")]
mod observability;
mod old_redisson;
mod outages;
mod permit_expirable;
mod preflight;
mod processes;
#[cfg(feature = "redis")]
mod redis_rs;
mod redlock;
mod reentrant;
mod refusals;
mod runtimes;
mod rw_lock;
mod scripts;
mod semaphore;
mod sentinel;
mod server_errors;
mod services;
mod shutdowns;
mod single_flight;
#[allow(dead_code)] // What the tests of one build do not need.
mod support;
#[cfg(any(feature = "rustls", feature = "native-tls"))]
mod tls;
mod topologies;
