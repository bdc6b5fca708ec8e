//! A network that can be broken: between a service and what it depends on, connections are cut, or held in silence.
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};

/// Forwards whoever connects to one address. Dropped, every connection ends.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    target: String,
    ended: AtomicBool,
    silent: Mutex<bool>,
    changed: Condvar,
    links: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(State {
            target: target.to_owned(),
            ended: AtomicBool::new(false),
            silent: Mutex::new(false),
            changed: Condvar::new(),
            links: Mutex::default(),
        });
        let ours = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if ours.ended.load(SeqCst) {
                    return;
                }
                ours.link(client);
            }
        });
        Self { address, state }
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Ends every connection, at once and both ways. New ones are welcome.
    pub fn cut(&self) {
        for link in self.state.links.lock().expect("not poisoned").drain(..) {
            // It may have ended already.
            let _ = link.shutdown(Shutdown::Both);
        }
    }

    /// Nothing arrives any more, and nobody is told.
    pub fn fall_silent(&self) {
        *self.state.silent.lock().expect("not poisoned") = true;
    }

    /// What was held back arrives.
    pub fn speak(&self) {
        *self.state.silent.lock().expect("not poisoned") = false;
        self.state.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.ended.store(true, SeqCst);
        self.speak();
        self.cut();
        // Wakes whoever accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn link(self: &Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect(&self.target) else { return };
        let (Ok(client_twin), Ok(server_twin)) = (client.try_clone(), server.try_clone()) else { return };
        for end in [&client, &server] {
            // Small questions and answers must not wait for each other.
            let _ = end.set_nodelay(true);
            self.links.lock().expect("not poisoned").extend(end.try_clone());
        }
        for (from, to) in [(client, server_twin), (server, client_twin)] {
            let state = Arc::clone(self);
            std::thread::spawn(move || state.pump(from, to));
        }
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 64 * 1024];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            drop(self.changed.wait_while(self.silent.lock().expect("not poisoned"), |silent| *silent));
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
fn a_cut_ends_connections_and_silence_holds_them() {
    let echo = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let proxy = Proxy::to(&echo.local_addr().expect("bound").to_string());
    let mut client = TcpStream::connect(proxy.address()).expect("it listens");
    let (mut server, _) = echo.accept().expect("it connects");
    let mut byte = [0];

    client.write_all(b"a").expect("sent");
    server.read_exact(&mut byte).expect("it arrives");
    proxy.fall_silent();
    client.write_all(b"b").expect("sent");
    server.set_read_timeout(Some(std::time::Duration::from_millis(50))).expect("set");
    assert!(server.read_exact(&mut byte).is_err(), "nothing arrives");
    proxy.speak();
    server.set_read_timeout(Some(std::time::Duration::from_secs(5))).expect("set");
    server.read_exact(&mut byte).expect("it arrives late");
    assert_eq!(&byte, b"b");

    proxy.cut();
    assert_eq!(client.read(&mut byte).ok(), Some(0), "both ends are told");
    assert_eq!(server.read(&mut byte).ok(), Some(0), "both ends are told");
}
