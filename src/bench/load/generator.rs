//! Load generator: clients that each send a request, wait for its response and send the next, as fast as they can or at a set rate.
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::HttpConnection;
use super::figures;
use crate::error::Error;
use crate::program::ThrowawayData;

/// A load is new to the service for this long; its latency is reported with and without this time.
const WARM_UP: Duration = Duration::from_secs(1);

/// The request that every client repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// Creates a small order.
    Create,
    /// Lists the newest orders of all subjects: the largest response of the service.
    List,
}

/// A load to apply.
pub(crate) struct Load {
    pub address: SocketAddr,
    pub request: RequestKind,
    pub clients: usize,
    pub time: Duration,
    /// Requests per second of all clients together; `None`: each client sends its next request after each response.
    pub rate: Option<f64>,
}

/// Counts and latencies of an applied load.
pub(crate) struct LoadResult {
    pub answered: u64,
    pub refused: u64,
    pub elapsed: Duration,
    /// Microseconds until each response, sorted.
    pub micros: Vec<u32>,
    /// The same for requests that were sent after [`WARM_UP`].
    pub micros_after_warm_up: Vec<u32>,
}

impl LoadResult {
    /// Responses per second, without the refused requests.
    pub(crate) fn rate(&self) -> f64 {
        self.answered as f64 / self.elapsed.as_secs_f64()
    }

    pub(crate) fn percentiles(&self) -> Value {
        percentiles(&self.micros)
    }

    pub(crate) fn percentiles_after_warm_up(&self) -> Value {
        percentiles(&self.micros_after_warm_up)
    }
}

fn percentiles(sorted_micros: &[u32]) -> Value {
    let ms: Vec<f64> = sorted_micros.iter().map(|micros| f64::from(*micros) / 1_000.0).collect();
    figures::percentiles(&ms)
}

/// The latency of one request that succeeded.
struct LatencySample {
    micros: u32,
    after_warm_up: bool,
}

/// State that all clients of a load share; they run on one thread.
struct SharedLoad {
    request: RequestKind,
    refused: Cell<u64>,
    begin: Instant,
    end: Instant,
    next_slot: Cell<u64>,
    rate: Option<f64>,
}

impl Load {
    /// Applies the load and returns once every client has its last response.
    pub(crate) async fn run(&self, data: &impl ThrowawayData) -> Result<LoadResult, Error> {
        let begin = Instant::now();
        let shared = Rc::new(SharedLoad {
            request: self.request,
            refused: Cell::new(0),
            begin,
            end: begin + self.time,
            next_slot: Cell::new(0),
            rate: self.rate,
        });
        let role = if self.request == RequestKind::Create { "USER" } else { "ADMIN" };
        let clients: Vec<_> = (0..self.clients)
            .map(|number| {
                let token = data.token(&format!("bench-{number}"), role)?;
                Ok(actix_rt::spawn(client(self.address, token, number, Rc::clone(&shared))))
            })
            .collect::<Result<_, Error>>()?;
        let mut samples = Vec::new();
        for client in clients {
            samples.extend(client.await.map_err(Error::new)??);
        }
        let elapsed = begin.elapsed();
        samples.sort_unstable_by_key(|sample: &LatencySample| sample.micros);
        let after = samples.iter().filter(|sample| sample.after_warm_up).map(|sample| sample.micros).collect();
        let micros: Vec<u32> = samples.into_iter().map(|sample| sample.micros).collect();
        Ok(LoadResult {
            answered: micros.len() as u64,
            refused: shared.refused.get(),
            elapsed,
            micros,
            micros_after_warm_up: after,
        })
    }
}

async fn client(
    address: SocketAddr,
    token: String,
    number: usize,
    shared: Rc<SharedLoad>,
) -> Result<Vec<LatencySample>, Error> {
    let mut connection = HttpConnection::connect(address).await?;
    let mut samples = Vec::new();
    let body = format!(
        r#"{{"items":[{{"productName":"Tea of client {number}","quantity":2,"price":"2.50"}},{{"productName":"A cup, blue, with a saucer","quantity":1,"price":"11.90"}}]}}"#
    );
    while Instant::now() < shared.end {
        let Some(due) = await_slot(&shared).await else { break };
        let response = match shared.request {
            RequestKind::Create => connection.send("POST", "/orders", &token, Some(&body)).await?,
            RequestKind::List => connection.send("GET", "/orders", &token, None).await?,
        };
        if matches!(response.status, 200 | 201) {
            let micros = u32::try_from(due.elapsed().as_micros()).unwrap_or(u32::MAX);
            samples.push(LatencySample { micros, after_warm_up: due >= shared.begin + WARM_UP });
        } else {
            shared.refused.set(shared.refused.get() + 1);
        }
    }
    Ok(samples)
}

/// Waits for the next slot of the rate's schedule, and returns its time; `None` when the slot is after the end. A request that is sent late,
/// because all clients still wait for responses, is measured from its slot: otherwise a stall of the service would delay many requests and
/// count for one. Without a rate a request is due at once.
async fn await_slot(shared: &SharedLoad) -> Option<Instant> {
    let Some(rate) = shared.rate else { return Some(Instant::now()) };
    let slot = shared.next_slot.get();
    shared.next_slot.set(slot + 1);
    let at = shared.begin + Duration::from_secs_f64(slot as f64 / rate);
    if at >= shared.end {
        return None;
    }
    tokio::time::sleep_until(at.into()).await;
    Some(at)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    use super::*;

    const STALL: Duration = Duration::from_millis(300);
    /// Runs of which one must show the stall.
    const RUNS_MAX: usize = 5;

    /// Answers requests without a body on one connection, the first one after [`STALL`].
    async fn serve(listener: TcpListener) {
        let (stream, _) = listener.accept().await.expect("a client connects");
        let mut stream = BufReader::new(stream);
        let (mut line, mut stall) = (String::new(), STALL);
        while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
            if line == "\r\n" {
                tokio::time::sleep(std::mem::take(&mut stall)).await;
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.expect("written");
            }
            line.clear();
        }
    }

    #[test]
    fn requests_behind_a_slow_response_are_measured_from_their_slot() {
        let late = || {
            let samples = actix_rt::System::new().block_on(samples_of_a_stall());
            samples.iter().filter(|sample| u128::from(sample.micros) > STALL.as_micros() / 2).count()
        };

        // A machine that pauses for longer than the load lasts leaves few requests of a run.
        let counts: Vec<usize> = (0..RUNS_MAX).map(|_| late()).collect();
        assert!(
            counts.iter().any(|late| *late >= 10),
            "about fifteen slots passed in the first half of the stall: {counts:?}"
        );
    }

    /// One client at a hundred requests per second, whose first response is late.
    async fn samples_of_a_stall() -> Vec<LatencySample> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let _server = actix_rt::spawn(serve(listener));
        let begin = Instant::now();
        let shared = SharedLoad {
            request: RequestKind::List,
            refused: Cell::new(0),
            begin,
            end: begin + 2 * STALL,
            next_slot: Cell::new(0),
            rate: Some(100.0),
        };

        client(address, "token".into(), 0, Rc::new(shared)).await.expect("answered")
    }
}
