//! What the store costs on the server of POSTHASTE_TEST_POSTGRES: creates in groups against one transaction each, and claim + settle.
//! Figures of one run are to be compared with each other, not with those of another machine.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures::future::join_all;
use kit::Factory;
use ports::orders::OrderStore;
use ports::outbox::{Claim, ClaimKind, Claimed, FencedOutcome, OutboxStore, Settlement};
use ports::partitions::{AcquireReason, Acquisition, InstanceId, PartitionLeases, PartitionNo, ProducerSessionId};
use postgres::{Options, Postgres};

const PARTITIONS: u32 = 16;
const EVENTS: usize = 60_000;
const WRITERS: usize = 64;
const LASTS: Duration = Duration::from_secs(5);

fn say(line: std::fmt::Arguments<'_>) {
    use std::io::Write;
    // A bench whose output nobody reads has nothing to tell.
    let _ = writeln!(std::io::stdout(), "{line}");
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

/// Creates a second, with so many writers that each wait for their answer.
async fn creates(store: &Postgres, make: &Arc<Factory>) -> f64 {
    let (done, begun) = (AtomicU64::new(0), Instant::now());
    let writers = (0..WRITERS).map(|writer| {
        let (done, make) = (&done, Arc::clone(make));
        async move {
            while begun.elapsed() < LASTS {
                store.commit(make.creation("ann", PartitionNo(writer as u32 % PARTITIONS))).await.expect("committed");
                done.fetch_add(1, Relaxed);
            }
        }
    });
    join_all(writers).await;
    done.load(Relaxed) as f64 / begun.elapsed().as_secs_f64()
}

/// Claims and settles all there is, so many partitions at a time; says how many events a second.
async fn relay(store: &Postgres, at_once: usize) -> f64 {
    let owner = InstanceId("bench".into());
    let begun = Instant::now();
    let mut total = 0;
    let partitions: Vec<PartitionNo> = (0..PARTITIONS).map(PartitionNo).collect();
    for some in partitions.chunks(at_once) {
        let drained = join_all(some.iter().map(|partition| drain(store, &owner, *partition))).await;
        total += drained.into_iter().sum::<usize>();
    }
    total as f64 / begun.elapsed().as_secs_f64()
}

async fn drain(store: &Postgres, owner: &InstanceId, partition: PartitionNo) -> usize {
    let ttl = Duration::from_secs(600);
    let acquired = store.acquire(partition, owner, AcquireReason::Uncertain, None, ttl).await.expect("answered");
    let Acquisition::Taken(acquired) = acquired else { panic!("{acquired:?}") };
    let (mut fence, mut gone) = (acquired.fence, 0);
    loop {
        let claim = Claim {
            fence: fence.clone(),
            session: ProducerSessionId("bench".into()),
            limit: 1_000,
            kind: ClaimKind::Ordinary,
        };
        let Claimed::Batch(batch) = store.claim(claim).await.expect("answered") else { return gone };
        gone += batch.rows.len();
        let settlement =
            Settlement { fence: fence.clone(), token: batch.token, positions: Vec::new(), by_fallback: Vec::new() };
        let FencedOutcome::Done { counter, .. } = store.settle(settlement).await.expect("answered") else {
            panic!("stale")
        };
        fence.counter = counter;
    }
}

async fn fill(store: &Postgres, make: &Factory) {
    for chunk in 0..EVENTS / 1_000 {
        let some = (0..1_000).map(|at| make.creation("ann", PartitionNo((chunk + at) as u32 % PARTITIONS)));
        for done in join_all(some.map(|commit| store.commit(commit))).await {
            done.expect("committed");
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // `cargo test --all-targets` runs this too, and only wants to know that it builds.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let server = std::env::var("POSTHASTE_TEST_POSTGRES").expect("POSTHASTE_TEST_POSTGRES names a throw-away server");
    let name = format!("posthaste_bench_{}", std::process::id());
    let (client, connection) =
        tokio_postgres::connect(&server, tokio_postgres::NoTls).await.expect("the server is there");
    tokio::spawn(connection);
    client.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database can be made");
    let url = format!("{}/{name}", server.rsplit_once('/').expect("the URL ends with a database").0);
    let make = Arc::new(Factory::seeded(1, "orders".into()));

    let alone = open(&url, WRITERS, 1).await;
    let grouped = open(&url, 3, 256).await;
    for round in 1..=2 {
        let (one_each, groups) = (creates(&alone, &make).await, creates(&grouped, &make).await);
        say(format_args!(
            "round {round}: creates/s, {WRITERS} writers: one transaction each {one_each:.0}, in groups {groups:.0}"
        ));
    }
    relay(&grouped, PARTITIONS as usize).await;
    for at_once in [1, 4, 16] {
        fill(&grouped, &make).await;
        say(format_args!(
            "claim + settle, {at_once} partitions at once: {:.0} events/s",
            relay(&grouped, at_once).await
        ));
    }
    drop((alone, grouped));
    client.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.expect("dropped");
}
