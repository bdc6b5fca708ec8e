//! Several instances on one ground, each at a port of its own that it keeps, and behind a network of its own that can be broken.
use std::net::TcpListener;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kit::wait::{until, until_since};

use crate::ground::Ground;
use crate::http::Http;
use crate::process::Posthaste;
use crate::proxy::Proxy;

/// Longest that clients wait for an answer: a frozen process gives none.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest until a new installation is at work: its schema and its topics are made meanwhile.
const START_MAX: Duration = Duration::from_secs(60);
const NAMES: [&str; 3] = ["one", "two", "three"];

/// Instances of the service.
pub struct Fleet<'a> {
    ground: &'a Ground,
    members: Vec<Member>,
    surprises: Mutex<Vec<String>>,
}

struct Member {
    name: &'static str,
    address: String,
    settings: Vec<(String, String)>,
    store: Proxy,
    cache: Proxy,
    process: Mutex<Option<Posthaste>>,
}

impl<'a> Fleet<'a> {
    /// So many places for instances, with more settings; nobody runs yet.
    pub fn new(ground: &'a Ground, size: usize, settings: &[(&str, &str)]) -> Self {
        let members = NAMES[..size].iter().map(|name| Member::new(ground, name, settings)).collect();
        Self { ground, members, surprises: Mutex::default() }
    }

    /// The same, all running and ready, and every partition in somebody's hands.
    pub fn start(ground: &'a Ground, size: usize, settings: &[(&str, &str)]) -> Self {
        let fleet = Self::new(ground, size, settings);
        // The first one brings the schema up to date and makes the topics; the others find them.
        for member in 0..size {
            fleet.launch(member);
        }
        fleet.await_ready(START_MAX);
        until("every partition is in somebody's hands", START_MAX, || {
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

    /// A client of each instance, in order.
    pub fn doors(&self) -> Vec<Http> {
        self.members.iter().map(|member| Http::patient(&member.address, PATIENCE)).collect()
    }

    /// Starts an instance that does not run, and waits for nothing.
    pub fn launch(&self, member: usize) {
        let Member { settings, process, address, .. } = &self.members[member];
        let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        *process.lock().expect("not poisoned") = Some(Posthaste::launch(self.ground, &settings, address));
    }

    /// kill -9.
    pub fn kill(&self, member: usize) {
        self.note_surprises();
        if let Some(process) = self.members[member].process.lock().expect("not poisoned").take() {
            process.kill();
        }
    }

    /// Does something with a process that runs.
    pub fn with<T>(&self, member: usize, act: impl FnOnce(&mut Posthaste) -> T) -> T {
        act(self.members[member].process.lock().expect("not poisoned").as_mut().expect("it runs"))
    }

    /// Takes a process out, to stop it in order.
    pub fn take(&self, member: usize) -> Posthaste {
        self.members[member].process.lock().expect("not poisoned").take().expect("it runs")
    }

    pub fn freeze(&self, member: usize) {
        self.signal(member, "STOP");
    }

    pub fn thaw(&self, member: usize) {
        self.signal(member, "CONT");
    }

    /// One that ended by itself hears nothing any more: that is told as the surprise it is.
    fn signal(&self, member: usize, name: &str) {
        self.note_surprises();
        self.with(member, |process| {
            if process.exit().is_none() {
                process.signal(name);
            }
        });
    }

    /// The way from an instance to PostgreSQL.
    pub fn store(&self, member: usize) -> &Proxy {
        &self.members[member].store
    }

    /// The way from an instance to Redis.
    pub fn cache(&self, member: usize) -> &Proxy {
        &self.members[member].cache
    }

    /// Waits until every instance is ready; answers how long that took.
    pub fn await_ready(&self, limit: Duration) -> Duration {
        self.await_ready_since(Instant::now(), limit)
    }

    /// The same, counted from an earlier moment.
    pub fn await_ready_since(&self, begun: Instant, limit: Duration) -> Duration {
        for member in 0..self.size() {
            until_since(begun, &format!("{} is ready", self.name(member)), limit, || {
                self.note_surprises();
                self.assert_no_surprises();
                self.with(member, |process| process.is_ready()).then_some(())
            });
        }
        begun.elapsed()
    }

    /// Which instance has which partition, as the store has it; empty where nobody has it or no longer.
    pub fn owners(&self) -> Vec<String> {
        let rows = self.ground.database.rows(
            "SELECT CASE WHEN expires_at > clock_timestamp() THEN owner END FROM outbox_lease ORDER BY partition",
        );
        rows.into_iter().map(|mut row| row.remove(0)).collect()
    }

    /// Partitions of each instance, in order.
    pub fn shares(&self) -> Vec<usize> {
        let owners = self.owners();
        (0..self.size()).map(|member| owners.iter().filter(|owner| *owner == self.name(member)).count()).collect()
    }

    /// No process ended but by our hand.
    pub fn assert_no_surprises(&self) {
        let surprises = self.surprises.lock().expect("not poisoned");
        assert!(surprises.is_empty(), "{}", surprises.join("\n"));
    }

    fn note_surprises(&self) {
        for member in &self.members {
            let mut process = member.process.lock().expect("not poisoned");
            if let Some(process) = process.as_mut()
                && let Some(status) = process.exit()
            {
                let surprise = format!("{} ended by itself with {status}: {}", member.name, process.stderr());
                let mut surprises = self.surprises.lock().expect("not poisoned");
                if !surprises.contains(&surprise) {
                    surprises.push(surprise);
                }
            }
        }
    }
}

impl Member {
    fn new(ground: &Ground, name: &'static str, settings: &[(&str, &str)]) -> Self {
        let (postgres, redis) = ground.addresses();
        let (store, cache) = (Proxy::to(&postgres), Proxy::to(&redis));
        let address = format!("127.0.0.1:{}", free_port());
        let own = [
            ("POSTHASTE__INSTANCE__ID", name.to_owned()),
            ("POSTHASTE__HTTP__LISTEN", address.clone()),
            ("POSTHASTE__STORE__URL", ground.postgres_url(&store.address())),
            ("POSTHASTE__REDIS__URL", ground.redis_url(&cache.address())),
        ];
        let given = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let settings = own.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(given).collect();
        Self { name, address, settings, store, cache, process: Mutex::default() }
    }
}

/// A port below those that the kernel lends to outgoing connections: none of these may sit on it while its owner is down.
fn free_port() -> u16 {
    let mut ports = std::iter::repeat_with(|| 20_000 + rand::random::<u16>() % 12_000);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("some port is free")
}
