//! The store, as a task asks it.

use std::io;
use std::path::PathBuf;

use tokio::io::AsyncBufReadExt;
use tokio::io::AsyncWriteExt;
use tokio::io::BufReader;
use tokio::net::UnixStream;

/// One connection to the store, made when it is needed.
pub(super) struct Asking {
    store: PathBuf,
    stream: Option<BufReader<UnixStream>>,
}

impl Asking {
    pub(super) fn new(store: PathBuf) -> Self {
        Self { store, stream: None }
    }

    /// The answer, a line. If the future is dropped, the connection goes with it, so that nobody
    /// takes its answer for that to another question.
    pub(super) async fn ask(&mut self, line: &str) -> io::Result<String> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => BufReader::new(UnixStream::connect(&self.store).await?),
        };
        stream.get_mut().write_all(format!("{line}\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_line(&mut answer).await?;
        self.stream = Some(stream);
        Ok(answer.trim().to_owned())
    }
}
