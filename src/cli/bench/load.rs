//! The load: clients that each ask for something, wait for the answer, and ask again; as fast as they can, or at a set rate.
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use posthaste::Config;
use serde_json::Value;

use super::super::commands::token::{DEVELOPMENT_SECRET, TokenClaims, mint};
use super::super::failure::Failure;
use super::client::Client;
use super::figures;

/// For so long a load is new to the service.
const ARRIVAL: Duration = Duration::from_secs(1);

/// What a client asks for.
#[derive(Clone, Copy)]
pub(super) enum Ask {
    /// Places an order.
    Create,
    /// Lists the newest orders of all: the most that one request can ask of the service.
    List,
}

/// A load to apply.
pub(super) struct Load {
    pub address: SocketAddr,
    pub ask: Ask,
    pub clients: usize,
    pub time: Duration,
    /// Requests per second, all clients together; `None` as fast as they are answered.
    pub rate: Option<f64>,
}

/// What came of it.
pub(super) struct Outcome {
    pub answered: u64,
    pub refused: u64,
    pub elapsed: Duration,
    /// What each answer took, sorted.
    pub micros: Vec<u32>,
    /// The same of those that were asked for when the load had stood for [`ARRIVAL`].
    pub settled_micros: Vec<u32>,
}

impl Outcome {
    pub(super) fn rate(&self) -> f64 {
        self.answered as f64 / self.elapsed.as_secs_f64()
    }

    pub(super) fn percentiles(&self) -> Value {
        percentiles(&self.micros)
    }

    pub(super) fn settled_percentiles(&self) -> Value {
        percentiles(&self.settled_micros)
    }
}

fn percentiles(sorted_micros: &[u32]) -> Value {
    let ms: Vec<f64> = sorted_micros.iter().map(|micros| f64::from(*micros) / 1_000.0).collect();
    figures::percentiles(&ms)
}

/// One request that was carried out.
struct Answered {
    micros: u32,
    settled: bool,
}

/// What the clients share.
struct Shared {
    ask: Ask,
    refused: Cell<u64>,
    begun: Instant,
    end: Instant,
    next: Cell<u64>,
    rate: Option<f64>,
}

impl Load {
    pub(super) async fn run(&self, config: &Config) -> Result<Outcome, Failure> {
        let begun = Instant::now();
        let shared = Rc::new(Shared {
            ask: self.ask,
            refused: Cell::new(0),
            begun,
            end: begun + self.time,
            next: Cell::new(0),
            rate: self.rate,
        });
        let clients: Vec<_> = (0..self.clients)
            .map(|number| {
                let claims = TokenClaims {
                    sub: format!("bench-{number}"),
                    roles: vec![if matches!(self.ask, Ask::Create) { "USER" } else { "ADMIN" }.into()],
                    tier: None,
                    ttl: Duration::from_secs(3_600),
                };
                let token = mint(config, DEVELOPMENT_SECRET, &claims)?;
                Ok(actix_rt::spawn(client(self.address, token, number, Rc::clone(&shared))))
            })
            .collect::<Result<_, Failure>>()?;
        let mut answers = Vec::new();
        for client in clients {
            answers.extend(client.await.map_err(Failure::new)??);
        }
        let elapsed = begun.elapsed();
        answers.sort_unstable_by_key(|answer: &Answered| answer.micros);
        let settled = answers.iter().filter(|answer| answer.settled).map(|answer| answer.micros).collect();
        let micros: Vec<u32> = answers.into_iter().map(|answer| answer.micros).collect();
        Ok(Outcome {
            answered: micros.len() as u64,
            refused: shared.refused.get(),
            elapsed,
            micros,
            settled_micros: settled,
        })
    }
}

async fn client(
    address: SocketAddr,
    token: String,
    number: usize,
    shared: Rc<Shared>,
) -> Result<Vec<Answered>, Failure> {
    let mut client = Client::connect(address).await?;
    let mut answers = Vec::new();
    let body = format!(
        r#"{{"items":[{{"productName":"Tea of client {number}","quantity":2,"price":"2.50"}},{{"productName":"A cup, blue, with a saucer","quantity":1,"price":"11.90"}}]}}"#
    );
    while Instant::now() < shared.end {
        if !pace(&shared).await {
            break;
        }
        let sent = Instant::now();
        let answer = match shared.ask {
            Ask::Create => client.send("POST", "/orders", &token, Some(&body)).await?,
            Ask::List => client.send("GET", "/orders", &token, None).await?,
        };
        if matches!(answer.status, 200 | 201) {
            let micros = u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX);
            answers.push(Answered { micros, settled: sent >= shared.begun + ARRIVAL });
        } else {
            shared.refused.set(shared.refused.get() + 1);
        }
    }
    Ok(answers)
}

/// Waits for the next free place in the schedule; false when it lies behind the end.
async fn pace(shared: &Shared) -> bool {
    let Some(rate) = shared.rate else { return true };
    let place = shared.next.get();
    shared.next.set(place + 1);
    let at = shared.begun + Duration::from_secs_f64(place as f64 / rate);
    if at >= shared.end {
        return false;
    }
    tokio::time::sleep_until(at.into()).await;
    true
}
