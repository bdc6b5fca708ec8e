//! Webhooks in the console and their dead letters one by one: forms that keep what was typed, secrets that are shown once, single redrives.
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::console_browser::Browser;
use crate::harness::endpoint::{Endpoint, EndpointResponse};
use crate::harness::http::tea_order;
use crate::harness::process::{Posthaste, command, finish, setting};

/// A new consumer group, and all retries.
const WAIT_MAX: Duration = Duration::from_secs(60);
const ACCEPTED: EndpointResponse = EndpointResponse::Status(202);

fn start(backend: &Backend) -> Posthaste {
    let settings = [
        ("POSTHASTE__WEBHOOKS__PRIVATE_ADDRESSES", "true"),
        ("POSTHASTE__WEBHOOKS__RETRY_DELAYS", "50ms,50ms,50ms,50ms"),
        ("POSTHASTE__WEBHOOKS__REFRESH", "100ms"),
    ];
    Posthaste::start(backend, &settings)
}

#[test]
fn test_event_to_an_endpoint_that_does_not_answer_is_reported_and_recorded() {
    let backend = Backend::new();
    let request_max = setting(Duration::from_secs(4));
    let settings = [
        ("POSTHASTE__WEBHOOKS__PRIVATE_ADDRESSES", "true"),
        ("POSTHASTE__HTTP__REQUEST_TIMEOUT", request_max.as_str()),
    ];
    let (service, endpoint) = (Posthaste::start(&backend, &settings), Endpoint::start(EndpointResponse::Silence));
    let admin = service.http.admin();
    let body = json!({"url": endpoint.url(), "topics": ["order.events"]});
    let webhook = service.http.post("/webhooks", &admin, &[], &body).json()["id"].as_str().expect("an id").to_owned();
    let address = service.http.base().to_owned();

    let test = ["webhook", "test", &webhook, "--url", &address];
    let (code, stdout, stderr) = finish(command(&backend, &test).env("POSTHASTE_TOKEN", &admin));

    assert!(code == 1 && stdout.contains("did not accept the test event"), "{stdout}{stderr}");
    let deliveries = service.http.get(&format!("/webhooks/{webhook}/deliveries"), Some(&admin)).json();
    assert_eq!(deliveries["deliveries"][0]["type"], "posthaste.test", "{deliveries}");
}

#[test]
fn concurrent_creates_keep_the_limit_of_webhooks() {
    let backend = Backend::new();
    let (service, endpoint) =
        (Posthaste::start(&backend, &[("POSTHASTE__WEBHOOKS__MAX", "3")]), "https://example.org/");
    let admin = service.http.admin();
    let body = json!({"url": endpoint, "topics": ["order.events"], "active": false});
    let create = || service.http.post("/webhooks", &admin, &[], &body).status;
    assert_eq!([create(), create()], [201, 201]);

    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let creates: Vec<_> = (0..16).map(|_| scope.spawn(create)).collect();
        creates.into_iter().map(|create| create.join().expect("answered")).collect()
    });

    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 15, "{statuses:?}");
}

fn place_order(service: &Posthaste) -> String {
    let created = service.http.post("/orders", &service.http.user(), &[], &tea_order(1));
    created.json()["id"].as_str().expect("an id").to_owned()
}

/// The secret that a page shows.
fn secret(page: &str) -> Option<&str> {
    page.split("<code id=\"secret\">").nth(1)?.split('<').next()
}

/// The path of the only webhook's page.
fn only_webhook(browser: &Browser) -> String {
    let list = browser.get("/console/webhooks").text;
    let links = list.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let of_webhooks = links.filter(|link| link.strip_prefix("/console/webhooks/").is_some_and(|id| id != "new"));
    let [webhook] = of_webhooks.collect::<Vec<_>>()[..] else { panic!("{list}") };
    webhook.to_owned()
}

/// The version that a form of a webhook's changes sends.
fn form_version(page: &str) -> &str {
    let (_, rest) = page.split_once("name=\"version\" value=\"").expect("the form has a version");
    rest.split('"').next().expect("the value ends")
}

#[test]
fn webhook_is_created_changed_and_deleted_by_forms_of_the_console() {
    let backend = Backend::new();
    let (service, endpoint) = (start(&backend), Endpoint::start(ACCEPTED));
    let (browser, url) = (Browser::log_in(&service), endpoint.url());
    let blank = browser.get("/console/webhooks/new").text;
    assert!(blank.contains(">order.events</textarea>") && !blank.contains("data-refresh"), "{blank}");

    let refused =
        browser.send("/console/webhooks/new", &[("url", "ftp://x"), ("topics", "no.such"), ("description", "<crm>")]);
    assert_eq!(refused.status, 400, "{}", refused.text);
    for kept in ["value=\"ftp://x\"", ">no.such</textarea>", "value=\"&lt;crm&gt;\"", "role=\"alert\""] {
        assert!(refused.text.contains(kept), "{kept} in {}", refused.text);
    }
    assert!(!refused.text.contains("name=\"ordered\" value=\"true\" checked"), "an unchecked box stays so");
    let fields = [
        ("url", url.as_str()),
        ("topics", "order.events"),
        ("types", "ORDER_CREATED"),
        ("ordered", "true"),
        ("active", "true"),
        ("description", "crm"),
    ];
    let created = browser.send("/console/webhooks/new", &fields);
    assert_eq!(created.status, 201, "{}", created.text);
    let first = secret(&created.text).expect("the secret is shown").to_owned();
    assert!(first.starts_with("whsec_"), "{first}");

    let webhook = only_webhook(&browser);
    let shown = browser.get(&webhook).text;
    assert!(shown.contains("crm") && shown.contains("ORDER_CREATED") && !shown.contains("whsec_"), "{shown}");
    let id = place_order(&service);
    until("the event arrives", WAIT_MAX, || (endpoint.accepted_for(&id) == [1]).then_some(()));
    let rotated = browser.send(&format!("{webhook}/rotate"), &[]);
    assert!(rotated.status == 200 && secret(&rotated.text).is_some_and(|secret| secret != first), "{}", rotated.text);

    let change = format!("{webhook}/change");
    let form = browser.get(&change).text;
    assert!(form.contains("value=\"crm\""), "{form}");
    let version = form_version(&form).to_owned();
    let illegal = browser.send(&change, &[("version", &version), ("url", "nonsense"), ("description", "kept")]);
    assert!(illegal.status == 400 && illegal.text.contains("value=\"kept\"") && illegal.text.contains("order.events"));
    let fields = |version| [("version", version), ("url", url.as_str()), ("types", ""), ("description", "moved")];
    browser.submit(&format!("{webhook}/deactivate"), &[]);
    let stale = browser.send(&change, &[&fields(version.as_str())[..], &[("active", "true")]].concat());
    assert!(stale.status == 409 && stale.text.contains("was changed meanwhile"), "{}", stale.text);
    assert!(stale.text.contains("value=\"crm\"") && !stale.text.contains("name=\"active\" value=\"true\" checked"));
    assert!(browser.get(&webhook).text.contains("inactive"), "a form from before does not activate it again");
    assert_eq!(browser.send(&change, &fields("")).status, 400, "a change without a version is refused");
    let done = browser.submit(&change, &fields(form_version(&stale.text)));
    assert!(done.contains("The webhook was changed.") && done.contains("moved") && done.contains("inactive"), "{done}");

    let asked = browser.get(&format!("{webhook}/delete")).text;
    assert!(asked.contains("Nothing was changed."), "{asked}");
    let deleted = browser.submit(&format!("{webhook}/delete"), &[]);
    assert!(
        deleted.contains("The webhook was deleted.") && deleted.contains("No endpoint is subscribed."),
        "{deleted}"
    );
    until("all changes are logged", WAIT_MAX, || (service.logged("webhook_changed").len() >= 5).then_some(()));
    let actions: Vec<Value> = service.logged("webhook_changed").iter().map(|line| line["action"].clone()).collect();
    assert_eq!(actions, ["create", "rotate", "deactivate", "change", "delete"]);
    let events = browser.get("/console/events").text;
    assert!(events.contains(": rotate webhook ") && events.contains(": delete webhook "), "{events}");
}

/// The routes of redrives refuse a query that differs from the body, or that they do not know.
fn assert_contradictions_are_refused(service: &Posthaste, routes: &[&str]) {
    let contradictions =
        [("?dryRun=true", json!({"dryRun": false})), ("?dryRun=false&foo=1", json!({})), ("?dryRun=no", json!({}))];
    for (query, body) in contradictions {
        for route in routes {
            let refused = service.http.post(&format!("{route}{query}"), &service.http.admin(), &[], &body);
            assert_eq!(refused.status, 400, "{route}{query}: {}", refused.text);
        }
    }
}

/// `doctor` notes this number of dead letters of webhooks.
fn assert_doctor_counts(backend: &Backend, service: &Posthaste, dead_letters: u32) {
    let (_, findings, _) = finish(&mut command(backend, &["doctor", "--url", service.http.base()]));
    let note = format!("note dead_letters: {dead_letters} of webhooks were not sent back");
    assert!(findings.contains(&note), "{findings}");
}

#[test]
fn dead_letters_of_a_webhook_are_listed_and_redriven_one_by_one() {
    let backend = Backend::new();
    let (service, endpoint) = (start(&backend), Endpoint::start(EndpointResponse::Status(422)));
    let admin = service.http.admin();
    let create = |url: String| {
        let body = json!({"url": url, "topics": ["order.events"], "ordered": false});
        service.http.post("/webhooks", &admin, &[], &body).json()["id"].as_str().expect("an id").to_owned()
    };
    let (webhook, other) = (create(endpoint.url()), create(Endpoint::start(ACCEPTED).url()));
    let orders: Vec<String> = (0..3).map(|_| place_order(&service)).collect();
    let list = |query: &str| service.http.get(&format!("/webhooks/{webhook}/dead-letters{query}"), Some(&admin)).json();
    let found = until("all are dead letters", WAIT_MAX, || {
        Some(list("")["deadLetters"].as_array().expect("a list").clone()).filter(|found| found.len() == 3)
    });
    let mut keys: Vec<&str> = found.iter().map(|one| one["key"].as_str().expect("a key")).collect();
    let mut expected: Vec<&str> = orders.iter().map(String::as_str).collect();
    keys.sort_unstable();
    expected.sort_unstable();
    assert_eq!(keys, expected);
    for one in &found {
        let facts = [&one["type"], &one["topic"], &one["url"], &one["status"], &one["attempts"], &one["redriven"]];
        let expected = json!(["ORDER_CREATED", "order.events", endpoint.url(), 422, 5, false]);
        assert_eq!(json!(facts), expected, "{one}");
    }
    assert_eq!(list("?limit=1")["deadLetters"].as_array().expect("a list").len(), 1);
    let of_other = service.http.get(&format!("/webhooks/{other}/dead-letters"), Some(&admin)).json();
    assert_eq!(of_other["deadLetters"], json!([]));
    assert_doctor_counts(&backend, &service, 3);
    let place_of = |at: usize| found[at]["position"].as_str().expect("a position").to_owned();
    let foreign = format!("/webhooks/{other}/dead-letters/{}/redrive", place_of(0));
    assert_eq!(service.http.post(&foreign, &admin, &[], &json!({"dryRun": false})).status, 404);
    let count = |body: Value| service.http.post(&format!("/webhooks/{webhook}/redrive"), &admin, &[], &body).json();
    let first = count(json!({"limit": 1}));
    assert_eq!(first["matched"], 1, "{first}");
    let rest = count(json!({"after": first["next"]}));
    assert_eq!((&rest["matched"], &rest["next"]), (&json!(2), &Value::Null), "{first} {rest}");

    let redrive = format!("/webhooks/{webhook}/dead-letters/{}/redrive", place_of(0));
    assert_contradictions_are_refused(&service, &[&format!("/webhooks/{webhook}/redrive"), &redrive]);
    assert_eq!(count(json!({"limit": null, "dryRun": null}))["matched"], 3, "as if they were absent");

    endpoint.set_response(ACCEPTED);
    assert_eq!(service.http.post(&redrive, &admin, &[], &json!({})).json()["redriven"], false, "a dry run");
    let redriven = service.http.post(&redrive, &admin, &[], &json!({"dryRun": false, "reason": "fixed"}));
    assert_eq!((redriven.status, &redriven.json()["redriven"]), (200, &json!(true)), "{}", redriven.text);
    assert_eq!(service.http.post(&redrive, &admin, &[], &json!({"dryRun": false})).status, 409, "once");

    let browser = Browser::log_in(&service);
    let page = format!("/console/webhooks/{webhook}/dead-letters");
    let shown = browser.get(&page).text;
    assert!(shown.contains("422") && shown.matches(">Redrive</button>").count() == 2, "{shown}");
    let done = browser.submit(&format!("{page}/{}/redrive", place_of(1)), &[("reason", "fixed")]);
    assert!(done.contains(&format!("Dead letter {} is delivered again.", place_of(1))), "{done}");
    let address = service.http.base().to_owned();
    let run = |arguments: &[&str]| {
        let arguments = [&["webhook"], arguments, &["--url", &address]].concat();
        finish(command(&backend, &arguments).env("POSTHASTE_TOKEN", &admin))
    };
    let (code, counted, stderr) = run(&["redrive", &webhook, "--dry-run", "--limit", "20000"]);
    assert!(code == 0 && counted.trim() == "1 dead letter would be delivered again", "{counted}{stderr}");
    let (code, table, stderr) = run(&["dead-letters", &webhook]);
    assert!(code == 0 && table.contains("DEAD LETTER") && table.matches(" no ").count() == 1, "{table}{stderr}");
    let (code, stdout, stderr) = run(&["redrive", &webhook, &place_of(2), "--dry-run"]);
    assert!(code == 0 && stdout.contains("can be delivered again"), "{stdout}{stderr}");
    let (code, stdout, stderr) = run(&["redrive", &webhook, "--reason", "fixed"]);
    assert!(code == 0 && stdout.trim() == "1 dead letter, 1 of them is delivered again", "{stdout}{stderr}");
    let is_delivered = |order: &String| endpoint.accepted_for(order) == [1];
    until("each is delivered again", WAIT_MAX, || orders.iter().all(is_delivered).then_some(()));
}
