//! Several instances on one backend. Each keeps its port, and reaches PostgreSQL, Redis and Kafka through proxies of its own.
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kit::wait::{scaled, until, until_since};

use crate::harness::backend::Backend;
use crate::harness::http::Http;
use crate::harness::ports::free_port;
use crate::harness::process::Posthaste;
use crate::harness::proxy::Proxy;

/// Timeout of requests that must succeed.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Timeout of requests that may stay unanswered: a frozen process never responds.
const SHORT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest until a new installation is ready: its schema and its topics are created meanwhile.
const START_MAX: Duration = Duration::from_secs(60);
/// Longest graceful stop, as the contract says.
const STOP_MAX: Duration = Duration::from_secs(25);
const NAMES: [&str; 3] = ["one", "two", "three"];

/// Instances of the service that share one backend.
pub struct Fleet<'a> {
    backend: &'a Backend,
    members: Vec<Member>,
    unexpected_exits: Mutex<Vec<String>>,
}

struct Member {
    name: &'static str,
    address: String,
    settings: Vec<(String, String)>,
    store: Proxy,
    cache: Proxy,
    broker: Proxy,
    process: Mutex<Option<Posthaste>>,
}

impl<'a> Fleet<'a> {
    /// Prepares this number of instances with additional settings, and starts none.
    pub fn new(backend: &'a Backend, size: usize, settings: &[(&str, &str)]) -> Self {
        let members = NAMES[..size].iter().map(|name| Member::new(backend, name, settings)).collect();
        Self { backend, members, unexpected_exits: Mutex::default() }
    }

    /// Starts this number of instances and waits until all are ready and every partition has an owner.
    pub fn start(backend: &'a Backend, size: usize, settings: &[(&str, &str)]) -> Self {
        let fleet = Self::new(backend, size, settings);
        // The first instance migrates the schema and creates the topics.
        for member in 0..size {
            fleet.launch(member);
        }
        fleet.await_ready(START_MAX);
        until("every partition has an owner", START_MAX, || {
            fleet.owners().iter().all(|owner| !owner.is_empty()).then_some(())
        });
        fleet
    }

    pub fn size(&self) -> usize {
        self.members.len()
    }

    pub fn name(&self, member: usize) -> &'static str {
        self.members[member].name
    }

    /// One HTTP client for each instance, in order, for requests that must succeed.
    pub fn endpoints(&self) -> Vec<Http> {
        self.with_timeout(scaled(TIMEOUT))
    }

    /// As [`Fleet::endpoints`], for requests that an instance may leave unanswered: they time out soon also on a slow machine.
    pub fn endpoints_with_short_timeout(&self) -> Vec<Http> {
        self.with_timeout(SHORT_TIMEOUT)
    }

    fn with_timeout(&self, timeout: Duration) -> Vec<Http> {
        self.members.iter().map(|member| Http::with_timeout(&member.address, timeout)).collect()
    }

    /// Starts an instance that is not running; does not wait until it is ready.
    pub fn launch(&self, member: usize) {
        let Member { settings, process, address, .. } = &self.members[member];
        let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        *process.lock().expect("not poisoned") = Some(Posthaste::launch(self.backend, "serve", &settings, address));
    }

    /// Sends SIGKILL to an instance, if it runs.
    pub fn kill(&self, member: usize) {
        self.record_unexpected_exits();
        if let Some(process) = self.members[member].process.lock().expect("not poisoned").take() {
            process.kill();
        }
    }

    /// Stops an instance with SIGTERM, if it runs; an exit that is not a success is recorded as an unexpected one. Panics where it does not stop
    /// in time.
    pub fn stop(&self, member: usize) {
        // Before it serves its first request, the process may not handle the signal yet.
        let endpoint = &self.endpoints_with_short_timeout()[member];
        until(&format!("{} serves requests", self.name(member)), START_MAX, || {
            let is_serving = endpoint.send_once("GET", "/livez", None, &[], None).is_ok();
            (is_serving || self.with_process(member, |process| process.exit().is_some())).then_some(())
        });
        self.record_unexpected_exits();
        let mut process = self.take(member);
        if process.exit().is_some() {
            return;
        }
        process.signal("TERM");
        let status = process.await_exit(STOP_MAX);
        if !status.success() {
            let exit = format!("{} ended with {status} after SIGTERM: {}", self.name(member), process.stderr());
            self.unexpected_exits.lock().expect("not poisoned").push(exit);
        }
    }

    /// Calls a function with a running process.
    pub fn with_process<T>(&self, member: usize, act: impl FnOnce(&mut Posthaste) -> T) -> T {
        act(self.members[member].process.lock().expect("not poisoned").as_mut().expect("the process runs"))
    }

    /// Removes a process from the fleet, so that the test can stop it.
    pub fn take(&self, member: usize) -> Posthaste {
        self.members[member].process.lock().expect("not poisoned").take().expect("the process runs")
    }

    pub fn freeze(&self, member: usize) {
        self.signal(member, "STOP");
    }

    pub fn resume(&self, member: usize) {
        self.signal(member, "CONT");
    }

    /// Sends a signal to a process. One that ended by itself receives none; it is recorded as an unexpected exit.
    fn signal(&self, member: usize, name: &str) {
        self.record_unexpected_exits();
        self.with_process(member, |process| {
            if process.exit().is_none() {
                process.signal(name);
            }
        });
    }

    /// The proxy between an instance and PostgreSQL.
    pub fn store(&self, member: usize) -> &Proxy {
        &self.members[member].store
    }

    /// The proxy between an instance and Redis.
    pub fn cache(&self, member: usize) -> &Proxy {
        &self.members[member].cache
    }

    /// The proxy between an instance and Kafka.
    pub fn broker(&self, member: usize) -> &Proxy {
        &self.members[member].broker
    }

    /// Waits until every instance is ready; returns how long that took.
    pub fn await_ready(&self, limit: Duration) -> Duration {
        self.await_ready_since(Instant::now(), limit)
    }

    /// As [`Fleet::await_ready`], where time counts from an earlier moment.
    pub fn await_ready_since(&self, started: Instant, limit: Duration) -> Duration {
        for member in 0..self.size() {
            until_since(started, &format!("{} is ready", self.name(member)), limit, || {
                self.record_unexpected_exits();
                self.assert_no_unexpected_exit();
                self.with_process(member, |process| process.is_ready()).then_some(())
            });
        }
        started.elapsed()
    }

    /// The owner of each partition by its lease in the store; empty without a valid lease.
    pub fn owners(&self) -> Vec<String> {
        let rows = self.backend.database.rows(
            "SELECT CASE WHEN expires_at > clock_timestamp() THEN owner END FROM outbox_lease ORDER BY partition",
        );
        rows.into_iter().map(|mut row| row.remove(0)).collect()
    }

    /// Number of partitions of each instance, in order.
    pub fn shares(&self) -> Vec<usize> {
        let owners = self.owners();
        (0..self.size()).map(|member| owners.iter().filter(|owner| *owner == self.name(member)).count()).collect()
    }

    /// Asserts that no process ended unless the test ended it.
    pub fn assert_no_unexpected_exit(&self) {
        let unexpected_exits = self.unexpected_exits.lock().expect("not poisoned");
        assert!(unexpected_exits.is_empty(), "{}", unexpected_exits.join("\n"));
    }

    fn record_unexpected_exits(&self) {
        for member in &self.members {
            let mut process = member.process.lock().expect("not poisoned");
            if let Some(process) = process.as_mut()
                && let Some(status) = process.exit()
            {
                let unexpected_exit = format!("{} ended by itself with {status}: {}", member.name, process.stderr());
                let mut unexpected_exits = self.unexpected_exits.lock().expect("not poisoned");
                if !unexpected_exits.contains(&unexpected_exit) {
                    unexpected_exits.push(unexpected_exit);
                }
            }
        }
    }
}

impl Member {
    fn new(backend: &Backend, name: &'static str, settings: &[(&str, &str)]) -> Self {
        let (postgres, redis) = backend.addresses();
        let (store, cache) = (Proxy::to(&postgres), Proxy::to(&redis));
        let broker = Proxy::to_broker(backend.broker_address());
        let address = format!("127.0.0.1:{}", free_port());
        let required = [
            ("POSTHASTE__INSTANCE__ID", name.to_owned()),
            ("POSTHASTE__HTTP__LISTEN", address.clone()),
            ("POSTHASTE__STORE__URL", backend.postgres_url(&store.address())),
            ("POSTHASTE__REDIS__URL", backend.redis_url(&cache.address())),
            ("POSTHASTE__BROKER__BOOTSTRAP_SERVERS", broker.address()),
        ];
        let additional = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let settings = required.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(additional).collect();
        Self { name, address, settings, store, cache, broker, process: Mutex::default() }
    }
}
