//! Arguments that make no sense are refused before anything is done, with what would make sense.
use crate::ground::Ground;
use crate::http::tea;
use crate::process::{Posthaste, run};

const NOBODYS: &str = "0197a1f0-0000-7000-8000-00000000000a";

#[test]
fn what_cannot_be_meant_is_refused_with_what_can() {
    let ground = Ground::new();
    let cases: [(&[&str], &[&str]); 13] = [
        (&["outbox", "why"], &["--key", "--event"]),
        (&["outbox", "show", "x"], &["number"]),
        (&["outbox", "list", "--type", "ORDER_CREATE"], &["ORDER_CREATED", "ORDER_STATUS_CHANGED", "ORDER_CANCELLED"]),
        (&["outbox", "redrive", "--type", "ORDER_CREATE"], &["ORDER_CREATED"]),
        (&["token", "mint", "--role", "ROOT"], &["USER", "ADMIN"]),
        (&["token", "mint", "--sub", ""], &["--sub"]),
        (&["token", "mint", "--ttl", "0"], &["1s"]),
        (&["bench", "create", "--time", "0"], &["1s"]),
        (&["bench", "create", "--clients", "0"], &["1..="]),
        (&["bench", "relay", "--events", "0"], &["1..="]),
        (&["bench", "relay", "--keys", "0"], &["1..="]),
        (&["bench", "relay", "--rounds", "0"], &["1..="]),
        (&["demo", "--orders", "0"], &["1..="]),
    ];
    for (arguments, told) in cases {
        let (code, stdout, stderr) = run(&ground, arguments);
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
        for told in told {
            assert!(stderr.contains(told), "{told} is missing for {arguments:?} in: {stderr}");
        }
    }
    assert!(!ground.data().exists(), "nothing was done");
}

#[test]
fn what_is_not_there_is_named_and_a_folder_without_a_store_says_what_to_do() {
    let ground = Ground::new();
    let (code, _, stderr) = run(&ground, &["outbox", "list"]);
    assert!(code == 1 && stderr.contains("start the service once") && stderr.contains("store.path"), "{stderr}");
    Posthaste::start(&ground, &[]).stop();

    let cases: [(&[&str], &str); 6] = [
        (&["outbox", "show", "7"], "row 7"),
        (&["outbox", "retry", "7"], "row 7"),
        (&["outbox", "park", "7", "--dry-run"], "row 7"),
        (&["outbox", "why", "--event", NOBODYS], "event 0197a1f0"),
        (&["outbox", "why", "--key", NOBODYS], "order 0197a1f0"),
        (&["dlt", "show", "3/17"], "dead letter 3/17"),
    ];
    for (arguments, named) in cases {
        let (code, _, stderr) = run(&ground, arguments);
        assert!(code == 1 && stderr.contains(named) && stderr.contains("was not found"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_list_that_ends_early_says_where_it_goes_on() {
    let ground = Ground::new();
    let service = Posthaste::start(&ground, &[("POSTHASTE__BROKER__KIND", "none")]);
    for number in 1..=3 {
        service.http.post("/orders", &service.http.user(), &[], &tea(number));
    }

    let (_, stdout, stderr) = run(&ground, &["outbox", "list", "--limit", "2"]);
    assert_eq!((stdout.lines().count(), stderr.trim()), (2, "more: --after 2"));
    let (_, stdout, stderr) = run(&ground, &["outbox", "list", "--limit", "2", "--after", "2"]);
    assert_eq!((stdout.lines().count(), stderr.as_str()), (1, ""));
}
