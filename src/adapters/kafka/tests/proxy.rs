//! A wire to the broker that a test can cut, hold or cut at the worst moment. It reads Kafka's frames, and puts its own port where the
//! broker tells its address, so that every connection comes through here.
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};

/// The numbers of Kafka's requests.
const PRODUCE: u16 = 0;
const END_TRANSACTION: u16 = 26;

/// When the wire is cut by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CutAt {
    Never = 0,
    /// The request that ends a transaction never arrives.
    BeforeTheEnd = 1,
    /// It arrives, and its answer does not.
    AfterTheEnd = 2,
}

struct Wire {
    broker: String,
    /// What the broker says where it is, and what we make of it.
    told: Vec<u8>,
    instead: Vec<u8>,
    up: AtomicBool,
    cut_at: AtomicU8,
    hold_ms: AtomicU64,
    /// Zero: any number.
    writes_left: AtomicU64,
    /// What a held request waits on; nobody lets it go before its time.
    held: (Mutex<()>, Condvar),
    /// The request that ends a transaction has passed: the next answer does not.
    ending: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

/// The wire.
pub struct Proxy {
    pub address: String,
    wire: Arc<Wire>,
}

impl Proxy {
    /// A wire to this broker.
    pub fn to(broker: &str) -> Self {
        let asker: BaseConsumer = ClientConfig::new().set("bootstrap.servers", broker).create().expect("a client");
        let metadata = asker.fetch_metadata(Some("none-such"), Duration::from_secs(10)).expect("the broker answers");
        let (host, port) = (metadata.brokers()[0].host().to_owned(), metadata.brokers()[0].port());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mine = listener.local_addr().expect("bound").port();
        let place = |port: i32| [host.as_bytes(), &port.to_be_bytes()].concat();
        let wire = Arc::new(Wire {
            broker: format!("{host}:{port}"),
            told: place(port),
            instead: place(i32::from(mine)),
            up: AtomicBool::new(true),
            cut_at: AtomicU8::new(CutAt::Never as u8),
            hold_ms: AtomicU64::new(0),
            writes_left: AtomicU64::new(0),
            held: Default::default(),
            ending: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let accepting = Arc::clone(&wire);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                accepting.connect(client);
            }
        });
        Self { address: format!("{host}:{mine}"), wire }
    }

    /// Nobody is there any more.
    pub fn cut(&self) {
        self.wire.cut();
    }

    /// The broker is there again.
    pub fn mend(&self) {
        self.wire.cut_at.store(CutAt::Never as u8, Ordering::SeqCst);
        self.wire.up.store(true, Ordering::SeqCst);
    }

    /// Cuts when the next transaction ends.
    pub fn cut_at(&self, when: CutAt) {
        self.wire.cut_at.store(when as u8, Ordering::SeqCst);
    }

    /// Cuts when so many more requests that write have passed.
    pub fn cut_after(&self, writes: u64) {
        self.wire.writes_left.store(writes, Ordering::SeqCst);
    }

    /// Holds each request that writes back for a while.
    pub fn hold(&self, by: Duration) {
        self.wire.hold_ms.store(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Wire {
    fn cut(&self) {
        self.up.store(false, Ordering::SeqCst);
        for socket in self.open.lock().drain(..) {
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    fn connect(self: &Arc<Self>, client: TcpStream) {
        if !self.up.load(Ordering::SeqCst) {
            return drop(client.shutdown(Shutdown::Both));
        }
        let Ok(broker) = TcpStream::connect(&self.broker) else { return };
        drop((client.set_nodelay(true), broker.set_nodelay(true)));
        let clone = |socket: &TcpStream| socket.try_clone().expect("a second handle");
        self.open.lock().extend([clone(&client), clone(&broker)]);
        let (there, back) = (Arc::clone(self), Arc::clone(self));
        let (from, to) = (clone(&client), clone(&broker));
        std::thread::spawn(move || pump(from, to, |frame| there.request(frame)));
        std::thread::spawn(move || pump(broker, client, |frame| back.answer(frame)));
    }

    fn request(&self, frame: &mut [u8]) -> Then {
        match u16::from_be_bytes([frame[0], frame[1]]) {
            PRODUCE => {
                let by = Duration::from_millis(self.hold_ms.load(Ordering::SeqCst));
                self.held.1.wait_for(&mut self.held.0.lock(), by);
                let one_less = |left: u64| left.checked_sub(1);
                if self.writes_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) == Ok(1) {
                    self.cut();
                    return Then::Drop;
                }
            }
            END_TRANSACTION if self.cut_at.load(Ordering::SeqCst) == CutAt::BeforeTheEnd as u8 => {
                self.cut();
                return Then::Drop;
            }
            END_TRANSACTION if self.cut_at.load(Ordering::SeqCst) == CutAt::AfterTheEnd as u8 => {
                self.ending.store(true, Ordering::SeqCst);
            }
            _ => {}
        }
        Then::Pass
    }

    fn answer(&self, frame: &mut [u8]) -> Then {
        // The broker answers a transaction's end after it has decided it.
        if self.ending.swap(false, Ordering::SeqCst) {
            self.cut();
            return Then::Drop;
        }
        let mut at = 0;
        while at + self.told.len() <= frame.len() {
            if frame[at..].starts_with(&self.told) {
                frame[at..at + self.told.len()].copy_from_slice(&self.instead);
            }
            at += 1;
        }
        Then::Pass
    }
}

enum Then {
    Pass,
    Drop,
}

/// Moves frames from one side to the other until either ends.
fn pump(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(&mut [u8]) -> Then) {
    let mut size = [0; 4];
    while from.read_exact(&mut size).is_ok() {
        let mut frame = vec![0; u32::from_be_bytes(size) as usize];
        if from.read_exact(&mut frame).is_err() {
            break;
        }
        let then = look(&mut frame);
        if matches!(then, Then::Drop) {
            break;
        }
        if to.write_all(&size).and_then(|()| to.write_all(&frame)).is_err() {
            break;
        }
    }
    drop((from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both)));
}
