//! A bench on the Redis that a service uses as its store: it works under a key prefix of its own and removes its keys.
use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::process::{Posthaste, run};

#[test]
fn bench_neither_publishes_nor_leaves_rows_in_the_configured_installation() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__OUTBOX__PUBLISHER__ENABLED", "false")]);
    service.http.post("/orders", &service.http.user(), &[], &tea_order(1));
    let waiting = service.rows(&["PENDING"]);

    let bench = ["bench", "relay", "--events", "200", "--keys", "10", "--time", "1s", "--rounds", "1"];
    let (code, _, stderr) = run(&backend, &bench);

    assert_eq!(code, 0, "{stderr}");
    assert_eq!((service.rows(&["PENDING"]), waiting.len()), (waiting, 1));
    assert_eq!(backend.events().len(), 0, "the order's event waits");
    let keys = backend.redis_command("KEYS *{store}:row:*");
    assert_eq!(keys.iter().filter(|line| line.contains(":row:")).count(), 1, "{keys:?}");
    assert_eq!(backend.redis_command("KEYS posthaste:bench_*"), ["*0"], "every throwaway key is deleted");
}
