//! The command line as scripts use it.
use std::time::Duration;

use serde_json::Value;

use crate::http::tea;
use crate::process::{Folder, Posthaste, command, finish, run};

#[test]
fn every_mistake_of_a_configuration_is_told_at_once_and_the_exit_is_78() {
    let folder = Folder::new();
    let mut serve = command(&folder, &["serve"]);
    serve
        .env("POSTHASTE__OUTBOX__LEASE", "fast")
        .env("POSTHASTE__OUTBOX__PUBLISHER__MAX_INFLIGHT", "3")
        .env("POSTHASTE__AUTH__JWKS_URL", "https://keys.example/jwks");

    let (code, stdout, stderr) = finish(&mut serve);

    assert_eq!((code, stdout.as_str()), (78, ""));
    for told in ["outbox.lease", "did you mean outbox.publisher.max_in_flight?", "auth.hs256_secret and auth.jwks_url"]
    {
        assert!(stderr.contains(told), "{told} is missing in: {stderr}");
    }
}

#[test]
fn serve_without_a_key_is_refused_with_the_line_to_set_and_dev_is_the_way_out() {
    let folder = Folder::new();
    let (code, _, stderr) = finish(command(&folder, &["serve"]).env_remove("POSTHASTE__AUTH__HS256_SECRET"));
    assert_eq!(code, 78);
    assert!(stderr.contains("POSTHASTE__AUTH__HS256_SECRET=") && stderr.contains("--dev"), "{stderr}");

    let (code, token, warning) =
        finish(command(&folder, &["token", "mint", "--sub", "ann"]).env_remove("POSTHASTE__AUTH__HS256_SECRET"));
    assert_eq!((code, token.trim().split('.').count()), (0, 3));
    assert!(warning.contains("development secret"), "{warning}");
}

#[test]
fn a_minted_token_is_accepted() {
    let folder = Folder::new();
    let service = Posthaste::start(&folder, &[]);
    let (_, token, _) = run(&folder, &["token", "mint", "--sub", "ann", "--role", "USER", "--ttl", "5m"]);

    assert_eq!(service.http.post("/orders", token.trim(), &[], &tea(1)).status, 201);
}

#[test]
fn config_print_masks_secrets_and_schema_names_every_key() {
    let folder = Folder::new();
    let (code, stdout, _) = run(&folder, &["config", "print", "--json"]);
    assert_eq!(code, 0);
    assert!(!stdout.contains(crate::process::SECRET));
    let rows: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    let row = |key: &str| rows.iter().find(|row| row["key"] == key).expect("the key is there");
    assert_eq!(row("auth.hs256_secret")["value"], "***");
    assert_eq!(row("http.listen")["origin"], "POSTHASTE__HTTP__LISTEN");

    let (_, schema, _) = run(&folder, &["config", "schema"]);
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    for row in &rows {
        let path = row["key"].as_str().expect("text").replace('.', "/properties/");
        assert!(schema.pointer(&format!("/properties/{path}")).is_some(), "{path}");
    }
}

#[test]
fn topics_are_read_beside_a_running_service_and_a_wrong_name_tells_the_right_ones() {
    let folder = Folder::new();
    let service = Posthaste::start(&folder, &[]);
    service.http.post("/orders", &service.http.user(), &[], &tea(1));
    service.drain();

    let (code, stdout, _) = run(&folder, &["topic", "list", "--json"]);
    assert_eq!(code, 0);
    assert!(stdout.lines().any(|line| line.contains("\"order.events\"")), "{stdout}");
    let (code, stdout, stderr) = run(&folder, &["topic", "tail", "no.such", "--from-beginning"]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains("order.events"), "{stderr}");
    let (code, stdout, _) = run(&folder, &["outbox", "list", "--status", "SENT", "--json"]);
    assert_eq!((code, stdout.lines().count()), (0, 1));
    let (code, stdout, _) = run(&folder, &["topic", "tail", "order.events-dlt", "--from-beginning"]);
    assert_eq!((code, stdout.as_str()), (0, ""), "dead letters have their topic before there are any");
    let (code, stdout, _) = run(&folder, &["outbox", "partitions", "--json"]);
    assert_eq!((code, stdout.lines().count()), (0, 64));
}

#[test]
fn a_row_is_explained_parked_and_redriven_beside_the_service() {
    let folder = Folder::new();
    let service = Posthaste::start(&folder, &[("POSTHASTE__BROKER__KIND", "none")]);
    let order = service.http.post("/orders", &service.http.user(), &[], &tea(1)).json();
    let key = order["id"].as_str().expect("an id");
    let why = || -> Value {
        let (code, stdout, stderr) = run(&folder, &["outbox", "why", "--key", key, "--json"]);
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str(&stdout).expect("an object")
    };
    assert_eq!(why()["verdict"], "PENDING");

    let (code, stdout, _) = run(&folder, &["outbox", "park", "1", "--dry-run", "--json"]);
    assert!(code == 0 && stdout.contains("\"PENDING\""), "{stdout}");
    let (code, stdout, _) = run(&folder, &["outbox", "park", "1", "--yes", "--json"]);
    assert!(code == 0 && stdout.contains("\"PARKED\""), "{stdout}");
    assert_eq!(why()["verdict"], "PARKED");
    assert_eq!(run(&folder, &["outbox", "redrive", "--dry-run"]).0, 0);
    assert_eq!(why()["verdict"], "PARKED");
    assert_eq!(run(&folder, &["outbox", "redrive", "--yes"]).0, 0);
    assert_eq!(why()["verdict"], "WAITING_FOR_RETRY", "as /admin/outbox/why calls it");
    let (code, stdout, _) = run(&folder, &["outbox", "list", "--after", "1", "--json"]);
    assert_eq!((code, stdout.as_str()), (0, ""));
}

#[test]
fn the_doctor_says_where_the_configuration_comes_from_and_which_topics_there_are() {
    let folder = Folder::new();
    let _service = Posthaste::start(&folder, &[]);
    // Partitions are taken one after the other, a moment after the service is ready.
    let stdout = kit::wait::until("nothing is wrong", Duration::from_secs(30), || {
        let (code, stdout, _) = run(&folder, &["doctor", "--json"]);
        (code == 0 && stdout.contains("64 of 64 owned")).then_some(stdout)
    });
    for told in ["POSTHASTE__HTTP__LISTEN", "\"topics\"", "none missing"] {
        assert!(stdout.contains(told), "{told} is missing in: {stdout}");
    }
}

#[test]
fn the_tree_is_shown_and_an_actor_killed_from_the_command_line() {
    let folder = Folder::new();
    let service = Posthaste::start(&folder, &[]);
    let url = service.http.base().to_owned();

    let (code, stdout, stderr) = run(&folder, &["actors", "tree", "--url", &url]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("/relay/partition-worker-63") && stdout.contains("/order-aggregate-15"), "{stdout}");
    let (code, stdout, _) = run(&folder, &["actors", "tree", "--json", "--url", &url]);
    let actors: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    assert!(code == 0 && actors.len() > 80 && actors.iter().all(|actor| actor["path"].is_string()), "{stdout}");
    let (code, _, stderr) = run(&folder, &["actors", "kill", "/consumer-0", "--url", &url]);
    assert_eq!(code, 0, "{stderr}");
    kit::wait::until("it is back", Duration::from_secs(1), || {
        let back = service.logged("child_restarted");
        back.iter().any(|event| event["child"] == "/consumer-0").then_some(())
    });
    let (code, _, _) = run(&folder, &["actors", "kill", "/nobody", "--url", &url]);
    assert_eq!(code, 1);
}

#[test]
fn the_demo_shows_every_hop_and_a_line_that_works_when_pasted() {
    let folder = Folder::new();
    let (code, stdout, stderr) =
        finish(command(&folder, &["demo", "--once"]).env_remove("POSTHASTE__AUTH__HS256_SECRET"));
    assert_eq!(code, 0, "{stderr}");
    for told in
        ["→ OrderAggregate →", "→ PartitionWorker", "→ processed_events", "curl -s http://127.0.0.1:", "/docs", "panic"]
    {
        assert!(stdout.contains(told), "{told} is missing in: {stdout}");
    }
}

#[test]
fn documents_come_from_the_binary() {
    let folder = Folder::new();
    let (code, openapi, _) = run(&folder, &["openapi"]);
    let openapi: Value = serde_json::from_str(&openapi).expect("JSON");
    assert_eq!(code, 0);
    assert!(openapi["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
    for shell in ["bash", "zsh", "fish", "man"] {
        let (code, script, _) = run(&folder, &["completions", shell]);
        assert!(code == 0 && script.contains("posthaste"), "{shell}");
    }
    let (code, _, _) = run(&folder, &["no-such-command"]);
    assert_eq!(code, 2);
    assert_eq!(run(&folder, &["migrate", "status"]).0, 0);
}
