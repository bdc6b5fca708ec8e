//! The metric catalogue, one line per metric. No other file contains a metric name.
//!
//! The table is a macro that passes its lines to another macro: here they become [`CATALOGUE`], in `registry.rs` the
//! fields of [`Metrics`](crate::Metrics). A line reads `field: type = "name" [labels] unit buckets "help"`; the field is
//! the name with underscores for dots. Label values come from small, closed sets, never from orders, subjects or raw
//! paths: each value uses memory and appears in every scrape until the process ends.

use super::buckets::*;
use super::definition::{MetricDefinition, MetricUnit};
use super::instrument::*;

macro_rules! every_metric {
    ($consumer:ident) => { $consumer! {
        // The outbox, by Micrometer's names.
        outbox_pending_count: IntGauge = "outbox.pending.count" [] Rows NONE "Rows that wait to be published.";
        outbox_failure_count: IntGauge = "outbox.failure.count" [] Rows NONE "Rows whose last attempt failed, including parked rows.";
        outbox_publish_rate: IntCounter = "outbox.publish.rate" [] Events NONE "Events the broker acknowledged; its rate is the publish rate.";
        outbox_publish_latency: Timer = "outbox.publish.latency" [] Seconds CALL "Time of one event from its hand-over to the broker client until the acknowledgement.";
        outbox_lag: DurationDistribution<1> = "outbox.lag" [] Seconds AGE "Age of the oldest unpublished event, sampled once a second, in seconds.";
        outbox_batch_size: SizeDistribution = "outbox.batch.size" [] Rows SIZE "Rows in a claimed batch.";
        outbox_retry_count: IntCounter = "outbox.retry.count" [] Rows NONE "Failed attempts that were scheduled again.";
        events_accepted: Family<IntCounter, 1> = "events.accepted" ["result"] Events NONE "Events of other services that were handed over by HTTP: new, or a duplicate of one that was published before.";
        outbox_entries_written: IntCounter = "outbox.entries.written" [] Rows NONE "Outbox rows written for orders and for events handed over by HTTP; events published by SQL do not count.";
        outbox_entries_delivered: IntCounter = "outbox.entries.delivered" [] Rows NONE "Rows settled as sent.";
        outbox_entries_failed: IntCounter = "outbox.entries.failed" [] Rows NONE "Rows parked by the relay, as the store confirmed.";
        outbox_publish_duration: Timer = "outbox.publish.duration" [] Seconds CALL "Time of one batch from its claim to the broker's acknowledgement.";

        // The outbox, by Prometheus names.
        outbox_rows: Family<IntGauge, 1> = "outbox_rows" ["status"] Rows NONE "Outbox rows by status.";
        outbox_oldest_pending_age_seconds: Gauge = "outbox_oldest_pending_age_seconds" [] Seconds NONE "Age of the oldest unpublished event that is not parked and does not wait behind a parked one; 0 when there is none.";
        outbox_commit_to_ack_seconds: Timer = "outbox_commit_to_ack_seconds" [] Seconds AGE "Time from the insertion of an event's row until the broker's acknowledgement. The commit follows the insertion at once, except in a long transaction that publishes by SQL: its remaining time counts too.";
        outbox_wake_up_seconds: Timer = "outbox_wake_up_seconds" [] Seconds MESSAGE "Time from the wake-up that follows a commit of this instance until the partition's worker begins to claim; under load it includes the wait for the next cycle.";
        outbox_wake_listener_up: IntGauge = "outbox_wake_listener_up" [] Level NONE "1 while this instance listens for the wake-ups of other instances and of writers in SQL, otherwise 0: events of others then wait for the poll. 0 also where it does not listen: with another store than PostgreSQL, and with store.pooler.";
        outbox_store_rewound_total: IntCounter = "outbox_store_rewound_total" [] Partitions NONE "Partitions in which the broker was found ahead of the store, because the store was rewound.";
        outbox_lease_reclaimed_total: IntCounter = "outbox_lease_reclaimed_total" [] Rows NONE "Rows of batches that a previous lease left open, when the next owner resolved them.";
        outbox_stale_settlement_total: IntCounter = "outbox_stale_settlement_total" [] Calls NONE "Settlements that changed nothing because their fencing token was stale.";
        outbox_fenced_total: IntCounter = "outbox_fenced_total" [] Batches NONE "Batches abandoned because another instance owned the partition.";
        outbox_repairs_total: IntCounter = "outbox_repairs_total" [] Rows NONE "Entries of the Redis store's outbox indexes that the audit corrected by their rows.";
        outbox_partitions: IntGauge = "outbox_partitions" [] Partitions NONE "Partitions of the outbox, as configured (outbox.partitions).";
        outbox_partitions_owned: IntGauge = "outbox_partitions_owned" [] Partitions NONE "Partitions this instance owns.";

        // The broker and the consumer.
        kafka_consumer_processed_count: IntCounter = "kafka.consumer.processed.count" [] Records NONE "Consumed records that were processed.";
        kafka_consumer_duplicate_count: IntCounter = "kafka.consumer.duplicate.count" [] Records NONE "Consumed records that were already processed: acknowledged without effect.";
        kafka_consumer_retry_count: IntCounter = "kafka.consumer.retry.count" [] Records NONE "Consumed records that were retried or sent to a retry topic.";
        kafka_consumer_errors: IntCounter = "kafka.consumer.errors" [] Records NONE "Failed attempts to process a consumed record: it was invalid, its handler failed, or the store or broker did not take its result.";
        kafka_consumer_poll_failures_total: IntCounter = "kafka_consumer_poll_failures_total" [] Calls NONE "Failed polls of the consumers, webhooks included: the group could not be joined or read, or the store or broker did not take the results. The consumer tries again; while it cannot join, nothing measures its lag.";
        kafka_consumer_dlq_count: IntCounter = "kafka.consumer.dlq.count" [] Records NONE "Consumed records sent to the dead letter topic.";
        kafka_consumer_fallback_count: IntCounter = "kafka.consumer.fallback.count" [] Records NONE "Consumed records that the fallback of their event type accepted.";
        kafka_consumer_lag_ms: DurationDistribution<1000> = "kafka.consumer.lag.ms" [] Milliseconds AGE_MS "Age of a record when it was consumed, in milliseconds.";
        kafka_consumer_lag: Family<IntGauge, 2> = "kafka_consumer_lag" ["topic", "partition"] Records NONE "Records between the consumer group's offset and the end of the topic partition.";
        kafka_schema_validation_errors: IntCounter = "kafka.schema.validation.errors" [] Events NONE "Events that did not match their schema.";
        kafka_event_version_distribution: Family<IntCounter, 1> = "kafka.event.version.distribution" ["version"] Events NONE "Consumed events by schema version.";
        kafka_breaker_state: IntGauge = "kafka_breaker_state" [] Level NONE "State of the broker's circuit breaker: 0 closed, 1 half-open, 2 open.";

        // Readers of topics over HTTP.
        topic_readers: IntGauge = "topic_readers" [] Requests NONE "Requests that read a topic now, including those that wait for records.";
        topic_records_served_total: Family<IntCounter, 1> = "topic_records_served_total" ["topic"] Records NONE "Records sent to readers over HTTP, by topic; `other` for topics that are not configured.";

        // Webhooks.
        webhook_deliveries_total: Family<IntCounter, 1> = "webhook_deliveries_total" ["outcome"] Calls NONE "Attempts to deliver an event to the endpoint of a webhook: delivered, retried, dead-lettered, or failed where the endpoint is gone.";
        webhook_delivery_seconds: Timer = "webhook_delivery_seconds" [] Seconds CALL "Time of one attempt until the response or the failure.";
        webhook_endpoints_down: IntGauge = "webhook_endpoints_down" [] Webhooks NONE "Webhooks whose endpoint does not work, as this instance sees it: their events wait.";

        // The cache, Redis, the rate limit, the retry policy.
        cache_hit_count: IntCounter = "cache.hit.count" [] Calls NONE "Cache reads that found a value.";
        cache_miss_count: IntCounter = "cache.miss.count" [] Calls NONE "Cache reads that found no value.";
        cache_error_count: IntCounter = "cache.error.count" [] Calls NONE "Cache calls that failed.";
        cache_degraded_mode_count: IntCounter = "cache.degraded.mode.count" [] Calls NONE "Calls that bypassed the cache because its circuit breaker was open, or its content is stale after an outage.";
        redis_connection_failures: Family<IntCounter, 1> = "redis.connection.failures" ["component"] Calls NONE "Calls that could not reach Redis, by calling component.";
        redis_command_latency: Timer = "redis.command.latency" [] Seconds CALL "Time of one Redis command, script or pipeline.";
        rate_limit_allowed_count: IntCounter = "rate_limit.allowed.count" [] Requests NONE "Requests that the rate limit allowed.";
        rate_limit_blocked_count: IntCounter = "rate_limit.blocked.count" [] Requests NONE "Requests that the rate limit rejected.";
        rate_limit_dynamic_adjustments: IntCounter = "rate_limit.dynamic.adjustments" [] Calls NONE "Changes of the throttling factor by backpressure.";
        rate_limit_fail_open_count: IntCounter = "rate_limit.fail_open.count" [] Requests NONE "Requests allowed because the rate limit store was unavailable.";
        rate_limit_fallback_count: IntCounter = "rate_limit.fallback.count" [] Requests NONE "Requests counted in a sliding window because the token bucket script failed.";
        rate_limit_rejections_by_policy: Family<IntCounter, 1> = "rate_limit.rejections.by.policy" ["policy"] Requests NONE "Requests that the rate limit rejected, by policy.";
        retry_delay_ms: DurationDistribution<1000> = "retry.delay.ms" [] Milliseconds AGE_MS "Delay until the next attempt, in milliseconds.";
        retry_classification_count: Family<IntCounter, 1> = "retry.classification.count" ["classification"] Calls NONE "Failures by fault class.";

        // Backpressure, region, failover.
        backpressure_level: IntGauge = "backpressure.level" [] Level NONE "Backpressure level: 0 normal, 1 elevated, 2 critical.";
        backpressure_throttling_factor: Gauge = "backpressure.throttling.factor" [] Level NONE "Factor on the rate limits: 1, 0.7 or 0.35; from the next stage of backpressure on, retry delays are divided by it.";
        backpressure_outbox_backlog: IntGauge = "backpressure.outbox.backlog" [] Rows NONE "Unsent rows at the last backpressure measurement. Without a broker 0: rows that nothing sends are no pressure.";
        backpressure_kafka_lag_ms: IntGauge = "backpressure.kafka.lag.ms" [] Milliseconds NONE "Consumer lag at the last backpressure measurement.";
        backpressure_db_saturation_percent: Gauge = "backpressure.db.saturation.percent" [] Percent NONE "Store capacity in use over the last second, 0 to 100: the larger share of its connection pool and its write queue; on Redis, of the calls that may be in flight.";
        region_conflict_rejected_count: IntCounter = "region.conflict.rejected.count" [] Events NONE "Events and commands rejected by the region rule.";
        failover_events_count: IntCounter = "failover.events.count" [] Events NONE "Changes of the region between active and passive.";
        region_health_unhealthy_count: IntCounter = "region.health.unhealthy.count" [] Calls NONE "Probe rounds that found the region unhealthy.";
        region_health_dependency_failure_count: Family<IntCounter, 1> = "region.health.dependency.failure.count" ["dependency"] Calls NONE "Failed probes, by dependency.";

        // Orders, HTTP, the store.
        orders_created_count: IntCounter = "orders.created.count" [] Orders NONE "Orders created.";
        orders_idempotency_hit_count: IntCounter = "orders.idempotency.hit.count" [] Requests NONE "Create requests answered with the stored response of their idempotency key.";
        orders_operation_failure_count: Family<IntCounter, 1> = "orders.operation.failure.count" ["operation"] Calls NONE "Failed order operations.";
        orders_shed_count: Family<IntCounter, 1> = "orders.shed.count" ["kind"] Requests NONE "Requests rejected by load shedding, by kind: change, read or list.";
        orders_in_flight_limit: Family<IntGauge, 1> = "orders.in.flight.limit" ["kind"] Requests NONE "Concurrent requests allowed; it falls while requests queue for the store.";
        orders_operation_duration: Family<Timer, 1> = "orders.operation.duration" ["operation"] Seconds CALL "Time of one order operation.";
        http_server_requests: Family<Timer, 3> = "http.server.requests" ["method", "uri", "status"] Seconds CALL "Time of one HTTP request, by method, route template and status.";
        http_server_requests_by_region: Family<IntCounter, 1> = "http.server.requests.by.region" ["region"] Requests NONE "HTTP requests by the region that served them.";
        api_errors_unexpected: IntCounter = "api.errors.unexpected" [] Requests NONE "HTTP requests answered with status 500.";
        log_lines_lost_count: IntCounter = "log.lines.lost.count" [] Lines NONE "Log lines dropped because the queue of the log was full, or because writing failed.";
        db_query_duration: Family<Timer, 1> = "db.query.duration" ["query"] Seconds CALL "Time of one store statement or transaction, by name.";
        db_oldest_transaction_age_seconds: Gauge = "db_oldest_transaction_age_seconds" [] Seconds NONE "Age of the oldest open or prepared transaction on the PostgreSQL server that holds back VACUUM, sampled by the probe, at most every 15 seconds; 0 when there is none.";

        // Traces.
        spans_exported_total: IntCounter = "spans_exported_total" [] Spans NONE "Spans that the collector accepted.";
        spans_dropped_total: Family<IntCounter, 1> = "spans_dropped_total" ["reason"] Spans NONE "Spans that were dropped: the queue was full, or the collector did not take them.";

        // Clean-up.
        sweep_failures_total: Family<IntCounter, 1> = "sweep_failures_total" ["sweep"] Calls NONE "Failed pages of a periodic clean-up, by what it deletes: archive, keys (idempotency records), inbox, log (of the embedded broker) or sessions (of producers).";

        // The program.
        posthaste_build_info: Family<IntGauge, 2> = "posthaste_build_info" ["version", "commit"] Level NONE "1; its labels are the version and the commit that the program was built from.";

        // The actors.
        actor_up: Family<IntGauge, 1> = "actor_up" ["actor"] Actors NONE "Actors of the kind that run.";
        actor_registered: Family<IntGauge, 1> = "actor_registered" ["actor"] Actors NONE "Actors of the kind that their supervisors have started and not removed, whether they run or not.";
        actor_restarts_total: Family<IntCounter, 2> = "actor_restarts_total" ["actor", "reason"] Restarts NONE "Restarts of actors, by the reason of the exit before; `sibling` is a restart that the failure of another actor caused.";
        actor_mailbox_depth: Family<IntGauge, 1> = "actor_mailbox_depth" ["actor"] Messages NONE "Messages that wait or are being handled in all actors of the kind.";
        actor_mailbox_capacity: Family<IntGauge, 1> = "actor_mailbox_capacity" ["actor"] Messages NONE "Capacity of the mailboxes of all actors of the kind, in messages.";
        actor_messages_total: Family<IntCounter, 1> = "actor_messages_total" ["actor"] Messages NONE "Messages handled by the actor.";
        actor_message_duration_seconds: Family<Timer, 1> = "actor_message_duration_seconds" ["actor"] Seconds MESSAGE "Time of one message from receipt to the end of its handler.";
    } };
}
pub(crate) use every_metric;

macro_rules! definitions {
    ($($field:ident: $instrument:ty = $name:literal [$($label:literal),*] $unit:ident $buckets:ident $help:literal;)*) => {
        /// Each definition under its field's name, so that a field cannot be created from another field's definition.
        #[allow(non_upper_case_globals, reason = "the constants have the names of the fields")]
        pub(crate) mod definition_of {
            use super::*;
            $(pub(crate) const $field: MetricDefinition = MetricDefinition {
                name: $name,
                kind: <$instrument as MetricField>::KIND,
                unit: MetricUnit::$unit,
                labels: &[$($label),*],
                buckets: $buckets,
                help: $help,
            };)*
        }

        /// Every metric of the service, in the table's order. Each appears in `/metrics` from the start of the process.
        pub const CATALOGUE: &[MetricDefinition] = &[$(definition_of::$field),*];

        #[cfg(test)]
        const FIELDS: &[&str] = &[$(stringify!($field)),*];
    };
}
every_metric!(definitions);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::metrics::definition::MetricKind;

    #[test]
    fn names_are_unique_before_and_after_the_mapping_to_prometheus() {
        let dotted: BTreeSet<_> = CATALOGUE.iter().map(|definition| definition.name).collect();
        let mapped: BTreeSet<_> = CATALOGUE.iter().map(MetricDefinition::prometheus).collect();

        assert_eq!(dotted.len(), CATALOGUE.len());
        assert_eq!(mapped.len(), CATALOGUE.len());
    }

    #[test]
    fn no_metric_is_named_like_a_series_of_a_histogram() {
        let mapped: BTreeSet<_> = CATALOGUE.iter().map(MetricDefinition::prometheus).collect();

        for definition in CATALOGUE.iter().filter(|definition| definition.prometheus_type() == "histogram") {
            for suffix in ["_bucket", "_count", "_sum"] {
                assert!(!mapped.contains(&(definition.prometheus() + suffix)), "{}{suffix}", definition.name);
            }
        }
    }

    #[test]
    fn each_field_is_its_metric_name_with_underscores_for_dots() {
        for (field, definition) in FIELDS.iter().zip(CATALOGUE) {
            assert_eq!(*field, definition.name.replace('.', "_"));
        }
    }

    #[test]
    fn no_label_has_an_unbounded_set_of_values() {
        for label in CATALOGUE.iter().flat_map(|definition| definition.labels) {
            let forbidden = ["order", "subject", "sub", "user", "path", "key", "event", "request", "ip"];
            assert!(!forbidden.iter().any(|word| label.split('_').any(|part| part == *word)), "{label}");
        }
    }

    #[test]
    fn exactly_the_histograms_have_buckets_and_their_bounds_increase() {
        for definition in CATALOGUE {
            let histogram = matches!(definition.kind, MetricKind::Timer | MetricKind::Distribution);
            assert_eq!(histogram, !definition.buckets.is_empty(), "{}", definition.name);
            assert!(definition.buckets.is_sorted_by(|low, high| low < high), "{}", definition.name);
        }
    }

    #[test]
    fn timers_measure_seconds_and_help_texts_are_plain_sentences() {
        for definition in CATALOGUE {
            assert!(
                definition.kind != MetricKind::Timer || definition.unit == MetricUnit::Seconds,
                "{}",
                definition.name
            );
            assert!(definition.help.ends_with('.') && !definition.help.contains(['\\', '\n']), "{}", definition.name);
        }
    }
}
