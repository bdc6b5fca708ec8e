//! Benchmark of claims and settlements of many partitions at the same time, on the server of POSTHASTE_TEST_POSTGRES: those of each
//! partition in transactions of their own, and in rounds. The variants run in turns; compare the figures of one run only. The processor time
//! of the server's processes is read from /proc, so it needs a server on the same machine, and is zero with any other.
use std::time::{Duration, Instant};

use futures::future::join_all;
use ports::outbox::{Claim, ClaimKind, ClaimOutcome, FencedOutcome, OutboxStore, Settlement};
use ports::partitions::{
    AcquireReason, Acquisition, InstanceId, LeaseFence, PartitionLeases, PartitionNo, ProducerSessionId,
};
use postgres::{Options, Postgres};
use tokio_postgres::Client;

const PARTITIONS: u32 = 64;
const TURNS: usize = 15;

/// Inserts $2 events, spread over the first $1 partitions.
const FILL: &str = "WITH e AS (INSERT INTO outbox_event (event_id, key, partition, sequence, occurred_at, hlc_millis, hlc_counter, type, topic,
         region, payload)
       SELECT gen_random_uuid(), gen_random_uuid(), g % $1, 1, now(), 0, 0, 'ORDER_CREATED', 'orders', 'eu', decode(repeat('ab', 500), 'hex')
       FROM generate_series(1, $2) g RETURNING id, key, partition)
     INSERT INTO outbox (id, key, partition, bytes) SELECT id, key, partition, 500 FROM e";

fn print(text: std::fmt::Arguments<'_>) {
    use std::io::Write;
    // A closed standard output is not a failure of the measurement.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// A store and its leases.
struct Variant {
    name: &'static str,
    store: Postgres,
    fences: Vec<LeaseFence>,
    times: Vec<Duration>,
    server_times: Vec<Duration>,
}

impl Variant {
    async fn open(url: &str, name: &'static str, change: impl FnOnce(Options) -> Options) -> Self {
        let options = Options {
            partitions: PARTITIONS,
            migrate: true,
            checkout_timeout: Duration::from_secs(60),
            ..Options::new(url, InstanceId(name.into()))
        };
        let store = Postgres::open(change(options)).await.expect("the bench's database can be opened");
        Self { name, store, fences: Vec::new(), times: Vec::new(), server_times: Vec::new() }
    }

    /// Takes the leases of all partitions from the variant that ran before.
    async fn acquire(&mut self) {
        self.fences.clear();
        for partition in 0..PARTITIONS {
            let (owner, ttl) = (InstanceId("bench".into()), Duration::from_secs(600));
            let acquired =
                self.store.acquire(PartitionNo(partition), &owner, AcquireReason::OutcomeUnknown, None, ttl).await;
            let Ok(Acquisition::Acquired(acquired)) = acquired else { panic!("{acquired:?}") };
            self.fences.push(acquired.fence);
        }
    }

    /// Claims and settles in the first partitions at once until nothing is due; returns the number of rows.
    async fn drain(&mut self, partitions: usize) -> usize {
        let store = &self.store;
        let drained = self.fences.iter_mut().take(partitions).map(|fence| async move {
            let mut rows = 0;
            loop {
                let session = ProducerSessionId("bench".into());
                let claim = Claim { fence: fence.clone(), session, limit: 1_000, kind: ClaimKind::Ordinary };
                let ClaimOutcome::Batch(batch) = store.claim(claim).await.expect("the server replied") else {
                    return rows;
                };
                rows += batch.rows.len();
                fence.counter = batch.token;
                let settlement = Settlement {
                    fence: fence.clone(),
                    token: batch.token,
                    positions: [].into(),
                    by_fallback: Vec::new(),
                };
                let FencedOutcome::Done { counter, .. } = store.settle(settlement).await.expect("the server replied")
                else {
                    panic!("stale")
                };
                fence.counter = counter;
            }
        });
        join_all(drained).await.into_iter().sum()
    }

    /// Processor time that the server has spent on this variant's sessions.
    async fn server_time(&self, client: &Client) -> Duration {
        let text = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'posthaste % ' || $1";
        let sessions = client.query(text, &[&self.name]).await.expect("the server replied");
        let nanoseconds = |pid: i32| -> Option<u64> {
            let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
            text.split(' ').next()?.parse().ok()
        };
        Duration::from_nanos(sessions.iter().filter_map(|row| nanoseconds(row.get(0))).sum())
    }
}

/// The median, and an empty list for the next measurement.
fn median(times: &mut Vec<Duration>) -> Duration {
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    times.clear();
    median
}

/// Drains `rows` of the first `partitions` with each variant in turns, and prints the medians.
async fn compare(client: &Client, variants: &mut [Variant], partitions: u32, rows: i32, turns: usize) {
    for turn in 0..=turns {
        for variant in &mut *variants {
            variant.acquire().await;
            client.execute(FILL, &[&(partitions as i32), &rows]).await.expect("filled");
            let (before, started) = (variant.server_time(client).await, Instant::now());
            let drained = variant.drain(partitions as usize).await;
            assert_eq!(drained, rows as usize, "{}", variant.name);
            // The first turn prepares the statements.
            if turn > 0 {
                variant.times.push(started.elapsed());
                variant.server_times.push(variant.server_time(client).await.saturating_sub(before));
            }
        }
    }
    for variant in variants {
        let (time, server_time) = (median(&mut variant.times), median(&mut variant.server_times));
        let per_row = |time: Duration| time.as_micros() as f64 / f64::from(rows);
        print(format_args!(
            "{partitions} partitions, {rows} rows, {}: {:.1} ms, {:.0} µs per row, {:.1} µs of the server's processor time",
            variant.name,
            time.as_secs_f64() * 1_000.0,
            per_row(time),
            per_row(server_time)
        ));
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // `cargo test --all-targets` runs this too, without `--bench`: then it only has to build.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let server = std::env::var("POSTHASTE_TEST_POSTGRES").expect("POSTHASTE_TEST_POSTGRES names a throw-away server");
    let name = format!("posthaste_bench_{}", std::process::id());
    let (client, connection) =
        tokio_postgres::connect(&server, tokio_postgres::NoTls).await.expect("the server accepts connections");
    tokio::spawn(connection);
    client.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("databases can be created");
    let url = format!("{}/{name}", server.rsplit_once('/').expect("the URL ends with a database").0);

    let single = |options| Options { relay_group_max: 1, relay_rounds: 64, ..options };
    let two_rounds = |options| Options { relay_rounds: 2, ..options };
    // Each claim may take its whole limit in a round.
    let unshared = |options| Options { relay_group_rows_max: 64_000, ..options };
    let mut variants = [
        Variant::open(&url, "a transaction each", single).await,
        Variant::open(&url, "one round", |options| options).await,
        Variant::open(&url, "two rounds", two_rounds).await,
        Variant::open(&url, "full batches in a round", unshared).await,
    ];
    let (filler, connection) =
        tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("the server accepts connections");
    tokio::spawn(connection);
    let cases = [(1, 1, 4 * TURNS), (64, 192, TURNS), (64, 1_280, TURNS), (64, 16_000, 5), (16, 16_000, 5)];
    // A number as an argument selects the cases from that one on.
    let first = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(0);
    for (partitions, rows, turns) in cases.into_iter().skip(first) {
        compare(&filler, &mut variants, partitions, rows, turns).await;
    }
    drop(variants);
    client.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.expect("dropped");
}
