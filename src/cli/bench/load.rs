//! The load: clients that each send an order, wait for the answer, and send the next; as fast as they can, or at a set rate.
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use posthaste::Config;
use serde_json::{Value, json};

use super::super::Failure;
use super::super::client::Client;
use super::super::token::{Claims, DEVELOPMENT_SECRET, mint};

/// A load to apply.
pub(super) struct Load {
    pub address: SocketAddr,
    pub clients: usize,
    pub time: Duration,
    /// Orders per second, all clients together; `None` as fast as they are answered.
    pub rate: Option<f64>,
}

/// What came of it.
pub(super) struct Outcome {
    pub answered: u64,
    pub refused: u64,
    pub elapsed: Duration,
    micros: Vec<u32>,
}

impl Outcome {
    pub(super) fn rate(&self) -> f64 {
        self.answered as f64 / self.elapsed.as_secs_f64()
    }

    pub(super) fn percentiles(&self) -> Value {
        let at = |share: f64| {
            let place = ((self.micros.len() as f64 * share) as usize).min(self.micros.len().saturating_sub(1));
            f64::from(self.micros.get(place).copied().unwrap_or(0)) / 1_000.0
        };
        json!({"p50": at(0.50), "p95": at(0.95), "p99": at(0.99), "max": at(1.0)})
    }
}

/// What the clients share.
struct Shared {
    left: Cell<u64>,
    refused: Cell<u64>,
    begun: Instant,
    end: Option<Instant>,
    next: Cell<u64>,
    rate: Option<f64>,
}

impl Load {
    pub(super) async fn run(&self, config: &Config) -> Result<Outcome, Failure> {
        self.apply(config, u64::MAX, Some(Instant::now() + self.time)).await
    }

    /// So many answered orders, however long it takes.
    pub(super) async fn run_for(&self, config: &Config, orders: u64) -> Result<Outcome, Failure> {
        self.apply(config, orders, None).await
    }

    async fn apply(&self, config: &Config, orders: u64, end: Option<Instant>) -> Result<Outcome, Failure> {
        let begun = Instant::now();
        let shared = Rc::new(Shared {
            left: Cell::new(orders),
            refused: Cell::new(0),
            begun,
            end,
            next: Cell::new(0),
            rate: self.rate,
        });
        let clients: Vec<_> = (0..self.clients)
            .map(|number| {
                let claims = Claims {
                    sub: format!("bench-{number}"),
                    roles: vec!["USER".into()],
                    tier: None,
                    ttl: Duration::from_secs(3_600),
                };
                let token = mint(config, DEVELOPMENT_SECRET, &claims)?;
                Ok(actix_rt::spawn(client(self.address, token, number, Rc::clone(&shared))))
            })
            .collect::<Result<_, Failure>>()?;
        let mut micros = Vec::new();
        for client in clients {
            micros.extend(client.await.map_err(Failure::new)??);
        }
        let elapsed = begun.elapsed();
        micros.sort_unstable();
        Ok(Outcome { answered: micros.len() as u64, refused: shared.refused.get(), elapsed, micros })
    }
}

async fn client(address: SocketAddr, token: String, number: usize, shared: Rc<Shared>) -> Result<Vec<u32>, Failure> {
    let mut client = Client::connect(address).await?;
    let mut micros = Vec::new();
    let body = format!(
        r#"{{"items":[{{"productName":"Tea of client {number}","quantity":2,"price":"2.50"}},{{"productName":"A cup, blue, with a saucer","quantity":1,"price":"11.90"}}]}}"#
    );
    while shared.left.get() > 0 && shared.end.is_none_or(|end| Instant::now() < end) {
        if !pace(&shared).await {
            break;
        }
        shared.left.set(shared.left.get() - 1);
        let sent = Instant::now();
        let answer = client.send("POST", "/orders", &token, Some(&body)).await?;
        if answer.status == 201 {
            micros.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
        } else {
            shared.refused.set(shared.refused.get() + 1);
            shared.left.set(shared.left.get() + 1);
        }
    }
    Ok(micros)
}

/// Waits for the next free place in the schedule; false when it lies behind the end.
async fn pace(shared: &Shared) -> bool {
    let Some(rate) = shared.rate else { return true };
    let place = shared.next.get();
    shared.next.set(place + 1);
    let at = shared.begun + Duration::from_secs_f64(place as f64 / rate);
    if shared.end.is_some_and(|end| at >= end) {
        return false;
    }
    tokio::time::sleep_until(at.into()).await;
    true
}
