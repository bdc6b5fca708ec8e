//! Bound addresses, before anything is served on them.
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

use tokio::net::TcpSocket;

/// Connections that wait to be accepted. The standard library's 128 make a burst of clients wait a second for their next try.
const BACKLOG: u32 = 4_096;

/// Where clients come in, and where operators do if that is another place.
#[derive(Debug)]
pub struct Listeners {
    /// For clients; for operators too where there is no other.
    pub public: TcpListener,
    /// For operators only.
    pub admin: Option<TcpListener>,
}

impl Listeners {
    /// Binds both addresses, or neither. Call it inside a Tokio runtime.
    ///
    /// # Errors
    /// An address cannot be bound; the message names it.
    pub fn bind(public: &str, admin: Option<&str>) -> io::Result<Self> {
        Ok(Self { public: bind(public)?, admin: admin.map(bind).transpose()? })
    }

    /// Where they listen, with real ports: the public address first, then the admin one, if it has its own.
    ///
    /// # Errors
    /// The operating system does not say.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        std::iter::once(&self.public).chain(&self.admin).map(TcpListener::local_addr).collect()
    }

    /// The same sockets once more: what waits to be accepted is shared.
    ///
    /// # Errors
    /// The operating system has no handles left.
    pub fn share(&self) -> io::Result<Self> {
        Ok(Self {
            public: self.public.try_clone()?,
            admin: self.admin.as_ref().map(TcpListener::try_clone).transpose()?,
        })
    }
}

fn bind(address: &str) -> io::Result<TcpListener> {
    let told = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "it names no address");
    for candidate in address.to_socket_addrs().map_err(told)? {
        match listen(candidate) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(told(last))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // As the standard library does: connections of a service that has just ended must not keep the next one out.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}
