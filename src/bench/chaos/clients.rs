//! Clients that take orders through their life cycle despite faults: each request is repeated until its outcome is known.
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::instances::Addresses;
use super::progress::Progress;
use super::retrying_connection::{RETRY_INTERVAL, RetryingConnection, is_permanent_refusal, unexpected_response};
use super::tasks::finish_all;
use crate::error::Error;
use crate::load::client::HttpResponse;
use crate::program::ThrowawayData;

/// The changes of an order after its creation; each emits an event.
const CHANGES: [&str; 3] = ["PROCESSING", "SHIPPED", "DELIVERED"];
/// Events of an order that reached its last state.
pub(super) const EVENTS_PER_ORDER: u64 = 1 + CHANGES.len() as u64;

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
            let token = data.token(&format!("chaos-{number}"), "ADMIN")?;
            let connection = RetryingConnection::new(token, addresses.clone(), Rc::clone(&progress), number);
            let client = Client { connection, progress: Rc::clone(&progress) };
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
        finish_all(self.0, limit).await
    }
}

struct Client {
    connection: RetryingConnection,
    progress: Rc<RefCell<Progress>>,
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
            let Some(response) = self.connection.attempt("POST", "/orders", &head, Some(&body)).await else { continue };
            match response.status {
                201 => return order(&response, "id", |id| id.as_str().map(str::to_owned)),
                status if is_permanent_refusal(status) => return Err(unexpected_response("POST /orders", &response)),
                _ => sleep(RETRY_INTERVAL).await,
            }
        }
    }

    /// Changes the order from this version to the next one. After an unknown outcome, the order says whether it was changed.
    async fn change(&mut self, id: &str, version: u64, status: &str) -> Result<(), Error> {
        let (path, body) = (format!("/orders/{id}/status"), json!({"status": status, "version": version}).to_string());
        loop {
            let Some(response) = self.connection.attempt("PATCH", &path, "", Some(&body)).await else { continue };
            match response.status {
                200 => return Ok(()),
                409 if self.version(id).await? == version + 1 => return Ok(()),
                409 => sleep(RETRY_INTERVAL).await,
                status if is_permanent_refusal(status) => {
                    return Err(unexpected_response(&format!("PATCH {path}"), &response));
                }
                _ => sleep(RETRY_INTERVAL).await,
            }
        }
    }

    async fn version(&mut self, id: &str) -> Result<u64, Error> {
        let path = format!("/orders/{id}");
        loop {
            let Some(response) = self.connection.attempt("GET", &path, "", None).await else { continue };
            match response.status {
                200 => return order(&response, "version", Value::as_u64),
                status if is_permanent_refusal(status) => {
                    return Err(unexpected_response(&format!("GET {path}"), &response));
                }
                _ => sleep(RETRY_INTERVAL).await,
            }
        }
    }
}

fn order<T>(response: &HttpResponse, member: &str, read: impl Fn(&Value) -> Option<T>) -> Result<T, Error> {
    let order: Value = serde_json::from_slice(&response.body).map_err(Error::new)?;
    read(&order[member]).ok_or_else(|| Error::new(format!("an order without {member}: {order}")))
}
