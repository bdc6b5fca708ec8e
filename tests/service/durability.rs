//! kill -9, again and again, under load: what was answered is there, its events came once and in order.
use std::time::Duration;

use kit::wait::until;

use crate::check;
use crate::ground::Ground;
use crate::load::{Answered, Load};
use crate::process::Posthaste;

/// Kills in CI; POSTHASTE_KILLS=1000 for a night.
fn kills() -> usize {
    std::env::var("POSTHASTE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(12)
}

#[test]
fn an_answered_order_survives_kill_9_and_its_events_come_once_and_in_order() {
    let ground = Ground::new();
    let mut all = Answered::new();
    for round in 0..kills() {
        let service = Posthaste::start(&ground, &[]);
        assert!(
            service.started_in < kit::wait::scaled(Ground::START_MAX),
            "round {round}: ready only after {:?}",
            service.started_in
        );
        let load = Load::start(&service.http, 8);
        // Every round dies at another moment of its life.
        let target = 5 + 37 * (round % 7);
        until("some orders were answered", Duration::from_secs(30), || (load.answered() >= target).then_some(()));
        service.kill();
        all.extend(load.finish());
    }

    let service = Posthaste::start(&ground, &[]);
    service.drain();

    assert!(service.rows(&["PARKED"]).is_empty(), "a service that is killed at random parks nothing");
    check::laws(&ground, &all);
    for id in all.keys().take(50) {
        assert_eq!(service.http.get(&format!("/orders/{id}"), Some(&service.http.admin())).status, 200);
    }
}

#[test]
fn a_stop_when_idle_takes_less_than_two_seconds_and_exits_with_zero() {
    let ground = Ground::new();
    let mut service = Posthaste::start(&ground, &[]);
    service.http.post("/orders", &service.http.user(), &[], &crate::http::tea(1));
    service.drain();

    service.signal("TERM");
    let status = service.ended(Duration::from_secs(2));

    assert_eq!(status.code(), Some(0));
    assert_eq!(service.logged("stopped").len(), 1);
}

#[test]
fn under_load_a_stop_finishes_what_it_took_and_the_next_start_finds_everything() {
    let ground = Ground::new();
    let mut service = Posthaste::start(&ground, &[]);
    let load = Load::start(&service.http, 8);
    until("load runs", Duration::from_secs(30), || (load.answered() > 100).then_some(()));

    service.signal("TERM");
    let status = service.ended(Duration::from_secs(25));
    let answered = load.finish();

    assert_eq!(status.code(), Some(0));
    let service = Posthaste::start(&ground, &[]);
    service.drain();
    check::laws(&ground, &answered);
}
