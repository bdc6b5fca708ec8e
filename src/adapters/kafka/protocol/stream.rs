//! A TCP connection to a broker, encrypted or not, whose reads and writes end at a deadline.
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::protocol::tls::TlsSettings;

/// Longest time for a TCP connection to be established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The bytes of one connection.
pub(crate) enum Stream {
    Plain(DeadlineSocket),
    Encrypted(Box<StreamOwned<ClientConnection, DeadlineSocket>>),
}

/// A socket on which each call has the time that is left until a deadline: a broker that takes or sends a few bytes at a time prolongs nothing.
pub(crate) struct DeadlineSocket {
    socket: TcpStream,
    deadline: Instant,
}

impl Stream {
    /// Connects to `host:port`, at the latest until the deadline.
    pub(crate) fn connect(address: &str, tls: Option<&TlsSettings>, deadline: Instant) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name resolves to no address");
        for resolved in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&resolved, time_left(deadline)?.min(CONNECT_TIMEOUT)) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    return Self::from_socket(DeadlineSocket { socket, deadline }, address, tls);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn from_socket(socket: DeadlineSocket, address: &str, tls: Option<&TlsSettings>) -> io::Result<Self> {
        let Some(tls) = tls else { return Ok(Stream::Plain(socket)) };
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let connection = ClientConnection::new(tls.config(), name).map_err(io::Error::other)?;
        Ok(Stream::Encrypted(Box::new(StreamOwned::new(connection, socket))))
    }

    /// Writes everything. The first write of an encrypted connection also performs the handshake.
    pub(crate) fn write(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        self.socket().deadline = deadline;
        match self {
            Stream::Plain(socket) => socket.write_all(bytes),
            Stream::Encrypted(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    /// Fills the whole buffer; an end of the connection before is an error.
    pub(crate) fn read(&mut self, buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
        self.socket().deadline = deadline;
        let result = match self {
            Stream::Plain(socket) => socket.read_exact(buffer),
            Stream::Encrypted(stream) => stream.read_exact(buffer),
        };
        result.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "the broker closed the connection"),
            _ => error,
        })
    }

    fn socket(&mut self) -> &mut DeadlineSocket {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Encrypted(stream) => &mut stream.sock,
        }
    }
}

impl Read for DeadlineSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(time_left(self.deadline)?))?;
        self.socket.read(buffer).map_err(map_timeout)
    }
}

impl Write for DeadlineSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(time_left(self.deadline)?))?;
        self.socket.write(bytes).map_err(map_timeout)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// A call that exceeds the timeout of its socket fails as one that would block.
fn map_timeout(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { timed_out() } else { error }
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the broker did not answer in time")
}

/// The time until the deadline. A socket accepts no timeout of zero.
fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(timed_out()) } else { Ok(left.max(Duration::from_micros(1))) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::{Arc, mpsc};

    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use rustls::crypto::ring;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ServerConfig, ServerConnection};

    use super::*;

    /// A server at 127.0.0.1 that returns five bytes to each client, and the PEM of the authority that signed its certificate.
    fn encrypted_echo() -> (String, String) {
        let key = || KeyPair::generate().expect("a key");
        let (authority_key, server_key) = (key(), key());
        let mut params = CertificateParams::new(vec![]).expect("legal");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&authority_key).expect("signed");
        let issuer = Issuer::from_params(&params, &authority_key);
        let names = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("legal");
        let certificate = names.signed_by(&server_key, &issuer).expect("signed");
        let private = PrivateKeyDer::try_from(server_key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], private)
            })
            .map(Arc::new)
            .expect("legal");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let server = ServerConnection::new(Arc::clone(&config)).expect("legal");
                let (mut stream, mut bytes) = (StreamOwned::new(server, socket), [0; 5]);
                // A client that refuses the certificate ends the connection.
                drop(stream.read_exact(&mut bytes).and_then(|()| stream.write_all(&bytes)));
            }
        });
        (address, authority.pem())
    }

    fn answer(address: &str, authority: &str) -> io::Result<[u8; 5]> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), authority)?;
        let settings = TlsSettings::new(Some(file.path())).map_err(io::Error::other)?;
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut stream = Stream::connect(address, Some(&settings), deadline)?;
        let mut bytes = [0; 5];
        stream.write(b"hello", deadline)?;
        stream.read(&mut bytes, deadline)?;
        Ok(bytes)
    }

    #[test]
    fn encrypted_connection_needs_a_trusted_authority() {
        let (address, authority) = encrypted_echo();
        let (_, other_authority) = encrypted_echo();

        assert_eq!(answer(&address, &authority).expect("trusted"), *b"hello");
        let refused = answer(&address, &other_authority).expect_err("another authority signed it");
        assert!(refused.to_string().contains("certificate"), "{refused}");
        assert!(answer(&address, "no certificate").is_err_and(|error| error.to_string().contains("there is none")));
    }

    #[test]
    fn read_ends_at_the_deadline_and_at_the_end_of_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let connect = || Stream::connect(&address, None, Instant::now() + Duration::from_secs(30)).expect("connected");
        let mut silent = connect();
        let (silent_peer, _) = listener.accept().expect("accepted");

        let late = silent.read(&mut [0], Instant::now() + Duration::from_millis(20)).expect_err("nothing was sent");
        drop(silent_peer);
        let closed = silent.read(&mut [0], Instant::now() + Duration::from_secs(30)).expect_err("it was closed");

        assert_eq!((late.kind(), closed.kind()), (io::ErrorKind::TimedOut, io::ErrorKind::UnexpectedEof));
    }

    #[test]
    fn write_ends_at_the_deadline_although_the_broker_takes_a_few_bytes_at_a_time() {
        const TAKEN: usize = 64 * 1024;
        const FRAME: usize = 500 * TAKEN;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let mut stream = Stream::connect(&address, None, Instant::now() + Duration::from_secs(30)).expect("connected");
        let (mut peer, _) = listener.accept().expect("accepted");
        let (end, is_ended) = mpsc::channel::<()>();
        let slow_reader = std::thread::spawn(move || {
            let mut bytes = vec![0; TAKEN];
            while is_ended.recv_timeout(Duration::from_millis(5)) == Err(mpsc::RecvTimeoutError::Timeout) {
                drop(peer.read(&mut bytes));
            }
        });

        let late = stream.write(&vec![0; FRAME], Instant::now() + Duration::from_millis(200));
        drop((end, stream));
        slow_reader.join().expect("no panic");

        assert_eq!(late.expect_err("the frame takes seconds").kind(), io::ErrorKind::TimedOut);
    }
}
