//! Commands, their exit codes and their output for scripts.
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use kit::wait::until;
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::metrics::await_metric;
use crate::harness::process::{Posthaste, command, finish, run};

#[test]
fn a_message_that_cannot_be_written_does_not_change_the_exit_code() {
    let backend = Backend::new();
    let code = |arguments: &[&str]| {
        let full = std::fs::File::create("/dev/full").expect("Linux has it");
        command(&backend, arguments).env_remove("POSTHASTE__AUTH__HS256_SECRET").stderr(full).output()
    };

    let minted = code(&["token", "mint"]).expect("the program runs");
    assert_eq!(minted.status.code(), Some(0), "its warning is lost");
    assert!(!minted.stdout.is_empty(), "the token is printed");
    let failed = code(&["outbox", "show", "1"]).expect("the program runs");
    assert_eq!(failed.status.code(), Some(1), "its message is lost");
}

#[test]
fn all_configuration_mistakes_are_reported_together_with_exit_code_78() {
    let backend = Backend::new();
    let mut serve = command(&backend, &["serve"]);
    serve
        .env("POSTHASTE__OUTBOX__LEASE", "fast")
        .env("POSTHASTE__OUTBOX__PUBLISHER__MAX_INFLIGHT", "3")
        .env("POSTHASTE__AUTH__JWKS_URL", "https://keys.example/jwks");

    let (code, stdout, stderr) = finish(&mut serve);

    assert_eq!((code, stdout.as_str()), (78, ""));
    for text in ["outbox.lease", "did you mean outbox.publisher.max_in_flight?", "auth.hs256_secret and auth.jwks_url"]
    {
        assert!(stderr.contains(text), "{text} is missing in: {stderr}");
    }
}

#[test]
fn serve_without_a_signing_key_names_the_variable_to_set_and_the_dev_flag() {
    let backend = Backend::new();
    let (code, _, stderr) = finish(command(&backend, &["serve"]).env_remove("POSTHASTE__AUTH__HS256_SECRET"));
    assert_eq!(code, 78);
    assert!(stderr.contains("POSTHASTE__AUTH__HS256_SECRET=") && stderr.contains("--dev"), "{stderr}");

    let (code, token, warning) =
        finish(command(&backend, &["token", "mint", "--sub", "ann"]).env_remove("POSTHASTE__AUTH__HS256_SECRET"));
    assert_eq!((code, token.trim().split('.').count()), (0, 3));
    assert!(warning.contains("development secret"), "{warning}");
}

#[test]
fn the_development_secret_is_refused_without_the_dev_flag_and_logged_with_it() {
    let backend = Backend::new();
    let public = ("POSTHASTE__AUTH__HS256_SECRET", "posthaste-development-secret-known-to-everyone");

    for name in ["serve", "relay"] {
        let mut refused = Posthaste::launch(&backend, name, &[public], "");
        assert_eq!(refused.await_exit(Duration::from_secs(20)).code(), Some(78), "{name}");
        let named = ["--dev", "openssl rand -hex 32"];
        until("it names both remedies", Duration::from_secs(20), || {
            named.iter().all(|remedy| refused.stderr().contains(remedy)).then_some(())
        });
    }
    let service = Posthaste::start_prepared(command(&backend, &["serve", "--dev"]).envs([public]));
    service.await_logged("development_secret", 1);
    service.stop();
}

#[test]
fn a_minted_token_is_accepted() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let (_, token, _) = run(&backend, &["token", "mint", "--sub", "ann", "--role", "USER", "--ttl", "5m"]);

    assert_eq!(service.http.post("/orders", token.trim(), &[], &tea_order(1)).status, 201);
}

#[test]
fn config_print_masks_secrets_and_schema_names_every_key() {
    let backend = Backend::new();
    let (code, stdout, _) = run(&backend, &["config", "print", "--json"]);
    assert_eq!(code, 0);
    assert!(!stdout.contains(crate::harness::http::SECRET));
    let rows: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    let row = |key: &str| rows.iter().find(|row| row["key"] == key).expect("the key is printed");
    assert_eq!(row("auth.hs256_secret")["value"], "***");
    assert_eq!(row("http.listen")["origin"], "POSTHASTE__HTTP__LISTEN");

    let (_, schema, _) = run(&backend, &["config", "schema"]);
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    for row in &rows {
        let path = row["key"].as_str().expect("text").replace('.', "/properties/");
        assert!(schema.pointer(&format!("/properties/{path}")).is_some(), "{path}");
    }
}

#[test]
fn the_command_line_shows_the_actor_tree_and_kills_an_actor() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let url = service.http.base().to_owned();

    let (code, stdout, stderr) = run(&backend, &["actors", "tree", "--url", &url]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("/relay/partition-worker-63") && stdout.contains("/order-aggregate-15"), "{stdout}");
    let (code, stdout, _) = run(&backend, &["actors", "tree", "--json", "--url", &url]);
    let actors: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    assert!(code == 0 && actors.len() > 80 && actors.iter().all(|actor| actor["path"].is_string()), "{stdout}");
    let (code, stdout, stderr) = run(&backend, &["actors", "kill", "/consumer-0", "--yes", "--json", "--url", &url]);
    assert_eq!(code, 0, "{stderr}");
    let killed: Value = serde_json::from_str(&stdout).expect("an object");
    assert_eq!((&killed["path"], &killed["action"]), (&"/consumer-0".into(), &"panic".into()));
    until("it is restarted", Duration::from_secs(20), || {
        let restarted = service.logged("child_restarted");
        restarted.iter().any(|event| event["child"] == "/consumer-0").then_some(())
    });
    let (code, _, _) = run(&backend, &["actors", "kill", "/no-such-actor", "--url", &url]);
    assert_eq!(code, 1);
    let (code, stdout, _) = run(&backend, &["actors", "tree", "--problems", "--url", &url]);
    assert!(code == 0 && stdout.starts_with("PATH ") && stdout.lines().count() == 2, "{stdout}");
    assert!(stdout.contains("/consumer-0") && stdout.contains("panic"), "{stdout}");
}

#[test]
fn a_watched_tree_goes_on_while_the_service_does_not_answer() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let mut watch = command(&backend, &["actors", "tree", "--watch", "--url", service.http.base()]);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut frames = BufReader::new(watch.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    frames.find(|line| line.contains("/consumer-0")).expect("a frame");

    service.kill();

    let failures = BufReader::new(watch.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let failures: Vec<String> = failures.take(2).collect();
    watch.kill().and_then(|()| watch.wait()).expect("it still runs");
    assert!(failures.len() == 2 && failures.iter().all(|line| line.contains("no service answers")), "{failures:?}");
}

#[test]
fn a_refused_token_of_a_command_without_a_key_names_the_cause() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let mut tree = command(&backend, &["actors", "tree", "--url", service.http.base()]);

    let (code, _, stderr) = finish(tree.env_remove("POSTHASTE__AUTH__HS256_SECRET"));

    assert!(code == 1 && stderr.contains("401") && stderr.contains("no key is configured"), "{stderr}");
    let (code, _, stderr) = finish(tree.env("POSTHASTE_TOKEN", "wrong"));
    assert!(code == 1 && stderr.contains("401") && !stderr.contains("no key"), "the operator's own: {stderr}");
}

#[test]
fn the_binary_prints_openapi_completions_and_the_manual() {
    let backend = Backend::new();
    let (code, openapi, _) = run(&backend, &["openapi"]);
    let openapi: Value = serde_json::from_str(&openapi).expect("JSON");
    assert_eq!(code, 0);
    assert!(openapi["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
    for shell in ["bash", "zsh", "fish", "man"] {
        let (code, script, _) = run(&backend, &["completions", shell]);
        assert!(code == 0 && script.contains("posthaste"), "{shell}");
    }
    let (_, manual, _) = run(&backend, &["completions", "man"]);
    for text in [
        ".SH \"EXAMPLES\"",
        ".SH \"EXIT STATUS\"",
        ".TH posthaste-audit",
        ".TH posthaste-outbox-redrive",
        "older\\-than",
        ".TH posthaste-token-mint",
        "ttl",
    ] {
        assert!(manual.contains(text), "{text} is missing in the manual");
    }
    let (code, help, _) = run(&backend, &["outbox", "list", "--help"]);
    assert_eq!(code, 0);
    for text in ["EXAMPLES:", "EXIT STATUS:", "possible values: PENDING, IN_FLIGHT, FAILED, PARKED, SENT", "Global:"] {
        assert!(help.contains(text), "{text} is missing in: {help}");
    }
    let (_, completions, _) = run(&backend, &["completions", "bash"]);
    assert!(completions.contains("PENDING IN_FLIGHT FAILED PARKED SENT"), "values are completed");
    let (code, version, _) = run(&backend, &["version", "--json"]);
    let version: Value = serde_json::from_str(&version).expect("JSON");
    assert_eq!((code, &version["version"], &version["features"][0]), (0, &"0.1.0".into(), &"embedded".into()));
    let (code, _, _) = run(&backend, &["no-such-command"]);
    assert_eq!(code, 2);
}

/// The names of all JSON output are in one casing, also below the first level.
fn assert_camel_case(value: &Value) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            let legal =
                name.starts_with(|first: char| first.is_ascii_lowercase()) && name.chars().all(char::is_alphanumeric);
            assert!(legal, "{name} is not in camelCase");
            assert_camel_case(value);
        }),
        Value::Array(elements) => elements.iter().for_each(assert_camel_case),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Runs a measurement and returns the figures of its part with this name.
fn bench_figures(backend: &Backend, arguments: &[&str], part: &str) -> Value {
    let (code, stdout, stderr) = finish(&mut command(backend, arguments));
    assert_eq!(code, 0, "{stderr}");
    let mut records = stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object a line"));
    records.by_ref().inspect(assert_camel_case).find(|record| record["bench"] == part).expect("the part is printed")["figures"].take()
}

#[test]
fn latency_bench_reports_exact_percentiles_of_acknowledgements() {
    let arguments = ["bench", "latency", "--rate", "40", "--clients", "4", "--time", "1s", "--rounds", "1", "--json"];
    let figures = bench_figures(&Backend::new(), &arguments, "latency");

    let percentile = |part: &str, name: &str| figures[part][name].as_f64().expect("a number");
    let acknowledged = ["p50", "p95", "p99", "max"].map(|name| percentile("commitToAckMs", name));
    assert!(acknowledged.is_sorted() && acknowledged[0] > 0.0, "{figures}");
    assert!(acknowledged[0] <= percentile("commitToSettledMs", "max") + 1.0, "{figures}");
    assert_eq!(figures["checked"][0]["missing"], 0, "{figures}");
}

#[test]
fn chaos_with_several_instances_names_the_store_that_it_needs() {
    let (code, stdout, stderr) = run(&Backend::new(), &["chaos", "--instances", "2"]);
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(stderr.contains("the embedded store has one instance: set store.kind"), "{stderr}");
}

#[test]
fn benches_of_postgres_name_the_store_that_they_need() {
    for scenario in ["held", "peers", "publish"] {
        let (code, stdout, stderr) = run(&Backend::new(), &["bench", scenario, "--json"]);
        assert_eq!(code, 1, "{stdout}");
        assert!(stderr.contains("store.kind"), "{stderr}");
    }
}

#[test]
fn the_relay_bench_drains_its_events_and_counts_violations() {
    let backend = Backend::new();
    let mut bench =
        command(&backend, &["bench", "relay", "--events", "500", "--keys", "20", "--rounds", "1", "--json"]);
    let (code, stdout, stderr) = finish(&mut bench);

    assert_eq!(code, 0, "{stderr}");
    let records: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    records.iter().for_each(assert_camel_case);
    let figures =
        |part: &str| &records.iter().find(|record| record["bench"] == part).expect("the part is printed")["figures"];
    assert_eq!(
        (&figures("settings")["store"], &figures("settings")["broker"]),
        (&"embedded".into(), &"embedded".into())
    );
    let checked = &figures("relay")["checked"];
    for (name, expected) in [("events", 500), ("duplicates", 0), ("orderViolations", 0), ("missing", 0)] {
        assert_eq!(checked[name], expected, "{name} in {checked}");
    }
    assert!(figures("relay")["eventsPerS"].as_f64().is_some_and(|rate| rate > 0.0), "{stdout}");
}

#[test]
fn an_empty_list_is_explained_on_stderr_and_any_case_of_a_status_is_accepted() {
    let backend = Backend::new();
    Posthaste::start(&backend, &[]).stop();

    let (code, stdout, stderr) = run(&backend, &["outbox", "list", "--status", "parked"]);
    assert_eq!((code, stdout.as_str(), stderr.trim()), (0, "", "no rows are PARKED"));
    let (code, stdout, stderr) = run(&backend, &["dlt", "list", "--failure", "System"]);
    assert_eq!((code, stdout.as_str(), stderr.trim()), (0, "", "no dead letters match in order.events"));
}

#[test]
fn one_frame_of_the_live_overview_shows_rates_rows_and_actors() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    service.http.post("/orders", &service.http.user(), &[], &tea_order(1));
    service.drain();
    await_metric(&service.http, "kafka_consumer_processed_count_total", Duration::from_secs(20), |count| count == 1.0);

    let (code, frame, stderr) = run(&backend, &["top", "--interval", "1s", "--url", service.http.base()]);

    assert_eq!(code, 0, "{stderr}");
    let with_single_spaces =
        frame.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>();
    for line in [
        "all is well",
        "EVENTS PER SECOND TOTAL",
        "sent 0.0 1",
        "consumed 0.0 1",
        "PARKED 0",
        "dead letters not sent back: 0",
    ] {
        assert!(with_single_spaces.iter().any(|printed| printed == line), "{line} is missing in: {frame}");
    }
    assert!(frame.starts_with("posthaste 0.1.0, "), "{frame}");
}

#[test]
fn a_topic_is_read_from_a_position_by_key_by_age_and_up_to_a_limit() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let ids: Vec<String> = (1..=3)
        .map(|number| {
            let order = service.http.post("/orders", &service.http.user(), &[], &tea_order(number)).json();
            order["id"].as_str().expect("an id").to_owned()
        })
        .collect();
    service.drain();
    let topic = backend.topic("order.events");
    let tail = |options: &[&str]| -> Vec<Value> {
        let (code, stdout, stderr) = run(&backend, &[&["topic", "tail", &topic, "--json"], options].concat());
        assert_eq!(code, 0, "{stderr}");
        stdout.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
    };

    let all = tail(&["--from-beginning"]);
    assert_eq!((all.len(), tail(&[]).len(), tail(&["--since", "1h"]).len()), (3, 0, 3));
    let by_key = tail(&["--from-beginning", "--key", &ids[1]]);
    assert_eq!(by_key.iter().map(|record| &record["key"]).collect::<Vec<_>>(), [ids[1].as_str()]);
    assert_eq!(tail(&["--from-beginning", "-n", "2"]), all[..2]);
    let after = format!("{}/{}", all[0]["partition"], all[0]["offset"]);
    assert_eq!(tail(&["--after", &after]), all[1..], "a consumer goes on behind the last record that it has read");
    let (code, followed, _) = run(&backend, &["topic", "tail", &topic, "--from-beginning", "--follow", "-n", "3"]);
    assert_eq!((code, followed.lines().count()), (0, 3), "a limit ends also a reader that follows");
}
