//! Invalid arguments are refused before any effect, with a message that names the valid ones.
use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::process::{Posthaste, run};

const UNKNOWN_ID: &str = "0197a1f0-0000-7000-8000-00000000000a";

#[test]
fn an_invalid_argument_is_refused_with_the_valid_ones() {
    let backend = Backend::new();
    let cases: [(&[&str], &[&str]); 23] = [
        (&["outbox", "why"], &["ID|KEY|EVENT", "--key", "--event"]),
        (&["outbox", "why", ""], &["must not be empty"]),
        (&["outbox", "list", "--status", "PARK"], &["PENDING", "IN_FLIGHT", "FAILED", "PARKED", "SENT"]),
        (&["dlt", "list", "--failure", "LATE"], &["NETWORK", "TIMEOUT", "VALIDATION", "SYSTEM"]),
        (&["audit", "--action", "drop"], &["retry", "park", "redrive"]),
        (&["outbox", "show", "x"], &["number"]),
        (&["outbox", "list", "--type", ""], &["must not be empty"]),
        (&["outbox", "redrive", "--key", ""], &["must not be empty"]),
        (&["token", "mint", "--role", "ROOT"], &["USER", "ADMIN"]),
        (&["token", "mint", "--sub", ""], &["--sub"]),
        (&["token", "mint", "--ttl", "0"], &["1s"]),
        (&["bench", "create", "--time", "0"], &["1s"]),
        (&["bench", "create", "--clients", "0"], &["1..="]),
        (&["bench", "relay", "--events", "0"], &["1..="]),
        (&["bench", "relay", "--keys", "0"], &["1..="]),
        (&["bench", "relay", "--rounds", "0"], &["1..="]),
        (&["demo", "--orders", "0"], &["1..="]),
        (&["outbox", "list", "-n", "0"], &["1..="]),
        (&["outbox", "redrive", "-n", "0"], &["1..="]),
        (&["audit", "-n", "0"], &["1..="]),
        (&["dlt", "list", "-n", "0"], &["1..="]),
        (&["topic", "tail", "order.events", "-n", "0"], &["1.."]),
        (&["webhook", "dead-letters", UNKNOWN_ID, "-n", "0"], &["1..="]),
    ];
    for (arguments, expected) in cases {
        let (code, stdout, stderr) = run(&backend, arguments);
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
        for text in expected {
            assert!(stderr.contains(text), "{text} is missing for {arguments:?} in: {stderr}");
        }
    }
    assert!(!backend.data_folder().exists(), "no command created the folder");
}

#[test]
fn a_missing_row_event_or_store_is_named_in_the_error() {
    let backend = Backend::new();
    let (code, _, stderr) = run(&backend, &["outbox", "list"]);
    assert!(code == 1 && stderr.contains("start the service once") && stderr.contains("store.path"), "{stderr}");
    Posthaste::start(&backend, &[]).stop();

    let cases: [(&[&str], &str); 8] = [
        (&["outbox", "why", "7"], "row 7"),
        (&["outbox", "why", UNKNOWN_ID], "event of key 0197a1f0"),
        (&["outbox", "show", "7"], "row 7"),
        (&["outbox", "retry", "7"], "row 7"),
        (&["outbox", "park", "7", "--dry-run"], "row 7"),
        (&["outbox", "why", "--event", UNKNOWN_ID], "event 0197a1f0"),
        (&["outbox", "why", "--key", UNKNOWN_ID], "key 0197a1f0"),
        (&["dlt", "show", "3/17"], "dead letter 3/17 of order.events"),
    ];
    for (arguments, named) in cases {
        let (code, _, stderr) = run(&backend, arguments);
        assert!(code == 1 && stderr.contains(named) && stderr.contains("was not found"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_list_cut_by_its_limit_prints_the_next_cursor() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__BROKER__KIND", "none")]);
    for number in 1..=3 {
        service.http.post("/orders", &service.http.user(), &[], &tea_order(number));
    }

    let (_, stdout, stderr) = run(&backend, &["outbox", "list", "--limit", "2"]);
    assert_eq!((stdout.lines().count(), stderr.trim()), (1 + 2, "more: --after 2"), "a header and two rows");
    let (_, stdout, stderr) = run(&backend, &["outbox", "list", "-n", "2", "--after", "2"]);
    assert_eq!((stdout.lines().count(), stderr.as_str()), (1 + 1, ""));
    let (_, stdout, stderr) = run(&backend, &["outbox", "list", "-n", "2", "-o", "json"]);
    assert_eq!((stdout.lines().count(), stderr.trim()), (2, "more: --after 2"));
}
