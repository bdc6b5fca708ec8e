//! Every metric is changed and asserted by a test, and the names that the requirements fix have not changed.
use std::collections::BTreeMap;

use telemetry::CATALOGUE;

use crate::source::{read, root};

/// The metrics that the requirements name, with their Prometheus type: a list of its own, so that no change of the catalogue changes it.
const REQUIRED: &[(&str, &str)] = &[
    ("outbox.pending.count", "gauge"),
    ("outbox.failure.count", "gauge"),
    ("outbox.publish.rate", "counter"),
    ("outbox.publish.latency", "histogram"),
    ("outbox.lag", "histogram"),
    ("outbox.batch.size", "histogram"),
    ("outbox.retry.count", "counter"),
    ("outbox.entries.written", "counter"),
    ("outbox.entries.delivered", "counter"),
    ("outbox.entries.failed", "counter"),
    ("outbox.publish.duration", "histogram"),
    ("kafka.consumer.processed.count", "counter"),
    ("kafka.consumer.retry.count", "counter"),
    ("kafka.consumer.errors", "counter"),
    ("kafka.consumer.dlq.count", "counter"),
    ("kafka.consumer.lag.ms", "histogram"),
    ("kafka.schema.validation.errors", "counter"),
    ("kafka.event.version.distribution", "counter"),
    ("cache.hit.count", "counter"),
    ("cache.miss.count", "counter"),
    ("cache.error.count", "counter"),
    ("cache.degraded.mode.count", "counter"),
    ("redis.connection.failures", "counter"),
    ("redis.command.latency", "histogram"),
    ("rate_limit.allowed.count", "counter"),
    ("rate_limit.blocked.count", "counter"),
    ("rate_limit.dynamic.adjustments", "counter"),
    ("rate_limit.rejections.by.policy", "counter"),
    ("retry.delay.ms", "histogram"),
    ("retry.classification.count", "counter"),
    ("backpressure.level", "gauge"),
    ("backpressure.outbox.backlog", "gauge"),
    ("backpressure.kafka.lag.ms", "gauge"),
    ("backpressure.db.saturation.percent", "gauge"),
    ("region.conflict.rejected.count", "counter"),
    ("failover.events.count", "counter"),
    ("region.health.unhealthy.count", "counter"),
    ("region.health.dependency.failure.count", "counter"),
    ("orders.created.count", "counter"),
    ("orders.idempotency.hit.count", "counter"),
    ("orders.operation.failure.count", "counter"),
    ("orders.operation.duration", "histogram"),
    ("http.server.requests", "histogram"),
    ("http.server.requests.by.region", "counter"),
    ("api.errors.unexpected", "counter"),
    ("db.query.duration", "histogram"),
];

/// Tests, each as `file::test`, with the metrics that it changes and asserts.
const TESTS: &[(&str, &[&str])] = &[
    (
        "tests/service/every_backend/processing_chain/webhooks.rs::a_subscribed_endpoint_receives_signed_events_from_now_on",
        &["webhook_deliveries_total", "webhook_delivery_seconds"],
    ),
    (
        "tests/service/every_backend/processing_chain/webhooks.rs::while_an_endpoint_does_not_work_its_events_wait_and_none_is_given_up",
        &["webhook_endpoints_down"],
    ),
    (
        "tests/service/every_backend/processing_chain/traces.rs::one_trace_runs_from_the_request_through_actor_commit_and_relay_to_the_consumer",
        &["spans_exported_total"],
    ),
    (
        "tests/service/every_backend/processing_chain/traces.rs::an_unavailable_collector_loses_only_spans_and_is_logged_once",
        &["spans_dropped_total"],
    ),
    (
        "src/adapters/postgres/tests/outages.rs::probe_samples_the_age_of_a_transaction_that_has_written",
        &["db_oldest_transaction_age_seconds"],
    ),
    (
        "src/adapters/postgres/tests/wake_channel.rs::metric_shows_whether_the_listener_is_up",
        &["outbox_wake_listener_up"],
    ),
    (
        "tests/simulation/consumer/store_outages.rs::consumer_that_cannot_join_its_group_counts_its_failures",
        &["kafka_consumer_poll_failures_total"],
    ),
    ("tests/simulation/sweeps.rs::sweep_that_keeps_failing_is_counted_and_reported_once", &["sweep_failures_total"]),
    ("tests/redis/index_audit.rs::events_without_an_index_are_found_by_the_audit_and_sent", &["outbox_repairs_total"]),
    ("tests/simulation/consumer.rs::events_of_a_type_follow_their_own_chain", &["kafka.consumer.fallback.count"]),
    (
        "tests/service/every_backend/events.rs::a_batch_of_events_is_published_in_order_and_its_repetition_changes_nothing",
        &["events.accepted"],
    ),
    (
        "tests/service/every_backend/metrics.rs::orders_on_their_way_move_the_metrics_of_every_part_that_they_pass",
        &[
            "outbox.publish.rate",
            "outbox.publish.latency",
            "outbox.lag",
            "outbox.batch.size",
            "outbox.entries.written",
            "outbox.entries.delivered",
            "outbox.publish.duration",
            "outbox_rows",
            "outbox_commit_to_ack_seconds",
            "outbox_wake_up_seconds",
            "outbox_partitions_owned",
            "kafka.consumer.processed.count",
            "kafka.consumer.lag.ms",
            "kafka.event.version.distribution",
            "orders.created.count",
            "orders.operation.duration",
            "http.server.requests",
            "http.server.requests.by.region",
            "db.query.duration",
            "actor_up",
            "actor_registered",
            "actor_mailbox_capacity",
            "actor_messages_total",
            "actor_message_duration_seconds",
        ],
    ),
    (
        "tests/service/every_backend/metrics.rs::the_build_and_the_number_of_partitions_are_metrics",
        &["posthaste_build_info", "outbox_partitions"],
    ),
    (
        "tests/service/every_backend/metrics.rs::events_that_wait_move_the_metrics_of_the_backlog_and_back",
        &[
            "outbox.pending.count",
            "outbox_oldest_pending_age_seconds",
            "backpressure.outbox.backlog",
            "actor_mailbox_depth",
        ],
    ),
    (
        "tests/service/every_backend/metrics.rs::reads_of_an_order_move_the_metrics_of_the_cache",
        &["cache.hit.count", "cache.miss.count"],
    ),
    (
        "tests/service/every_backend/faults.rs::the_workers_of_a_failed_publisher_restart_with_it",
        &["actor_restarts_total"],
    ),
    (
        "tests/service/embedded/topics.rs::a_waiting_read_wakes_at_a_new_event_and_is_counted",
        &["topic_readers", "topic_records_served_total"],
    ),
    (
        "tests/service/every_backend/overload.rs::load_above_the_concurrency_limit_is_shed_with_503_and_the_limit_recovers",
        &["orders.shed.count", "orders.in.flight.limit"],
    ),
    (
        "tests/service/every_backend/overload.rs::an_unread_log_pipe_blocks_no_request_and_lost_lines_are_counted",
        &["log.lines.lost.count"],
    ),
    (
        "tests/simulation/relay/metrics.rs::publish_latency_runs_from_the_handover_to_the_acknowledgement",
        &["outbox.publish.latency", "outbox_commit_to_ack_seconds"],
    ),
    (
        "tests/simulation/relay/metrics.rs::each_row_of_an_open_batch_counts_as_reclaimed_when_it_is_resolved",
        &["outbox_lease_reclaimed_total"],
    ),
    (
        "tests/simulation/relay/metrics.rs::late_claim_and_late_settlement_of_a_former_owner_are_counted",
        &["outbox_fenced_total", "outbox_stale_settlement_total"],
    ),
    (
        "tests/simulation/relay/metrics.rs::failed_attempts_count_as_retries_until_the_row_is_parked",
        &[
            "outbox.retry.count",
            "retry.delay.ms",
            "retry.classification.count",
            "outbox.entries.failed",
            "outbox.failure.count",
        ],
    ),
    (
        "tests/simulation/relay/rewound_store.rs::every_acquisition_behind_its_watermark_is_counted_and_loses_nothing",
        &["outbox_store_rewound_total"],
    ),
    (
        "tests/simulation/consumer.rs::a_message_that_keeps_failing_passes_the_retry_topics_and_becomes_a_dead_letter",
        &["kafka.consumer.errors", "kafka.consumer.retry.count", "kafka.consumer.dlq.count"],
    ),
    (
        "tests/simulation/consumer.rs::an_undecodable_message_becomes_a_dead_letter_at_once",
        &["kafka.schema.validation.errors"],
    ),
    (
        "tests/simulation/consumer.rs::a_stale_event_of_another_region_is_recorded_in_the_inbox_and_counted",
        &["region.conflict.rejected.count"],
    ),
    (
        "tests/simulation/write_gate.rs::a_flapping_dependency_does_not_flap_the_region",
        &["failover.events.count", "region.health.unhealthy.count", "region.health.dependency.failure.count"],
    ),
    (
        "tests/services/stories/failure_matrix.rs::a_record_that_is_delivered_twice_is_consumed_once",
        &["kafka.consumer.duplicate.count", "kafka_consumer_lag"],
    ),
    (
        "tests/services/stories/failure_matrix.rs::of_concurrent_changes_of_one_version_one_succeeds_and_the_others_conflict",
        &["orders.operation.failure.count"],
    ),
    (
        "tests/services/stories/outages.rs::while_kafka_is_down_the_backlog_grows_without_attempts_and_then_drains",
        &["kafka_breaker_state"],
    ),
    (
        "tests/services/stories/outages.rs::while_redis_is_down_reads_come_from_the_store",
        &["cache.error.count", "cache.degraded.mode.count", "redis.connection.failures"],
    ),
    (
        "tests/services/stories/rate_limit.rs::a_failing_bucket_script_falls_back_to_windows_and_then_fails_open",
        &[
            "rate_limit.fallback.count",
            "rate_limit.fail_open.count",
            "rate_limit.rejections.by.policy",
            "redis.command.latency",
        ],
    ),
    (
        "tests/services/stories/backpressure.rs::a_backlog_tightens_limits_before_it_rejects_writes_and_recovers_by_level",
        &["backpressure.level", "backpressure.throttling.factor", "rate_limit.dynamic.adjustments"],
    ),
    ("tests/services/stories/backpressure.rs::consumer_lag_raises_the_level", &["backpressure.kafka.lag.ms"]),
    (
        "tests/services/stories/backpressure.rs::an_exhausted_pool_raises_the_level_and_refuses_writes_before_they_queue",
        &["backpressure.db.saturation.percent"],
    ),
    (
        "src/api/tests/contract/request_order.rs::rate_limit_headers_are_sent_and_unauthorized_requests_take_no_token",
        &["rate_limit.allowed.count", "rate_limit.blocked.count"],
    ),
    ("src/api/tests/contract/orders.rs::an_idempotency_key_creates_one_order", &["orders.idempotency.hit.count"]),
    (
        "src/api/tests/contract/orders.rs::command_failures_map_to_statuses_without_internal_details",
        &["api.errors.unexpected"],
    ),
];

/// A test's body with the values of the file's constants that it names; `None` without such a test.
fn body_of(file: &str, test: &str) -> Option<String> {
    let text = read(&root().join(file));
    let (before, from) = text.split_once(&format!("fn {test}() {{\n"))?;
    let attributes = before.rsplit("\n\n").next().unwrap_or_default();
    assert!(attributes.contains("test"), "{test} in {file} is not a test");
    let mut body = from.split("\n}\n").next().unwrap_or_default().to_owned();
    for line in text.lines().filter(|line| line.starts_with("const ")) {
        let name = line.trim_start_matches("const ").split(':').next().unwrap_or_default();
        let names = |text: &str| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == name);
        if names(&body) {
            body += line;
        }
    }
    Some(body)
}

/// Whether a text names a metric: by its dotted name, its field, or one of its series.
fn names_metric(text: &str, metric: &telemetry::MetricDefinition) -> bool {
    let (field, series) = (metric.name.replace('.', "_"), metric.prometheus());
    let forms = ["", "_count", "_sum"].map(|end| format!("{series}{end}"));
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.');
    let is_name = |part: &str| part == field || forms.iter().any(|form| part == form);
    words.map(|word| word.trim_matches('.')).any(|word| word == metric.name || word.split('.').any(is_name))
}

#[test]
fn every_metric_of_the_requirements_is_in_the_catalogue_with_its_type() {
    for (name, prometheus_type) in REQUIRED {
        let found = CATALOGUE.iter().find(|metric| metric.name == *name);
        let found = found.unwrap_or_else(|| panic!("the catalogue lacks {name}"));
        assert_eq!(found.prometheus_type(), *prometheus_type, "{name}");
    }
}

#[test]
fn every_metric_is_changed_by_a_test_that_asserts_it() {
    let mut changed: BTreeMap<&str, &str> = BTreeMap::new();
    for (listed, metrics) in TESTS {
        let (file, test) = listed.split_once("::").expect("a file and a test");
        let body = body_of(file, test).unwrap_or_else(|| panic!("{file} has no test {test}"));
        assert!(body.contains("assert") || body.contains("await_metric("), "{listed} asserts nothing");
        for name in *metrics {
            let metric = CATALOGUE.iter().find(|metric| metric.name == *name);
            let metric = metric.unwrap_or_else(|| panic!("{listed} is listed for {name}, which the catalogue lacks"));
            assert!(names_metric(&body, metric), "{listed} is listed for {name}, and does not name it");
            changed.insert(name, listed);
        }
    }
    let unchanged: Vec<&str> =
        CATALOGUE.iter().map(|metric| metric.name).filter(|name| !changed.contains_key(name)).collect();
    assert!(unchanged.is_empty(), "no test changes {unchanged:?}: add one to TESTS");
}
