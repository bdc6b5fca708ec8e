//! The newcomer's first minute, and that it harms nobody else's data.
use std::process::Command;

use crate::ground::Ground;
use crate::process::{command, finish, run};

fn demo(ground: &Ground) -> Command {
    let mut demo = command(ground, &["demo", "--once", "--orders", "1"]);
    demo.env_remove("POSTHASTE__AUTH__HS256_SECRET");
    demo
}

#[test]
fn the_demo_shows_every_hop_and_a_line_that_works_when_pasted() {
    let ground = Ground::new();
    let (code, stdout, stderr) =
        finish(command(&ground, &["demo", "--once"]).env_remove("POSTHASTE__AUTH__HS256_SECRET"));
    assert_eq!(code, 0, "{stderr}");
    for told in
        ["→ OrderAggregate →", "→ PartitionWorker", "→ processed_events", "curl -s http://127.0.0.1:", "/docs", "panic"]
    {
        assert!(stdout.contains(told), "{told} is missing in: {stdout}");
    }
}

#[test]
fn the_demo_is_embedded_whatever_is_configured_and_says_so() {
    let ground = Ground::new();
    let configured = [
        ("POSTHASTE__STORE__KIND", "postgres"),
        ("POSTHASTE__STORE__URL", "postgres://nobody@127.0.0.1:1/production"),
        ("POSTHASTE__BROKER__KIND", "kafka"),
        ("POSTHASTE__BROKER__BOOTSTRAP_SERVERS", "127.0.0.1:1"),
        ("POSTHASTE__CACHE__KIND", "redis"),
        ("POSTHASTE__REDIS__URL", "redis://127.0.0.1:1"),
    ];

    let (code, stdout, stderr) = finish(demo(&ground).envs(configured));

    assert_eq!(code, 0, "{stderr}");
    let folder = ground.data().canonicalize().expect("it was made");
    assert!(stdout.contains(&format!("embedded in {}", folder.display())), "{stdout}");
    for unused in ["store.kind = postgres", "broker.kind = kafka", "cache.kind = redis"] {
        assert!(stderr.contains(&format!("{unused} is not used")), "{unused} is missing in: {stderr}");
    }
    assert_eq!(ground.events().len(), 1);
}

#[test]
fn the_demo_keeps_away_from_a_store_whose_events_go_elsewhere() {
    let ground = Ground::new();
    assert_eq!(finish(&mut demo(&ground)).0, 0);

    let (code, _, stderr) = finish(demo(&ground).env("POSTHASTE__BROKER__KIND", "none"));

    assert!(code == 1 && stderr.contains("POSTHASTE__STORE__PATH="), "{code}: {stderr}");
    assert_eq!(ground.events().len(), 1, "nothing was added");
}

#[test]
fn a_demo_that_gets_stuck_says_where_to_look() {
    let ground = Ground::new();
    assert_eq!(run(&ground, &["demo", "--orders", "0"]).0, 2);

    let (code, _, stderr) = finish(demo(&ground).env("POSTHASTE__CONSUMER__COUNT", "0"));

    assert_eq!(code, 1);
    assert!(
        stderr.contains("gave up after 10 s")
            && stderr.contains("was consumed; look at")
            && stderr.contains("consumer.count"),
        "{stderr}"
    );
    assert!(!stderr.contains("{\""), "no raw answer: {stderr}");
}
