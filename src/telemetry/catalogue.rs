//! Every metric of the service, one line each. Nowhere else does a metric's name stand.
//!
//! The table is a macro that hands its lines to another one: here they become [`CATALOGUE`], in `metrics.rs` the fields
//! of [`Metrics`](crate::Metrics). A line reads `field: type = "name" [labels] unit buckets "help"`, and the field is the
//! name with its dots as underscores. Labels take values from small, closed sets only: never an order, a subject or a
//! raw path, because each value lives in memory and in every scrape for good.

use crate::buckets::*;
use crate::entry::{Entry, Unit};
use crate::instrument::*;

macro_rules! every_metric {
    ($consumer:ident) => { $consumer! {
        // The outbox, by the seeds' names.
        outbox_pending_count: IntGauge = "outbox.pending.count" [] Rows NONE "Rows that wait to leave.";
        outbox_failure_count: IntGauge = "outbox.failure.count" [] Rows NONE "Rows whose last attempt failed, parked ones included.";
        outbox_publish_rate: IntCounter = "outbox.publish.rate" [] Events NONE "Events the broker acknowledged; its rate is the publish rate.";
        outbox_publish_latency: Timer = "outbox.publish.latency" [] Seconds CALL "From handing an event to the broker to its acknowledgement.";
        outbox_lag: Durations<1> = "outbox.lag" [] Seconds AGE "Age of the oldest event that has not left, looked at once a second, in seconds.";
        outbox_batch_size: Sizes = "outbox.batch.size" [] Rows SIZE "Rows in a claimed batch.";
        outbox_retry_count: IntCounter = "outbox.retry.count" [] Rows NONE "Attempts that ended in another attempt.";
        outbox_entries_written: IntCounter = "outbox.entries.written" [] Rows NONE "Rows written with their order.";
        outbox_entries_delivered: IntCounter = "outbox.entries.delivered" [] Rows NONE "Rows settled as sent.";
        outbox_entries_failed: IntCounter = "outbox.entries.failed" [] Rows NONE "Rows settled as parked.";
        outbox_publish_duration: Timer = "outbox.publish.duration" [] Seconds CALL "One batch from claim to settlement.";

        // The outbox, ours.
        outbox_rows: Family<IntGauge, 1> = "outbox_rows" ["status"] Rows NONE "Rows by status.";
        outbox_oldest_pending_age_seconds: Gauge = "outbox_oldest_pending_age_seconds" [] Seconds NONE "Age of the oldest event that has not left; 0 when there is none.";
        outbox_commit_to_ack_seconds: Timer = "outbox_commit_to_ack_seconds" [] Seconds AGE "From the order's commit to the broker's acknowledgement.";
        outbox_lease_reclaimed_total: IntCounter = "outbox_lease_reclaimed_total" [] Rows NONE "Rows taken back from a lease that ran out.";
        outbox_stale_settlement_total: IntCounter = "outbox_stale_settlement_total" [] Rows NONE "Settlements that changed nothing because the token was old.";
        outbox_fenced_total: IntCounter = "outbox_fenced_total" [] Batches NONE "Batches given up because another instance held the partition.";
        outbox_partitions_owned: IntGauge = "outbox_partitions_owned" [] Partitions NONE "Partitions this instance owns.";

        // The broker and the consumer.
        kafka_consumer_processed_count: IntCounter = "kafka.consumer.processed.count" [] Records NONE "Consumed records that were processed.";
        kafka_consumer_duplicate_count: IntCounter = "kafka.consumer.duplicate.count" [] Records NONE "Consumed records that had been processed before: acknowledged, without effect.";
        kafka_consumer_retry_count: IntCounter = "kafka.consumer.retry.count" [] Records NONE "Consumed records sent to a retry topic or tried again.";
        kafka_consumer_errors: IntCounter = "kafka.consumer.errors" [] Records NONE "Consumed records whose processing failed.";
        kafka_consumer_dlq_count: IntCounter = "kafka.consumer.dlq.count" [] Records NONE "Consumed records set aside as dead letters.";
        kafka_consumer_lag_ms: Durations<1000> = "kafka.consumer.lag.ms" [] Milliseconds AGE_MS "Age of a record when it was consumed, in milliseconds.";
        kafka_consumer_lag: Family<IntGauge, 2> = "kafka_consumer_lag" ["topic", "partition"] Records NONE "Records between the group's offset and the end of the log.";
        kafka_schema_validation_errors: IntCounter = "kafka.schema.validation.errors" [] Events NONE "Events that did not match their schema.";
        kafka_event_version_distribution: Family<IntCounter, 1> = "kafka.event.version.distribution" ["version"] Events NONE "Events by schema version.";
        kafka_breaker_state: IntGauge = "kafka_breaker_state" [] Level NONE "The broker's breaker: 0 closed, 1 half-open, 2 open.";

        // The cache, Redis, the rate limit, the retry policy.
        cache_hit_count: IntCounter = "cache.hit.count" [] Calls NONE "Reads the cache answered.";
        cache_miss_count: IntCounter = "cache.miss.count" [] Calls NONE "Reads the cache could not answer.";
        cache_error_count: IntCounter = "cache.error.count" [] Calls NONE "Calls to the cache that failed.";
        cache_degraded_mode_count: IntCounter = "cache.degraded.mode.count" [] Calls NONE "Calls that went past the cache because it kept failing, or is not believed after an outage.";
        redis_connection_failures: Family<IntCounter, 1> = "redis.connection.failures" ["component"] Calls NONE "Calls that could not reach Redis, by who asked.";
        redis_command_latency: Timer = "redis.command.latency" [] Seconds CALL "One Redis command, script or pipeline.";
        rate_limit_allowed_count: IntCounter = "rate_limit.allowed.count" [] Requests NONE "Requests the rate limit let through.";
        rate_limit_blocked_count: IntCounter = "rate_limit.blocked.count" [] Requests NONE "Requests the rate limit refused.";
        rate_limit_dynamic_adjustments: IntCounter = "rate_limit.dynamic.adjustments" [] Calls NONE "Changes of the throttling factor.";
        rate_limit_fail_open_count: IntCounter = "rate_limit.fail_open.count" [] Requests NONE "Requests that passed because the rate limit could not be asked.";
        rate_limit_fallback_count: IntCounter = "rate_limit.fallback.count" [] Requests NONE "Requests counted in a sliding window because the token bucket's script failed.";
        rate_limit_rejections_by_policy: Family<IntCounter, 1> = "rate_limit.rejections.by.policy" ["policy"] Requests NONE "Requests the rate limit refused, by policy.";
        retry_delay_ms: Durations<1000> = "retry.delay.ms" [] Milliseconds AGE_MS "Delay until the next attempt, in milliseconds.";
        retry_classification_count: Family<IntCounter, 1> = "retry.classification.count" ["classification"] Calls NONE "Failures by the class of their fault.";

        // Back-pressure, region, failover.
        backpressure_level: IntGauge = "backpressure.level" [] Level NONE "Pressure: 0 normal, 1 elevated, 2 critical.";
        backpressure_throttling_factor: Gauge = "backpressure.throttling.factor" [] Level NONE "How much of the usual rate limits let through: 1, 0.7 or 0.35; delays of retries are divided by it one step later.";
        backpressure_outbox_backlog: IntGauge = "backpressure.outbox.backlog" [] Rows NONE "Unsent rows, as back-pressure last saw them.";
        backpressure_kafka_lag_ms: IntGauge = "backpressure.kafka.lag.ms" [] Milliseconds NONE "Consumer lag, as back-pressure last saw it.";
        backpressure_db_saturation_percent: Gauge = "backpressure.db.saturation.percent" [] Percent NONE "Capacity of the store in use over the last second, 0 to 100: connections of its pool, or its queue of writes where that is fuller.";
        region_conflict_rejected_count: IntCounter = "region.conflict.rejected.count" [] Events NONE "Events and commands that the region rule rejected.";
        failover_events_count: IntCounter = "failover.events.count" [] Events NONE "Changes of the region's mode.";
        region_health_unhealthy_count: IntCounter = "region.health.unhealthy.count" [] Calls NONE "Probe rounds that found the region unhealthy.";
        region_health_dependency_failure_count: Family<IntCounter, 1> = "region.health.dependency.failure.count" ["dependency"] Calls NONE "Probes that failed, by dependency.";

        // Orders, HTTP, the store.
        orders_created_count: IntCounter = "orders.created.count" [] Orders NONE "Orders created.";
        orders_idempotency_hit_count: IntCounter = "orders.idempotency.hit.count" [] Requests NONE "Creates answered from an idempotency key.";
        orders_operation_failure_count: Family<IntCounter, 1> = "orders.operation.failure.count" ["operation"] Calls NONE "Operations on orders that failed.";
        orders_shed_count: Family<IntCounter, 1> = "orders.shed.count" ["kind"] Requests NONE "Requests refused because too many waited for the store already: change, read or list.";
        orders_in_flight_limit: Family<IntGauge, 1> = "orders.in.flight.limit" ["kind"] Requests NONE "Requests that may be under way at once; falls while a queue stands before the store.";
        orders_operation_duration: Family<Timer, 1> = "orders.operation.duration" ["operation"] Seconds CALL "Operations on orders.";
        http_server_requests: Family<Timer, 3> = "http.server.requests" ["method", "uri", "status"] Seconds CALL "Requests by method, route template and status.";
        http_server_requests_by_region: Family<IntCounter, 1> = "http.server.requests.by.region" ["region"] Requests NONE "Requests by the region that answered.";
        api_errors_unexpected: IntCounter = "api.errors.unexpected" [] Requests NONE "Requests answered with 500.";
        log_lines_lost_count: IntCounter = "log.lines.lost.count" [] Lines NONE "Lines of the log that found no room because their reader had stopped reading.";
        db_query_duration: Family<Timer, 1> = "db.query.duration" ["query"] Seconds CALL "Statements and transactions of the store, by name.";

        // The actors.
        actor_up: Family<IntGauge, 1> = "actor_up" ["actor"] Actors NONE "1 while the actor runs, else 0.";
        actor_restarts_total: Family<IntCounter, 2> = "actor_restarts_total" ["actor", "reason"] Restarts NONE "Restarts by the reason of the exit.";
        actor_mailbox_depth: Family<IntGauge, 1> = "actor_mailbox_depth" ["actor"] Messages NONE "Messages that wait.";
        actor_mailbox_capacity: Family<IntGauge, 1> = "actor_mailbox_capacity" ["actor"] Messages NONE "Messages that may wait.";
        actor_messages_total: Family<IntCounter, 1> = "actor_messages_total" ["actor"] Messages NONE "Messages handled.";
        actor_message_duration_seconds: Family<Timer, 1> = "actor_message_duration_seconds" ["actor"] Seconds TURN "One message from receipt to the end of its turn.";
    } };
}
pub(crate) use every_metric;

macro_rules! entries {
    ($($field:ident: $instrument:ty = $name:literal [$($label:literal),*] $unit:ident $buckets:ident $help:literal;)*) => {
        /// Each line under its field's name, so that a field cannot be built from another one's line.
        #[allow(non_upper_case_globals, reason = "fields are named in small letters")]
        pub(crate) mod line {
            use super::*;
            $(pub(crate) const $field: Entry = Entry {
                name: $name,
                kind: <$instrument as Field>::KIND,
                unit: Unit::$unit,
                labels: &[$($label),*],
                buckets: $buckets,
                help: $help,
            };)*
        }

        /// Every metric there is, in the table's order. Each appears in `/metrics` from the start.
        pub const CATALOGUE: &[Entry] = &[$(line::$field),*];

        #[cfg(test)]
        const FIELDS: &[&str] = &[$(stringify!($field)),*];
    };
}
every_metric!(entries);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::entry::Kind;

    #[test]
    fn names_are_unique_on_both_sides_of_the_mapping() {
        let dotted: BTreeSet<_> = CATALOGUE.iter().map(|entry| entry.name).collect();
        let mapped: BTreeSet<_> = CATALOGUE.iter().map(Entry::prometheus).collect();

        assert_eq!(dotted.len(), CATALOGUE.len());
        assert_eq!(mapped.len(), CATALOGUE.len());
    }

    #[test]
    fn no_name_is_a_series_of_some_histogram() {
        let mapped: BTreeSet<_> = CATALOGUE.iter().map(Entry::prometheus).collect();

        for entry in CATALOGUE.iter().filter(|entry| entry.type_word() == "histogram") {
            for suffix in ["_bucket", "_count", "_sum"] {
                assert!(!mapped.contains(&(entry.prometheus() + suffix)), "{}{suffix}", entry.name);
            }
        }
    }

    #[test]
    fn a_field_is_the_name_with_its_dots_as_underscores() {
        for (field, entry) in FIELDS.iter().zip(CATALOGUE) {
            assert_eq!(*field, entry.name.replace('.', "_"));
        }
    }

    #[test]
    fn no_label_is_an_order_a_subject_or_a_raw_path() {
        for label in CATALOGUE.iter().flat_map(|entry| entry.labels) {
            let forbidden = ["order", "subject", "sub", "user", "path", "key", "event", "request", "ip"];
            assert!(!forbidden.iter().any(|word| label.split('_').any(|part| part == *word)), "{label}");
        }
    }

    #[test]
    fn exactly_the_histograms_have_buckets_and_they_rise() {
        for entry in CATALOGUE {
            let histogram = matches!(entry.kind, Kind::Timer | Kind::Distribution);
            assert_eq!(histogram, !entry.buckets.is_empty(), "{}", entry.name);
            assert!(entry.buckets.is_sorted_by(|low, high| low < high), "{}", entry.name);
        }
    }

    #[test]
    fn timers_measure_seconds_and_helps_are_plain_sentences() {
        for entry in CATALOGUE {
            assert!(entry.kind != Kind::Timer || entry.unit == Unit::Seconds, "{}", entry.name);
            assert!(entry.help.ends_with('.') && !entry.help.contains(['\\', '\n']), "{}", entry.name);
        }
    }
}
