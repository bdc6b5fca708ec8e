//! The demo: its output, and that it never uses or changes another installation.
use std::process::Command;

use crate::harness::backend::Backend;
use crate::harness::process::{command, finish, run};

fn demo(backend: &Backend) -> Command {
    let mut demo = command(backend, &["demo", "--once", "--orders", "1"]);
    demo.env_remove("POSTHASTE__AUTH__HS256_SECRET");
    demo
}

#[test]
fn the_demo_shows_every_hop_and_a_command_to_paste() {
    let backend = Backend::new();
    let (code, stdout, stderr) =
        finish(command(&backend, &["demo", "--once"]).env_remove("POSTHASTE__AUTH__HS256_SECRET"));
    assert_eq!(code, 0, "{stderr}");
    for text in
        ["→ OrderAggregate →", "→ PartitionWorker", "→ processed_events", "curl -s http://127.0.0.1:", "/docs", "panic"]
    {
        assert!(stdout.contains(text), "{text} is missing in: {stdout}");
    }
}

#[test]
fn the_demo_runs_embedded_and_names_each_option_it_ignores() {
    let backend = Backend::new();
    let configured = [
        ("POSTHASTE__STORE__KIND", "postgres"),
        ("POSTHASTE__STORE__URL", "postgres://unused@127.0.0.1:1/production"),
        ("POSTHASTE__BROKER__KIND", "kafka"),
        ("POSTHASTE__BROKER__BOOTSTRAP_SERVERS", "127.0.0.1:1"),
        ("POSTHASTE__CACHE__KIND", "redis"),
        ("POSTHASTE__REDIS__URL", "redis://127.0.0.1:1"),
    ];

    let (code, stdout, stderr) = finish(demo(&backend).envs(configured));

    assert_eq!(code, 0, "{stderr}");
    let folder = backend.data_folder().canonicalize().expect("the folder exists");
    assert!(stdout.contains(&format!("embedded in {}", folder.display())), "{stdout}");
    for unused in ["store.kind = postgres", "broker.kind = kafka", "cache.kind = redis"] {
        assert!(stderr.contains(&format!("{unused} is not used")), "{unused} is missing in: {stderr}");
    }
    assert_eq!(backend.events().len(), 1);
}

#[test]
fn the_demo_refuses_a_store_that_uses_another_broker() {
    let backend = Backend::new();
    assert_eq!(finish(&mut demo(&backend)).0, 0);

    let (code, _, stderr) = finish(demo(&backend).env("POSTHASTE__BROKER__KIND", "none"));

    assert!(code == 1 && stderr.contains("POSTHASTE__STORE__PATH="), "{code}: {stderr}");
    assert_eq!(backend.events().len(), 1, "nothing was added");
}

#[test]
fn a_demo_that_cannot_finish_names_the_option_to_check() {
    let backend = Backend::new();
    assert_eq!(run(&backend, &["demo", "--orders", "0"]).0, 2);

    let (code, _, stderr) = finish(demo(&backend).env("POSTHASTE__CONSUMER__COUNT", "0"));

    assert_eq!(code, 1);
    assert!(
        stderr.contains("gave up after 10 s")
            && stderr.contains("was consumed; look at")
            && stderr.contains("consumer.count"),
        "{stderr}"
    );
    assert!(!stderr.contains("{\""), "no raw response: {stderr}");
}
