//! Whose name it is, and which Redis is no store.
use std::time::Duration;

use crate::ground::Ground;
use crate::http::tea;
use crate::process::{Posthaste, command, finish};

#[test]
fn a_second_live_process_of_one_name_is_refused_and_a_killed_ones_name_is_free_at_once() {
    let ground = Ground::new();
    let first = Posthaste::start(&ground, &[]);

    let mut second = command(&ground, &["serve", "--dev"]);
    let (code, _, stderr) = finish(second.env("POSTHASTE__HTTP__LISTEN", "127.0.0.1:0"));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("one") && stderr.contains(&first.pid().to_string()), "{stderr}");
    first.http.post("/orders", &first.http.user(), &[], &tea(1));
    first.kill();

    let again = Posthaste::start(&ground, &[]);
    assert!(again.started_in < kit::wait::scaled(Duration::from_secs(5)), "after {:?}", again.started_in);
    again.drain();
    assert_eq!(ground.events().len(), 1);
}

#[test]
fn a_redis_that_may_forget_is_no_store_unless_somebody_says_so() {
    let ground = Ground::with(&["--appendonly", "no", "--maxmemory-policy", "allkeys-lru"]);

    let mut refused = command(&ground, &["serve", "--dev"]);
    let (code, _, stderr) = finish(refused.env("POSTHASTE__HTTP__LISTEN", "127.0.0.1:0"));
    assert_eq!(code, 1, "{stderr}");
    for word in ["appendonly is no", "allkeys-lru", "store.durability"] {
        assert!(stderr.contains(word), "{word} is missing in: {stderr}");
    }

    let warned = Posthaste::start(&ground, &[("POSTHASTE__STORE__DURABILITY", "warn")]);
    assert_eq!(warned.logged("store_may_lose").len(), 1);
    assert_eq!(warned.http.post("/orders", &warned.http.user(), &[], &tea(1)).status, 201);
}
