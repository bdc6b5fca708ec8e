//! Bound addresses, before anything is served on them.
use std::io;
use std::net::TcpListener;

/// Where clients come in, and where operators do if that is another place.
#[derive(Debug)]
pub struct Listeners {
    /// For clients; for operators too where there is no other.
    pub public: TcpListener,
    /// For operators only.
    pub admin: Option<TcpListener>,
}

impl Listeners {
    /// Binds both addresses, or neither.
    ///
    /// # Errors
    /// An address cannot be bound; the message names it.
    pub fn bind(public: &str, admin: Option<&str>) -> io::Result<Self> {
        Ok(Self { public: bind(public)?, admin: admin.map(bind).transpose()? })
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
    TcpListener::bind(address)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))
}
