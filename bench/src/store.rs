//! A server where counters and values are, over a socket of its own.

use tokio::io::AsyncBufReadExt;
use tokio::io::AsyncWriteExt;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

/// One connection, which runs one command at a time.
#[derive(Debug)]
pub(crate) struct Store(Mutex<BufReader<TcpStream>>);

impl Store {
    pub(crate) async fn connect(url: &str) -> Self {
        let address = url.trim_start_matches("redis://").trim_end_matches('/');
        let stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        Self(Mutex::new(BufReader::new(stream)))
    }

    /// The number after it has grown by so much.
    pub(crate) async fn add(&self, key: &str, count: i64) -> i64 {
        let answer = self.run(&["INCRBY", key, &count.to_string()]).await;
        answer.trim_start_matches(':').parse().expect("a number")
    }

    pub(crate) async fn exists(&self, key: &str) -> bool {
        self.run(&["EXISTS", key]).await == ":1"
    }

    pub(crate) async fn set(&self, key: &str) {
        self.run(&["SET", key, "1"]).await;
    }

    /// The first line of the answer.
    async fn run(&self, words: &[&str]) -> String {
        let spelled: String =
            words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        let command = format!("*{}\r\n{spelled}", words.len());
        let mut stream = self.0.lock().await;
        stream.write_all(command.as_bytes()).await.expect("a connection");
        let mut answer = String::new();
        stream.read_line(&mut answer).await.expect("an answer");
        answer.trim_end().to_owned()
    }
}
