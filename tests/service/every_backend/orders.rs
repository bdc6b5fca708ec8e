//! Orders over HTTP: creation, changes, idempotency keys, pages and promotion.
use std::collections::BTreeMap;

use serde_json::json;

use crate::harness::backend::Backend;
use crate::harness::event_log;
use crate::harness::http::tea_order;
use crate::harness::process::Posthaste;

#[test]
fn an_order_created_over_http_reaches_processed_events() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let user = service.http.user();
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    let created = service.http.post("/orders", &user, &[("traceparent", trace)], &tea_order(2));

    assert_eq!(created.status, 201, "{}", created.text);
    let order = created.json();
    let id = order["id"].as_str().expect("an id");
    assert_eq!(created.header("location"), Some(format!("/orders/{id}").as_str()));
    assert_eq!((&order["status"], &order["version"], &order["total"]), (&json!("PENDING"), &json!(0), &json!("5.00")));
    assert_eq!(service.http.get(&format!("/orders/{id}"), Some(&user)).json(), order);
    service.drain();
    let diagnosis = service.http.get(&format!("/admin/outbox/why?key={id}"), Some(&service.http.admin())).json();
    assert_eq!((&diagnosis["verdict"], &diagnosis["topic"]), (&json!("SENT"), &json!(backend.topic("order.events"))));
    let events = backend.events();
    assert_eq!(events.len(), 1);
    let event = &events[0];
    assert_eq!((&event["partition"], &event["offset"]), (&diagnosis["partition"], &diagnosis["offset"]));
    assert_eq!(event["key"], order["id"]);
    assert_eq!(event["headers"]["traceparent"], trace);
    assert_eq!(event["headers"]["ce_type"], "ORDER_CREATED");
    assert_eq!(event["headers"]["ce_source"], "/posthaste/local");
    assert_eq!(event["headers"]["x-sequence"], "1");
    assert_eq!(event["headers"]["id"], event["value"]["eventId"]);
    assert_eq!(event["value"]["items"], order["items"]);
    kit::wait::until("the event is consumed", std::time::Duration::from_secs(10), || {
        let seen = service.http.get("/actuator/metrics/kafka.consumer.processed.count", None).json();
        (seen["measurements"][0]["value"] == 1.0).then_some(())
    });
    assert!(service.stop().success());
}

#[test]
fn every_change_emits_an_event_and_illegal_transitions_are_refused() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let (user, admin) = (service.http.user(), service.http.admin());
    let place_order =
        || service.http.post("/orders", &user, &[], &tea_order(1)).json()["id"].as_str().expect("an id").to_owned();
    let (shipped, cancelled) = (place_order(), place_order());
    let status = |id: &str, to: &str, version: u64| {
        service.http.patch(&format!("/orders/{id}/status"), &admin, &[], &json!({"status": to, "version": version}))
    };

    assert_eq!(status(&shipped, "PROCESSING", 0).status, 200);
    assert_eq!(status(&shipped, "PROCESSING", 1).status, 409, "a transition to the same status is refused");
    assert_eq!(status(&shipped, "SHIPPED", 0).status, 409, "a wrong version");
    let shipped_now = status(&shipped, "SHIPPED", 1);
    assert_eq!((shipped_now.status, shipped_now.header("etag")), (200, Some("\"2\"")));
    assert_eq!(service.http.patch(&format!("/orders/{shipped}/cancel"), &user, &[], &json!({})).status, 409);
    let response = service.http.patch(&format!("/orders/{cancelled}/cancel"), &user, &[], &json!({}));
    assert_eq!((response.status, response.json()["status"].clone()), (200, json!("CANCELLED")));

    service.drain();
    let types: Vec<_> = backend
        .events()
        .iter()
        .filter(|event| event["key"] == json!(shipped))
        .map(|event| event["value"]["eventType"].clone())
        .collect();
    assert_eq!(types, ["ORDER_CREATED", "ORDER_STATUS_CHANGED", "ORDER_STATUS_CHANGED"]);
    event_log::assert_complete(&backend, &BTreeMap::from([(shipped, 3), (cancelled, 2)]));
}

#[test]
fn an_idempotency_key_creates_one_order_across_retries_and_restarts() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let user = service.http.user();
    let keyed = |service: &Posthaste, body| service.http.post("/orders", &user, &[("Idempotency-Key", "k-1")], &body);

    let first = keyed(&service, tea_order(1));
    let again = keyed(&service, tea_order(1));
    let other = keyed(&service, tea_order(2));

    assert_eq!((first.status, again.status, other.status), (201, 201, 422));
    assert_eq!(first.header("idempotent-replayed"), None);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(first.json()["id"], again.json()["id"]);
    let bob = service.http.token("bob", "USER");
    let bobs = service.http.post("/orders", &bob, &[("X-Idempotency-Key", "k-1")], &tea_order(1));
    assert_ne!(bobs.json()["id"], first.json()["id"], "a key belongs to its subject");

    service.kill();
    let service = Posthaste::start(&backend, &[]);
    let after = keyed(&service, tea_order(1));
    assert_eq!((after.status, after.header("idempotent-replayed")), (201, Some("true")));
    assert_eq!(after.json()["id"], first.json()["id"], "the idempotency record is durable");
}

#[test]
fn concurrent_creates_with_one_key_create_one_order() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let user = service.http.user();

    let responses: Vec<_> = std::thread::scope(|scope| {
        let ask = || service.http.post("/orders", &user, &[("Idempotency-Key", "race")], &tea_order(1));
        let clients: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
        clients.into_iter().map(|client| client.join().expect("no panic")).collect()
    });

    let mut ids: Vec<_> = responses.iter().filter(|a| a.status == 201).map(|a| a.json()["id"].to_string()).collect();
    ids.dedup();
    assert_eq!(ids.len(), 1, "{responses:?}");
    assert!(responses.iter().all(|response| matches!(response.status, 201 | 409)), "{responses:?}");
    let all = service.http.get("/orders", Some(&user)).json();
    assert_eq!(all.as_array().map(Vec::len), Some(1));
}

#[test]
fn pages_list_all_orders_newest_first_by_number_and_by_cursor() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let user = service.http.user();
    for quantity in 1..=7 {
        assert_eq!(service.http.post("/orders", &user, &[], &tea_order(quantity)).status, 201);
    }
    service.http.post("/orders", &service.http.token("bob", "USER"), &[], &tea_order(9));
    let quantities = |path: &str| -> Vec<u64> {
        let page = service.http.get(path, Some(&user)).json();
        let orders = page["orders"].as_array().expect("orders").clone();
        orders.iter().map(|order| order["items"][0]["quantity"].as_u64().expect("a number")).collect()
    };

    assert_eq!(quantities("/orders/page?size=3"), [7, 6, 5]);
    assert_eq!(quantities("/orders/page?size=3&page=2"), [1]);
    assert_eq!(quantities("/orders/page?size=3&page=-4"), [7, 6, 5]);
    let first = service.http.get("/orders/page?after=&size=5", Some(&user));
    let link = first.header("link").expect("a link").to_owned();
    let next = link.split(['<', '>']).nth(1).expect("a target");
    assert!(link.contains("rel=\"next\"") && next.contains("after="), "{link}");
    assert_eq!(quantities(next), [2, 1]);
}

#[test]
fn pending_orders_are_promoted_in_the_background_with_one_event_each() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__PROMOTION__INTERVAL", "200ms")]);
    let user = service.http.user();
    let ids: Vec<String> = (1..=5)
        .map(|quantity| {
            service.http.post("/orders", &user, &[], &tea_order(quantity)).json()["id"].as_str().expect("id").to_owned()
        })
        .collect();

    kit::wait::until("all are promoted", std::time::Duration::from_secs(10), || {
        let left = service.http.get("/orders?status=PENDING", Some(&user)).json();
        left.as_array().expect("orders").is_empty().then_some(())
    });

    service.drain();
    event_log::assert_complete(&backend, &ids.into_iter().map(|id| (id, 2)).collect());
}
