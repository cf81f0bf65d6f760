//! fred's clients as this crate needs them. Most of fred's defaults are wrong for a lock: each line says why.

use std::sync::Arc;
use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::RespVersion;
use fred::types::config::Config as FredConfig;
use fred::types::config::ConnectionConfig;
use fred::types::config::Options;
use fred::types::config::PerformanceConfig;
use fred::types::config::TcpConfig;
use socket2::TcpKeepalive;
use tokio::sync::broadcast;

use crate::backend::redis::config::RedisConfig;

/// Commands waiting to be written; more are refused at once instead of filling the memory.
const COMMAND_BUFFER: usize = 10_000;
/// Messages waiting to be read. fred's 32 lose most of a burst. Takes 2.5 MB, so only where messages come.
const MESSAGE_BUFFER: usize = 16_384;
/// What fred tells in its other seven channels is not listened to, or not for long.
const EVENT_BUFFER: usize = 32;
/// For a connection, TLS included.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// For every command without a timeout of its own: with fred's 0 some wait for ever.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);

/// For subscriptions: on a connection shared with commands a refused SUBSCRIBE shifts every reply after it. One client
/// lives for one connection.
pub(crate) fn for_messages(config: &RedisConfig) -> Client {
    let client = client(config.fred());
    // fred has one setting for all its channels, and eight of this size take 10 MB. Before anybody listens its sender
    // may be changed for a larger one; a burst in the tests of rule 8 shows that fred uses it.
    client.inner().notifications.pubsub.store(Arc::new(broadcast::Sender::new(MESSAGE_BUFFER)));
    client
}

/// For a sentinel. RESP3: questions are asked on the connection that is subscribed.
pub(crate) fn for_sentinel(config: &RedisConfig) -> Client {
    client(FredConfig { version: RespVersion::RESP3, ..config.fred() })
}

/// How one command is to be sent: fred's own timeout marks a command that it ends, so that one not yet written
/// never is. Dropping the future, which is what `tokio::time::timeout` does, leaves it to be sent later.
pub(crate) fn once_within(timeout: Duration) -> Options {
    Options {
        max_attempts: Some(1),
        // To fred zero means "for ever".
        timeout: Some(timeout.clamp(Duration::from_millis(1), Duration::from_secs(3_600))),
        ..Options::default()
    }
}

fn client(config: FredConfig) -> Client {
    let performance = PerformanceConfig {
        default_command_timeout: COMMAND_TIMEOUT,
        broadcast_channel_capacity: EVENT_BUFFER,
        ..PerformanceConfig::default()
    };
    // No policy: a client of fred that reconnects sends again what was in flight. `link` makes a new one instead.
    Client::new(config, Some(performance), Some(connection()), None)
}

fn connection() -> ConnectionConfig {
    ConnectionConfig {
        connection_timeout: CONNECT_TIMEOUT,
        internal_command_timeout: Duration::from_secs(2),
        // With fred's 3 what lost its reply is sent again.
        max_command_attempts: 1,
        max_command_buffer_len: COMMAND_BUFFER,
        // It would answer this one error to everything in flight.
        reconnect_on_auth_error: false,
        disable_cluster_health_check: true,
        tcp: tcp(),
        ..ConnectionConfig::default()
    }
}

/// For every socket.
pub(crate) fn tcp() -> TcpConfig {
    TcpConfig {
        nodelay: Some(true),
        // What a network that swallows everything needs, beside the watchdogs of `calls` and `pubsub`.
        keepalive: Some(
            TcpKeepalive::new()
                .with_time(Duration::from_secs(5))
                .with_interval(Duration::from_secs(1))
                .with_retries(3),
        ),
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        user_timeout: Some(Duration::from_secs(3)),
        ..TcpConfig::default()
    }
}
