//! Lists and pages through the cache: fresh after each change, and never those of another owner.
use std::time::Duration;

use kit::wait::until;
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::http::{Http, tea_order};
use crate::harness::process::{Posthaste, setting};

/// Longest request: orders are cached on Redis only under an epoch that is older than a request may be.
const REQUEST_MAX: Duration = Duration::from_secs(5);

/// The ids that a list or a page shows, newest first, and its total.
fn shown(http: &Http, path: &str, token: &str) -> (Vec<String>, Option<u64>) {
    let body = http.get(path, Some(token)).json();
    let orders = body.as_array().or_else(|| body["orders"].as_array()).expect("a list");
    let ids = orders.iter().map(|order| order["id"].as_str().expect("an id").to_owned()).collect();
    (ids, body["totalElements"].as_u64())
}

fn place_order(http: &Http, token: &str) -> String {
    http.post("/orders", token, &[], &tea_order(1)).json()["id"].as_str().expect("an id").to_owned()
}

fn cache_hits(http: &Http) -> f64 {
    http.get("/actuator/metrics/cache.hit.count", None).json()["measurements"][0]["value"].as_f64().expect("a number")
}

#[test]
fn lists_are_cached_and_show_every_change_at_once() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[("POSTHASTE__HTTP__REQUEST_TIMEOUT", &setting(REQUEST_MAX))]);
    let http = &service.http;
    let (ann, bob, admin) = (http.token("ann", "USER"), http.token("bob", "USER"), http.admin());
    let (mut of_ann, mut of_bob, mut all) = (Vec::new(), Vec::new(), Vec::new());
    let list_twice = |token: &str, ids: &[String]| {
        for _ in 0..2 {
            assert_eq!(shown(http, "/orders", token), (ids.to_vec(), None));
            let page = shown(http, "/orders/page?size=500", token);
            assert_eq!(page, (ids.to_vec(), Some(ids.len() as u64)));
        }
    };
    list_twice(&ann, &[]);
    until("a list is read from the cache", Duration::from_secs(20), || {
        let before = cache_hits(http);
        list_twice(&ann, &[]);
        (cache_hits(http) > before).then_some(())
    });

    for round in 0..6 {
        let (token, own) = if round % 2 == 0 { (&ann, &mut of_ann) } else { (&bob, &mut of_bob) };
        let id = place_order(http, token);
        own.insert(0, id.clone());
        all.insert(0, id);
        list_twice(&ann, &of_ann);
        list_twice(&bob, &of_bob);
        list_twice(&admin, &all);
    }

    let body = json!({"status": "SHIPPED", "version": 0});
    let pending = || shown(http, "/orders?status=PENDING", &ann).0;
    assert_eq!(pending(), of_ann);
    assert_eq!(http.patch(&format!("/orders/{}/status", of_ann[0]), &admin, &[], &body).status, 200);
    assert_eq!(pending(), of_ann[1..], "an administrator's change shows in the owner's list");
    let listed: Vec<Value> = http.get("/orders", Some(&ann)).json().as_array().expect("a list").clone();
    assert_eq!((&listed[0]["status"], &listed[0]["version"]), (&json!("SHIPPED"), &json!(1)));
    assert_eq!(http.patch(&format!("/orders/{}/cancel", of_ann[1]), &ann, &[], &json!({})).status, 200);
    assert_eq!(pending(), of_ann[2..]);
    assert_eq!(shown(http, "/orders/page?status=CANCELLED", &bob), (Vec::new(), Some(0)));
}
