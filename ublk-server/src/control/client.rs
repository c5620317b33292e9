//! A client of the control API: one request a connection, HTTP/1.1, with bounded waits.

use super::api::{ApiError, ErrorBody};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest wait for an answer: adding and deleting wait for the driver, up to 30 s each way.
const ANSWER_MAX: Duration = Duration::from_secs(90);
/// The largest answer read: data is at most 1 MiB.
const BODY_MAX: u64 = 16 << 20;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server refused or failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// No server listens on the socket.
    #[error("the server of this pool does not answer on {0}: {1}")]
    Connect(PathBuf, #[source] io::Error),
    /// The connection broke, or the answer did not come in time.
    #[error("the server ended the connection: {0}")]
    Transport(#[source] io::Error),
    /// What came is no answer of this API.
    #[error("not an answer of the control API: {0}")]
    Answer(String),
}

/// The control API of one pool.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// A client of the API behind `socket`. Connects at each call.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_path_buf() }
    }

    /// Calls `method path` without a body.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn call<T: DeserializeOwned>(&self, method: &str, path: &str) -> Result<T, ClientError> {
        parse(&self.exchange(method, path, b"")?)
    }

    /// Calls `method path` with a JSON body.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| ClientError::Answer(error.to_string()))?;
        parse(&self.exchange(method, path, &body)?)
    }

    /// True when the server answers anything within this time.
    pub fn answers_within(&self, most: Duration) -> bool {
        let hello = || {
            let mut stream = UnixStream::connect(&self.socket)?;
            stream.set_read_timeout(Some(most))?;
            stream.set_write_timeout(Some(most))?;
            stream.write_all(b"GET /v1/pool HTTP/1.1\r\nHost: ublk\r\nConnection: close\r\n\r\n")?;
            stream.read(&mut [0])
        };
        hello().is_ok_and(|read| read == 1)
    }

    /// Calls `method path` with a body of bytes and gives the bytes of the answer.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn exchange(&self, method: &str, path: &str, body: &[u8]) -> Result<Vec<u8>, ClientError> {
        let connect = |error| ClientError::Connect(self.socket.clone(), error);
        let mut stream = UnixStream::connect(&self.socket).map_err(connect)?;
        stream.set_read_timeout(Some(ANSWER_MAX)).map_err(connect)?;
        stream.set_write_timeout(Some(ANSWER_MAX)).map_err(connect)?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: ublk\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        let mut answer = Vec::new();
        // A server that refuses a body answers and closes before it has read all of it: the answer counts.
        let read = stream.take(BODY_MAX).read_to_end(&mut answer);
        if answer.is_empty() {
            sent.map_err(ClientError::Transport)?;
            read.map_err(ClientError::Transport)?;
            return Err(ClientError::Transport(io::ErrorKind::UnexpectedEof.into()));
        }
        let (status, body) = split(&answer).ok_or_else(|| {
            let start = String::from_utf8_lossy(&answer[..answer.len().min(80)]).into_owned();
            ClientError::Answer(format!("\"{}\"", start.escape_debug()))
        })?;
        if (200..300).contains(&status) { Ok(body.to_vec()) } else { Err(failure(status, body)) }
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(body).map_err(|error| ClientError::Answer(error.to_string()))
}

fn failure(status: u16, body: &[u8]) -> ClientError {
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(body) => ClientError::Api(ApiError { status, ..body.error }),
        Err(_) => ClientError::Answer(format!("status {status} without an error")),
    }
}

/// The status and the body of an answer that is whole.
fn split(answer: &[u8]) -> Option<(u16, &[u8])> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok())?;
    let body = &answer[end + 4..];
    (body.len() == length).then_some((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_whole_or_not_at_all() {
        let whole = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nx: y\r\n\r\nab";
        assert_eq!(split(whole), Some((404, &b"ab"[..])));
        assert_eq!(split(&whole[..whole.len() - 1]), None);
        for text in
            ["", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", "\r\n\r\n"]
        {
            assert_eq!(split(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn an_error_of_the_server_comes_with_its_code() {
        let error = failure(409, br#"{"error":{"code":"in-use","message":"m","hint":"h"}}"#);
        let ClientError::Api(error) = error else { panic!("{error}") };
        assert_eq!((error.status, error.code.as_str(), error.hint.as_deref()), (409, "in-use", Some("h")));
        assert!(matches!(failure(500, b"<html>"), ClientError::Answer(_)));
    }
}
