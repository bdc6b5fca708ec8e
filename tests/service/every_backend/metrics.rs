//! Metrics follow the quantities that they measure: orders from request to consumer, events that wait, reads through the cache.
use std::time::Duration;

use kit::wait::until;
use serde_json::json;

use crate::harness::actors::inject;
use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::metrics::{await_metric, metric, metrics};
use crate::harness::process::{LONG_LEASE, Posthaste};

/// Longest wait until a metric has moved: some are measured once a second.
const MOVES_MAX: Duration = Duration::from_secs(10);

#[test]
fn orders_on_their_way_move_the_metrics_of_every_part_that_they_pass() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[LONG_LEASE]);
    let (http, user) = (&service.http, service.http.user());
    let placed: Vec<String> = (1..=5)
        .map(|n| http.post("/orders", &user, &[], &tea_order(n)).json()["id"].as_str().expect("an id").to_owned())
        .collect();
    assert_eq!(http.patch(&format!("/orders/{}/cancel", placed[0]), &user, &[], &json!({})).status, 200);
    service.drain();

    let of_events = [
        "outbox_entries_written_total",
        "outbox_entries_delivered_total",
        "outbox_publish_rate_total",
        "outbox_publish_latency_seconds_count",
        "outbox_commit_to_ack_seconds_count",
        "kafka_consumer_processed_count_total",
        "kafka_consumer_lag_ms_count",
        "kafka_event_version_distribution_total{version=\"2\"}",
    ];
    for name in of_events {
        // A count may follow the state that it counts.
        await_metric(http, name, MOVES_MAX, |events| events == 6.0);
    }
    let [created, latency, age] = metrics(
        http,
        ["orders_created_count_total", "outbox_publish_latency_seconds_sum", "outbox_commit_to_ack_seconds_sum"],
    );
    assert!(created == 5.0 && latency > 0.0 && age > 0.0, "{created} {latency} {age}");
    assert!(metric(http, "outbox_batch_size_sum") >= 6.0, "each row is claimed, again after an aborted batch");
    // It is published with the heartbeat.
    await_metric(http, "outbox_partitions_owned", MOVES_MAX, |owned| owned == Backend::PARTITIONS as f64);
    // One measurement for each batch, when it has ended.
    until("each batch is measured", MOVES_MAX, || {
        let [batches, measured] = metrics(http, ["outbox_batch_size_count", "outbox_publish_duration_seconds_count"]);
        (batches > 0.0 && measured == batches).then_some(())
    });
    let moved = [
        "orders_operation_duration_seconds_count",
        "http_server_requests_seconds_count",
        "http_server_requests_by_region_total",
        "db_query_duration_seconds_count",
        "outbox_lag_count",
        "outbox_wake_up_seconds_count",
        "actor_up{actor=\"PartitionWorker\"}",
        "actor_registered{actor=\"PartitionWorker\"}",
        "actor_mailbox_capacity{actor=\"PartitionWorker\"}",
        "actor_messages_total{actor=\"OrderAggregate\"}",
        "actor_message_duration_seconds_count{actor=\"OrderAggregate\"}",
        "outbox_rows{status=\"SENT\"}",
    ];
    for name in moved {
        await_metric(http, name, MOVES_MAX, |value| value > 0.0);
    }
}

#[test]
fn the_build_and_the_number_of_partitions_are_metrics() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let scrape = service.http.get("/metrics", None).text;
    let info = service.http.get("/actuator/info", Some(&service.http.admin())).json();

    let series = scrape.lines().find(|line| line.starts_with("posthaste_build_info{")).expect("one series");
    let (version, commit) = (env!("CARGO_PKG_VERSION"), info["app"]["commit"].as_str().expect("a commit"));
    assert_eq!(series, format!("posthaste_build_info{{commit=\"{commit}\",version=\"{version}\"}} 1"));
    assert_eq!(info["app"]["version"], version);
    assert_eq!(metric(&service.http, "outbox_partitions"), Backend::PARTITIONS as f64);
}

/// An alert asks by how much a counter increased, and Prometheus does not count the first value of a series.
#[test]
fn restarts_and_failed_probes_have_series_before_the_first_one() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let scrape = service.http.get("/metrics", None).text;

    for kind in ["OutboxPublisher", "FailoverManager"] {
        for reason in ["panic", "killed", "sibling"] {
            let series = format!("\nactor_restarts_total{{actor=\"{kind}\",reason=\"{reason}\"}} 0\n");
            assert!(scrape.contains(&series), "no {series}");
        }
    }
    // On a slow machine a probe may have failed since.
    for dependency in ["db", "broker"] {
        let series = format!("\nregion_health_dependency_failure_count_total{{dependency=\"{dependency}\"}} ");
        assert!(scrape.contains(&series), "no {series}");
    }
}

#[test]
fn events_that_wait_move_the_metrics_of_the_backlog_and_back() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    service.drain();
    inject(&service, "/relay/outbox-publisher", "pause");
    // Runs that were requested before the pause may still send the first orders' events.
    until("an event waits for the paused publisher", MOVES_MAX, || {
        assert_eq!(service.http.post("/orders", &service.http.user(), &[], &tea_order(1)).status, 201);
        (metric(&service.http, "outbox_pending_count") > 0.0).then_some(())
    });

    let waiting = [
        "outbox_oldest_pending_age_seconds",
        "outbox_lag_sum",
        "backpressure_outbox_backlog",
        "actor_mailbox_depth{actor=\"OutboxPublisher\"}",
    ];
    for name in waiting {
        await_metric(&service.http, name, MOVES_MAX, |value| value > 0.0);
    }
    inject(&service, "/relay/outbox-publisher", "resume");
    service.drain();
    for name in ["outbox_pending_count", "outbox_oldest_pending_age_seconds", "backpressure_outbox_backlog"] {
        await_metric(&service.http, name, MOVES_MAX, |value| value == 0.0);
    }
}

#[test]
fn reads_of_an_order_move_the_metrics_of_the_cache() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let user = service.http.user();
    let order = service.http.post("/orders", &user, &[], &tea_order(1)).json()["id"].as_str().expect("id").to_owned();
    assert!(service.stop().success());
    // Another process finds the order in the store only.
    let service = Posthaste::start(&backend, &[("POSTHASTE__CACHE__KIND", "memory")]);
    assert_eq!(metrics(&service.http, ["cache_hit_count_total", "cache_miss_count_total"]), [0.0, 0.0]);

    for _ in 0..3 {
        assert_eq!(service.http.get(&format!("/orders/{order}"), Some(&user)).status, 200);
    }

    assert_eq!(metrics(&service.http, ["cache_hit_count_total", "cache_miss_count_total"]), [2.0, 1.0]);
}
