//! The command line beside a running service: topics, rows, the doctor.
use std::time::Duration;

use serde_json::Value;

use crate::ground::Ground;
use crate::http::tea;
use crate::process::{Posthaste, command, finish, run};

#[test]
fn topics_are_read_beside_a_running_service_and_a_wrong_name_tells_the_right_ones() {
    let ground = Ground::new();
    let service = Posthaste::start(&ground, &[]);
    service.http.post("/orders", &service.http.user(), &[], &tea(1));
    service.drain();

    let (code, stdout, _) = run(&ground, &["topic", "list", "--json"]);
    assert_eq!(code, 0);
    let named = format!("\"{}\"", ground.topic("order.events"));
    let events = stdout.lines().find(|line| line.contains(&named)).expect("it is listed");
    let events: Value = serde_json::from_str(events).expect("an object");
    assert!(events["offsets"].as_u64().is_some_and(|offsets| offsets >= 1), "{events}");
    let (code, stdout, stderr) = run(&ground, &["topic", "tail", "no.such", "--from-beginning"]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains(&ground.topic("order.events")), "{stderr}");
    let (code, stdout, _) = run(&ground, &["outbox", "list", "--status", "SENT", "--json"]);
    assert_eq!((code, stdout.lines().count()), (0, 1));
    let (code, stdout, _) = run(&ground, &["topic", "tail", &ground.topic("order.events-dlt"), "--from-beginning"]);
    assert_eq!((code, stdout.as_str()), (0, ""), "dead letters have their topic before there are any");
    let (code, stdout, _) = run(&ground, &["outbox", "partitions", "--json"]);
    assert_eq!((code, stdout.lines().count()), (0, Ground::PARTITIONS));
}

#[test]
fn a_row_is_explained_parked_and_redriven_beside_the_service() {
    let ground = Ground::new();
    let service = Posthaste::start(&ground, &[("POSTHASTE__BROKER__KIND", "none")]);
    let order = service.http.post("/orders", &service.http.user(), &[], &tea(1)).json();
    let key = order["id"].as_str().expect("an id");
    let why = || -> Value {
        let (code, stdout, stderr) = run(&ground, &["outbox", "why", "--key", key, "--json"]);
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str(&stdout).expect("an object")
    };
    assert_eq!(why()["verdict"], "PENDING");
    let path = format!("/admin/outbox/why?key={key}");
    assert_eq!(why(), service.http.get(&path, Some(&service.http.admin())).json(), "one answer, two ways");
    let (_, stdout, _) =
        finish(command(&ground, &["outbox", "why", "--key", key]).env("POSTHASTE__BROKER__KIND", "none"));
    assert!(stdout.contains("no broker is configured"), "{stdout}");

    let (code, stdout, _) = run(&ground, &["outbox", "park", "1", "--dry-run", "--json"]);
    assert!(code == 0 && stdout.contains("\"PENDING\""), "{stdout}");
    let (code, stdout, _) = run(&ground, &["outbox", "park", "1", "--yes", "--json"]);
    assert!(code == 0 && stdout.contains("\"PARKED\""), "{stdout}");
    assert_eq!(why()["verdict"], "PARKED");
    assert_eq!(run(&ground, &["outbox", "redrive", "--dry-run"]).0, 0);
    let (code, _, stderr) = run(&ground, &["outbox", "redrive"]);
    assert!(code == 1 && stderr.contains("--yes"), "nobody sits there to be asked: {stderr}");
    assert_eq!(why()["verdict"], "PARKED");
    let (code, stdout, _) = run(&ground, &["outbox", "redrive", "--yes", "--json"]);
    let redriven: Value = serde_json::from_str(&stdout).expect("an object");
    assert_eq!((code, redriven), (0, serde_json::json!({"dryRun": false, "matched": 1, "redriven": 1})));
    assert_eq!(why()["verdict"], "WAITING_FOR_RETRY", "as /admin/outbox/why calls it");
    let (code, stdout, _) = run(&ground, &["outbox", "list", "--after", "1", "--json"]);
    assert_eq!((code, stdout.as_str()), (0, ""));
}

#[test]
fn the_doctor_says_where_the_configuration_comes_from_and_which_topics_there_are() {
    let ground = Ground::new();
    let _service = Posthaste::start(&ground, &[]);
    // Partitions are taken one after the other, a moment after the service is ready.
    let stdout = kit::wait::until("nothing is wrong", Duration::from_secs(30), || {
        let (code, stdout, _) = run(&ground, &["doctor", "--json"]);
        (code == 0 && stdout.contains(&format!("{0} of {0} owned", Ground::PARTITIONS))).then_some(stdout)
    });
    for told in ["POSTHASTE__HTTP__LISTEN", "\"topics\"", "none missing"] {
        assert!(stdout.contains(told), "{told} is missing in: {stdout}");
    }
    let store = stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object a line"));
    let store = store.into_iter().find(|finding| finding["check"] == "store").expect("a finding");
    assert!(store["latencyMs"].as_f64() > Some(0.0), "{store}");

    let (code, stdout, _) = finish(command(&ground, &["doctor"]).env("POSTHASTE__OUTBOX__PARTITIONS", "7"));
    let told = format!(
        "BAD  partitions: outbox.partitions is 7, and the store was created with {0}: set it to {0}",
        Ground::PARTITIONS
    );
    assert!(code == 1 && stdout.contains(&told), "{stdout}");
}
