//! A small HTTP/1.1 client for our own service: keep-alive, JSON. The bench drives 64 of these beside the service on the same two
//! cores, so every microsecond it takes is one that the service does not get; a general client would cost more than what it measures.
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::failure::Failure;

/// Largest answer that is read.
const ANSWER_MAX: usize = 64 << 20;

/// One kept-alive connection.
pub(crate) struct Client {
    stream: TcpStream,
    address: SocketAddr,
    received: Vec<u8>,
    request: Vec<u8>,
}

/// An answer.
pub(crate) struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address)
            .await
            .map_err(|error| Failure::new(format!("no service answers at {address}: {error}")))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, address, received: Vec::with_capacity(4096), request: Vec::with_capacity(4096) })
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        token: &str,
        body: Option<&str>,
    ) -> Result<Answer, Failure> {
        self.request.clear();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n", self.address);
        self.request.extend_from_slice(head.as_bytes());
        if let Some(body) = body {
            let length = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
            self.request.extend_from_slice(length.as_bytes());
            self.request.extend_from_slice(body.as_bytes());
        } else {
            self.request.extend_from_slice(b"\r\n");
        }
        self.stream.write_all(&self.request).await?;
        self.read().await
    }

    async fn read(&mut self) -> Result<Answer, Failure> {
        self.received.clear();
        let head = loop {
            if let Some(end) = find(&self.received, b"\r\n\r\n") {
                break end + 4;
            }
            self.more().await?;
        };
        let (status, length) = understand(&self.received[..head])?;
        match length {
            Some(length) => {
                while self.received.len() < head + length {
                    self.more().await?;
                }
                Ok(Answer { status, body: self.received[head..head + length].to_vec() })
            }
            None => self.chunked(status, head).await,
        }
    }

    async fn chunked(&mut self, status: u16, mut at: usize) -> Result<Answer, Failure> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                if let Some(end) = find(&self.received[at..], b"\r\n") {
                    break at + end;
                }
                self.more().await?;
            };
            let size = std::str::from_utf8(&self.received[at..end])
                .ok()
                .and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
            let size = size
                .filter(|size| *size <= ANSWER_MAX)
                .ok_or_else(|| Failure::new("the answer's chunks cannot be read"))?;
            let begin = end + 2;
            while self.received.len() < begin + size + 2 {
                self.more().await?;
            }
            body.extend_from_slice(&self.received[begin..begin + size]);
            at = begin + size + 2;
            if size == 0 {
                return Ok(Answer { status, body });
            }
        }
    }

    async fn more(&mut self) -> Result<(), Failure> {
        if self.received.len() > ANSWER_MAX {
            return Err(Failure::new("the answer is too long"));
        }
        match self.stream.read_buf(&mut self.received).await? {
            0 => Err(Failure::new("the service closed the connection")),
            _ => Ok(()),
        }
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// Status and length of an answer's head; no length means chunks, or no body where the status has none.
fn understand(head: &[u8]) -> Result<(u16, Option<usize>), Failure> {
    let head = String::from_utf8_lossy(head);
    let status: u16 =
        head.get(9..12).and_then(|status| status.parse().ok()).ok_or_else(|| Failure::new("the answer is no HTTP"))?;
    let mut length = if matches!(status, 204 | 304) { Some(0) } else { None };
    for line in head.lines().skip(1) {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok();
        }
    }
    Ok((status, length))
}
