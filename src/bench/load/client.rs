//! A small HTTP/1.1 client: keep-alive, JSON. The bench drives 64 of these on the cores of the service, so every microsecond that
//! it takes is one that the service does not get; a general client costs more than the measured request.
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::Error;

/// Largest response in bytes; the longest list is a third of a megabyte.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// One kept-alive HTTP connection to the service.
pub(crate) struct HttpConnection {
    stream: TcpStream,
    address: SocketAddr,
    received: Vec<u8>,
    request: Vec<u8>,
}

/// Status and body of a response.
pub(crate) struct HttpResponse {
    pub status: u16,
    pub body: Vec<u8>,
}

impl HttpConnection {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self, Error> {
        let stream = TcpStream::connect(address)
            .await
            .map_err(|error| Error::new(format!("no service answers at {address}: {error}")))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, address, received: Vec::with_capacity(4096), request: Vec::with_capacity(4096) })
    }

    /// Sends a request and reads its response.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        token: &str,
        body: Option<&str>,
    ) -> Result<HttpResponse, Error> {
        self.send_with(method, path, token, "", body).await
    }

    /// Sends a request with further header lines, each ended by CR LF.
    pub(crate) async fn send_with(
        &mut self,
        method: &str,
        path: &str,
        token: &str,
        lines: &str,
        body: Option<&str>,
    ) -> Result<HttpResponse, Error> {
        self.request.clear();
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n{lines}", self.address);
        self.request.extend_from_slice(head.as_bytes());
        if let Some(body) = body {
            let length = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
            self.request.extend_from_slice(length.as_bytes());
            self.request.extend_from_slice(body.as_bytes());
        } else {
            self.request.extend_from_slice(b"\r\n");
        }
        self.stream.write_all(&self.request).await?;
        self.read_response().await
    }

    async fn read_response(&mut self) -> Result<HttpResponse, Error> {
        self.received.clear();
        let head = loop {
            if let Some(end) = find(&self.received, b"\r\n\r\n") {
                break end + 4;
            }
            self.receive().await?;
        };
        let (status, length) = status_and_length(&self.received[..head])?;
        match length {
            Some(length) => {
                while self.received.len() < head + length {
                    self.receive().await?;
                }
                Ok(HttpResponse { status, body: self.received[head..head + length].to_vec() })
            }
            None => self.read_chunks(status, head).await,
        }
    }

    async fn read_chunks(&mut self, status: u16, mut at: usize) -> Result<HttpResponse, Error> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                if let Some(end) = find(&self.received[at..], b"\r\n") {
                    break at + end;
                }
                self.receive().await?;
            };
            let size = std::str::from_utf8(&self.received[at..end])
                .ok()
                .and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
            let size = size
                .filter(|size| *size <= RESPONSE_BYTES_MAX)
                .ok_or_else(|| Error::new("the response's chunks cannot be read"))?;
            let begin = end + 2;
            while self.received.len() < begin + size + 2 {
                self.receive().await?;
            }
            body.extend_from_slice(&self.received[begin..begin + size]);
            at = begin + size + 2;
            if size == 0 {
                return Ok(HttpResponse { status, body });
            }
        }
    }

    async fn receive(&mut self) -> Result<(), Error> {
        if self.received.len() > RESPONSE_BYTES_MAX {
            return Err(Error::new("the response is too long"));
        }
        match self.stream.read_buf(&mut self.received).await? {
            0 => Err(Error::new("the service closed the connection")),
            _ => Ok(()),
        }
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// Status and body length of a response's head; `None` means chunks. Statuses without a body have length 0.
fn status_and_length(head: &[u8]) -> Result<(u16, Option<usize>), Error> {
    let head = String::from_utf8_lossy(head);
    let status: u16 =
        head.get(9..12).and_then(|status| status.parse().ok()).ok_or_else(|| Error::new("the response is not HTTP"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_head_gives_status_and_length() {
        let length = |head: &str| status_and_length(head.as_bytes()).expect("a readable head");
        assert_eq!(length("HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n"), (200, Some(12)));
        assert_eq!(length("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"), (200, None));
        assert_eq!(length("HTTP/1.1 304 Not Modified\r\n\r\n"), (304, Some(0)));
        assert!(status_and_length(b"220 mail.example").is_err());
    }
}
