//! Sockets that are bound before anything is served on them.
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

use tokio::net::TcpSocket;

/// Length of the accept queue. With the standard library's 128, a burst of clients retries its SYN only after a second.
const BACKLOG: u32 = 4_096;

/// The bound sockets of the public surface and, if separate, of the admin surface.
#[derive(Debug)]
pub struct Listeners {
    /// Serves the public routes, and the admin routes when `admin` is `None`.
    pub public: TcpListener,
    /// Serves only the admin routes.
    pub admin: Option<TcpListener>,
}

impl Listeners {
    /// Binds both addresses, or neither. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// An address cannot be bound; the message names it.
    pub fn bind(public: &str, admin: Option<&str>) -> io::Result<Self> {
        Ok(Self { public: bind_listener(public)?, admin: admin.map(bind_listener).transpose()? })
    }

    /// The local addresses with their real ports: the public one first, then the admin one.
    ///
    /// # Errors
    /// The operating system does not report an address.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        std::iter::once(&self.public).chain(&self.admin).map(TcpListener::local_addr).collect()
    }

    /// Duplicates the sockets; the duplicates share the accept queue.
    ///
    /// # Errors
    /// The process has no file descriptors left.
    pub(crate) fn duplicate(&self) -> io::Result<Self> {
        Ok(Self {
            public: self.public.try_clone()?,
            admin: self.admin.as_ref().map(TcpListener::try_clone).transpose()?,
        })
    }
}

/// Binds one address. Must be called inside a Tokio runtime.
///
/// # Errors
/// The address cannot be bound; the message names it.
pub fn bind_listener(address: &str) -> io::Result<TcpListener> {
    let with_address = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "the name resolves to no address");
    for candidate in address.to_socket_addrs().map_err(with_address)? {
        match listen(candidate) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(with_address(last))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // As the standard library does: connections in TIME_WAIT of the previous process must not block the port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}
