//! Topics whose records another consumer could not process: its attempts, origin and delays are not those of the webhook.
use std::time::Duration;

use ports::broker::{Broker, Record};
use ports::clock::Clock;
use ports::endpoint::webhooks::WebhookStore;

use super::fixture::{start_for, webhook};
use crate::support::environment::Environment;
use crate::support::process::Process;
use crate::support::record_faults::header;
use crate::support::scripted_endpoint::ScriptedEndpoint;

async fn append(environment: &Environment, process: &Process, topic: &str, headers: &[(&str, &[u8])]) {
    let (timestamp, headers) = (environment.clock.wall(), headers.iter().copied().collect());
    let value = b"moved".as_slice().into();
    let record = Record { topic: topic.into(), key: "7".into(), headers, value, timestamp };
    process.run(process.store.append(vec![record])).await.expect("appended");
}

#[tokio::test(start_paused = true)]
async fn dead_letter_of_another_consumer_gets_all_attempts_of_the_webhook() {
    let endpoint = ScriptedEndpoint::new(|_| Ok(500));
    let (environment, process) = start_for("customers-dlt", &endpoint).await;

    // The headers after five attempts.
    let (partition, offset, attempts) = (2_i32.to_be_bytes(), 9_i64.to_be_bytes(), 6_i32.to_be_bytes());
    let headers: [(&str, &[u8]); 4] = [
        ("kafka_original-topic", b"customers"),
        ("kafka_original-partition", &partition),
        ("kafka_original-offset", &offset),
        ("retry_topic-attempts", &attempts),
    ];
    append(&environment, &process, "customers-dlt", &headers).await;

    // The log of the deliveries follows the dead letter.
    let deliveries = async || process.store.deliveries(webhook(1, true).id).await.expect("the store works");
    let is_dead = async || process.records("webhooks-dlt").await.len() == 1 && deliveries().await.len() > 4;
    process.wait_until("it is a dead letter of the webhook", Duration::from_secs(7_200), is_dead).await;
    let recorded = deliveries().await;
    let attempts: Vec<(u32, &str)> = recorded.iter().rev().map(|one| (one.attempt, one.topic.as_str())).collect();
    assert_eq!(attempts, [1, 2, 3, 4, 5].map(|attempt| (attempt, "customers-dlt")));
    let ids: Vec<&str> = recorded.iter().map(|one| one.message_id.as_str()).collect();
    assert!(ids[0].starts_with("customers-dlt/") && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let dead = &process.records("webhooks-dlt").await[0].record;
    assert_eq!(header(dead, "kafka_original-topic"), "customers-dlt");
}

#[tokio::test(start_paused = true)]
async fn topic_named_like_a_retry_topic_is_delivered_without_delay() {
    let endpoint = ScriptedEndpoint::new(|_| Ok(200));
    let (environment, process) = start_for("payment-retry-3", &endpoint).await;

    append(&environment, &process, "payment-retry-3", &[]).await;

    let is_delivered = async || !endpoint.accepted().is_empty();
    process.wait_until("it is delivered", Duration::from_secs(5), is_delivered).await;
}
