//! Repeated kill -9 under load: each acknowledged order is stored, and its events are published once and in order.
use std::time::Duration;

use kit::wait::until;

use crate::harness::backend::Backend;
use crate::harness::event_log;
use crate::harness::load::{Acknowledged, Load};
use crate::harness::process::Posthaste;

/// Number of kills: POSTHASTE_KILLS, or 12.
fn kills() -> usize {
    std::env::var("POSTHASTE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(12)
}

#[test]
fn an_acknowledged_order_survives_kill_9_and_its_events_are_published_once_in_order() {
    let backend = Backend::new();
    let mut all = Acknowledged::new();
    for round in 0..kills() {
        let service = Posthaste::start(&backend, &[]);
        assert!(
            service.started_in < kit::wait::scaled(Backend::START_MAX),
            "round {round}: ready only after {:?}",
            service.started_in
        );
        let load = Load::start(&service.http, 8);
        // Each round is killed after another number of orders.
        let target = 5 + 37 * (round % 7);
        until("some orders were acknowledged", Duration::from_secs(30), || {
            (load.acknowledged() >= target).then_some(())
        });
        service.kill();
        all.extend(load.finish());
    }

    let service = Posthaste::start(&backend, &[]);
    service.drain();

    assert!(service.rows(&["PARKED"]).is_empty(), "a kill parks no row");
    event_log::assert_complete(&backend, &all);
    for id in all.keys().take(50) {
        assert_eq!(service.http.get(&format!("/orders/{id}"), Some(&service.http.admin())).status, 200);
    }
}

#[test]
fn an_idle_service_stops_with_exit_code_0() {
    let backend = Backend::new();
    let mut service = Posthaste::start(&backend, &[]);
    service.http.post("/orders", &service.http.user(), &[], &crate::harness::http::tea_order(1));
    service.drain();

    service.signal("TERM");
    // `tests/timing` judges the duration.
    let status = service.await_exit(Duration::from_secs(10));

    assert_eq!(status.code(), Some(0));
    assert_eq!(service.logged("stopped").len(), 1);
}

#[test]
fn a_second_signal_ends_the_service_at_once_with_exit_code_130() {
    let backend = Backend::new();
    let mut service = Posthaste::start(&backend, &[]);
    // It continues with both signals before it.
    service.freeze();
    ["INT", "TERM", "CONT"].into_iter().for_each(|name| service.signal(name));

    let status = service.await_exit(Duration::from_secs(10));

    assert_eq!(status.code(), Some(130));
}

#[test]
fn a_stop_under_load_finishes_accepted_commands_and_loses_no_event() {
    let backend = Backend::new();
    let mut service = Posthaste::start(&backend, &[]);
    let load = Load::start(&service.http, 8);
    until("load runs", Duration::from_secs(30), || (load.acknowledged() > 100).then_some(()));

    service.signal("TERM");
    let status = service.await_exit(Duration::from_secs(25));
    let acknowledged = load.finish();

    assert_eq!(status.code(), Some(0));
    let service = Posthaste::start(&backend, &[]);
    service.drain();
    event_log::assert_complete(&backend, &acknowledged);
}
