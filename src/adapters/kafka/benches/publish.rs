//! Cost of publishing on a real broker: the latency of one event, throughput, watermarks and fences.
//! Run with `POSTHASTE_TEST_KAFKA=host:port cargo bench -p posthaste-kafka`.
#![allow(clippy::print_stdout, reason = "a bench is here to print")]
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::Timestamp;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kafka::{Compression, DeliveryGuarantee, Kafka, Options};
use kit::TestClock;
use ports::broker::{Batch, Broker, PublishOutcome, Record};
use ports::partitions::{InstanceId, PartitionNo, ProducerSessionId};

const PARTITIONS: u32 = 64;
const IN_FLIGHT: usize = 16;
const ROWS: usize = 1_000;
const ROUNDS: u64 = 9;
const HOUR: Duration = Duration::from_secs(3_600);

fn main() {
    // `cargo test --all-targets` runs this binary too, only to check that it builds.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    runtime.block_on(all());
}

async fn all() {
    latency().await;
    partition_groups().await;
    throughput().await;
    recovery().await;
}

async fn open(guarantee: DeliveryGuarantee, compression: Compression) -> Kafka {
    let servers = std::env::var("POSTHASTE_TEST_KAFKA").expect("POSTHASTE_TEST_KAFKA names a broker");
    let id = uuid::Uuid::new_v4().to_string();
    let mut options = Options::new(servers, id.as_str(), InstanceId("bench".into()), Arc::new(TestClock::default()));
    options.topic_prefix = format!("bench-{}.", &id[..8]);
    (options.guarantee, options.compression) = (guarantee, compression);
    let kafka = Kafka::open(options).expect("the options are legal");
    kafka.ensure_topics(&[]).await.expect("the topics are made");
    kafka
}

fn record(kafka: &Kafka, number: usize, headers: usize) -> Record {
    let id = format!("0198c0de-0000-7000-8000-{number:012}");
    let all = [
        ("ce_id", &*id),
        ("ce_source", "/posthaste/eu-west-1"),
        ("ce_type", "ORDER_STATUS_CHANGED"),
        ("ce_specversion", "1.0"),
        ("ce_time", "2026-01-01T00:00:00.000Z"),
        ("ce_partitionkey", &id),
        ("content-type", "application/json"),
        ("id", &id),
        ("x-region", "eu-west-1"),
        ("x-hlc", "1767225600000.0"),
        ("x-attempt", "1"),
        ("x-sequence", "7"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("tracestate", "vendor=opaque"),
    ];
    // Half random and half equal in all records, so that the values compress about as well as real ones.
    let noise: String = (0..8).map(|_| uuid::Uuid::new_v4().simple().to_string()).collect();
    let value = format!("{{\"orderId\":\"{id}\",\"noise\":\"{noise}\",\"items\":\"{}\"}}", "kaffee 4.50, ".repeat(20));
    Record {
        topic: kafka.options().topic("order.events").into(),
        key: format!("key-{}", number % 1_000).into(),
        headers: all.into_iter().take(headers).collect(),
        value: value.as_bytes()[..500].into(),
        timestamp: Timestamp::from_millis(1_767_225_600_000),
    }
}

fn batch(partition: u32, token: u64, records: Vec<Record>) -> Batch {
    Batch {
        partition: PartitionNo(partition),
        token,
        records: (0..).zip(records).collect(),
        time_left: HOUR,
        expected_batches: 0,
    }
}

async fn publish(kafka: &Kafka, session: &ProducerSessionId, batch: Batch) -> usize {
    match kafka.publish(session, batch).await {
        PublishOutcome::Committed(positions) => positions.len(),
        other => panic!("{other:?}"),
    }
}

async fn latency() {
    let kafka = open(DeliveryGuarantee::ExactlyOnce, Compression::None).await;
    let started = Instant::now();
    let sessions = [kafka.open_session(0).await.expect("opened"), kafka.open_session(1).await.expect("opened")];
    println!("two sessions opened in {:?}", started.elapsed());
    for pause in [0, 20] {
        for count in [1, 2] {
            let mut took = Vec::new();
            for token in 1..=300_u64 {
                let session = &sessions[token as usize % count];
                let one = batch(
                    (token % count as u64) as u32,
                    pause * 10_000 + count as u64 * 1_000 + token,
                    vec![record(&kafka, token as usize, 14)],
                );
                let started = Instant::now();
                publish(&kafka, session, one).await;
                took.push(started.elapsed());
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            took.sort();
            println!("one event, {count} session(s), {pause} ms apart: p50 {:?}, p99 {:?}", took[150], took[297]);
        }
    }
}

/// Two groups of 32 partitions that publish small batches one after another: on one session, and on a session each.
async fn partition_groups() {
    const GROUP_SIZE: u32 = 32;
    const TRANSACTIONS: u64 = 150;
    let kafka = open(DeliveryGuarantee::ExactlyOnce, Compression::None).await;
    let sessions = [kafka.open_session(0).await.expect("opened"), kafka.open_session(1).await.expect("opened")];
    let kafka = &kafka;
    for round in 0..4_u64 {
        let count = 1 + (round % 2) as usize;
        let group = async |number: usize| {
            let (session, mut took) = (&sessions[number % count], Vec::new());
            for token in 1..=TRANSACTIONS {
                let started = Instant::now();
                let batches = (0..GROUP_SIZE).map(|at| {
                    let records = vec![record(kafka, (token * 64) as usize + at as usize, 14)];
                    let partition = number as u32 * GROUP_SIZE + at;
                    Batch { expected_batches: GROUP_SIZE - 1 - at, ..batch(partition, round * 10_000 + token, records) }
                });
                futures::future::join_all(batches.map(|one| publish(kafka, session, one))).await;
                took.push(started.elapsed());
            }
            took
        };
        let started = Instant::now();
        let (one, other) = futures::join!(group(0), group(1));
        let elapsed = started.elapsed();
        let mut took = [one, other].concat();
        took.sort();
        let rate = f64::from(GROUP_SIZE) * took.len() as f64 / elapsed.as_secs_f64();
        println!(
            "two groups of {GROUP_SIZE} batches, {count} session(s): p50 {:?}, p99 {:?}, {rate:.0} events/s",
            took[took.len() / 2],
            took[took.len() * 99 / 100]
        );
    }
}

/// A configuration to measure, with an installation of its own.
struct Variant {
    name: &'static str,
    kafka: Kafka,
    sessions: [ProducerSessionId; 2],
    records: Vec<Record>,
    rates: Vec<f64>,
}

impl Variant {
    async fn open(name: &'static str, guarantee: DeliveryGuarantee, compression: Compression, headers: usize) -> Self {
        let kafka = open(guarantee, compression).await;
        let sessions = [kafka.open_session(0).await.expect("opened"), kafka.open_session(1).await.expect("opened")];
        // Created before the measurement. Clones share values and headers, as those of the relay do.
        let records = (0..ROWS).map(|number| record(&kafka, number, headers)).collect();
        Self { name, kafka, sessions, records, rates: Vec::new() }
    }

    async fn round(&mut self, round: u64) {
        let (started, mut in_flight, mut sent) = (Instant::now(), FuturesUnordered::new(), 0);
        for partition in 0..PARTITIONS {
            if in_flight.len() >= IN_FLIGHT {
                sent += in_flight.next().await.unwrap_or_default();
            }
            let next = batch(partition, round, self.records.clone());
            in_flight.push(publish(&self.kafka, &self.sessions[partition as usize % 2], next));
        }
        while let Some(count) = in_flight.next().await {
            sent += count;
        }
        drop(in_flight);
        self.rates.push(sent as f64 / started.elapsed().as_secs_f64());
    }
}

/// Alternates the variants, so that a busy machine or a warm broker affects all of them.
async fn throughput() {
    let mut variants = [
        Variant::open("exactly once, 14 headers, none", DeliveryGuarantee::ExactlyOnce, Compression::None, 14).await,
        Variant::open("exactly once, 14 headers, lz4", DeliveryGuarantee::ExactlyOnce, Compression::Lz4, 14).await,
        Variant::open("exactly once, no headers, none", DeliveryGuarantee::ExactlyOnce, Compression::None, 0).await,
        Variant::open("exactly once, no headers, lz4", DeliveryGuarantee::ExactlyOnce, Compression::Lz4, 0).await,
        Variant::open("at least once, 14 headers, none", DeliveryGuarantee::AtLeastOnce, Compression::None, 14).await,
    ];
    for round in 1..=ROUNDS {
        for variant in &mut variants {
            variant.round(round).await;
        }
    }
    for variant in &mut variants {
        variant.rates.sort_by(f64::total_cmp);
        let [low, median, high] =
            [0, variant.rates.len() / 2, variant.rates.len() - 1].map(|index| variant.rates[index]);
        println!("{}: median {median:.0} events/s, {low:.0} to {high:.0} in {ROUNDS} rounds", variant.name);
    }
}

async fn recovery() {
    let kafka = open(DeliveryGuarantee::ExactlyOnce, Compression::None).await;
    let session = kafka.open_session(0).await.expect("opened");
    for partition in 0..PARTITIONS {
        publish(&kafka, &session, batch(partition, 7, vec![record(&kafka, 1, 14)])).await;
    }
    let started = Instant::now();
    let watermarks = futures::future::join_all(
        (0..PARTITIONS).map(|partition| kafka.watermark(PartitionNo(partition), Some(&session))),
    )
    .await;
    assert!(watermarks.iter().all(|watermark| matches!(watermark, Ok(Some(7)))), "{watermarks:?}");
    println!("64 watermarks at once, cold: {:?}", started.elapsed());
    let started = Instant::now();
    for partition in 0..PARTITIONS {
        kafka.watermark(PartitionNo(partition), Some(&session)).await.expect("read");
    }
    println!("64 watermarks one by one: {:?} each", started.elapsed() / PARTITIONS);
    let mut took = Vec::new();
    for slot in 0..10 {
        let session = kafka.open_session(slot).await.expect("opened");
        let started = Instant::now();
        kafka.fence(&session).await.expect("fenced");
        took.push(started.elapsed());
    }
    took.sort();
    println!("a fence: p50 {:?}, worst {:?}", took[5], took[9]);
}
