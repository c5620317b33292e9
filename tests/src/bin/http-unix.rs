//! `http-unix` sends one HTTP request to a Unix socket and prints the body of the answer: a client of the control
//! API that starts quickly in a guest and shares no code with the server.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};

const USAGE: &str = "\
usage: http-unix SOCKET METHOD PATH [BODY | @FILE]
Exit status: 0 for an answer of 2xx, 1 for another one, 2 when there is none.
";

/// The longest silence of the server.
const SILENCE_MAX: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match exchange(&arguments) {
        Ok((status, body)) => {
            // A reader that has gone away has had enough.
            drop(std::io::stdout().write_all(&body));
            if (200..300).contains(&status) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("http-unix: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Sends the request; returns the status and the body of the answer.
fn exchange(arguments: &[String]) -> Result<(u16, Vec<u8>)> {
    let (socket, method, path, body) = match arguments {
        [socket, method, path] => (socket, method, path, Vec::new()),
        [socket, method, path, body] => (socket, method, path, content(body)?),
        _ => bail!("wrong number of arguments\n{USAGE}"),
    };
    let mut stream = UnixStream::connect(socket).with_context(|| format!("cannot connect to {socket}"))?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).context("no whole answer")?;
    parse(&answer)
}

fn content(body: &str) -> Result<Vec<u8>> {
    match body.strip_prefix('@') {
        Some(path) => std::fs::read(path).with_context(|| format!("cannot read {path}")),
        None => Ok(body.as_bytes().to_vec()),
    }
}

/// Takes an answer apart, which has to be as long as it says.
fn parse(answer: &[u8]) -> Result<(u16, Vec<u8>)> {
    let end =
        answer.windows(4).position(|window| window == b"\r\n\r\n").context("an answer without an end")?;
    let head = std::str::from_utf8(&answer[..end]).context("a head that is no text")?;
    let body = &answer[end + 4..];
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no status")?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    if length != Some(body.len()) {
        bail!("the answer says that it has {length:?} bytes, it has {}", body.len());
    }
    Ok((status, body.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_whole_or_not_at_all() {
        let whole = b"HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(parse(whole).unwrap(), (409, b"{}".to_vec()));
        for answer in [&whole[..whole.len() - 1], b"", b"HTTP/1.1 200 OK\r\n\r\n"] {
            assert!(parse(answer).is_err());
        }
    }
}
