//! The network between the instances and their store and broker: delays, lost requests and replies, requests that arrive late, cuts. A request
//! runs in a task of its own: it takes effect although its sender has given up, is frozen or was killed.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kit::clock::SeededRng;
use parking_lot::Mutex;
use ports::Error;
use ports::clock::Rng;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::cluster::trace::Trace;

/// The server side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    /// The primary of the store.
    Postgres,
    /// The brokers, with their coordinator.
    Kafka,
}

impl Server {
    /// Longest wait of a client for a reply; past it the outcome is unknown.
    fn reply_timeout(self) -> Duration {
        match self {
            Server::Postgres => Duration::from_secs(2),
            Server::Kafka => Duration::from_secs(3),
        }
    }
}

/// The fault that a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NetworkFault {
    Normal,
    /// Both ways take long, but less than the client waits.
    Slow,
    /// The connection is refused: nothing is sent.
    Refused,
    RequestLost,
    ReplyLost,
    /// The request arrives after its sender has given up.
    Late,
}

impl NetworkFault {
    fn name(self) -> &'static str {
        match self {
            NetworkFault::Normal => "normal",
            NetworkFault::Slow => "slow request",
            NetworkFault::Refused => "refused connection",
            NetworkFault::RequestLost => "lost request",
            NetworkFault::ReplyLost => "lost reply",
            NetworkFault::Late => "late request",
        }
    }
}

/// All connections of a run. Clones share them.
#[derive(Clone)]
pub struct Network(Arc<Shared>);

struct Shared {
    rng: SeededRng,
    trace: Trace,
    state: Mutex<NetworkState>,
}

#[derive(Default)]
struct NetworkState {
    /// Probability of each kind of fault.
    fault_probability: f64,
    cut: BTreeSet<(usize, Server)>,
    /// Additional time of each request from an instance to a server.
    slow: BTreeMap<(usize, Server), Duration>,
    stalled: BTreeMap<Server, Instant>,
    /// How often all connections to a server broke.
    breaks: BTreeMap<Server, u32>,
    /// Requests that have not arrived yet although their senders have given up.
    late: u32,
}

impl NetworkState {
    fn breaks_of(&self, server: Server) -> u32 {
        self.breaks.get(&server).copied().unwrap_or(0)
    }
}

/// The connections of one instance to one server.
#[derive(Clone)]
pub struct Link {
    network: Network,
    instance: usize,
    server: Server,
}

impl Network {
    /// A network without faults.
    pub fn new(seed: u64, trace: Trace) -> Self {
        Self(Arc::new(Shared { rng: SeededRng::new(seed), trace, state: Mutex::default() }))
    }

    /// The trace of the run.
    pub fn trace(&self) -> &Trace {
        &self.0.trace
    }

    /// The connections of this instance.
    pub fn link(&self, instance: usize, server: Server) -> Link {
        Link { network: self.clone(), instance, server }
    }

    /// Sets the probability of each kind of fault, 0.0..=1.0.
    pub fn set_fault_probability(&self, probability: f64) {
        self.0.state.lock().fault_probability = probability;
    }

    /// Cuts an instance off from a server, or connects it again.
    pub fn set_cut(&self, instance: usize, server: Server, is_cut: bool) {
        let mut state = self.0.state.lock();
        if is_cut {
            self.0.trace.add("cut", instance as u64, server as u64);
            state.cut.insert((instance, server));
        } else {
            state.cut.remove(&(instance, server));
        }
    }

    /// Adds this time to each request of an instance to a server; zero ends the delay.
    pub fn slow_down(&self, instance: usize, server: Server, by: Duration) {
        self.0.trace.add("slow link", instance as u64, by.as_millis() as u64);
        self.0.state.lock().slow.insert((instance, server), by);
    }

    /// The server receives requests, and executes none until this time has passed.
    pub fn stall(&self, server: Server, time: Duration) {
        self.0.trace.add("stall", server as u64, time.as_millis() as u64);
        self.0.state.lock().stalled.insert(server, Instant::now() + time);
    }

    /// All connections to the server break: what has not been executed is lost, and no reply arrives.
    pub fn break_all(&self, server: Server) {
        *self.0.state.lock().breaks.entry(server).or_default() += 1;
    }

    /// Ends all faults; requests that were sent still arrive.
    pub fn heal(&self) {
        let mut state = self.0.state.lock();
        *state =
            NetworkState { breaks: std::mem::take(&mut state.breaks), late: state.late, ..NetworkState::default() };
    }

    /// Whether requests have not arrived yet although their senders have given up.
    pub fn has_late_requests(&self) -> bool {
        self.0.state.lock().late > 0
    }

    fn count_late(&self, fault: NetworkFault, change: i32) {
        if fault == NetworkFault::Late {
            let mut state = self.0.state.lock();
            state.late = state.late.saturating_add_signed(change);
        }
    }

    /// A random time between these milliseconds.
    pub fn random_millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.0.rng.next_u64() % (to - from).max(1))
    }

    /// True with this probability.
    pub fn random_bool(&self, probability: f64) -> bool {
        probability > 0.0 && self.0.rng.fraction() < probability
    }

    fn draw(&self) -> NetworkFault {
        let probability = self.0.state.lock().fault_probability;
        if probability == 0.0 {
            return NetworkFault::Normal;
        }
        let at = (self.0.rng.fraction() / probability) as u64;
        match at {
            0 => NetworkFault::Slow,
            1 => NetworkFault::Refused,
            2 => NetworkFault::RequestLost,
            3 => NetworkFault::ReplyLost,
            4 => NetworkFault::Late,
            _ => NetworkFault::Normal,
        }
    }

    async fn until_executed(&self, server: Server) {
        let until = self.0.state.lock().stalled.get(&server).copied();
        if let Some(until) = until {
            sleep_until(until).await;
        }
    }
}

impl Link {
    /// The network that the link belongs to.
    pub fn network(&self) -> &Network {
        &self.network
    }

    fn is_cut(&self) -> bool {
        self.network.0.state.lock().cut.contains(&(self.instance, self.server))
    }

    fn breaks(&self) -> u32 {
        self.network.0.state.lock().breaks_of(self.server)
    }

    /// Time from the sender to the server, and back.
    fn delays(&self, fault: NetworkFault) -> (Duration, Duration) {
        let network = &self.network;
        let slow = network.0.state.lock().slow.get(&(self.instance, self.server)).copied().unwrap_or_default();
        match fault {
            NetworkFault::Slow => (network.random_millis(20, 900), network.random_millis(20, 900)),
            NetworkFault::Late => (self.server.reply_timeout() + network.random_millis(1, 4_000), Duration::ZERO),
            _ => (network.random_millis(1, 4) + slow, Duration::ZERO),
        }
    }

    /// Sends a request, which `serve` executes on the server.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if nothing was sent, otherwise [`Error::Unknown`].
    pub async fn call<T: Send + 'static>(
        &self,
        name: &'static str,
        serve: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        let (fault, network) = (self.network.draw(), &self.network);
        network.0.trace.add(name, self.instance as u64, fault as u64);
        if fault != NetworkFault::Normal {
            network.0.trace.add(fault.name(), self.instance as u64, 0);
        }
        if fault == NetworkFault::Refused || self.is_cut() {
            sleep(network.random_millis(5, 200)).await;
            return Err(Error::Unreachable(format!("{name}: no connection")));
        }
        let (request, back) = self.delays(fault);
        let (reply, replied) = oneshot::channel();
        let (link, breaks) = (self.clone(), self.breaks());
        network.count_late(fault, 1);
        tokio::spawn(async move {
            sleep(request).await;
            link.network.until_executed(link.server).await;
            if fault == NetworkFault::RequestLost || link.breaks() != breaks {
                return link.network.count_late(fault, -1);
            }
            let result = serve.await;
            link.network.count_late(fault, -1);
            if !back.is_zero() {
                sleep(back).await;
            }
            if fault != NetworkFault::ReplyLost && link.breaks() == breaks && !link.is_cut() {
                // The sender may have given up.
                let _ = reply.send(result);
            }
        });
        match timeout(self.server.reply_timeout(), replied).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) | Err(_) => {
                network.0.trace.print(format_args!("instance {}: {name} unanswered ({fault:?})", self.instance));
                Err(Error::Unknown(format!("{name}: no reply")))
            }
        }
    }
}
