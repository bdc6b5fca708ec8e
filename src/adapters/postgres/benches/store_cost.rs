//! Benchmark of the store on the server of POSTHASTE_TEST_POSTGRES: creates in groups against one transaction each, and claim + settle.
//! Compare the figures of one run with each other, not with those of another machine.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures::future::join_all;
use kit::Factory;
use ports::orders::OrderStore;
use ports::outbox::{Claim, ClaimKind, ClaimOutcome, FencedOutcome, OutboxStore, Settlement};
use ports::partitions::{AcquireReason, Acquisition, InstanceId, PartitionLeases, PartitionNo, ProducerSessionId};
use postgres::{Options, Postgres};

const PARTITIONS: u32 = 16;
const EVENTS: usize = 60_000;
const WRITERS: usize = 64;
const DURATION: Duration = Duration::from_secs(5);

fn print(text: std::fmt::Arguments<'_>) {
    use std::io::Write;
    // A closed standard output is not a failure of the measurement.
    let _ = writeln!(std::io::stdout(), "{text}");
}

async fn open(url: &str, committers: usize, group_max: usize) -> Postgres {
    let name = InstanceId(format!("bench-{committers}-{group_max}").into());
    let options = Options {
        partitions: PARTITIONS,
        migrate: true,
        committers,
        group_max,
        pool: committers + 12,
        ..Options::new(url, name)
    };
    Postgres::open(options).await.expect("the bench's database can be opened")
}

/// Creates per second by [`WRITERS`] writers, each of which waits for its result.
async fn creates(store: &Postgres, factory: &Arc<Factory>) -> f64 {
    let (done, started) = (AtomicU64::new(0), Instant::now());
    let writers = (0..WRITERS).map(|writer| {
        let (done, factory) = (&done, Arc::clone(factory));
        async move {
            while started.elapsed() < DURATION {
                store
                    .commit(factory.creation("ann", PartitionNo(writer as u32 % PARTITIONS)))
                    .await
                    .expect("committed");
                done.fetch_add(1, Relaxed);
            }
        }
    });
    join_all(writers).await;
    done.load(Relaxed) as f64 / started.elapsed().as_secs_f64()
}

/// Claims and settles all rows, `at_once` partitions at a time; returns events per second.
async fn relay(store: &Postgres, at_once: usize) -> f64 {
    let owner = InstanceId("bench".into());
    let started = Instant::now();
    let mut total = 0;
    let partitions: Vec<PartitionNo> = (0..PARTITIONS).map(PartitionNo).collect();
    for chunk in partitions.chunks(at_once) {
        let drained = join_all(chunk.iter().map(|partition| drain(store, &owner, *partition))).await;
        total += drained.into_iter().sum::<usize>();
    }
    total as f64 / started.elapsed().as_secs_f64()
}

async fn drain(store: &Postgres, owner: &InstanceId, partition: PartitionNo) -> usize {
    let ttl = Duration::from_secs(600);
    let acquired =
        store.acquire(partition, owner, AcquireReason::OutcomeUnknown, None, ttl).await.expect("the server replied");
    let Acquisition::Acquired(acquired) = acquired else { panic!("{acquired:?}") };
    let (mut fence, mut settled) = (acquired.fence, 0);
    loop {
        let claim = Claim {
            fence: fence.clone(),
            session: ProducerSessionId("bench".into()),
            limit: 1_000,
            kind: ClaimKind::Ordinary,
        };
        let ClaimOutcome::Batch(batch) = store.claim(claim).await.expect("the server replied") else { return settled };
        settled += batch.rows.len();
        let settlement =
            Settlement { fence: fence.clone(), token: batch.token, positions: [].into(), by_fallback: Vec::new() };
        let FencedOutcome::Done { counter, .. } = store.settle(settlement).await.expect("the server replied") else {
            panic!("stale")
        };
        fence.counter = counter;
    }
}

async fn fill(store: &Postgres, factory: &Factory) {
    for chunk in 0..EVENTS / 1_000 {
        let commits = (0..1_000).map(|index| factory.creation("ann", PartitionNo((chunk + index) as u32 % PARTITIONS)));
        for result in join_all(commits.map(|commit| store.commit(commit))).await {
            result.expect("committed");
        }
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
    let factory = Arc::new(Factory::seeded(1, "orders".into()));

    let single = open(&url, WRITERS, 1).await;
    let grouped = open(&url, 3, 256).await;
    for round in 1..=2 {
        let (one_each, groups) = (creates(&single, &factory).await, creates(&grouped, &factory).await);
        print(format_args!(
            "round {round}: creates/s, {WRITERS} writers: one transaction each {one_each:.0}, in groups {groups:.0}"
        ));
    }
    relay(&grouped, PARTITIONS as usize).await;
    for at_once in [1, 4, 16] {
        fill(&grouped, &factory).await;
        print(format_args!(
            "claim + settle, {at_once} partitions at once: {:.0} events/s",
            relay(&grouped, at_once).await
        ));
    }
    drop((single, grouped));
    client.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.expect("dropped");
}
