//! A server that reads requests and writes the bytes that a test gives, one connection after the other.
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the server does after it has read a request.
#[derive(Clone, Copy)]
pub enum Reaction {
    /// Writes these bytes and keeps the connection.
    Write(&'static str),
    /// Writes these bytes and then one more byte again and again, until the client leaves.
    WriteForever(&'static str),
    /// Closes the connection without a response.
    Close,
    /// Keeps the connection and never responds.
    Wait,
}

/// The server's address, and what it received.
pub struct TestServer {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<Mutex<usize>>,
}

impl TestServer {
    pub async fn start(reaction: Reaction) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (requests, connections): (Arc<Mutex<Vec<String>>>, Arc<Mutex<usize>>) = Default::default();
        let server = Self { address: listener.local_addr().unwrap(), requests, connections };
        let (requests, connections) = (Arc::clone(&server.requests), Arc::clone(&server.connections));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *connections.lock().unwrap() += 1;
                tokio::spawn(serve(stream, reaction, Arc::clone(&requests)));
            }
        });
        server
    }

    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

async fn serve(mut stream: TcpStream, reaction: Reaction, requests: Arc<Mutex<Vec<String>>>) {
    while let Some(request) = read_request(&mut stream).await {
        requests.lock().unwrap().push(request);
        match reaction {
            Reaction::Write(response) => stream.write_all(response.as_bytes()).await.unwrap(),
            Reaction::WriteForever(response) => {
                stream.write_all(response.as_bytes()).await.unwrap();
                while stream.write_all(b"x").await.is_ok() {
                    tokio::task::yield_now().await;
                }
            }
            Reaction::Close => return,
            Reaction::Wait => std::future::pending().await,
        }
    }
}

/// Reads a header and the body of its `content-length`; `None` when the client has closed the connection.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((header, body)) = text.split_once("\r\n\r\n") {
            let lengths = header
                .lines()
                .filter_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok());
            if body.len() >= lengths.sum::<usize>() {
                return Some(text);
            }
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(read @ 1..) => bytes.extend_from_slice(&chunk[..read]),
            Ok(0) | Err(_) => return None,
        }
    }
}
