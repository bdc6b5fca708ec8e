//! A TCP proxy between the service and a dependency. A test cuts its connections or stalls their data.
mod broker_address;

use std::io::{Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};

use crate::harness::proxy::broker_address::AddressReplacement;

/// Forwards connections to one address. Dropped, every connection ends.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<ProxyState>,
}

struct ProxyState {
    target: Mutex<String>,
    /// Applied to what the target sends; none for a target that states no address.
    replacement: Option<AddressReplacement>,
    ended: AtomicBool,
    stalled: Mutex<bool>,
    changed: Condvar,
    connections: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub fn to(target: &str) -> Self {
        Self::forwarding(target, |_| None)
    }

    /// A proxy to the only broker of a local Kafka. Clients that know only the proxy's address stay behind it, because the proxy replaces the
    /// broker's address in each response. Clients of another Kafka bypass the proxy once they know its address.
    pub fn to_broker(target: &str) -> Self {
        let broker = target.parse::<SocketAddr>().ok();
        Self::forwarding(target, |proxy| {
            let local = broker.filter(|broker| broker.ip() == proxy.ip());
            local.map(|broker| AddressReplacement::new(broker, proxy))
        })
    }

    fn forwarding(target: &str, replacement: impl FnOnce(SocketAddr) -> Option<AddressReplacement>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(ProxyState {
            target: Mutex::new(target.to_owned()),
            replacement: replacement(address),
            ended: AtomicBool::new(false),
            stalled: Mutex::new(false),
            changed: Condvar::new(),
            connections: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.ended.load(SeqCst) {
                    return;
                }
                shared.forward(client);
            }
        });
        Self { address, state }
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Forwards new connections to another address.
    pub fn redirect(&self, target: &str) {
        *self.state.target.lock().expect("not poisoned") = target.to_owned();
    }

    /// Ends every connection at once in both directions. New connections are accepted.
    pub fn cut(&self) {
        for connection in self.state.connections.lock().expect("not poisoned").drain(..) {
            // It may have ended already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Holds all data back; connections stay open.
    pub fn stall(&self) {
        *self.state.stalled.lock().expect("not poisoned") = true;
    }

    /// Delivers the data that was held back, and forwards again.
    pub fn resume(&self) {
        *self.state.stalled.lock().expect("not poisoned") = false;
        self.state.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.ended.store(true, SeqCst);
        self.resume();
        self.cut();
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

impl ProxyState {
    fn forward(self: &Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect(self.target.lock().expect("not poisoned").as_str()) else { return };
        let (Ok(client_writer), Ok(server_writer)) = (client.try_clone(), server.try_clone()) else { return };
        for end in [&client, &server] {
            // Nagle's algorithm would delay small requests and replies.
            let _ = end.set_nodelay(true);
            self.connections.lock().expect("not poisoned").extend(end.try_clone());
        }
        for (from, to, replacement) in [(client, server_writer, None), (server, client_writer, self.replacement)] {
            let state = Arc::clone(self);
            std::thread::spawn(move || state.copy(from, to, replacement));
        }
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream, replacement: Option<AddressReplacement>) {
        while let Ok(data) = read(&mut from, replacement)
            && !data.is_empty()
        {
            drop(self.changed.wait_while(self.stalled.lock().expect("not poisoned"), |stalled| *stalled));
            if to.write_all(&data).is_err() {
                break;
            }
        }
        for end in [from, to] {
            // The other direction may have ended it.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

/// The next data of a connection; empty at its end.
fn read(from: &mut TcpStream, replacement: Option<AddressReplacement>) -> Result<Vec<u8>> {
    let Some(replacement) = replacement else {
        let mut data = vec![0; 64 * 1024];
        let length = from.read(&mut data)?;
        data.truncate(length);
        return Ok(data);
    };
    replacement.read_response(from)
}

#[test]
fn a_cut_ends_connections_and_a_stall_holds_their_data() {
    let echo = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let proxy = Proxy::to(&echo.local_addr().expect("bound").to_string());
    let mut client = TcpStream::connect(proxy.address()).expect("it listens");
    let (mut server, _) = echo.accept().expect("it connects");
    let mut byte = [0];

    client.write_all(b"a").expect("sent");
    server.read_exact(&mut byte).expect("it arrives");
    proxy.stall();
    client.write_all(b"b").expect("sent");
    server.set_read_timeout(Some(std::time::Duration::from_millis(50))).expect("set");
    assert!(server.read_exact(&mut byte).is_err(), "nothing arrives");
    proxy.resume();
    server.set_read_timeout(Some(std::time::Duration::from_secs(5))).expect("set");
    server.read_exact(&mut byte).expect("it arrives late");
    assert_eq!(&byte, b"b");

    proxy.cut();
    assert_eq!(client.read(&mut byte).ok(), Some(0), "both ends are closed");
    assert_eq!(server.read(&mut byte).ok(), Some(0), "both ends are closed");
}

#[test]
fn a_client_that_knows_only_the_proxy_of_the_broker_stays_behind_it() {
    let backend = crate::harness::backend::Backend::new();
    let proxy = Proxy::to_broker(backend.broker_address());

    assert_eq!(crate::harness::kafka::brokers(&proxy.address()), [proxy.address()]);
}
