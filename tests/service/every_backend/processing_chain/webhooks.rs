//! Webhooks: endpoints of other systems receive the events of their topics, signed, in order, and again after failures.
use std::time::Duration;

use app::consume::webhooks::signature::{encode_secret, signatures};
use kit::wait::until;
use serde_json::{Value, json};

use crate::harness::actors::kill_and_await_restart;
use crate::harness::backend::Backend;
use crate::harness::endpoint::{Endpoint, EndpointResponse, ReceivedEvent};
use crate::harness::http::{Response, tea_order};
use crate::harness::metrics::await_metric;
use crate::harness::process::Posthaste;

/// A new consumer group, a restart, and all retries.
const WAIT_MAX: Duration = Duration::from_secs(60);
const ACCEPTED: EndpointResponse = EndpointResponse::Status(202);
const SETTINGS: [(&str, &str); 4] = [
    ("POSTHASTE__WEBHOOKS__PRIVATE_ADDRESSES", "true"),
    ("POSTHASTE__WEBHOOKS__RETRY_DELAYS", "100ms,100ms,200ms,200ms"),
    ("POSTHASTE__WEBHOOKS__REFRESH", "200ms"),
    ("POSTHASTE__WEBHOOKS__BREAKER__OPEN", "500ms"),
];

fn start(backend: &Backend) -> Posthaste {
    Posthaste::start(backend, &SETTINGS)
}

fn send(service: &Posthaste, method: &str, path: &str, body: Option<&Value>) -> Response {
    let body = body.map(Value::to_string);
    service.http.send(method, path, Some(&service.http.admin()), &[], body)
}

/// Subscribes an endpoint to the orders' events; `more` is added to the body.
fn subscribe(backend: &Backend, service: &Posthaste, endpoint: &Endpoint, more: &Value) -> Value {
    let mut body = json!({"url": endpoint.url(), "topics": [backend.topic("order.events")]});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let created = send(service, "POST", "/webhooks", Some(&body));
    assert_eq!(created.status, 201, "{}", created.text);
    let webhook = created.json();
    assert_eq!(created.header("location"), Some(path(&webhook, "").as_str()));
    webhook
}

fn path(webhook: &Value, suffix: &str) -> String {
    format!("/webhooks/{}{suffix}", webhook["id"].as_str().expect("an id"))
}

fn place_order(service: &Posthaste) -> String {
    let created = service.http.post("/orders", &service.http.user(), &[], &tea_order(1));
    created.json()["id"].as_str().expect("an id").to_owned()
}

fn cancel(service: &Posthaste, id: &str) {
    let cancelled = service.http.patch(&format!("/orders/{id}/cancel"), &service.http.user(), &[], &json!({}));
    assert_eq!(cancelled.status, 200, "{}", cancelled.text);
}

fn await_accepted(endpoint: &Endpoint, key: &str, sequences: &[u64]) {
    until("the events arrive", WAIT_MAX, || (endpoint.accepted_for(key).len() >= sequences.len()).then_some(()));
    assert_eq!(endpoint.accepted_for(key), sequences);
}

fn signed_by(event: &ReceivedEvent, secrets: &[&str]) -> bool {
    let timestamp = event.headers["webhook-timestamp"].parse().expect("seconds");
    let expected = signatures(secrets.iter().copied(), &event.headers["webhook-id"], timestamp, &event.bytes);
    event.headers["webhook-signature"] == expected
}

fn deliveries(service: &Posthaste, webhook: &Value) -> Vec<Value> {
    let listed = send(service, "GET", &path(webhook, "/deliveries"), None);
    assert_eq!(listed.status, 200, "{}", listed.text);
    listed.json()["deliveries"].as_array().expect("a list").clone()
}

#[test]
fn a_subscribed_endpoint_receives_signed_events_from_now_on() {
    let backend = Backend::new();
    let (service, endpoint, history) = (start(&backend), Endpoint::start(ACCEPTED), Endpoint::start(ACCEPTED));
    let before = place_order(&service);
    until("the event is published", WAIT_MAX, || service.rows(&["PENDING", "IN_FLIGHT"]).is_empty().then_some(()));

    let webhook = subscribe(&backend, &service, &endpoint, &json!({}));
    subscribe(&backend, &service, &history, &json!({"from": "beginning", "types": ["ORDER_CREATED"]}));
    let after = place_order(&service);
    cancel(&service, &after);

    await_accepted(&endpoint, &after, &[1, 2]);
    await_accepted(&history, &before, &[1]);
    await_accepted(&history, &after, &[1]);
    assert!(endpoint.received_for(&before).is_empty(), "it was published before");
    let secret = webhook["secret"].as_str().expect("a secret");
    for event in endpoint.received() {
        assert_eq!(
            (&event.headers["webhook-id"], event.body["orderId"].as_str()),
            (&event.headers["ce-id"], Some(event.key()))
        );
        assert!(signed_by(&event, &[secret]), "{:?}", event.headers);
    }
    let logged = until("the deliveries are recorded", WAIT_MAX, || {
        Some(deliveries(&service, &webhook)).filter(|list| list.len() == 2)
    });
    let of = |delivery: &Value| (delivery["type"].clone(), delivery["outcome"].clone(), delivery["status"].clone());
    assert_eq!(of(&logged[0]), (json!("ORDER_CANCELLED"), json!("delivered"), json!(202)));
    assert_eq!(of(&logged[1]), (json!("ORDER_CREATED"), json!("delivered"), json!(202)));
    let listed = send(&service, "GET", "/webhooks", None).json();
    assert_eq!(listed["webhooks"][0]["lastDelivery"], logged[0]);
    assert_eq!(listed["webhooks"][0].get("secret"), None, "a secret is shown once");
    await_metric(&service.http, "webhook_deliveries_total{outcome=\"delivered\"}", WAIT_MAX, |count| count == 4.0);
    await_metric(&service.http, "webhook_delivery_seconds_count", WAIT_MAX, |count| count == 4.0);
}

#[test]
fn after_rotations_requests_are_signed_with_every_secret_that_is_valid() {
    let backend = Backend::new();
    let (service, endpoint) = (start(&backend), Endpoint::start(ACCEPTED));
    let first = encode_secret([7; 32]);
    let webhook = subscribe(&backend, &service, &endpoint, &json!({"secret": first}));
    assert_eq!(webhook["secret"], first);

    // The response to a rotation may be lost: the endpoint knows only the first secret when it is repeated.
    let rotate = || send(&service, "POST", &path(&webhook, "/secret"), None).json()["secret"].clone();
    let [second, third] = [rotate(), rotate()].map(|secret| secret.as_str().expect("a secret").to_owned());
    assert!(second != first && third != second);
    let test = send(&service, "POST", &path(&webhook, "/test"), None).json();

    assert_eq!((&test["accepted"], &test["status"]), (&json!(true), &json!(202)));
    let event = &endpoint.received()[0];
    assert_eq!((event.kind(), Some(event.headers["webhook-id"].as_str())), ("posthaste.test", test["id"].as_str()));
    assert!(signed_by(event, &[&third, &second, &first]), "{:?}", event.headers);
    assert_eq!(deliveries(&service, &webhook)[0]["type"], "posthaste.test");
}

#[test]
fn the_events_of_a_key_wait_while_one_of_them_is_retried() {
    let backend = Backend::new();
    // All attempts take longer than the steps below, in which the endpoint does not accept the event.
    let settings = [&SETTINGS[..], &[("POSTHASTE__WEBHOOKS__RETRY_DELAYS", "1s,10s,15s,15s")]].concat();
    let (service, endpoint) = (Posthaste::start(&backend, &settings), Endpoint::start(EndpointResponse::Status(500)));
    subscribe(&backend, &service, &endpoint, &json!({}));
    let (id, other) = (place_order(&service), place_order(&service));
    cancel(&service, &id);

    until("the event is retried", WAIT_MAX, || (endpoint.received_for(&id).len() >= 2).then_some(()));
    endpoint.set_response(ACCEPTED);

    await_accepted(&endpoint, &id, &[1, 2]);
    await_accepted(&endpoint, &other, &[1]);
    let attempts = endpoint.received_for(&id);
    let ids: std::collections::BTreeSet<&str> = attempts
        .iter()
        .filter(|event| event.sequence() == 1)
        .map(|event| event.headers["webhook-id"].as_str())
        .collect();
    assert_eq!(ids.len(), 1, "each attempt has the id of the event");
    until("the retry is logged", WAIT_MAX, || (!service.logged("message_retried").is_empty()).then_some(()));
}

#[test]
fn an_event_that_is_refused_for_good_is_a_dead_letter_until_it_is_redriven() {
    let backend = Backend::new();
    let (service, endpoint) = (start(&backend), Endpoint::start(ACCEPTED));
    let webhook = subscribe(&backend, &service, &endpoint, &json!({}));
    let refused = place_order(&service);
    await_accepted(&endpoint, &refused, &[1]);
    endpoint.set_response(EndpointResponse::Status(422));
    cancel(&service, &refused);
    await_metric(&service.http, "webhook_deliveries_total{outcome=\"dead-lettered\"}", WAIT_MAX, |count| count == 1.0);
    assert_eq!(endpoint.received_for(&refused).len(), 6, "the accepted one, and five attempts");
    let latest = until("it is recorded", WAIT_MAX, || {
        deliveries(&service, &webhook).into_iter().next().filter(|latest| latest["outcome"] == "dead-lettered")
    });
    assert_eq!(
        (&latest["outcome"], &latest["status"], &latest["attempt"]),
        (&json!("dead-lettered"), &json!(422), &json!(5))
    );
    endpoint.set_response(ACCEPTED);
    let next = place_order(&service);
    await_accepted(&endpoint, &next, &[1]);

    let redrive = |body: &Value| send(&service, "POST", &path(&webhook, "/redrive"), Some(body)).json();
    let found = until("the dead letter is in its topic", WAIT_MAX, || {
        Some(redrive(&json!({}))).filter(|found| found["matched"] == 1)
    });
    assert_eq!(found, json!({"dryRun": true, "matched": 1, "redriven": 0, "next": null}));
    assert_eq!(redrive(&json!({"dryRun": false})), json!({"dryRun": false, "matched": 1, "redriven": 1, "next": null}));
    assert_eq!(redrive(&json!({"dryRun": false})), json!({"dryRun": false, "matched": 0, "redriven": 0, "next": null}));

    await_accepted(&endpoint, &refused, &[1, 2]);
    let log = until("the redrive is logged", WAIT_MAX, || service.logged("dead_letters_redriven").pop());
    assert_eq!((&log["topic"], &log["redriven"]), (&json!(backend.topic("webhooks")), &json!(1)));
}

#[test]
fn while_an_endpoint_does_not_work_its_events_wait_and_none_is_given_up() {
    let backend = Backend::new();
    let (service, endpoint, other) =
        (start(&backend), Endpoint::start(EndpointResponse::Status(503)), Endpoint::start(ACCEPTED));
    subscribe(&backend, &service, &endpoint, &json!({}));
    subscribe(&backend, &service, &other, &json!({}));
    let ids: Vec<String> = (0..12).map(|_| place_order(&service)).collect();
    await_metric(&service.http, "webhook_endpoints_down", WAIT_MAX, |down| down == 1.0);
    for id in &ids {
        await_accepted(&other, id, &[1]);
    }
    let calls = endpoint.received().len();
    until("it is tried again and again", WAIT_MAX, || (endpoint.received().len() >= calls + 6).then_some(()));

    endpoint.set_response(ACCEPTED);

    for id in &ids {
        await_accepted(&endpoint, id, &[1]);
    }
    await_metric(&service.http, "webhook_endpoints_down", WAIT_MAX, |down| down == 0.0);
    service.await_logged("webhook_endpoint_down", 1);
    service.await_logged("webhook_endpoint_recovered", 1);
    assert_eq!(service.logged("message_dead_lettered"), Vec::<Value>::new());
}

#[test]
fn kill_9_and_dead_actors_lose_no_delivery_and_keep_the_order() {
    let backend = Backend::new();
    let endpoint = Endpoint::start(ACCEPTED);
    let mut service = start(&backend);
    let webhook = subscribe(&backend, &service, &endpoint, &json!({}));
    let mut ids = Vec::new();
    for _ in 0..2 {
        let id = place_order(&service);
        cancel(&service, &id);
        ids.push(id);
        service.kill();
        service = start(&backend);
    }
    let consumer = format!("/webhooks/webhook-{}", webhook["id"].as_str().expect("an id"));
    for path in [consumer.as_str(), "/webhooks/webhook-manager"] {
        until("the actor runs", WAIT_MAX, || {
            let tree = service.http.get("/admin/actors", Some(&service.http.admin())).json();
            let actors = tree["actors"].as_array().expect("actors").clone();
            actors.iter().any(|actor| actor["path"] == path).then_some(())
        });
        kill_and_await_restart(&service, path, "panic");
        ids.push(place_order(&service));
        cancel(&service, ids.last().expect("one"));
    }

    for id in &ids {
        until("both events are accepted", WAIT_MAX, || endpoint.accepted_for(id).contains(&2).then_some(()));
        // Events whose acknowledgement was lost are delivered again, in their order and with the same ids.
        let mut first = Vec::new();
        for sequence in endpoint.accepted_for(id) {
            if !first.contains(&sequence) {
                first.push(sequence);
            }
        }
        assert_eq!(first, [1, 2], "{id}");
    }
}

#[test]
fn an_endpoint_that_is_gone_ends_its_webhook_until_it_is_activated_again() {
    let backend = Backend::new();
    let (service, endpoint) = (start(&backend), Endpoint::start(EndpointResponse::Status(410)));
    let webhook = subscribe(&backend, &service, &endpoint, &json!({}));
    let id = place_order(&service);
    let disabled = until("the webhook is inactive", WAIT_MAX, || {
        Some(send(&service, "GET", &path(&webhook, ""), None).json()).filter(|webhook| webhook["active"] == false)
    });
    assert!(disabled["disabledReason"].as_str().is_some_and(|reason| reason.contains("410")), "{disabled}");
    service.await_logged("webhook_disabled", 1);
    endpoint.set_response(ACCEPTED);

    let activated = send(&service, "PATCH", &path(&webhook, ""), Some(&json!({"active": true})));

    assert_eq!((activated.status, &activated.json()["disabledReason"]), (200, &Value::Null), "{}", activated.text);
    await_accepted(&endpoint, &id, &[1]);
}

#[test]
fn a_change_of_the_url_takes_effect_and_a_deleted_webhook_receives_nothing() {
    let backend = Backend::new();
    let topic = backend.topic("customers");
    let settings = [&SETTINGS[..], &[("POSTHASTE__BROKER__TOPICS", topic.as_str())]].concat();
    let service = Posthaste::start(&backend, &settings);
    let (first, second) = (Endpoint::start(ACCEPTED), Endpoint::start(ACCEPTED));
    let topics = json!([backend.topic("order.events"), topic]);
    let webhook = subscribe(&backend, &service, &first, &json!({"topics": topics}));
    let id = place_order(&service);
    await_accepted(&first, &id, &[1]);

    let changed = send(&service, "PATCH", &path(&webhook, ""), Some(&json!({"url": second.url()})));
    assert_eq!((changed.status, &changed.json()["version"]), (200, &json!(2)), "{}", changed.text);
    let arrived = |endpoint: &Endpoint, id: &str| !endpoint.received_for(id).is_empty();
    until("the new endpoint receives an order", WAIT_MAX, || {
        let id = place_order(&service);
        until("it arrives", WAIT_MAX, || (arrived(&first, &id) || arrived(&second, &id)).then_some(()));
        arrived(&second, &id).then_some(())
    });
    let event = json!({"topic": topic, "key": "k", "type": "CustomerMoved", "payload": {"street": "Main"}});
    assert_eq!(send(&service, "POST", "/events", Some(&event)).status, 201);

    await_accepted(&second, "k", &[1]);
    assert_eq!(send(&service, "DELETE", &path(&webhook, ""), None).status, 204);
    assert_eq!(send(&service, "DELETE", &path(&webhook, ""), None).status, 404);
    let third = Endpoint::start(ACCEPTED);
    subscribe(&backend, &service, &third, &json!({}));
    // The service has read both changes once the third endpoint receives an order.
    let read = place_order(&service);
    await_accepted(&third, &read, &[1]);
    let last = place_order(&service);
    await_accepted(&third, &last, &[1]);
    assert!(!arrived(&first, &last) && !arrived(&second, &last));
    service.await_logged("webhook_changed", 4);
}

#[test]
fn invalid_webhooks_are_refused_with_the_rule_that_they_break() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__WEBHOOKS__MAX", "1")]);
    let topic = backend.topic("order.events");
    let create = |body: Value| {
        let response = send(&service, "POST", "/webhooks", Some(&body));
        (response.status, response.text)
    };
    let good = json!({"url": "https://example.org/hooks", "topics": [topic]});
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        create(body)
    };

    for (name, value, expected) in [
        ("url", json!("http://example.org/"), "must be an https URL"),
        ("url", json!("https://user:secret@example.org/"), "without user name and password"),
        ("url", json!("https://127.0.0.1/"), "webhooks.private_addresses"),
        ("url", json!("https://[::ffff:10.0.0.1]/"), "webhooks.private_addresses"),
        ("url", json!(7), "must be a string"),
        ("topics", json!([]), "must name 1 to 32 topics"),
        ("topics", json!(["unknown"]), "there is no unknown; there are: "),
        ("topics", json!([topic, topic]), "different names"),
        ("types", json!([""]), "different names"),
        ("ordered", json!("yes"), "must be true or false"),
        ("secret", json!("whsec_c2hvcnQ="), "24 to 64 bytes"),
        ("from", json!("yesterday"), "must be end or beginning"),
        ("colour", json!("blue"), "colour"),
    ] {
        let (status, text) = with(name, value);
        assert!(status == 400 && text.contains(expected), "{name}: {status} {text}");
    }
    let (status, text) = create(json!({"topics": [topic]}));
    assert!(status == 400 && text.contains("is required"), "{text}");
    assert_eq!(create(good.clone()).0, 201);
    let (status, text) = create(good.clone());
    assert!(status == 409 && text.contains("webhooks.max"), "{text}");
    let user = service.http.get("/webhooks", Some(&service.http.user()));
    assert_eq!(user.status, 403);
    for (method, suffix) in [
        ("GET", ""),
        ("PATCH", ""),
        ("POST", "/test"),
        ("POST", "/secret"),
        ("GET", "/deliveries"),
        ("POST", "/redrive"),
    ] {
        let path = format!("/webhooks/0190163d-8694-739b-aea5-966c26f8ad90{suffix}");
        let body = (method == "PATCH").then(|| json!({}));
        assert_eq!(send(&service, method, &path, body.as_ref()).status, 404, "{method} {path}");
    }
}

#[test]
fn a_name_that_leads_to_a_private_address_is_not_called() {
    let backend = Backend::new();
    let (service, endpoint) = (start(&backend), Endpoint::start(ACCEPTED));
    let webhook = subscribe(&backend, &service, &endpoint, &json!({}));
    assert!(service.stop().success());

    let service = Posthaste::start(&backend, &[]);
    let report = send(&service, "POST", &path(&webhook, "/test"), None).json();

    assert_eq!((&report["accepted"], &report["status"]), (&json!(false), &Value::Null));
    assert!(report["error"].as_str().is_some_and(|error| error.contains("must be an https URL")), "{report}");
    assert!(endpoint.received().is_empty());
}

#[test]
fn webhooks_that_are_switched_off_answer_with_501() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__WEBHOOKS__ENABLED", "false")]);

    let listed = send(&service, "GET", "/webhooks", None);

    assert_eq!(listed.status, 501, "{}", listed.text);
    assert!(listed.text.contains("webhooks.enabled"), "{}", listed.text);
}
