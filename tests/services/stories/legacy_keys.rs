//! Idempotency keys that an earlier service left in Redis.
use kit::wait::until;
use std::time::Duration;

use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::process::Posthaste;

#[test]
fn keys_of_an_earlier_service_are_replayed_to_their_owner() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__REDIS__LEGACY_KEY_PREFIX", "idempotency:")]);
    let (ann, bob) = (service.http.token("ann", "USER"), service.http.token("bob", "USER"));
    let id = |response: &crate::harness::http::Response| response.json()["id"].as_str().expect("an id").to_owned();
    let post = |token: &str, key: &str| service.http.post("/orders", token, &[("Idempotency-Key", key)], &tea_order(3));
    let earlier = id(&service.http.post("/orders", &ann, &[], &tea_order(3)));
    for (key, value) in [("plain", earlier.clone()), ("second", format!("V2|COMPLETED|{earlier}|1700000000000"))] {
        backend.ask_redis(&format!("SET idempotency:{key} {value}"));
        let replayed = post(&ann, key);
        assert_eq!((replayed.status, id(&replayed)), (201, earlier.clone()), "{value}");
        assert_eq!(replayed.header("idempotent-replayed"), Some("true"), "{value}");
    }
    let other = post(&bob, "plain");
    assert_eq!(
        (other.status, other.header("idempotent-replayed")),
        (201, None),
        "the keys of an earlier service have no subject"
    );
    assert_ne!(id(&other), earlier);

    backend.ask_redis("SET idempotency:running IN_FLIGHT:host-1");
    let running = post(&ann, "running");
    assert_eq!((running.status, running.header("retry-after")), (409, Some("1")));
    backend.ask_redis("PEXPIRE idempotency:running 1");

    let created = until("the key is free", Duration::from_secs(10), || {
        Some(post(&ann, "running")).filter(|response| response.status == 201)
    });
    assert_eq!(created.header("idempotent-replayed"), None);
    assert_eq!(id(&post(&ann, "running")), id(&created));
}
