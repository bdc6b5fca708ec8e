//! Every actor of the cast is killed under load, by panic and by stop: it is back within a second, the log says so, and no order or
//! event is lost, doubled or reordered.
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::check;
use crate::ground::Ground;
use crate::http::tea;
use crate::load::Load;
use crate::process::Posthaste;

/// One of each kind.
const CAST: [&str; 8] = [
    "/failover-manager",
    "/backpressure-manager",
    "/relay/retry-handler",
    "/relay/outbox-publisher",
    "/relay/partition-worker-7",
    "/consumer-0",
    "/pending-promoter",
    "/order-aggregate-3",
];

/// What the tree shows of an actor; nothing where it is not there yet.
fn actor(service: &Posthaste, path: &str) -> Value {
    let tree = service.http.get("/admin/actors", Some(&service.http.admin())).json();
    let actors = tree["actors"].as_array().expect("actors");
    actors.iter().find(|actor| actor["path"] == path).cloned().unwrap_or_default()
}

fn inject(service: &Posthaste, path: &str, action: &str) {
    let answer = service.http.post(&format!("/admin/actors{path}/{action}"), &service.http.admin(), &[], &json!({}));
    assert_eq!(answer.status, 202, "{path} {action}: {}", answer.text);
}

/// Kills an actor, which is back within a second. Answers which life ended.
pub fn back_after(service: &Posthaste, path: &str, action: &str) -> u64 {
    // Whoever went down with the one before must be up again: a fault does nothing to an actor that is between two lives.
    let before = until(&format!("{path} runs"), Duration::from_secs(2), || {
        let now = actor(service, path);
        (now["state"] == "running").then(|| now["generation"].as_u64().expect("a number"))
    });
    inject(service, path, action);
    until(&format!("{path} is back after {action}"), Duration::from_secs(1), || {
        let now = actor(service, path);
        (now["state"] == "running" && now["generation"].as_u64() > Some(before)).then_some(())
    });
    before
}

fn killed_under_load(action: &str, reason: &str) {
    let ground = Ground::new();
    let service = Posthaste::start(&ground, &[]);
    let load = Load::start(&service.http, 4);
    until("load runs", Duration::from_secs(30), || (load.answered() > 20).then_some(()));
    // A broker that is used for the first time makes its topics first: nobody is killed before the first events have left.
    until("events leave", Duration::from_secs(30), || (service.rows(&["SENT"]).len() > 20).then_some(()));

    for path in CAST {
        let ended = back_after(&service, path, action);
        // The log is read beside the answers, and may be a moment behind them.
        until(&format!("the log tells of the end of {path}"), Duration::from_secs(1), || {
            let exited = service.logged("child_exited");
            exited.iter().any(|e| e["child"] == path && e["reason"] == reason).then_some(())
        });
        until(&format!("the log tells of the return of {path}"), Duration::from_secs(1), || {
            let back = service.logged("child_restarted");
            back.iter().any(|e| e["child"] == path && e["generation"].as_u64() > Some(ended)).then_some(())
        });
    }

    let answered = load.finish();
    service.drain();
    assert!(service.rows(&["PARKED"]).is_empty());
    check::laws(&ground, &answered);
    assert!(service.stop().success());
}

#[test]
fn each_actor_comes_back_from_a_panic_and_nothing_is_lost_doubled_or_reordered() {
    killed_under_load("panic", "panic");
}

#[test]
fn each_actor_comes_back_from_a_stop_and_nothing_is_lost_doubled_or_reordered() {
    killed_under_load("stop", "normal");
}

#[test]
fn the_publishers_workers_go_down_with_it_and_come_back() {
    let ground = Ground::new();
    let service = Posthaste::start(&ground, &[]);
    until("the workers run", Duration::from_secs(5), || {
        (actor(&service, "/relay/partition-worker-7")["state"] == "running").then_some(())
    });

    inject(&service, "/relay/outbox-publisher", "panic");

    until("its workers are back", Duration::from_secs(2), || {
        (actor(&service, "/relay/partition-worker-7")["generation"] == 2).then_some(())
    });
    let exited = until("the log tells of their end", Duration::from_secs(1), || {
        let exited = service.logged("child_exited");
        let told = exited.iter().any(|e| e["child"] == "/relay/partition-worker-7" && e["reason"] == "sibling");
        told.then_some(exited)
    });
    assert!(exited.iter().all(|e| e["child"] != "/relay/retry-handler"), "rest_for_one spares who came before");
}

#[test]
fn a_paused_actor_handles_nothing_until_it_is_resumed() {
    let ground = Ground::new();
    let service = Posthaste::start(&ground, &[]);
    service.drain();
    inject(&service, "/relay/outbox-publisher", "pause");
    assert_eq!(actor(&service, "/relay/outbox-publisher")["state"], "paused");

    // A look that the publisher asked for before its pause may still take the first order's event.
    until("an event waits for the paused publisher", Duration::from_secs(5), || {
        let created = service.http.post("/orders", &service.http.user(), &[], &tea(1));
        assert_eq!(created.status, 201, "orders go on");
        (!service.rows(&["PENDING"]).is_empty()).then_some(())
    });
    inject(&service, "/relay/outbox-publisher", "resume");
    service.drain();
}

#[test]
fn a_crash_loop_escalates_and_the_process_exits_with_70_after_draining() {
    let ground = Ground::new();
    let mut service = Posthaste::start(&ground, &[]);
    let created = service.http.post("/orders", &service.http.user(), &[], &tea(1)).json();

    until("the root gives up", Duration::from_secs(60), || {
        let path = "/admin/actors/failover-manager/panic";
        // Refused or cut off once the service goes down.
        let _ = service.http.try_send("POST", path, Some(&service.http.admin()), &[], Some("{}".into()));
        (!service.logged("root_gave_up").is_empty()).then_some(())
    });
    let status = service.ended(Duration::from_secs(30));

    assert_eq!(status.code(), Some(70));
    assert!(!service.logged("intensity_exceeded").is_empty());
    assert_eq!(service.logged("stopped").len(), 1, "it drained");
    let id = created["id"].as_str().expect("an id").to_owned();
    let service = Posthaste::start(&ground, &[]);
    service.drain();
    check::laws(&ground, &[(id, 1)].into());
}

#[test]
fn faults_are_not_there_unless_they_are_enabled() {
    let ground = Ground::new();
    let service = Posthaste::start(&ground, &[("POSTHASTE__FAULT_INJECTION__ENABLED", "false")]);
    let (admin, user) = (service.http.admin(), service.http.user());

    let path = "/admin/actors/consumer-0/panic";
    assert_eq!(service.http.post(path, &admin, &[], &json!({})).status, 404);
    assert_eq!(service.http.post(path, &user, &[], &json!({})).status, 403);
    assert_eq!(service.http.get("/admin/actors", Some(&user)).status, 403);
}
