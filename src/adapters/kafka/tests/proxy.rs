//! A proxy between the adapter and the broker that can cut or delay connections at a chosen request, and refuse records of a topic. It parses
//! Kafka's frames and replaces the broker's port in its responses by its own, so that every connection goes through it.
mod connection;
mod ends;
mod frames;
mod group_lists;
mod raised_end;
mod replicas;

use std::collections::HashSet;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kit::wait::until;
use parking_lot::{Condvar, Mutex};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::support::TIMEOUT;
use connection::{Connection, FrameAction, forward};
use ends::{EndAction, Ends};
use frames::correlation_id;

pub use ends::EndFault;

/// API keys of Kafka's requests.
const METADATA: u16 = 3;
const PRODUCE: u16 = 0;
const LIST_GROUPS: u16 = 16;
const INITIALISE_PRODUCER: u16 = 22;
const ADD_PARTITIONS: u16 = 24;
const END_TRANSACTION: u16 = 26;

/// At which request the proxy cuts all connections.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CutAt {
    Never = 0,
    /// The broker never receives the request that commits a transaction.
    BeforeTheEnd = 1,
    /// The broker receives the request, and the client never receives the response.
    AfterTheEnd = 2,
}

struct ProxyState {
    broker: String,
    /// The broker's address as its responses contain it, and the proxy's address that replaces it.
    broker_address: Vec<u8>,
    own_address: Vec<u8>,
    /// An address at which no broker listens.
    unused_address: Vec<u8>,
    up: AtomicBool,
    cut_at: AtomicU8,
    write_delay_ms: AtomicU64,
    ends: Ends,
    /// Until when the next response to an end of a transaction is delayed, and how much longer each later one.
    end_delay: Mutex<Option<(Instant, Duration)>>,
    /// Produce requests until the cut; zero for no cut.
    writes_left: AtomicU64,
    metadata_requests: AtomicU64,
    /// Whether responses wait, on open connections.
    holds_replies: (Mutex<bool>, Condvar),
    /// Delayed requests wait on this condition variable, which is never notified, until their timeout.
    delay: (Mutex<()>, Condvar),
    open: Mutex<Vec<TcpStream>>,
    producers: Mutex<Vec<TcpStream>>,
    hides_brokers: AtomicBool,
    /// Whether a connection is cut at its next metadata response.
    loses_metadata: AtomicBool,
    /// The topic without enough replicas.
    under_replicated_topic: Mutex<Option<String>>,
    /// Whether metadata shows no in-sync replica of the under-replicated topic.
    hides_in_sync_replicas: AtomicBool,
    /// Whether the under-replicated topic also accepts no transaction markers.
    accepts_no_markers: AtomicBool,
    /// How often records of the under-replicated topic were refused.
    refusals: AtomicU64,
    /// The topic whose leader cannot ask the coordinator about transactions.
    unverified_topic: Mutex<Option<String>>,
    /// The topics whose next records another broker is to take.
    moved_topics: Mutex<Vec<String>>,
    /// Whether metadata names an address without a broker once the topics have moved.
    new_leader_is_unreachable: AtomicBool,
    /// The topic without a leader.
    leaderless_topic: Mutex<Option<String>>,
    /// Transactional ids whose transaction the broker cannot end, because a topic without a leader or replicas belongs to it.
    blocked_transactional_ids: Mutex<HashSet<Vec<u8>>>,
    without_brokers: AtomicU64,
    group_lists: group_lists::GroupLists,
    raised_end: raised_end::RaisedEnd,
}

/// The proxy's handle; its threads end with the test process.
pub struct Proxy {
    pub address: String,
    state: Arc<ProxyState>,
}

impl Proxy {
    /// Starts a proxy in front of this broker.
    pub fn to(broker: &str) -> Self {
        let client: BaseConsumer = ClientConfig::new().set("bootstrap.servers", broker).create().expect("a client");
        let metadata = || client.fetch_metadata(Some("none-such"), Duration::from_secs(10)).ok();
        let metadata = until("the broker answers", TIMEOUT, metadata);
        let (host, port) = (metadata.brokers()[0].host().to_owned(), metadata.brokers()[0].port());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let own_port = listener.local_addr().expect("bound").port();
        let address = |port: i32| [host.as_bytes(), &port.to_be_bytes()].concat();
        let state = Arc::new(ProxyState {
            broker: format!("{host}:{port}"),
            broker_address: address(port),
            own_address: address(i32::from(own_port)),
            unused_address: address(1),
            up: AtomicBool::new(true),
            cut_at: AtomicU8::new(CutAt::Never as u8),
            write_delay_ms: AtomicU64::new(0),
            ends: Ends::default(),
            end_delay: Mutex::default(),
            writes_left: AtomicU64::new(0),
            metadata_requests: AtomicU64::new(0),
            holds_replies: Default::default(),
            delay: Default::default(),
            open: Mutex::default(),
            producers: Mutex::default(),
            hides_brokers: AtomicBool::new(false),
            loses_metadata: AtomicBool::new(false),
            under_replicated_topic: Mutex::default(),
            hides_in_sync_replicas: AtomicBool::new(false),
            accepts_no_markers: AtomicBool::new(false),
            refusals: AtomicU64::new(0),
            unverified_topic: Mutex::default(),
            moved_topics: Mutex::default(),
            new_leader_is_unreachable: AtomicBool::new(false),
            leaderless_topic: Mutex::default(),
            blocked_transactional_ids: Mutex::default(),
            without_brokers: AtomicU64::new(0),
            group_lists: Default::default(),
            raised_end: Default::default(),
        });
        let accepting = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                accepting.connect(client);
            }
        });
        Self { address: format!("{host}:{own_port}"), state }
    }

    /// Cuts all connections and refuses new ones.
    pub fn cut(&self) {
        self.state.cut();
    }

    /// Cuts the connections that have carried records and refuses new connections; the others stay open.
    pub fn cut_producers(&self) {
        self.state.up.store(false, Ordering::SeqCst);
        for socket in self.state.producers.lock().drain(..) {
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    /// Accepts new connections again; ends a scheduled cut.
    pub fn mend(&self) {
        self.state.cut_at.store(CutAt::Never as u8, Ordering::SeqCst);
        self.state.writes_left.store(0, Ordering::SeqCst);
        self.state.up.store(true, Ordering::SeqCst);
    }

    /// Whether all responses wait, as those of a broker that hangs.
    pub fn hold_replies(&self, holds_replies: bool) {
        *self.state.holds_replies.0.lock() = holds_replies;
        self.state.holds_replies.1.notify_all();
    }

    /// Whether metadata responses list the topics and no brokers, like those of a broker that has just started.
    pub fn hide_brokers(&self, hides_brokers: bool) {
        self.state.hides_brokers.store(hides_brokers, Ordering::SeqCst);
    }

    /// The topic, of one partition, whose leader cannot ask the coordinator about transactions, so that it refuses all records.
    pub fn fail_verification_of(&self, topic: Option<&str>) {
        *self.state.unverified_topic.lock() = topic.map(str::to_owned);
    }

    /// Answers the next records of this topic, of one partition in the request, as if its leader had just moved.
    pub fn move_leader_of(&self, topic: &str) {
        self.state.moved_topics.lock().push(topic.to_owned());
    }

    /// As [`Self::move_leader_of`] for these topics; metadata then names an address without a broker.
    pub fn move_leaders_away(&self, topics: &[String]) {
        self.state.new_leader_is_unreachable.store(true, Ordering::SeqCst);
        topics.iter().for_each(|topic| self.move_leader_of(topic));
    }

    /// The topic, of one partition, that has no leader, so that no transaction with it can be ended.
    pub fn lose_leader_of(&self, topic: Option<&str>) {
        *self.state.leaderless_topic.lock() = topic.map(str::to_owned);
        self.state.blocked_transactional_ids.lock().clear();
    }

    /// How many connections have received such a response.
    pub fn connections_without_brokers(&self) -> u64 {
        self.state.without_brokers.load(Ordering::SeqCst)
    }

    /// How many requests for metadata all clients have sent.
    pub fn metadata_requests(&self) -> u64 {
        self.state.metadata_requests.load(Ordering::SeqCst)
    }

    /// Cuts all connections when the next transaction is committed.
    pub fn cut_at(&self, when: CutAt) {
        self.state.cut_at.store(when as u8, Ordering::SeqCst);
    }

    /// Cuts all connections at this produce request, counted from now.
    pub fn cut_after(&self, writes: u64) {
        self.state.writes_left.store(writes, Ordering::SeqCst);
    }

    /// Delays each produce request from now on.
    pub fn delay_writes(&self, by: Duration) {
        self.state.write_delay_ms.store(by.as_millis() as u64, Ordering::SeqCst);
    }

    /// Delays the response to the next end of a transaction until then, and each later response one step longer.
    pub fn delay_ends(&self, until: Instant, step: Duration) {
        *self.state.end_delay.lock() = Some((until, step));
    }

    /// Ends the delays of `delay_ends`.
    pub fn stop_delaying_ends(&self) {
        *self.state.end_delay.lock() = None;
    }
}

impl ProxyState {
    fn cut(&self) {
        self.up.store(false, Ordering::SeqCst);
        for socket in self.open.lock().drain(..) {
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    /// Whether all connections are to be cut then, and the frame commits a transaction.
    fn cuts(&self, at: CutAt, frame: &[u8]) -> bool {
        self.cut_at.load(Ordering::SeqCst) == at as u8 && ends::is_commit(frame)
    }

    fn connect(self: &Arc<Self>, client: TcpStream) {
        let Ok(broker) = TcpStream::connect(&self.broker) else { return };
        drop((client.set_nodelay(true), broker.set_nodelay(true)));
        let clone = |socket: &TcpStream| socket.try_clone().expect("a second handle");
        let mut open = self.open.lock();
        // Under the lock: a cut either comes first or closes this connection.
        if !self.up.load(Ordering::SeqCst) {
            return drop(client.shutdown(Shutdown::Both));
        }
        open.extend([clone(&client), clone(&broker)]);
        let (there, back) = (Arc::clone(self), Arc::clone(self));
        let (from, to) = (clone(&client), clone(&broker));
        let connection = Arc::new(Connection::of(clone(&client)));
        let requests = Arc::clone(&connection);
        std::thread::spawn(move || forward(from, to, |frame| there.request(frame, &requests)));
        std::thread::spawn(move || forward(broker, client, |frame| back.response(frame, &connection)));
    }

    fn request(&self, frame: &mut [u8], connection: &Connection) -> FrameAction {
        match u16::from_be_bytes([frame[0], frame[1]]) {
            METADATA => {
                self.metadata_requests.fetch_add(1, Ordering::SeqCst);
                connection.metadata.lock().insert(correlation_id(&frame[4..]));
            }
            PRODUCE => {
                connection.records.lock().insert(correlation_id(&frame[4..]));
                if !connection.produces.swap(true, Ordering::SeqCst) {
                    self.producers.lock().push(connection.client.try_clone().expect("a second handle"));
                }
                let by = Duration::from_millis(self.write_delay_ms.load(Ordering::SeqCst));
                self.delay.1.wait_for(&mut self.delay.0.lock(), by);
                let one_less = |left: u64| left.checked_sub(1);
                if self.writes_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) == Ok(1) {
                    self.cut();
                    return FrameAction::Drop;
                }
                self.ends.before_write(&self.broker);
            }
            ADD_PARTITIONS => {
                let is_added = |topic: &Mutex<Option<String>>| {
                    topic.lock().as_ref().is_some_and(|topic| frames::contains_topic(frame, topic))
                };
                let accepts_no_markers = self.accepts_no_markers.load(Ordering::SeqCst);
                if is_added(&self.leaderless_topic) || accepts_no_markers && is_added(&self.under_replicated_topic) {
                    self.blocked_transactional_ids.lock().insert(frames::transactional_id(frame));
                }
            }
            INITIALISE_PRODUCER if self.blocked_transactional_ids.lock().contains(&frames::transactional_id(frame)) => {
                connection.initialisations.lock().insert(correlation_id(&frame[4..]));
            }
            LIST_GROUPS if self.group_lists.refuse() => return FrameAction::Drop,
            END_TRANSACTION if self.cuts(CutAt::BeforeTheEnd, frame) => {
                self.cut();
                return FrameAction::Drop;
            }
            END_TRANSACTION if self.cuts(CutAt::AfterTheEnd, frame) => {
                connection.is_ending.store(true, Ordering::SeqCst)
            }
            END_TRANSACTION => match self.ends.action(frame) {
                EndAction::Pass => drop(connection.ends.lock().insert(correlation_id(&frame[4..]))),
                EndAction::LoseResponse => connection.loses_response.store(true, Ordering::SeqCst),
                EndAction::Drop => return FrameAction::Drop,
            },
            _ => {}
        }
        FrameAction::Pass
    }

    fn response(&self, frame: &mut Vec<u8>, connection: &Connection) -> FrameAction {
        self.holds_replies.1.wait_while(&mut self.holds_replies.0.lock(), |holds_replies| *holds_replies);
        // The broker responds after it has decided the transaction.
        if connection.is_ending.swap(false, Ordering::SeqCst) {
            self.cut();
            return FrameAction::Drop;
        }
        if connection.loses_response.load(Ordering::SeqCst) {
            return FrameAction::Drop;
        }
        let mut address = &self.own_address;
        if connection.metadata.lock().remove(&correlation_id(frame)) {
            if self.loses_metadata.load(Ordering::SeqCst) {
                return FrameAction::Drop;
            }
            self.change_metadata(frame, connection);
            if self.new_leader_is_unreachable.load(Ordering::SeqCst) && self.moved_topics.lock().is_empty() {
                address = &self.unused_address;
            }
        }
        if connection.initialisations.lock().remove(&correlation_id(frame)) {
            frames::delay_initialisation(frame);
        }
        if connection.records.lock().remove(&correlation_id(frame)) {
            self.refuse_records(frame);
        }
        if connection.ends.lock().remove(&correlation_id(frame)) {
            let until = self.end_delay.lock().as_mut().map(|(until, step)| std::mem::replace(until, *until + *step));
            if let Some(until) = until {
                self.delay.1.wait_until(&mut self.delay.0.lock(), until);
            }
        }
        self.raised_end.change(frame);
        let mut at = 0;
        while at + self.broker_address.len() <= frame.len() {
            if frame[at..].starts_with(&self.broker_address) {
                frame[at..at + self.broker_address.len()].copy_from_slice(address);
            }
            at += 1;
        }
        FrameAction::Pass
    }

    fn refuse_records(&self, frame: &mut Vec<u8>) {
        if let Some(topic) = &*self.unverified_topic.lock() {
            frames::fail_verification(frame, topic);
        }
        let is_refused = |topic: &String| frames::set_produce_error(frame, topic, frames::NOT_ENOUGH_REPLICAS);
        if self.under_replicated_topic.lock().as_ref().is_some_and(is_refused) {
            self.refusals.fetch_add(1, Ordering::SeqCst);
        }
        if let Some(topic) = &*self.leaderless_topic.lock() {
            frames::set_produce_error(frame, topic, frames::NOT_LEADER);
        }
        self.moved_topics.lock().retain(|topic| !frames::set_produce_error(frame, topic, frames::NOT_LEADER));
    }

    fn change_metadata(&self, frame: &mut Vec<u8>, connection: &Connection) {
        if self.hides_in_sync_replicas.load(Ordering::SeqCst)
            && let Some(topic) = &*self.under_replicated_topic.lock()
        {
            frames::remove_in_sync_replicas(frame, topic);
        }
        if let Some(topic) = &*self.leaderless_topic.lock() {
            frames::remove_leader(frame, topic);
        }
        if self.hides_brokers.load(Ordering::SeqCst) {
            frames::remove_brokers(frame);
            if !connection.is_without_brokers.swap(true, Ordering::SeqCst) {
                self.without_brokers.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}
