//! Creating, reading and changing orders; versions, idempotency keys, visibility.
use serde_json::json;

use crate::support::test_server::*;

mod lists;
mod pages;
mod traces;

#[actix_web::test]
async fn a_create_returns_the_order_its_location_and_its_etag() {
    let server = TestServer::new();

    let reply = server.send(post("/orders", ORDER).insert_header(user("ann"))).await;

    assert_eq!(reply.status, 201);
    let body = reply.json();
    let id = body["id"].as_str().unwrap();
    assert_eq!(
        body,
        json!({"id": id, "status": "PENDING", "version": 0, "createdAt": "2026-01-31T12:00:00.120Z",
               "updatedAt": "2026-01-31T12:00:00.120Z", "total": "25.980",
               "items": [{"productName": "keyboard", "quantity": 2, "price": "12.990"}]})
    );
    assert_eq!(reply.header("location"), format!("/orders/{id}"));
    assert_eq!(reply.header("etag"), "\"0\"");
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(reply.header("cache-control"), "private, no-cache");
    assert_eq!(reply.header("vary"), "Authorization");
    assert_eq!(reply.header("x-region-id"), "r1");
    assert_eq!(reply.header("x-content-type-options"), "nosniff");
    assert_eq!(reply.header("idempotent-replayed"), "");
    assert_eq!(server.metrics.orders_created_count.get(), 1);
}

#[actix_web::test]
async fn an_idempotency_key_creates_one_order() {
    let server = TestServer::new();
    let keyed = |body: &str, key: &'static str| {
        post("/orders", body).insert_header(user("ann")).insert_header(("idempotency-key", key))
    };

    let first = server.send(keyed(ORDER, "\"k-1\"")).await;
    let id = first.json()["id"].as_str().unwrap().to_owned();
    server.send(patch(&format!("/orders/{id}/cancel"), "").insert_header(user("ann"))).await;
    let other_order = r#" {"items":[{"price":"12.990","id":7,"quantity":2,"productName":"keyboard"}]}"#;
    let again = server.send(keyed(other_order, "k-1")).await;
    let reused = server.send(keyed(&ORDER.replace("12.990", "12.99"), "k-1")).await;
    let both = post("/orders", ORDER).insert_header(user("ann")).insert_header(("idempotency-key", "a"));
    let both = server.send(both.insert_header(("x-idempotency-key", "b"))).await;

    assert_eq!(first.status, 201);
    assert_eq!(again.status, 201);
    assert_eq!(again.header("idempotent-replayed"), "true");
    assert_eq!(again.json()["id"], id.as_str());
    assert_eq!(again.json()["status"], "CANCELLED", "the current state");
    assert_eq!(again.header("etag"), "\"1\"");
    reused.problem(422, "UNPROCESSABLE");
    both.problem(400, "BAD_REQUEST");
    assert_eq!(server.metrics.orders_idempotency_hit_count.get(), 1);
}

#[actix_web::test]
async fn an_order_of_another_caller_is_not_found() {
    let server = TestServer::new();
    let id = server.create_order("ann").await;
    let unknown = "019a9c1e-7b1a-7c3e-9d55-2f6b1c0a4e11";
    let bodies = |id: &str| {
        vec![
            get(&format!("/orders/{id}")).insert_header(user("bob")),
            patch(&format!("/orders/{id}/cancel"), "").insert_header(user("bob")),
        ]
    };

    for (theirs, missing) in bodies(&id).into_iter().zip(bodies(unknown)) {
        let theirs = server.send(theirs.insert_header(("x-request-id", "r"))).await;
        let missing = server.send(missing.insert_header(("x-request-id", "r"))).await;
        theirs.problem(404, "NOT_FOUND");
        assert_eq!(theirs.text().replace(&id, "-"), missing.text().replace(unknown, "-"));
        assert_eq!(theirs.header("cache-control"), "private, no-cache");
        assert_eq!(theirs.header("vary"), "Authorization");
    }
    assert_eq!(server.send(get(&format!("/orders/{id}")).insert_header(admin())).await.status, 200);
    let capitals = format!("/orders/{}", id.to_uppercase());
    assert_eq!(server.send(get(&capitals).insert_header(user("ann"))).await.status, 200);
}

#[actix_web::test]
async fn entity_tags_identify_versions() {
    let server = TestServer::new();
    let id = server.create_order("ann").await;
    let path = format!("/orders/{id}");
    let read =
        |name: &'static str, value: &'static str| get(&path).insert_header(user("ann")).insert_header((name, value));

    for (name, value, status) in [
        ("if-none-match", "\"0\"", 304),
        ("if-none-match", "W/\"0\"", 304),
        ("if-none-match", "\"7\", \"0\"", 304),
        ("if-none-match", "*", 304),
        ("if-none-match", "\"1\"", 200),
        ("if-none-match", "0", 200),
        ("if-match", "\"0\"", 200),
        ("if-match", "\"1\"", 412),
    ] {
        let reply = server.send(read(name, value)).await;
        assert_eq!(reply.status, status, "{name}: {value}");
        if status == 304 {
            assert_eq!(reply.header("etag"), "\"0\"");
            assert!(reply.body.is_empty());
            assert_eq!(reply.header("vary"), "Authorization");
        }
    }
}

#[actix_web::test]
async fn changes_must_name_the_current_version() {
    let server = TestServer::new();
    let id = server.create_order("ann").await;
    let path = format!("/orders/{id}/status");
    let change = |body: &str, tag: Option<&'static str>| {
        let request = patch(&path, body).insert_header(admin());
        match tag {
            Some(tag) => request.insert_header(("if-match", tag)),
            None => request,
        }
    };

    let cases: [(&str, Option<&'static str>, u16); 13] = [
        (r#"{"status":"PROCESSING"}"#, None, 400),
        (r#"{"status":"processing","version":0}"#, None, 400),
        (r#"{"status":"PROCESSING","version":0.0}"#, None, 400),
        (r#"{"status":"PROCESSING","version":"0"}"#, None, 400),
        (r#"{"status":"PROCESSING","version":-1}"#, None, 400),
        (r#"{"status":"PROCESSING","version":null}"#, Some("\"0\""), 400),
        (r#"{"status":"PROCESSING","version":99999999999999999999999}"#, None, 409),
        (r#"{"status":"PROCESSING","version":1}"#, None, 409),
        (r#"{"status":"PROCESSING","version":1}"#, Some("\"1\""), 412),
        (r#"{"status":"PENDING","version":0}"#, None, 409),
        (r#"{"status":"PROCESSING","version":0}"#, Some("W/\"0\""), 412),
        (r#"{"status":"PROCESSING"}"#, Some("\"0\""), 200),
        (r#"{"status":"SHIPPED","version":1,"x":{}}"#, Some("*"), 200),
    ];
    for (body, tag, status) in cases {
        assert_eq!(server.send(change(body, tag)).await.status, status, "{body} {tag:?}");
    }
    let read = server.send(get(&format!("/orders/{id}")).insert_header(user("ann"))).await;
    assert_eq!(read.header("etag"), "\"2\"");
    assert_eq!(read.json()["status"], "SHIPPED");
}

#[actix_web::test]
async fn a_cancel_ignores_its_body_and_honours_if_match() {
    let server = TestServer::new();
    let id = server.create_order("ann").await;
    let path = format!("/orders/{id}/cancel");

    let stale = server.send(patch(&path, "").insert_header(user("ann")).insert_header(("if-match", "\"3\""))).await;
    let done = patch(&path, "{{{ not json").insert_header(user("ann")).insert_header(("content-type", "text/plain"));
    let done = server.send(done.insert_header(("if-match", "\"0\""))).await;
    let again = server.send(patch(&path, "").insert_header(user("ann"))).await;

    stale.problem(412, "PRECONDITION_FAILED");
    assert_eq!((done.status, done.header("etag")), (200, "\"1\""));
    assert_eq!(done.json()["status"], "CANCELLED");
    again.problem(409, "CONFLICT");
}

#[actix_web::test]
async fn commands_carry_the_trace_context_unless_it_is_malformed() {
    let server = TestServer::new();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let place = |parent: &'static str| {
        post("/orders", ORDER)
            .insert_header(user("ann"))
            .insert_header(("traceparent", parent))
            .insert_header(("tracestate", "a=1"))
    };

    server.send(place(parent)).await;
    server.send(place("00-nonsense")).await;

    let seen = server.dispatch.seen.lock();
    let trace = seen[0].trace.as_ref().unwrap();
    assert_eq!((&*trace.parent, trace.state.as_deref()), (parent, Some("a=1")));
    assert_eq!(seen[1].trace, None);
}

#[actix_web::test]
async fn command_failures_map_to_statuses_without_internal_details() {
    use app::admission::write_gate::WriteGateClosed;
    use app::error::CommandError::*;
    let server = TestServer::new();
    let cases = [
        (Gated(WriteGateClosed::Passive), 503, "INFRASTRUCTURE_ERROR", "5"),
        (Gated(WriteGateClosed::Pressure), 503, "INFRASTRUCTURE_ERROR", "5"),
        (KeyRunning, 409, "CONFLICT", "1"),
        (KeyReused, 422, "UNPROCESSABLE", ""),
        (NotFound, 404, "NOT_FOUND", ""),
        (Conflict("no such move".into()), 409, "CONFLICT", ""),
        (Busy, 503, "INFRASTRUCTURE_ERROR", "1"),
        (ActorDown, 503, "INFRASTRUCTURE_ERROR", "1"),
        (Expired, 503, "INFRASTRUCTURE_ERROR", "1"),
        (Unavailable("secret-host".into()), 503, "INFRASTRUCTURE_ERROR", "5"),
        (Unknown("secret-host".into()), 500, "UNEXPECTED_ERROR", ""),
    ];
    for (failure, status, code, retry_after) in cases {
        *server.dispatch.fails.lock() = Some(failure);
        let reply = server.send(post("/orders", ORDER).insert_header(user("ann"))).await;
        reply.problem(status, code);
        assert_eq!(reply.header("retry-after"), retry_after);
        assert!(!reply.text().contains("secret"));
    }
    *server.orders.unavailable.lock() = true;
    let reply = server.send(get("/orders").insert_header(user("ann"))).await;
    reply.problem(503, "INFRASTRUCTURE_ERROR");
    assert!(!reply.text().contains("secret"));

    *server.dispatch.panics.lock() = true;
    let reply = server.send(post("/orders", ORDER).insert_header(user("ann"))).await;
    reply.problem(500, "UNEXPECTED_ERROR");
    assert_eq!(server.metrics.api_errors_unexpected.get(), 2);
}

#[actix_web::test]
async fn a_command_without_a_result_times_out_with_500() {
    let mut config = TestConfig::default();
    config.options.request_timeout = std::time::Duration::from_millis(20);
    let server = TestServer::with_config(config);
    *server.dispatch.hangs.lock() = true;

    // The checks before the command take no virtual time.
    tokio::time::pause();
    server.send(post("/orders", ORDER).insert_header(user("ann"))).await.problem(500, "UNEXPECTED_ERROR");
}
