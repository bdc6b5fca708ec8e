//! A damaged index of due rows, which the audit repairs while the service runs.
use std::time::Duration;

use kit::wait::until;

use crate::harness::backend::Backend;
use crate::harness::event_log;
use crate::harness::http::tea_order;
use crate::harness::metrics::metric;
use crate::harness::process::Posthaste;

/// Longest wait for any condition here; no test judges the duration.
const WAIT_MAX: Duration = Duration::from_secs(20);

#[test]
fn events_without_an_index_are_found_by_the_audit_and_sent() {
    let backend = Backend::new();
    let audited = |more: &[(&str, &str)]| {
        Posthaste::start(&backend, &[&[("POSTHASTE__STORE__AUDIT_INTERVAL", "100ms")], more].concat())
    };
    let unaudited = [("POSTHASTE__STORE__AUDIT_INTERVAL", "0"), ("POSTHASTE__OUTBOX__PUBLISHER__ENABLED", "false")];
    let writer = Posthaste::start(&backend, &unaudited);
    let user = writer.http.user();
    let place_order =
        |n| writer.http.post("/orders", &user, &[], &tea_order(n)).json()["id"].as_str().expect("id").to_owned();
    let orders = (1..=20).map(|n| (place_order(n), 1)).collect();
    assert_eq!(writer.rows(&["PENDING"]).len(), 20);
    assert!(writer.stop().success());

    let script = "for _, index in ipairs({ 'due:', 'queue:' }) do for _, name in ipairs(redis.call('KEYS', '*{store}:' .. index .. '*')) do \
                  redis.call('DEL', name) end end return redis.call('ZCARD', KEYS[1])";
    assert_eq!(backend.redis_command(&format!("EVAL \"{script}\" 1 posthaste:{{store}}:all")), [":20"]);
    let service = audited(&[]);

    until("the audit has repaired", WAIT_MAX, || (metric(&service.http, "outbox_repairs_total") >= 40.0).then_some(()));
    service.drain();
    event_log::assert_complete(&backend, &orders);
    until("the repair is logged", WAIT_MAX, || (!service.logged("outbox_index_repaired").is_empty()).then_some(()));
}
