//! Ports of servers that a test starts later, or again.
use std::net::TcpListener;

/// A free port outside the range for outgoing connections, so that none of them takes the port while no server listens on it.
pub fn free_port() -> u16 {
    let mut candidates = std::iter::repeat_with(|| 20_000 + rand::random::<u16>() % 12_000);
    candidates.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("some port is free")
}
