//! Just enough of a Redis client to plant things and to look at them.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Error;
use std::io::ErrorKind;
use std::io::Read;
use std::io::Result;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A RESP2 reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    Text(String),
    List(Vec<Self>),
}

/// A connection to a server.
pub(crate) struct Connection(BufReader<Box<dyn Stream>>);

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

impl Connection {
    /// Through a unix socket.
    pub(crate) fn open(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(Self(BufReader::new(Box::new(stream))))
    }

    /// By TCP; answers are waited for at most `limit`.
    pub(crate) fn tcp(address: &str, limit: Duration) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(Box::new(stream))))
    }

    /// What the server says unasked: a message, a line of MONITOR.
    pub(crate) fn next(&mut self) -> Result<Reply> {
        read(&mut self.0)
    }

    /// Sends one command and waits for its reply; an error reply is an error.
    pub(crate) fn command(&mut self, words: &[&str]) -> Result<Reply> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(request.as_bytes())?;
        read(&mut self.0)
    }

    /// As `command`, for replies that are one text.
    pub(crate) fn text(&mut self, words: &[&str]) -> Result<String> {
        match self.command(words)? {
            Reply::Text(text) => Ok(text),
            other => Err(Error::other(format!("not a text: {other:?}"))),
        }
    }

    /// As `command`, for replies that are one number.
    pub(crate) fn int(&mut self, words: &[&str]) -> Result<i64> {
        match self.command(words)? {
            Reply::Int(number) => Ok(number),
            other => Err(Error::other(format!("not a number: {other:?}"))),
        }
    }
}

fn read(from: &mut impl BufRead) -> Result<Reply> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let (kind, rest) = line.trim_end().split_at(1.min(line.trim_end().len()));
    let number =
        || rest.parse::<i64>().map_err(|_| Error::other(format!("not understood: {line:?}")));
    match kind {
        "+" => Ok(Reply::Text(rest.to_owned())),
        "-" => Err(Error::other(rest.to_owned())),
        ":" => Ok(Reply::Int(number()?)),
        "$" => match usize::try_from(number()?) {
            Err(_) => Ok(Reply::Nil),
            Ok(length) => {
                let mut text = vec![0; length + 2];
                from.read_exact(&mut text)?;
                text.truncate(length);
                Ok(Reply::Text(String::from_utf8_lossy(&text).into_owned()))
            }
        },
        "*" => match usize::try_from(number()?) {
            Err(_) => Ok(Reply::Nil),
            Ok(length) => (0..length).map(|_| read(from)).collect::<Result<_>>().map(Reply::List),
        },
        _ => Err(Error::other(format!("not understood: {line:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read() {
        let mut bytes = "*4\r\n:7\r\n$3\r\na\r\n\r\n$-1\r\n+OK\r\n-ERR no\r\n".as_bytes();
        let list =
            vec![Reply::Int(7), Reply::Text("a\r\n".into()), Reply::Nil, Reply::Text("OK".into())];
        assert_eq!(read(&mut bytes).unwrap(), Reply::List(list));
        assert_eq!(read(&mut bytes).unwrap_err().to_string(), "ERR no");
        assert!(read(&mut bytes).is_err());
    }
}
