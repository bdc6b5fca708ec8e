//! Clients that publish events of other services over HTTP despite faults: each batch is repeated until it is acknowledged.
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::instances::Addresses;
use super::progress::{EVENT_KEYS, EVENT_TYPE, Progress, WrittenEvent};
use super::retrying_connection::{RETRY_INTERVAL, RetryingConnection, is_permanent_refusal, unexpected_response};
use super::tasks::finish_all;
use crate::error::Error;
use crate::load::client::HttpResponse;
use crate::program::ThrowawayData;

/// Most events of a batch.
const BATCH_MAX: u64 = 5;
/// Pause of a client between two batches: the orders get most of the time of the machine.
const PAUSE: Duration = Duration::from_millis(20);

/// Clients that run until their time is over and their last batch is acknowledged.
pub(super) struct EventClients(Vec<JoinHandle<Result<(), Error>>>);

impl EventClients {
    /// Starts this number of them. The seed is part of their idempotency keys, and selects the keys of their events.
    pub(super) fn start(
        data: &impl ThrowawayData,
        (count, seed): (usize, u64),
        (addresses, topic): (&Addresses, &str),
        progress: &Rc<RefCell<Progress>>,
        end: Instant,
    ) -> Result<Self, Error> {
        let start = |number: usize| {
            let token = data.token(&format!("chaos-publisher-{number}"), "PUBLISHER")?;
            let client = EventClient {
                connection: RetryingConnection::new(token, addresses.clone(), Rc::clone(progress), number),
                progress: Rc::clone(progress),
                rng: StdRng::seed_from_u64(seed.wrapping_add(number as u64)),
                topic: topic.to_owned(),
                name: format!("{seed}-{number}"),
            };
            Ok(actix_rt::spawn(client.run(end)))
        };
        (0..count).map(start).collect::<Result<_, Error>>().map(Self)
    }

    /// Waits until each client's last batch is acknowledged; returns the number of those that are not within the time.
    ///
    /// # Errors
    /// A client received an answer that is wrong whatever fails.
    pub(super) async fn finish(self, limit: Duration) -> Result<usize, Error> {
        finish_all(self.0, limit).await
    }
}

struct EventClient {
    connection: RetryingConnection,
    progress: Rc<RefCell<Progress>>,
    rng: StdRng,
    topic: String,
    name: String,
}

impl EventClient {
    async fn run(mut self, end: Instant) -> Result<(), Error> {
        for batch in 0.. {
            if Instant::now() >= end {
                break;
            }
            let count = self.rng.random_range(1..=BATCH_MAX);
            let keys: Vec<&str> = (0..count).map(|_| EVENT_KEYS[self.rng.random_range(0..EVENT_KEYS.len())]).collect();
            let ids = self.publish(batch, &keys).await?;
            let written = keys.iter().zip(batch * BATCH_MAX..).map(|(key, number)| WrittenEvent {
                key: (*key).to_owned(),
                writer: format!("http-{}", self.name),
                number,
            });
            self.progress.borrow_mut().http.extend(ids.into_iter().zip(written));
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Publishes a batch, one event of each key; repetitions carry the same idempotency key. Returns the ids of the events.
    async fn publish(&mut self, batch: u64, keys: &[&str]) -> Result<Vec<String>, Error> {
        let event = |(index, key): (usize, &&str)| {
            let payload = json!({"client": self.name, "number": batch, "index": index});
            json!({"topic": self.topic, "key": key, "type": EVENT_TYPE, "payload": payload})
        };
        let body = Value::Array(keys.iter().enumerate().map(event).collect()).to_string();
        let head = format!("Idempotency-Key: {}-{batch}\r\n", self.name);
        loop {
            let Some(response) = self.connection.attempt("POST", "/events", &head, Some(&body)).await else { continue };
            match response.status {
                201 => return ids(&response, keys.len()),
                status if is_permanent_refusal(status) => return Err(unexpected_response("POST /events", &response)),
                _ => sleep(RETRY_INTERVAL).await,
            }
        }
    }
}

/// The ids of a batch of this size.
fn ids(response: &HttpResponse, count: usize) -> Result<Vec<String>, Error> {
    let body: Value = serde_json::from_slice(&response.body).map_err(Error::new)?;
    let events = body["events"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ids: Vec<String> = events.iter().filter_map(|event| Some(event["eventId"].as_str()?.to_owned())).collect();
    if ids.len() == count {
        return Ok(ids);
    }
    Err(Error::new(format!("{count} events were published under other than {count} ids: {body}")))
}
