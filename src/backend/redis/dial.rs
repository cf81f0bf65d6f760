//! From an address to a connection that is logged in.

use std::net::SocketAddr;
use std::time::Duration;

use socket2::SockRef;
use socket2::TcpKeepalive;
use tokio::net::TcpStream;
use tokio::net::UnixStream;

use crate::backend::redis::config::Place;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::error::ErrorKind;
use crate::backend::redis::error::WireError;
use crate::backend::redis::resp::Protocol;
use crate::backend::redis::tls;
use crate::backend::redis::wire::Stream;
use crate::backend::redis::wire::Wire;
use crate::backend::redis::wire::told;

/// For the addresses of a name. A resolver goes on to its second server after 5 s.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(12);
/// For a connection, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// For every command without a timeout of its own.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
/// What has been sent is acknowledged by then, or the kernel ends the connection: what a network that swallows everything
/// needs, beside the watchdogs of `calls` and `subscriber`.
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const USER_TIMEOUT: Duration = Duration::from_secs(3);
/// Until the kernel looks whether the other side of an idle connection is there, and between two such looks. With a user
/// timeout Linux does not count them: the first one after that time is the last, so two have to fit in before.
const PROBE: Duration = Duration::from_secs(1);

/// Connects and logs in.
pub(crate) async fn dial(config: &RedisConfig) -> Result<Wire, WireError> {
    let addresses = look_up(config).await?;
    dial_at(config, addresses).await
}

/// The same where the addresses of its name are known.
pub(crate) async fn dial_at(config: &RedisConfig, addresses: Vec<SocketAddr>) -> Result<Wire, WireError> {
    let stream = within(CONNECT_TIMEOUT, open(config, addresses)).await?;
    let mut wire = Wire::new(stream, config.protocol());
    within(COMMAND_TIMEOUT, log_in(&mut wire, config)).await?;
    Ok(wire)
}

/// What did not come in time.
pub(crate) const LATE: &str = "Request timed out.";

/// Not longer than this.
pub(crate) async fn within<T>(
    time: Duration,
    work: impl Future<Output = Result<T, WireError>>,
) -> Result<T, WireError> {
    let late = || Err(WireError::new(ErrorKind::Timeout, LATE));
    tokio::time::timeout(time, work).await.unwrap_or_else(|_| late())
}

/// The addresses of a server's name; none of a unix socket.
pub(crate) async fn look_up(config: &RedisConfig) -> Result<Vec<SocketAddr>, WireError> {
    let Place::Tcp { host, port, .. } = config.place() else { return Ok(Vec::new()) };
    let found = async { Ok(tokio::net::lookup_host((host, port)).await.map_err(told)?.collect()) };
    within(LOOK_UP_TIMEOUT, found).await
}

async fn open(config: &RedisConfig, addresses: Vec<SocketAddr>) -> Result<Box<dyn Stream>, WireError> {
    match config.place() {
        Place::Unix(path) => Ok(Box::new(UnixStream::connect(path).await.map_err(told)?)),
        Place::Tcp { host, certified, .. } => {
            let socket = connect(addresses).await?;
            match config.connector() {
                None => Ok(Box::new(socket)),
                Some(connector) => {
                    tls::secure(connector, certified.as_deref().unwrap_or(&host), socket).await
                }
            }
        }
    }
}

/// The first of the host's addresses that can be reached.
async fn connect(addresses: Vec<SocketAddr>) -> Result<TcpStream, WireError> {
    let mut failed = WireError::new(ErrorKind::Io, "the host has no address");
    // One that swallows everything leaves the others their time.
    let share = CONNECT_TIMEOUT / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    for address in addresses {
        match within(share, async { TcpStream::connect(address).await.map_err(told) }).await.and_then(set_up)
        {
            Ok(socket) => return Ok(socket),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn set_up(socket: TcpStream) -> Result<TcpStream, WireError> {
    // Of a port that nobody listens on the kernel may make our end, too: all that is sent comes back, and is no answer.
    if socket.local_addr().map_err(told)? == socket.peer_addr().map_err(told)? {
        return Err(WireError::new(ErrorKind::Io, "no server listens there"));
    }
    let options = SockRef::from(&socket);
    let keepalive = TcpKeepalive::new().with_time(PROBE).with_interval(PROBE).with_retries(3);
    options.set_tcp_nodelay(true)?;
    options.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    options.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(socket)
}

/// RESP3 begins with a HELLO; RESP2 needs none.
async fn log_in(wire: &mut Wire, config: &RedisConfig) -> Result<(), WireError> {
    let login = config.login();
    let password = login.password.as_deref();
    let mut questions = Vec::new();
    match (config.protocol(), password) {
        (Protocol::Resp3, None) => questions.push(vec!["HELLO", "3"]),
        (Protocol::Resp3, Some(password)) => {
            questions.push(vec!["HELLO", "3", "AUTH", login.user.as_deref().unwrap_or("default"), password]);
        }
        (Protocol::Resp2, None) => {}
        (Protocol::Resp2, Some(password)) => questions.push(auth(login.user.as_deref(), password)),
    }
    let database = config.database().map(|database| database.to_string());
    if let Some(database) = &database {
        questions.push(vec!["SELECT", database]);
    }
    for reply in wire.ask(&questions).await? {
        reply?;
    }
    Ok(())
}

/// The command by which a login, or another one, is used.
pub(crate) fn auth<'a>(user: Option<&'a str>, password: &'a str) -> Vec<&'a str> {
    std::iter::once("AUTH").chain(user).chain([password]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernel_watches_the_socket_and_holds_nothing_back() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let socket = connect(vec![SocketAddr::from(([127, 0, 0, 1], port))]).await.expect("a connection");
        let options = SockRef::from(&socket);
        assert!(options.tcp_nodelay().expect("an option") && options.keepalive().expect("an option"));
        #[cfg(target_os = "linux")]
        {
            let end = options.tcp_user_timeout().expect("an option").expect("one");
            let first = options.tcp_keepalive_time().expect("an option");
            let second = first + options.tcp_keepalive_interval().expect("an option");
            assert!(
                second < end && end <= Duration::from_secs(5),
                "one lost packet ends it: {first:?}, {second:?}, {end:?}"
            );
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn nobody_talks_to_himself() {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let own = socket.local_addr().expect("an address");
        let socket = socket.connect(own).await.expect("its other end is itself");
        let error = set_up(socket).expect_err("no server");
        assert_eq!((error.kind(), error.details()), (ErrorKind::Io, "no server listens there"));
    }

    #[test]
    fn a_login_names_its_user_only_if_there_is_one() {
        assert_eq!(auth(None, "pw"), ["AUTH", "pw"]);
        assert_eq!(auth(Some("ann"), "pw"), ["AUTH", "ann", "pw"]);
    }
}
