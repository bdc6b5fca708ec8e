//! A TCP proxy between the service and a dependency. A test cuts its connections or stalls their data.
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};

/// Forwards connections to one address. Dropped, every connection ends.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<ProxyState>,
}

struct ProxyState {
    target: Mutex<String>,
    ended: AtomicBool,
    stalled: Mutex<bool>,
    changed: Condvar,
    connections: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(ProxyState {
            target: Mutex::new(target.to_owned()),
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
        for (from, to) in [(client, server_writer), (server, client_writer)] {
            let state = Arc::clone(self);
            std::thread::spawn(move || state.copy(from, to));
        }
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 64 * 1024];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            drop(self.changed.wait_while(self.stalled.lock().expect("not poisoned"), |stalled| *stalled));
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        for end in [from, to] {
            // The other direction may have ended it.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
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
