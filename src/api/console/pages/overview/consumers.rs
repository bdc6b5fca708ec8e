//! The consumers of this instance: what they did with the records, and how far they lag behind in each topic partition.
use std::cmp::Reverse;

use maud::{Markup, html};
use telemetry::Metrics;

use crate::console::format::{grouped, pluralize};
use crate::state::HttpState;

/// Topic partitions of the table; those that lag most come first.
const LISTED_MAX: usize = 64;

/// The lag of one topic partition, in records.
struct PartitionLag {
    topic: String,
    partition: String,
    records: u64,
}

pub(super) fn card(state: &HttpState) -> Markup {
    let metrics = &state.metrics;
    html! {
        section class="card" {
            h2 { "Consumers of this instance" }
            ul class="counts" {
                @for (name, metric, records) in totals(metrics) {
                    li { a href={ "/actuator/metrics/" (metric) } { (name) } " " strong { (grouped(records)) } }
                }
            }
            (lag_by_partition(&lags(metrics)))
        }
    }
}

/// Totals since the process started.
fn totals(metrics: &Metrics) -> [(&'static str, &'static str, u64); 4] {
    [
        ("processed", "kafka.consumer.processed.count", metrics.kafka_consumer_processed_count.get()),
        ("duplicates", "kafka.consumer.duplicate.count", metrics.kafka_consumer_duplicate_count.get()),
        ("retried", "kafka.consumer.retry.count", metrics.kafka_consumer_retry_count.get()),
        ("dead-lettered", "kafka.consumer.dlq.count", metrics.kafka_consumer_dlq_count.get()),
    ]
}

fn lags(metrics: &Metrics) -> Vec<PartitionLag> {
    let members = metrics.kafka_consumer_lag.members().into_iter();
    let lag = |([topic, partition], gauge): ([String; 2], telemetry::IntGauge)| PartitionLag {
        topic,
        partition,
        records: gauge.get().max(0).unsigned_abs(),
    };
    let mut all: Vec<PartitionLag> = members.map(lag).collect();
    all.sort_by_cached_key(|partition_lag| {
        (
            Reverse(partition_lag.records),
            partition_lag.topic.clone(),
            partition_lag.partition.parse::<u32>().unwrap_or(u32::MAX),
        )
    });
    all
}

fn lag_by_partition(all: &[PartitionLag]) -> Markup {
    let behind = all.iter().filter(|partition_lag| partition_lag.records > 0).count();
    html! {
        @if all.is_empty() { p class="quiet" { "This instance reads no topic partition." } }
        @else {
            details id="consumer-lag" {
                summary { "Lag by partition: " (behind) " of " (pluralize(all.len() as u64, "partition lags", "partitions lag")) }
                div class="wide" { table class="cards" {
                    caption { "The greatest lag first" }
                    thead { tr { th scope="col" { "Topic" } th scope="col" { "Partition" } th scope="col" { "Records behind" } } }
                    tbody {
                        @for partition_lag in all.iter().take(LISTED_MAX) {
                            tr id={ "lag-" (partition_lag.topic) "-" (partition_lag.partition) } {
                                th scope="row" { (partition_lag.topic) }
                                td class="number" data-label="Partition" { (partition_lag.partition) }
                                td class="number" data-label="Records behind" { (grouped(partition_lag.records)) }
                            }
                        }
                    }
                } }
                @if all.len() > LISTED_MAX { p class="quiet" { "The others are in the metric." } }
                p { a class="metric" href="/actuator/metrics/kafka_consumer_lag" { "kafka_consumer_lag" } }
            }
        }
    }
}
