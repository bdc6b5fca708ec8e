//! Each kind of actor ends under load, by a panic and by a stop: it runs again, the log has both events, and no order or
//! event is lost, duplicated or reordered.
use std::time::{Duration, Instant};

use kit::wait::{scaled, until};
use serde_json::json;

use crate::harness::actors::{ACTORS, actor, inject, kill_and_await_restart};
use crate::harness::backend::Backend;
use crate::harness::endpoint::{Endpoint, EndpointResponse};
use crate::harness::event_log;
use crate::harness::http::tea_order;
use crate::harness::load::Load;
use crate::harness::metrics::metric;
use crate::harness::process::Posthaste;

/// Longest until a log line is written and read: a restart has a limit of its own.
const LOG_MAX: Duration = Duration::from_secs(20);
/// Longest wait for any other condition here; `tests/timing` judges the duration of a restart.
const WAIT_MAX: Duration = Duration::from_secs(20);

fn assert_survives_under_load(action: &str, reason: &str) {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let load = Load::start(&service.http, 4);
    until("load runs", Duration::from_secs(30), || (load.acknowledged() > 20).then_some(()));
    // A new broker creates its topics first; faults start after the first events were sent.
    until("events are sent", Duration::from_secs(30), || (service.rows(&["SENT"]).len() > 20).then_some(()));

    for path in ACTORS {
        let ended = kill_and_await_restart(&service, path, action);
        // The log arrives on another thread and may be later than the responses.
        until(&format!("the log has the exit of {path}"), LOG_MAX, || {
            let exited = service.logged("child_exited");
            exited.iter().any(|e| e["child"] == path && e["reason"] == reason).then_some(())
        });
        until(&format!("the log has the restart of {path}"), LOG_MAX, || {
            let restarted = service.logged("child_restarted");
            restarted.iter().any(|e| e["child"] == path && e["generation"].as_u64() > Some(ended)).then_some(())
        });
    }

    let acknowledged = load.finish();
    service.drain();
    assert!(service.rows(&["PARKED"]).is_empty());
    event_log::assert_complete(&backend, &acknowledged);
    assert!(service.stop().success());
}

#[test]
fn a_panic_of_any_actor_loses_duplicates_and_reorders_nothing() {
    assert_survives_under_load("panic", "panic");
}

#[test]
fn a_stop_of_any_actor_loses_duplicates_and_reorders_nothing() {
    assert_survives_under_load("stop", "normal");
}

#[test]
fn the_workers_of_a_failed_publisher_restart_with_it() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    until("the workers run", WAIT_MAX, || {
        (actor(&service, "/relay/partition-worker-7")["state"] == "running").then_some(())
    });

    inject(&service, "/relay/outbox-publisher", "panic");

    until("its workers run again", WAIT_MAX, || {
        (actor(&service, "/relay/partition-worker-7")["generation"] == 2).then_some(())
    });
    let exited = until("the log has their exits", LOG_MAX, || {
        let exited = service.logged("child_exited");
        let logged = exited.iter().any(|e| e["child"] == "/relay/partition-worker-7" && e["reason"] == "sibling");
        logged.then_some(exited)
    });
    assert!(
        exited.iter().all(|e| e["child"] != "/relay/retry-handler"),
        "rest_for_one keeps the children that started before"
    );
    let counted = |labels: &str| metric(&service.http, &format!("actor_restarts_total{{actor=\"{labels}\"}}"));
    let restarts = until("the restart of each worker is counted and logged", WAIT_MAX, || {
        let logged = service.log_lines(|e| e["event"] == "child_restarted" && e["actor"] == "PartitionWorker").len();
        let counted = counted("PartitionWorker\",reason=\"sibling");
        (counted >= 1.0 && counted == logged as f64).then_some(counted)
    });
    assert_eq!(counted("OutboxPublisher\",reason=\"panic"), 1.0);
    assert!(metric(&service.http, "actor_restarts_total") >= restarts + 1.0);
    assert_eq!(counted("PartitionWorker\",reason=\"panic"), 0.0, "no worker failed by itself");
}

#[test]
fn a_paused_actor_handles_nothing_until_it_is_resumed() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    service.drain();
    inject(&service, "/relay/outbox-publisher", "pause");
    assert_eq!(actor(&service, "/relay/outbox-publisher")["state"], "paused");

    // A worker may still claim the first order's event for a run that was requested before the pause.
    until("an event waits for the paused publisher", WAIT_MAX, || {
        let created = service.http.post("/orders", &service.http.user(), &[], &tea_order(1));
        assert_eq!(created.status, 201, "orders are accepted");
        (!service.rows(&["PENDING"]).is_empty()).then_some(())
    });
    inject(&service, "/relay/outbox-publisher", "resume");
    service.drain();
}

/// Starts of a process until its handler still waits when the requests are answered.
const STARTS_MAX: usize = 5;

/// Makes an actor panic repeatedly until the service has logged this many lines with this `event`.
fn crash_until_logged(service: &Posthaste, event: &str, count: usize) {
    until(event, Duration::from_secs(60), || {
        let path = "/admin/actors/failover-manager/panic";
        // The request fails once the service stops.
        let _ = service.http.send_once("POST", path, Some(&service.http.admin()), &[], Some("{}".into()));
        (service.logged(event).len() >= count).then_some(())
    });
}

fn crash_until_root_escalates(service: &Posthaste) {
    crash_until_logged(service, "root_gave_up", 1);
}

#[test]
fn process_takes_no_traffic_once_its_root_escalates_although_a_handler_still_waits() {
    let (backend, endpoint) = (Backend::new(), Endpoint::start(EndpointResponse::Silence));
    let url = endpoint.url();
    let settings = [
        ("POSTHASTE__CONSUMER__HANDLER__ORDER_CREATED", "post"),
        ("POSTHASTE__CONSUMER__URL__ORDER_CREATED", url.as_str()),
        ("POSTHASTE__CONSUMER__POST__TIMEOUT", "10s"),
    ];
    // On a busy machine the handler may give up before the requests were answered: then the process is started again.
    let has_waited = (0..STARTS_MAX).any(|_| {
        let (mut service, received) = (Posthaste::start(&backend, &settings), endpoint.received().len());
        // The root accepts three failures of a supervisor, and the fourth is near enough to find the handler waiting.
        crash_until_logged(&service, "intensity_exceeded", 3);
        assert_eq!(service.http.post("/orders", &service.http.user(), &[], &tea_order(1)).status, 201);
        until("the handler waits", Duration::from_secs(30), || (endpoint.received().len() > received).then_some(()));

        crash_until_root_escalates(&service);
        until("/readyz responds with 503", WAIT_MAX, || (!service.is_ready()).then_some(()));
        let (asked, order) = (Instant::now(), tea_order(1).to_string());
        let written = service.http.send_once("POST", "/orders", Some(&service.http.user()), &[], Some(order));

        // The listener may be closed already.
        assert!(!written.is_ok_and(|response| response.status != 503), "no order is accepted");
        assert!(asked.elapsed() < scaled(Duration::from_secs(5)), "answered after {:?}", asked.elapsed());
        let waits = service.logged("tree_stopped").is_empty();
        assert_eq!(service.await_exit(Duration::from_secs(60)).code(), Some(70));
        waits
    });
    assert!(has_waited, "the consumer still waits for its endpoint");
}

#[test]
fn a_crash_loop_escalates_and_the_process_exits_with_70_after_draining() {
    let backend = Backend::new();
    let mut service = Posthaste::start(&backend, &[]);
    let created = service.http.post("/orders", &service.http.user(), &[], &tea_order(1)).json();

    crash_until_root_escalates(&service);
    let status = service.await_exit(Duration::from_secs(30));

    assert_eq!(status.code(), Some(70));
    assert!(!service.logged("intensity_exceeded").is_empty());
    assert_eq!(service.logged("stopped").len(), 1, "it drained");
    let id = created["id"].as_str().expect("an id").to_owned();
    let service = Posthaste::start(&backend, &[]);
    service.drain();
    event_log::assert_complete(&backend, &[(id, 1)].into());
}

#[test]
fn fault_endpoints_exist_only_when_fault_injection_is_enabled() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__FAULT_INJECTION__ENABLED", "false")]);
    let (admin, user) = (service.http.admin(), service.http.user());

    let path = "/admin/actors/consumer-0/panic";
    assert_eq!(service.http.post(path, &admin, &[], &json!({})).status, 404);
    assert_eq!(service.http.post(path, &user, &[], &json!({})).status, 403);
    assert_eq!(service.http.get("/admin/actors", Some(&user)).status, 403);
}
