//! The log at its default level: sentences, one line for a start, a stop or a failure, and each actor's own lines where they are needed.
use std::time::Duration;

use kit::wait::until;
use serde_json::Value;

use crate::harness::actors::inject;
use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::process::Posthaste;

/// Lines of a start: listeners, the ready line, what is taken over, and what the backends say.
const LINES_OF_A_START_MAX: usize = 15;

/// Lines that report a busy machine, on which Kafka answers its first request late.
const SLOW_MACHINE_EVENTS: [&str; 6] = [
    "arbiter_stalled",
    "arbiter_recovered",
    "broker_unreachable",
    "broker_recovered",
    "consumer_failing",
    "consumer_recovered",
];

/// A line of the service, and not of the machine's speed.
fn is_of_the_service(line: &Value) -> bool {
    !SLOW_MACHINE_EVENTS.iter().any(|event| line["event"] == *event)
}

fn await_partitions(service: &Posthaste) {
    until("every partition is owned", Duration::from_secs(20), || {
        let owned = service.logged("partitions_owned").last()?["owned"].as_u64()?;
        (owned == Backend::PARTITIONS as u64).then_some(())
    });
}

#[test]
fn a_start_is_summarised_by_one_ready_line() {
    let backend = Backend::new();
    let mut service = Posthaste::start(&backend, &[]);
    await_partitions(&service);

    let ready = until("it is ready", Duration::from_secs(20), || {
        Some(service.logged("ready")).filter(|ready| !ready.is_empty())
    });
    let lines = service.log_lines(is_of_the_service);
    assert_eq!(ready.len(), 1);
    assert!(lines.len() <= LINES_OF_A_START_MAX, "{} lines: {lines:#?}", lines.len());
    let address = service.logged("listening")[0]["address"].as_str().expect("an address").to_owned();
    assert_eq!(ready[0]["url"], format!("http://{address}"));
    assert_eq!(ready[0]["console"], format!("http://{address}/console"));
    assert_eq!(ready[0]["version"], env!("CARGO_PKG_VERSION"));
    for member in ["url", "console", "store", "broker", "instance"] {
        let (message, value) = (ready[0]["message"].as_str(), ready[0][member].as_str().expect(member));
        assert!(message.is_some_and(|message| message.contains(value)), "{member}: {}", ready[0]);
    }

    let before = lines.len();
    service.signal("TERM");
    assert!(service.await_exit(Duration::from_secs(30)).success());
    let stop = service.log_lines(is_of_the_service).split_off(before);
    assert!(stop.len() <= 5 && stop.iter().any(|line| line["event"] == "stopped"), "{stop:#?}");
}

#[test]
fn probes_and_refreshes_write_no_line_and_other_requests_one() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let (http, user) = (&service.http, service.http.user());

    for probe in ["/livez", "/readyz", "/startupz", "/metrics", "/actuator/prometheus", "/actuator/health"] {
        assert_eq!(http.get(probe, None).status, 200, "{probe}");
    }
    assert_eq!(http.post("/orders", &user, &[], &tea_order(1)).status, 201);

    let requests = until("the line of the order", Duration::from_secs(20), || {
        let requests = service.logged("request");
        requests.iter().any(|line| line["route"] == "/orders").then_some(requests)
    });
    assert_eq!(requests.len(), 1, "{requests:#?}");
    let (message, status) = (requests[0]["message"].as_str().expect("a message"), &requests[0]["status"]);
    assert!(message.starts_with("POST /orders was answered 201 in ") && status == 201, "{message}");
}

#[test]
fn a_failure_is_one_error_with_its_names_and_cause_in_a_sentence() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    await_partitions(&service);
    let is_supervision = |line: &Value| line["target"] == "supervision" && is_of_the_service(line);
    let before = service.log_lines(is_supervision).len();

    inject(&service, "/relay/outbox-publisher", "panic");

    let lines = until("each worker runs again", Duration::from_secs(10), || {
        let lines = service.log_lines(is_supervision).split_off(before);
        let restarted = |line: &&Value| line["event"] == "child_restarted" && line["actor"] == "PartitionWorker";
        (lines.iter().filter(restarted).count() == Backend::PARTITIONS).then_some(lines)
    });
    let failures: Vec<&Value> = lines.iter().filter(|line| line["level"] == "ERROR").collect();
    assert_eq!(failures.len(), 1, "{failures:#?}");
    let message = failures[0]["message"].as_str().expect("a message");
    assert!(message.starts_with("OutboxPublisher /relay/outbox-publisher panicked"), "{message}");
    // The injected fault is the only warning: the workers that stop with their publisher did not fail.
    assert_eq!(lines.iter().filter(|line| line["level"] == "WARN").count(), 1, "{lines:#?}");
    let of_worker = |line: &&Value| line["child"] == "/relay/partition-worker-7";
    let events: Vec<&Value> = lines.iter().filter(of_worker).map(|line| &line["event"]).collect();
    assert_eq!(events, ["child_exited", "child_restarted"], "its steps between are at debug");
    let exited = lines.iter().find(of_worker).expect("its exit");
    assert!(exited["message"].as_str().is_some_and(|text| text.contains("its sibling outbox-publisher failed")));
}
