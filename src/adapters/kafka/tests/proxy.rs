//! A wire to the broker that a test can cut, hold or cut at the worst moment. It reads Kafka's frames, and puts its own port where the
//! broker tells its address, so that every connection comes through here.
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};

/// The numbers of Kafka's requests.
const METADATA: u16 = 3;
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
    /// Until when the answer to the next end of a transaction is held back, and how much longer the one after it.
    hold_ends: Mutex<Option<(Instant, Duration)>>,
    /// Zero: any number.
    writes_left: AtomicU64,
    /// What a held request waits on; nobody lets it go before its time.
    held: (Mutex<()>, Condvar),
    /// The request that ends a transaction has passed: the next answer does not.
    ending: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
    producers: Mutex<Vec<TcpStream>>,
    names_nobody: AtomicBool,
    named_nobody: AtomicU64,
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
            hold_ends: Mutex::default(),
            writes_left: AtomicU64::new(0),
            held: Default::default(),
            ending: AtomicBool::new(false),
            open: Mutex::default(),
            producers: Mutex::default(),
            names_nobody: AtomicBool::new(false),
            named_nobody: AtomicU64::new(0),
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

    /// Whoever has sent records loses the way to the broker, and nobody finds a new one; the others keep theirs.
    pub fn shut_producers_out(&self) {
        self.wire.up.store(false, Ordering::SeqCst);
        for socket in self.wire.producers.lock().drain(..) {
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    /// The broker is there again.
    pub fn mend(&self) {
        self.wire.cut_at.store(CutAt::Never as u8, Ordering::SeqCst);
        self.wire.up.store(true, Ordering::SeqCst);
    }

    /// Whether the broker, asked for metadata, tells of its topics and of no brokers: so does one that has just started.
    pub fn name_nobody(&self, names_nobody: bool) {
        self.wire.names_nobody.store(names_nobody, Ordering::SeqCst);
    }

    /// On how many connections it did.
    pub fn named_nobody(&self) -> u64 {
        self.wire.named_nobody.load(Ordering::SeqCst)
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

    /// Holds the answer to the next end of a transaction back until then, and each later one a step longer.
    pub fn hold_ends(&self, until: Instant, step: Duration) {
        *self.wire.hold_ends.lock() = Some((until, step));
    }

    /// Holds none back any more.
    pub fn pass_ends(&self) {
        *self.wire.hold_ends.lock() = None;
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
        let connection = Arc::new(Connection::of(clone(&client)));
        let asks = Arc::clone(&connection);
        std::thread::spawn(move || pump(from, to, |frame| there.request(frame, &asks)));
        std::thread::spawn(move || pump(broker, client, |frame| back.answer(frame, &connection)));
    }

    fn request(&self, frame: &mut [u8], connection: &Connection) -> Then {
        match u16::from_be_bytes([frame[0], frame[1]]) {
            METADATA => drop(connection.asked.lock().insert(correlation(&frame[4..]))),
            PRODUCE => {
                if !connection.produces.swap(true, Ordering::SeqCst) {
                    self.producers.lock().push(connection.client.try_clone().expect("a second handle"));
                }
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
            END_TRANSACTION => drop(connection.ends.lock().insert(correlation(&frame[4..]))),
            _ => {}
        }
        Then::Pass
    }

    fn answer(&self, frame: &mut Vec<u8>, connection: &Connection) -> Then {
        // The broker answers a transaction's end after it has decided it.
        if self.ending.swap(false, Ordering::SeqCst) {
            self.cut();
            return Then::Drop;
        }
        if connection.asked.lock().remove(&correlation(frame)) && self.names_nobody.load(Ordering::SeqCst) {
            strike_brokers(frame);
            if !connection.told.swap(true, Ordering::SeqCst) {
                self.named_nobody.fetch_add(1, Ordering::SeqCst);
            }
        }
        if connection.ends.lock().remove(&correlation(frame)) {
            let until = self.hold_ends.lock().as_mut().map(|(until, step)| std::mem::replace(until, *until + *step));
            if let Some(until) = until {
                self.held.1.wait_until(&mut self.held.0.lock(), until);
            }
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

/// What is known of a connection.
struct Connection {
    client: TcpStream,
    /// Correlation numbers of questions for metadata that are not answered yet.
    asked: Mutex<HashSet<[u8; 4]>>,
    /// Those of requests that end a transaction.
    ends: Mutex<HashSet<[u8; 4]>>,
    /// It was told of no brokers.
    told: AtomicBool,
    /// It carries records.
    produces: AtomicBool,
}

impl Connection {
    fn of(client: TcpStream) -> Self {
        Self {
            client,
            asked: Mutex::default(),
            ends: Mutex::default(),
            told: AtomicBool::new(false),
            produces: AtomicBool::new(false),
        }
    }
}

enum Then {
    Pass,
    Drop,
}

fn correlation(bytes: &[u8]) -> [u8; 4] {
    bytes[..4].try_into().expect("a frame has a head")
}

/// Takes the brokers out of an answer about metadata: correlation (4), tags (1), throttle (4), brokers (a count that is one too large, then
/// id (4), host, port (4), rack, tags), whatever follows. Lengths and counts are one byte here; a length of zero is no text.
fn strike_brokers(answer: &mut Vec<u8>) {
    const BROKERS: usize = 9;
    let mut end = BROKERS + 1;
    for _ in 1..answer[BROKERS] {
        for fixed in [4, 4] {
            end += fixed;
            end += 1 + usize::from(answer[end].saturating_sub(1));
        }
        end += 1;
    }
    answer.splice(BROKERS..end, [1]);
}

/// Moves frames from one side to the other until either ends.
fn pump(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(&mut Vec<u8>) -> Then) {
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
        let size = (frame.len() as u32).to_be_bytes();
        if to.write_all(&size).and_then(|()| to.write_all(&frame)).is_err() {
            break;
        }
    }
    drop((from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both)));
}
