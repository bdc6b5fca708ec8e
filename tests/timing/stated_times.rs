//! Each test measures one stated time up to twenty times; one run within it is enough.
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kit::wait::{pause, until};

use crate::harness::actors::{ACTORS, actor, inject};
use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::metrics::metric;
use crate::harness::process::{Posthaste, run};

/// Runs of one measurement.
const RUNS_MAX: u32 = 20;
/// Pause after the first run that takes too long; each further pause is longer by the same time. Other work on the machine may last longer
/// than a few runs.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for a state whose time is measured.
const WAIT_MAX: Duration = Duration::from_secs(20);

static EXCLUSIVE: Mutex<()> = Mutex::new(());

/// Serialises the tests: the one that runs holds the lock.
fn exclusive() -> MutexGuard<'static, ()> {
    EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Measures until one run keeps to the stated time.
#[track_caller]
fn assert_within(measured_step: &str, stated: Duration, mut measure: impl FnMut() -> Duration) {
    let mut measured = Vec::new();
    for run in 1..=RUNS_MAX {
        let took = measure();
        if took <= stated {
            return eprintln!("{measured_step}: {took:?} of {stated:?}");
        }
        measured.push(took);
        if run < RUNS_MAX {
            pause(run * PAUSE);
        }
    }
    panic!("{measured_step} takes {measured:?}, the documents state {stated:?}");
}

fn place_order(service: &Posthaste) {
    assert_eq!(service.http.post("/orders", &service.http.user(), &[], &tea_order(1)).status, 201);
}

fn sent(service: &Posthaste) -> f64 {
    metric(&service.http, "outbox_entries_delivered_total")
}

#[test]
fn an_embedded_service_is_ready_within_a_second_also_after_a_kill() {
    let _exclusive = exclusive();
    let backend = Backend::new();

    assert_within("the first start", Duration::from_secs(1), || {
        let service = Posthaste::start(&Backend::new(), &[]);
        service.started_in
    });
    assert_within("a start after kill -9", Duration::from_secs(1), || {
        let service = Posthaste::start(&backend, &[]);
        let started_in = service.started_in;
        (0..20).for_each(|_| place_order(&service));
        service.kill();
        started_in
    });
}

#[test]
fn an_actor_that_panics_or_stops_runs_again_within_a_second() {
    let _exclusive = exclusive();
    let service = Posthaste::start(&Backend::new(), &[]);
    until("the workers run", WAIT_MAX, || {
        (actor(&service, "/relay/partition-worker-7")["state"] == "running").then_some(())
    });

    for path in ACTORS.into_iter().chain(["/event-intake", "/webhooks/webhook-manager"]) {
        for action in ["panic", "stop"] {
            assert_within(&format!("{path} after {action}"), Duration::from_secs(1), || {
                let before = actor(&service, path)["generation"].as_u64();
                let started = Instant::now();
                inject(&service, path, action);
                until("it runs again", WAIT_MAX, || {
                    let now = actor(&service, path);
                    (now["state"] == "running" && now["generation"].as_u64() > before).then_some(())
                });
                started.elapsed()
            });
        }
    }
}

#[test]
fn an_idle_service_stops_within_two_seconds() {
    let _exclusive = exclusive();

    assert_within("a stop", Duration::from_secs(2), || {
        let service = Posthaste::start(&Backend::new(), &[]);
        place_order(&service);
        service.drain();
        let started = Instant::now();
        assert!(service.stop().success());
        started.elapsed()
    });
}

#[test]
fn events_flow_within_five_seconds_of_a_restart_after_a_kill() {
    let _exclusive = exclusive();
    let backend = Backend::new();

    assert_within("the first event after a restart", Duration::from_secs(5), || {
        let service = Posthaste::start(&backend, &[]);
        service.drain();
        service.kill();
        let started = Instant::now();
        let service = Posthaste::start(&backend, &[]);
        place_order(&service);
        until("an event is sent", WAIT_MAX, || (sent(&service) >= 1.0).then_some(()));
        started.elapsed()
    });
}

#[test]
fn an_idle_relay_publishes_an_event_in_single_digit_milliseconds() {
    let _exclusive = exclusive();
    let service = Posthaste::start(&Backend::new(), &[]);
    let total_age = || metric(&service.http, "outbox_commit_to_ack_seconds_sum");
    let publish = || {
        let (before, age_before) = (sent(&service), total_age());
        place_order(&service);
        until("the event is sent", WAIT_MAX, || (sent(&service) > before).then_some(()));
        Duration::from_secs_f64(total_age() - age_before)
    };
    publish();

    assert_within("the median from commit to acknowledgement", Duration::from_micros(9_999), || {
        let mut ages: Vec<Duration> = (0..51).map(|_| publish()).collect();
        ages.sort_unstable();
        ages[ages.len() / 2]
    });
}

#[test]
fn a_commit_wakes_an_idle_worker_in_less_than_a_millisecond() {
    let _exclusive = exclusive();
    let service = Posthaste::start(&Backend::new(), &[]);
    let woken = || metric(&service.http, "outbox_wake_up_seconds_count");
    let total = || metric(&service.http, "outbox_wake_up_seconds_sum");
    let wake = || {
        let (before, total_before) = (woken(), total());
        place_order(&service);
        until("the worker claims", WAIT_MAX, || (woken() > before).then_some(()));
        service.drain();
        Duration::from_secs_f64(total() - total_before)
    };
    wake();

    assert_within("the median from commit to the worker's claim", Duration::from_micros(999), || {
        let mut delays: Vec<Duration> = (0..51).map(|_| wake()).collect();
        delays.sort_unstable();
        delays[delays.len() / 2]
    });
}

#[test]
fn a_second_process_on_a_data_folder_is_refused_within_five_seconds() {
    let _exclusive = exclusive();
    let backend = Backend::new();
    let _holder = Posthaste::start(&backend, &[]);

    assert_within("the refusal", Duration::from_secs(5), || {
        let started = Instant::now();
        let (code, _, errors) = run(&backend, &["serve"]);
        assert!(code == 1 && errors.contains("pid"), "{errors}");
        started.elapsed()
    });
}
