//! Idempotency keys that an earlier service left in Redis.
use std::time::Duration;

use kit::wait::until;

use crate::harness::backend::Backend;
use crate::harness::http::{Response, tea_order};
use crate::harness::metrics::metric;
use crate::harness::process::Posthaste;

/// Longest wait for any condition here; no test judges the duration.
const WAIT_MAX: Duration = Duration::from_secs(10);

#[test]
fn keys_of_an_earlier_service_are_replayed_to_their_owner() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__REDIS__LEGACY_KEY_PREFIX", "idempotency:")]);
    let (ann, bob) = (service.http.token("ann", "USER"), service.http.token("bob", "USER"));
    let id = |response: &Response| response.json()["id"].as_str().expect("an id").to_owned();
    let post = |token: &str, key: &str| service.http.post("/orders", token, &[("Idempotency-Key", key)], &tea_order(3));
    let earlier = id(&service.http.post("/orders", &ann, &[], &tea_order(3)));
    // A create that Redis does not answer in time is stored under this service's own key, so that each attempt needs another one.
    let failures = || metric(&service.http, "redis_connection_failures_total{component=\"idempotency\"}");
    let mut keys = 0;
    let mut ask_with = |value: &str| {
        until("Redis answers in time", WAIT_MAX, || {
            keys += 1;
            let (key, before) = (format!("key-{keys}"), failures());
            backend.redis_command(&format!("SET idempotency:{key} {value}"));
            let response = post(&ann, &key);
            (failures() == before).then_some((key, response))
        })
    };
    let [plain, _] = [earlier.clone(), format!("V2|COMPLETED|{earlier}|1700000000000")].map(|value| {
        let (key, replayed) = ask_with(&value);
        assert_eq!((replayed.status, id(&replayed)), (201, earlier.clone()), "{value}");
        assert_eq!(replayed.header("idempotent-replayed"), Some("true"), "{value}");
        key
    });
    let other = post(&bob, &plain);
    assert_eq!(
        (other.status, other.header("idempotent-replayed")),
        (201, None),
        "the keys of an earlier service have no subject"
    );
    assert_ne!(id(&other), earlier);

    let (key, running) = ask_with("IN_FLIGHT:host-1");
    assert_eq!((running.status, running.header("retry-after")), (409, Some("1")));
    backend.redis_command(&format!("PEXPIRE idempotency:{key} 1"));

    let created =
        until("the key is free", WAIT_MAX, || Some(post(&ann, &key)).filter(|response| response.status == 201));
    assert_eq!(created.header("idempotent-replayed"), None);
    assert_eq!(id(&post(&ann, &key)), id(&created));
}
