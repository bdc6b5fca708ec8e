//! Clients that record the outcome of each request: each one creates orders and changes them through any instance, and repeats a request
//! until its outcome is known. Some of them give up on an unknown outcome.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use domain::Status;
use kit::clock::SeededRng;
use kit::wait::{pause, scaled};
use ports::clock::Rng;
use serde_json::{Value, json};

use crate::harness::http::Http;
use crate::oracle::client_orders::{ClientOrder, OrderView};

/// Number of clients, each with one request at a time.
pub const CLIENTS: usize = 6;
/// Pause of a client before it repeats a request.
const PAUSE: Duration = Duration::from_millis(40);
/// Longest time that a client repeats one request: every failure is repaired long before.
const RETRY_MAX: Duration = Duration::from_secs(180);

/// Running clients, each on its own thread.
pub struct Clients {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<ClientOrder>>>,
}

impl Clients {
    /// Starts this number of clients; each request goes to a random endpoint.
    pub fn start(endpoints: &[Http], number: usize, seed: u64) -> Self {
        let (stop, acknowledged) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let client = |number| Client {
            endpoints: endpoints.to_vec(),
            rng: SeededRng::new(seed.wrapping_add(number as u64)),
            name: name(number),
            orders: Vec::new(),
            acknowledged: Arc::clone(&acknowledged),
        };
        let spawn = |mut client: Client| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(SeqCst) {
                    client.create_and_change_order();
                }
                client.orders
            })
        };
        let threads = (0..number).map(client).map(spawn).collect();
        Self { stop, acknowledged, threads }
    }

    /// Number of creates and changes that were acknowledged so far.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.load(SeqCst)
    }

    /// Stops after each client's current order and returns all records.
    pub fn finish(self) -> Vec<ClientOrder> {
        self.stop.store(true, SeqCst);
        self.threads
            .into_iter()
            .flat_map(|client| client.join().expect("no client received an illegal response"))
            .collect()
    }
}

/// The subject of a client's tokens.
pub fn name(number: usize) -> String {
    format!("client-{number}")
}

struct Client {
    endpoints: Vec<Http>,
    rng: SeededRng,
    name: String,
    orders: Vec<ClientOrder>,
    acknowledged: Arc<AtomicUsize>,
}

/// The outcome of a request, as far as its response states it.
enum RequestOutcome {
    Done(Value),
    /// The contract says that nothing was changed.
    Refused,
    /// 409: the order is in another state than the request expects.
    Conflict,
    /// The request may have been executed.
    Unknown,
}

impl Client {
    fn one_in(&self, many: u64) -> bool {
        self.rng.next_u64().is_multiple_of(many)
    }

    /// Sends a request to a random endpoint.
    fn send(&self, method: &str, path: &str, as_admin: bool, headers: &[(&str, &str)], body: &Value) -> RequestOutcome {
        let endpoint = &self.endpoints[(self.rng.next_u64() % self.endpoints.len() as u64) as usize];
        let token = if as_admin { endpoint.admin() } else { endpoint.token(&self.name, "USER") };
        let outcome = match endpoint.send_once(method, path, Some(&token), headers, Some(body.to_string())) {
            Ok(response) => match response.status {
                200 | 201 => RequestOutcome::Done(response.json()),
                // 408: this machine delayed the client for longer than `http.header_timeout`.
                408 | 503 => RequestOutcome::Refused,
                409 => RequestOutcome::Conflict,
                500 => RequestOutcome::Unknown,
                _ => panic!("{} received {response:?} for {method} {path}", self.name),
            },
            Err(_) => RequestOutcome::Unknown,
        };
        match &outcome {
            RequestOutcome::Done(order) => self.count_and_read_back(endpoint, &token, order),
            _ => pause(PAUSE),
        }
        outcome
    }

    /// Counts an acknowledgement, and sometimes reads the order from the instance that acknowledged it, which must show the change at once.
    fn count_and_read_back(&self, endpoint: &Http, token: &str, order: &Value) {
        self.acknowledged.fetch_add(1, SeqCst);
        if !self.one_in(8) {
            return;
        }
        let path = format!("/orders/{}", order["id"].as_str().expect("an id"));
        if let Ok(response) = endpoint.send_once("GET", &path, Some(token), &[], None)
            && response.status < 500
            && response.status != 408
        {
            assert_eq!(response.status, 200, "an acknowledged order is missing: {}", response.text);
            assert_eq!(
                OrderView::of(&response.json()),
                OrderView::of(order),
                "the instance that acknowledged a change shows another state"
            );
        }
    }

    /// Creates an order, then changes it a random number of times.
    fn create_and_change_order(&mut self) {
        let label = format!("{}-{}", self.name, self.orders.len());
        let keyed = !self.one_in(4);
        let order = if keyed { self.create_until_known(&label) } else { self.create_once(&label) };
        let order = if order.id.is_some() { self.change_randomly(order) } else { order };
        self.orders.push(order);
    }

    fn create_until_known(&self, label: &str) -> ClientOrder {
        let started = Instant::now();
        loop {
            // A conflict means that an earlier attempt of this client still runs.
            let outcome = self.send("POST", "/orders", false, &[("Idempotency-Key", label)], &draft(label));
            if let RequestOutcome::Done(order) = outcome {
                return created(label, &order);
            }
            assert!(started.elapsed() < scaled(RETRY_MAX), "{label} was not created within {RETRY_MAX:?}");
        }
    }

    fn create_once(&self, label: &str) -> ClientOrder {
        let not_placed = ClientOrder { label: label.to_owned(), ..ClientOrder::default() };
        match self.send("POST", "/orders", false, &[], &draft(label)) {
            RequestOutcome::Done(order) => created(label, &order),
            RequestOutcome::Refused => not_placed,
            RequestOutcome::Unknown => ClientOrder { unknown: Some(Status::Pending), ..not_placed },
            RequestOutcome::Conflict => panic!("{label}: a create without a key cannot conflict"),
        }
    }

    fn change_randomly(&self, mut order: ClientOrder) -> ClientOrder {
        while order.unknown.is_none() && !self.one_in(3) {
            let now = order.acknowledged.last().expect("it was created");
            let next = now.successors();
            if next.is_empty() {
                return order;
            }
            let to = next[(self.rng.next_u64() % next.len() as u64) as usize];
            self.change(&mut order, to);
        }
        order
    }

    /// Repeats a change until its outcome is known, or gives up.
    fn change(&self, order: &mut ClientOrder, to: Status) {
        let (started, gives_up) = (Instant::now(), self.one_in(6));
        let (id, version) = (order.id.as_ref().expect("it was created"), order.acknowledged.len() as u64 - 1);
        let by_status = (format!("/orders/{id}/status"), json!({"status": to.as_str(), "version": version}));
        let cancels = to == Status::Cancelled && self.one_in(2);
        let (path, body) = if cancels { (format!("/orders/{id}/cancel"), json!({})) } else { by_status };
        let mut unknown = false;
        loop {
            match self.send("PATCH", &path, !cancels, &[], &body) {
                RequestOutcome::Done(shown) => {
                    let shown = OrderView::of(&shown);
                    assert_eq!(
                        (shown.status, shown.version),
                        (to, version + 1),
                        "{} received another state",
                        order.label
                    );
                    return order.acknowledged.push(to);
                }
                RequestOutcome::Conflict => {
                    assert!(unknown, "{}: no other client changes it, yet {path} {body} conflicts", order.label);
                    return order.acknowledged.push(to);
                }
                RequestOutcome::Unknown if gives_up => return order.unknown = Some(to),
                RequestOutcome::Refused if gives_up && !unknown => return,
                RequestOutcome::Unknown => unknown = true,
                RequestOutcome::Refused => {}
            }
            assert!(
                started.elapsed() < scaled(RETRY_MAX),
                "{}: {path} was not acknowledged within {RETRY_MAX:?}",
                order.label
            );
        }
    }
}

fn draft(label: &str) -> Value {
    json!({"items": [{"productName": label, "quantity": 1, "price": "2.50"}]})
}

fn created(label: &str, order: &Value) -> ClientOrder {
    let id = order["id"].as_str().expect("an id").to_owned();
    // A repeated create returns the current order, which no client has changed yet.
    let shown = OrderView::of(order);
    assert_eq!((shown.label.as_str(), shown.status, shown.version), (label, Status::Pending, 0));
    ClientOrder { label: label.to_owned(), id: Some(id), acknowledged: vec![Status::Pending], unknown: None }
}
