//! Clients that publish batches of events over HTTP and record the outcome of each. They repeat a batch until it is acknowledged, and give up
//! on some.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kit::clock::SeededRng;
use kit::wait::{pause, scaled};
use ports::clock::Rng;
use serde_json::{Value, json};

use crate::harness::http::{Http, Response};
use crate::oracle::sql_writers::{KEYS, TENANT};

pub const HTTP_TYPE: &str = "CustomerRenamed";
/// Most events of a batch.
const BATCH_MAX: u64 = 5;
/// Pause of a client between two requests.
const PAUSE: Duration = Duration::from_millis(40);
/// Longest time that a client repeats one batch: every failure is repaired long before.
const RETRY_MAX: Duration = Duration::from_secs(180);

/// The outcome of a batch, as far as its client received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmissionOutcome {
    /// The ids of its events, in its order.
    Acknowledged(Vec<String>),
    /// The contract says that no attempt published anything.
    Refused,
    /// All of it or nothing was published, or will be.
    Unknown,
}

/// A batch that a client tried to publish, all of it at once.
#[derive(Clone, Debug)]
pub struct ClientBatch {
    pub client: usize,
    pub number: u64,
    /// The keys of its events, in its order.
    pub keys: Vec<&'static str>,
    pub outcome: SubmissionOutcome,
}

/// The value that a client gives the event at this index of a batch.
pub fn http_value(client: usize, number: u64, index: usize) -> Value {
    json!({"client": client, "number": number, "index": index})
}

/// Running clients, each on its own thread.
pub struct EventClients {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<ClientBatch>>>,
}

impl EventClients {
    /// Starts this number of clients; each request goes to a random endpoint.
    pub fn start(endpoints: &[Http], topic: &str, number: usize, seed: u64) -> Self {
        let (stop, acknowledged) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let spawn = |number: usize| {
            let client = EventClient {
                endpoints: endpoints.to_vec(),
                topic: topic.to_owned(),
                rng: SeededRng::new(seed.wrapping_add(number as u64)),
                number,
            };
            let (stop, acknowledged) = (Arc::clone(&stop), Arc::clone(&acknowledged));
            std::thread::spawn(move || client.run(&stop, &acknowledged))
        };
        let threads = (0..number).map(spawn).collect();
        Self { stop, acknowledged, threads }
    }

    /// Number of batches that were acknowledged so far.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.load(SeqCst)
    }

    /// Stops after each client's current batch and returns all records.
    pub fn finish(self) -> Vec<ClientBatch> {
        self.stop.store(true, SeqCst);
        let batches = |client: JoinHandle<_>| client.join().expect("no client received an illegal response");
        self.threads.into_iter().flat_map(batches).collect()
    }
}

struct EventClient {
    endpoints: Vec<Http>,
    topic: String,
    rng: SeededRng,
    number: usize,
}

impl EventClient {
    fn run(self, stop: &AtomicBool, acknowledged: &AtomicUsize) -> Vec<ClientBatch> {
        let mut batches = Vec::new();
        while !stop.load(SeqCst) {
            let batch = self.publish(batches.len() as u64);
            if matches!(batch.outcome, SubmissionOutcome::Acknowledged(_)) {
                acknowledged.fetch_add(1, SeqCst);
            }
            batches.push(batch);
            pause(PAUSE);
        }
        batches
    }

    fn random_below(&self, limit: u64) -> u64 {
        self.rng.next_u64() % limit
    }

    /// Publishes a batch of random keys; repeats it until it is acknowledged, or gives up after a failure.
    fn publish(&self, number: u64) -> ClientBatch {
        let (started, gives_up) = (Instant::now(), self.random_below(6) == 0);
        let keys: Vec<&str> =
            (0..=self.random_below(BATCH_MAX)).map(|_| KEYS[self.random_below(KEYS.len() as u64) as usize]).collect();
        let event = |(index, key): (usize, &&str)| {
            json!({"topic": self.topic, "key": key, "type": HTTP_TYPE, "headers": {"tenant": TENANT},
                "payload": http_value(self.number, number, index)})
        };
        let body = Value::Array(keys.iter().enumerate().map(event).collect()).to_string();
        let batch = |outcome| ClientBatch { client: self.number, number, keys: keys.clone(), outcome };
        let mut unknown = false;
        loop {
            match self.attempt(number, &body, unknown) {
                SubmissionOutcome::Acknowledged(ids) => {
                    assert_eq!(ids.len(), keys.len(), "an id for each event");
                    return batch(SubmissionOutcome::Acknowledged(ids));
                }
                SubmissionOutcome::Unknown => unknown = true,
                SubmissionOutcome::Refused => {}
            }
            if gives_up {
                return batch(if unknown { SubmissionOutcome::Unknown } else { SubmissionOutcome::Refused });
            }
            assert!(started.elapsed() < scaled(RETRY_MAX), "{body} was not acknowledged within {RETRY_MAX:?}");
            pause(PAUSE);
        }
    }

    /// Sends one request to a random endpoint.
    fn attempt(&self, number: u64, body: &str, unknown: bool) -> SubmissionOutcome {
        let endpoint = &self.endpoints[self.random_below(self.endpoints.len() as u64) as usize];
        let token = endpoint.token(&format!("publisher-{}", self.number), "PUBLISHER");
        let key = format!("{}-{number}", self.number);
        let headers = [("Idempotency-Key", key.as_str())];
        match endpoint.send_once("POST", "/events", Some(&token), &headers, Some(body.to_owned())) {
            Ok(response) => match response.status {
                201 => SubmissionOutcome::Acknowledged(ids(&response)),
                // 408: this machine delayed the client for longer than `http.header_timeout`.
                408 | 503 => SubmissionOutcome::Refused,
                500 => SubmissionOutcome::Unknown,
                // An earlier attempt still runs.
                409 if unknown => SubmissionOutcome::Unknown,
                _ => panic!("client {} received {response:?} for {body}", self.number),
            },
            Err(_) => SubmissionOutcome::Unknown,
        }
    }
}

fn ids(response: &Response) -> Vec<String> {
    let body = response.json();
    let id = |event: &Value| event["eventId"].as_str().expect("an id").to_owned();
    body["events"].as_array().expect("events").iter().map(id).collect()
}
