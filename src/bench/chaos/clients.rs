//! Clients that take orders through their lives, whatever fails meanwhile: each request is repeated until its outcome is known.
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::instances::Addresses;
use crate::error::Error;
use crate::load::client::{HttpConnection, HttpResponse};
use crate::program::ThrowawayData;

/// The changes of an order after its creation; each emits an event.
const CHANGES: [&str; 3] = ["PROCESSING", "SHIPPED", "DELIVERED"];
/// Events of an order that reached its last state.
pub(super) const EVENTS_OF_AN_ORDER: u64 = 1 + CHANGES.len() as u64;
/// A request without an answer is repeated after this time, on another instance where there is one.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Between two attempts of a request.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// What all clients have achieved.
pub(super) struct Progress {
    /// Orders that reached their last state.
    pub finished: BTreeSet<String>,
    /// Longest time in which no client received an answer of success.
    pub longest_pause: Duration,
    last_answer: Instant,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { finished: BTreeSet::new(), longest_pause: Duration::ZERO, last_answer: Instant::now() }
    }

    fn answered(&mut self) {
        self.longest_pause = self.longest_pause.max(self.last_answer.elapsed());
        self.last_answer = Instant::now();
    }
}

/// Clients that run until their time is over and their last order is finished.
pub(super) struct OrderClients(Vec<JoinHandle<Result<(), Error>>>);

impl OrderClients {
    /// Starts this number of them. The seed is part of their idempotency keys.
    pub(super) fn start(
        data: &impl ThrowawayData,
        (count, seed): (usize, u64),
        addresses: Addresses,
        progress: Rc<RefCell<Progress>>,
        end: Instant,
    ) -> Result<Self, Error> {
        let start = |number: usize| {
            let client = Client {
                token: data.token(&format!("chaos-{number}"), "ADMIN")?,
                addresses: addresses.clone(),
                progress: Rc::clone(&progress),
                connection: None,
                attempt: number,
            };
            let name = format!("{seed}-{number}");
            Ok(actix_rt::spawn(client.run(name, end)))
        };
        (0..count).map(start).collect::<Result<_, Error>>().map(Self)
    }

    /// Waits until each client has finished its last order; returns the number of those that did not within the time.
    ///
    /// # Errors
    /// A client received an answer that is wrong whatever fails.
    pub(super) async fn finish(self, limit: Duration) -> Result<usize, Error> {
        let (begin, mut unfinished) = (Instant::now(), 0);
        for mut client in self.0 {
            match timeout(limit.saturating_sub(begin.elapsed()), &mut client).await {
                Ok(ended) => ended.map_err(Error::new)??,
                Err(_) => {
                    client.abort();
                    unfinished += 1;
                }
            }
        }
        Ok(unfinished)
    }
}

struct Client {
    token: String,
    addresses: Addresses,
    progress: Rc<RefCell<Progress>>,
    connection: Option<HttpConnection>,
    /// Selects the instance; another one after each failure.
    attempt: usize,
}

impl Client {
    async fn run(mut self, name: String, end: Instant) -> Result<(), Error> {
        for number in 0.. {
            if Instant::now() >= end {
                break;
            }
            let id = self.create(&format!("{name}-{number}")).await?;
            for (version, status) in (0..).zip(CHANGES) {
                self.change(&id, version, status).await?;
            }
            self.progress.borrow_mut().finished.insert(id);
        }
        Ok(())
    }

    /// Creates an order; repetitions carry the same idempotency key.
    async fn create(&mut self, key: &str) -> Result<String, Error> {
        let body = json!({"items": [{"productName": "Tea", "quantity": 2, "price": "2.50"}]}).to_string();
        let head = format!("Idempotency-Key: {key}\r\n");
        loop {
            let Some(response) = self.attempt("POST", "/orders", &head, Some(&body)).await else { continue };
            match response.status {
                201 => return order(&response, "id", |id| id.as_str().map(str::to_owned)),
                status if is_refused_for_good(status) => return Err(unexpected("POST /orders", &response)),
                _ => sleep(RETRY_INTERVAL).await,
            }
        }
    }

    /// Changes the order from this version to the next one. After an unknown outcome, the order says whether it was changed.
    async fn change(&mut self, id: &str, version: u64, status: &str) -> Result<(), Error> {
        let (path, body) = (format!("/orders/{id}/status"), json!({"status": status, "version": version}).to_string());
        loop {
            let Some(response) = self.attempt("PATCH", &path, "", Some(&body)).await else { continue };
            match response.status {
                200 => return Ok(()),
                409 if self.version(id).await? == version + 1 => return Ok(()),
                409 => sleep(RETRY_INTERVAL).await,
                status if is_refused_for_good(status) => return Err(unexpected(&format!("PATCH {path}"), &response)),
                _ => sleep(RETRY_INTERVAL).await,
            }
        }
    }

    async fn version(&mut self, id: &str) -> Result<u64, Error> {
        let path = format!("/orders/{id}");
        loop {
            let Some(response) = self.attempt("GET", &path, "", None).await else { continue };
            match response.status {
                200 => return order(&response, "version", Value::as_u64),
                status if is_refused_for_good(status) => return Err(unexpected(&format!("GET {path}"), &response)),
                _ => sleep(RETRY_INTERVAL).await,
            }
        }
    }

    /// One attempt on one instance; `None` where it did not answer.
    async fn attempt(&mut self, method: &str, path: &str, head: &str, body: Option<&str>) -> Option<HttpResponse> {
        let answered = timeout(ANSWER_MAX, self.send(method, path, head, body)).await;
        match answered {
            Ok(Ok(response)) => {
                if response.status < 300 {
                    self.progress.borrow_mut().answered();
                }
                Some(response)
            }
            _ => {
                (self.connection, self.attempt) = (None, self.attempt + 1);
                sleep(RETRY_INTERVAL).await;
                None
            }
        }
    }

    async fn send(&mut self, method: &str, path: &str, head: &str, body: Option<&str>) -> Result<HttpResponse, Error> {
        if self.connection.is_none() {
            let address = self.addresses.get(self.attempt).ok_or_else(|| Error::new("the instance is down"))?;
            self.connection = Some(HttpConnection::connect(address).await?);
        }
        // Taken out while it is used: a request that was cut off leaves a response behind that belongs to no later request.
        let mut connection = self.connection.take().ok_or_else(|| Error::new("not connected"))?;
        let response = connection.send_with(method, path, &self.token, head, body).await?;
        self.connection = Some(connection);
        Ok(response)
    }
}

/// Whether no fault explains the status: 4xx other than a conflict, a time-out and a rate limit.
fn is_refused_for_good(status: u16) -> bool {
    (400..500).contains(&status) && !matches!(status, 408 | 409 | 429)
}

fn order<T>(response: &HttpResponse, member: &str, read: impl Fn(&Value) -> Option<T>) -> Result<T, Error> {
    let order: Value = serde_json::from_slice(&response.body).map_err(Error::new)?;
    read(&order[member]).ok_or_else(|| Error::new(format!("an order without {member}: {order}")))
}

fn unexpected(request: &str, response: &HttpResponse) -> Error {
    let body = String::from_utf8_lossy(&response.body);
    Error::new(format!("{request} was answered {}, which no fault explains: {body}", response.status))
}
