//! Makes a connection to an address and logs in.

use std::io;
use std::time::Duration;

use socket2::SockRef;
use socket2::TcpKeepalive;
use tokio::net::TcpStream;

use crate::backend::redis::addresses::Target;
use crate::backend::redis::budget::Budgets;
use crate::backend::redis::config::Endpoint;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::error::ErrorKind;
use crate::backend::redis::error::WireError;
use crate::backend::redis::resp::Protocol;
use crate::backend::redis::tls;
use crate::backend::redis::wire::Stream;
use crate::backend::redis::wire::Wire;
use crate::backend::redis::wire::display_error;

/// Connects to one of the server's addresses and logs in. `addresses` is how many the server has.
pub(crate) async fn dial(
    config: &RedisConfig,
    target: &Target,
    addresses: usize,
) -> Result<Wire, WireError> {
    let budgets = config.budgets();
    let stream: Box<dyn Stream> = match target {
        #[cfg(not(unix))]
        Target::Unix(_) => {
            return Err(WireError::new(ErrorKind::Io, "this system has no unix sockets"));
        }
        #[cfg(unix)]
        Target::Unix(path) => {
            let connecting =
                async { tokio::net::UnixStream::connect(path).await.map_err(not_connected) };
            Box::new(within(NO_SOCKET, budgets.socket(addresses), connecting).await?)
        }
        Target::Tcp(address) => {
            let connecting = async { TcpStream::connect(address).await.map_err(not_connected) };
            let socket = within(NO_SOCKET, budgets.socket(addresses), connecting).await?;
            secure(config, set_up(socket, budgets)?).await?
        }
    };
    let mut wire = Wire::new(stream, config.protocol());
    within("no answer to the login", budgets.answer(), log_in(&mut wire, config)).await?;
    Ok(wire)
}

/// A refused connection means that no server listens. For a unix socket so does a missing file, or
/// one that is left over.
fn not_connected(error: io::Error) -> WireError {
    let kind = match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => ErrorKind::NoListener,
        _ => ErrorKind::Io,
    };
    WireError::new(kind, error.to_string())
}

const NO_SOCKET: &str = "no connection";

/// Limits a future to this time. `late` says in the error what did not happen.
pub(crate) async fn within<T>(
    late: &str,
    time: Duration,
    work: impl Future<Output = Result<T, WireError>>,
) -> Result<T, WireError> {
    let too_late = || Err(WireError::new(ErrorKind::Timeout, format!("{late} within {time:?}")));
    tokio::time::timeout(time, work).await.unwrap_or_else(|_| too_late())
}

async fn secure(config: &RedisConfig, socket: TcpStream) -> Result<Box<dyn Stream>, WireError> {
    let (Some(connector), Endpoint::Tcp { host, certified, .. }) =
        (config.connector(), config.place())
    else {
        return Ok(Box::new(socket));
    };
    let secured = tls::secure(connector, certified.as_deref().unwrap_or(&host), socket);
    within(tls::NO_HANDSHAKE, config.budgets().tls(), secured).await
}

fn set_up(socket: TcpStream, budgets: Budgets) -> Result<TcpStream, WireError> {
    // When no process listens on a local port, the kernel may connect a socket to itself. It then
    // receives what it sends, which is no answer.
    if socket.local_addr().map_err(display_error)? == socket.peer_addr().map_err(display_error)? {
        return Err(WireError::new(ErrorKind::NoListener, "no server listens there"));
    }
    let options = SockRef::from(&socket);
    let probe = budgets.probe();
    let keepalive = TcpKeepalive::new().with_time(probe).with_interval(probe).with_retries(3);
    options.set_tcp_nodelay(true)?;
    options.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    options.set_tcp_user_timeout(Some(budgets.acknowledgement()))?;
    Ok(socket)
}

/// Logs in. RESP3 begins with a HELLO; RESP2 needs none.
async fn log_in(wire: &mut Wire, config: &RedisConfig) -> Result<(), WireError> {
    let login = config.login();
    let password = login.password.as_deref();
    let mut questions = Vec::new();
    match (config.protocol(), password) {
        (Protocol::Resp3, None) => questions.push(vec!["HELLO", "3"]),
        (Protocol::Resp3, Some(password)) => {
            questions.push(vec![
                "HELLO",
                "3",
                "AUTH",
                login.user.as_deref().unwrap_or("default"),
                password,
            ]);
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

/// The words of an AUTH.
pub(crate) fn auth<'a>(user: Option<&'a str>, password: &'a str) -> Vec<&'a str> {
    std::iter::once("AUTH").chain(user).chain([password]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::SocketAddr;

    #[tokio::test]
    async fn the_kernel_watches_the_socket_and_holds_nothing_back() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        for command_timeout in [1, 20].map(Duration::from_secs) {
            let socket = TcpStream::connect(listener.local_addr().expect("an address")).await;
            let socket = set_up(socket.expect("a connection"), Budgets::of(command_timeout))
                .expect("options");
            let options = SockRef::from(&socket);
            assert!(
                options.tcp_nodelay().expect("an option")
                    && options.keepalive().expect("an option")
            );
            #[cfg(target_os = "linux")]
            {
                let end = options.tcp_user_timeout().expect("an option").expect("one");
                let first = options.tcp_keepalive_time().expect("an option");
                let second = first + options.tcp_keepalive_interval().expect("an option");
                assert!(
                    second < end && end <= 5 * command_timeout,
                    "one lost packet ends it: {first:?}, {second:?}, {end:?}"
                );
            }
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn nobody_talks_to_himself() {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let own = socket.local_addr().expect("an address");
        let socket = socket.connect(own).await.expect("its other end is itself");
        let error = set_up(socket, Budgets::of(Duration::ZERO)).expect_err("no server");
        assert_eq!(
            (error.kind(), error.details()),
            (ErrorKind::NoListener, "no server listens there")
        );
    }

    #[test]
    fn only_a_refused_connection_says_that_nobody_listens() {
        for (kind, expected) in [
            (io::ErrorKind::ConnectionRefused, ErrorKind::NoListener),
            (io::ErrorKind::NotFound, ErrorKind::NoListener),
            (io::ErrorKind::ConnectionReset, ErrorKind::Io),
            (io::ErrorKind::HostUnreachable, ErrorKind::Io),
            (io::ErrorKind::PermissionDenied, ErrorKind::Io),
        ] {
            assert_eq!(not_connected(kind.into()).kind(), expected, "{kind}");
        }
    }

    #[test]
    fn a_login_names_its_user_only_if_there_is_one() {
        assert_eq!(auth(None, "pw"), ["AUTH", "pw"]);
        assert_eq!(auth(Some("ann"), "pw"), ["AUTH", "ann", "pw"]);
    }
}
