//! Reading topics and committing offsets: roles, bad requests, and when a response ends.
mod events;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use actix_web::App;
use actix_web::body::MessageBody;
use actix_web::test::{TestRequest, call_service, init_service};
use api::Surface;
use serde_json::json;
use tokio::time::Instant;

use crate::support::test_server::*;

const RECORDS: &str = "/topics/t/records";
const OFFSETS: &str = "/groups/g/topics/t/offsets";

fn consumer() -> HeaderPair {
    bearer(&mint(&claims("reader", json!(["CONSUMER"]))))
}

fn read(query: &str) -> TestRequest {
    get(&format!("{RECORDS}{query}")).insert_header(consumer())
}

fn commit(path: &str, body: &str) -> TestRequest {
    post(path, body).insert_header(consumer())
}

#[actix_web::test]
async fn readers_need_the_role_consumer_or_admin() {
    let server = TestServer::new();
    for request in [|| get(RECORDS), || get(OFFSETS), || post(OFFSETS, r#"{"cursor":"0:6"}"#)] {
        server.send(request()).await.problem(401, "UNAUTHORIZED");
        server.send(request().insert_header(user("ann"))).await.problem(403, "FORBIDDEN");
        assert_eq!(server.send(request().insert_header(consumer())).await.status, 200);
        assert_eq!(server.send(request().insert_header(admin())).await.status, 200);
    }
    server.send(get("/orders").insert_header(consumer())).await.problem(403, "FORBIDDEN");
    server.send(get("/admin/outbox").insert_header(consumer())).await.problem(403, "FORBIDDEN");
}

#[actix_web::test]
async fn without_a_log_of_its_own_the_service_names_what_to_do() {
    let server = TestServer::with_config(TestConfig { broker: false, ..TestConfig::default() });

    let refused = server.send(read("")).await.problem(501, "NOT_IMPLEMENTED");

    assert!(refused["detail"].as_str().unwrap().contains("Kafka client"), "{refused}");
    server.send(commit(OFFSETS, r#"{"cursor":"0:6"}"#)).await.problem(501, "NOT_IMPLEMENTED");
}

#[actix_web::test]
async fn records_come_as_lines_with_the_cursor_behind_them() {
    let server = TestServer::new();

    let page = server.send(read("?limit=2")).await;

    assert_eq!(page.header("content-type"), "application/x-ndjson");
    assert_eq!((page.header("cache-control"), page.header("vary")), ("no-store", "Authorization"));
    let lines: Vec<serde_json::Value> = page.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        lines[0],
        json!({"topic": "t", "partition": 0, "offset": 5, "timestamp": "1970-01-01T00:00:01.000Z", "key": "k",
            "headers": {"ce_type": "X"}, "value": {"n": 5}})
    );
    assert_eq!((lines.len(), &lines[2]), (3, &json!({"cursor": "0:7,1:0"})));
    for (query, cursor) in [("?after=0:7", "0:8,1:0"), ("?group=g", "0:8,1:0"), ("?partitions=1", "1:0")] {
        let page = server.send(read(query)).await;
        assert!(page.text().ends_with(&format!("{{\"cursor\":\"{cursor}\"}}\n")), "{query}: {}", page.text());
    }
    assert_eq!(server.send(read("?after=end")).await.text(), "{\"cursor\":\"0:8,1:0\"}\n");
    let head = TestRequest::default().method("HEAD".parse().unwrap()).uri("/topics/t/records?wait=30s&after=end");
    assert_eq!(server.send(head.insert_header(consumer())).await.status, 200);
}

#[actix_web::test]
async fn bad_requests_of_readers_are_refused_with_their_part() {
    let server = TestServer::new();
    let cases = [
        ("?after=5", 400, "after"),
        ("?after=0:5,0:6", 400, "after"),
        ("?after=2:0", 404, "there is no partition 2"),
        ("?partitions=2", 404, "there is no partition 2"),
        ("?partitions=0,x", 400, "partitions"),
        ("?limit=many", 400, "limit"),
        ("?wait=5", 400, "wait"),
        ("?group=a/b", 400, "group"),
        ("?from=0", 400, "from"),
        ("?after=0:9", 409, "partition 0 ends at 8"),
        ("?group=order-processing-group", 409, "the service's own"),
        ("?group=posthaste-invoices", 409, "the service's own"),
        ("?group=webhook-0190163d-8694-739b-aea5-966c26f8ad90", 409, "the service's own"),
        ("?after=0:3", 410, "deleted 2 records"),
        ("?group=late", 410, "use 0:5,1:0"),
    ];
    for (query, status, text) in cases {
        let refused = server.send(read(query)).await;
        assert!(refused.status == status && refused.text().contains(text), "{query}: {}", refused.text());
    }
    assert_eq!(server.send(read("?after=0:3")).await.problem(410, "GONE")["next"], "0:5,1:0");
    let unknown = get("/topics/u/records").insert_header(consumer());
    let unknown = server.send(unknown).await.problem(404, "NOT_FOUND");
    assert_eq!(unknown["detail"], "there is no topic u; there are: t");
}

#[actix_web::test]
async fn reader_of_a_group_that_reads_on_meanwhile_begins_at_its_new_offsets() {
    let server = TestServer::new();

    let page = server.send(read("?group=busy")).await;

    assert_eq!((page.status, page.text().as_str()), (200, "{\"cursor\":\"0:9,1:0\"}\n"));
}

#[actix_web::test]
async fn bad_commits_are_refused_and_change_nothing() {
    let server = TestServer::new();
    let cases = [
        (OFFSETS, r#"{}"#, 400),
        (OFFSETS, r#"{"cursor":5}"#, 400),
        (OFFSETS, r#"{"cursor":"0-5"}"#, 400),
        (OFFSETS, r#"{"cursor":"0:5","reset":"yes"}"#, 400),
        (OFFSETS, r#"{"cursor":"0:5","rest":true}"#, 400),
        (OFFSETS, r#"{"cursor":"2:0"}"#, 404),
        (OFFSETS, r#"{"cursor":"0:9"}"#, 409),
        ("/groups/g/topics/u/offsets", r#"{"cursor":"0:5"}"#, 404),
        ("/groups/order-processing-group/topics/t/offsets", r#"{"cursor":"0:5"}"#, 409),
        ("/groups/posthaste-t/topics/t/offsets", r#"{"cursor":"end"}"#, 409),
        ("/groups/webhook-0190163d-8694-739b-aea5-966c26f8ad90/topics/t/offsets", r#"{"cursor":"end"}"#, 409),
        ("/groups/one-too-many/topics/t/offsets", r#"{"cursor":"0:5"}"#, 409),
        ("/groups/a%20b/topics/t/offsets", r#"{"cursor":"0:5"}"#, 400),
        (OFFSETS, r#"{"cursor":"0:6"}"#, 200),
        (OFFSETS, r#"{"cursor":"end","reset":false}"#, 200),
        (OFFSETS, r#"{"cursor":"beginning","reset":true}"#, 200),
    ];
    for (path, body, status) in cases {
        let reply = server.send(commit(path, body)).await;
        assert_eq!(reply.status, status, "{path} {body}: {}", reply.text());
    }
    let offsets = server.send(get(OFFSETS).insert_header(consumer())).await.json();
    assert_eq!(
        offsets,
        json!({"group": "g", "topic": "t", "cursor": "0:7,1:0", "partitions": [
            {"partition": 0, "committed": 7, "first": 5, "end": 8, "lag": 1},
            {"partition": 1, "committed": null, "first": 0, "end": 0, "lag": 0}]})
    );
}

#[actix_web::test]
async fn a_wait_without_a_record_ends_in_time_and_is_bounded() {
    let server = TestServer::new();
    let app = init_service(App::new().configure(api::configure(Arc::clone(&server.state), Surface::Both))).await;
    tokio::time::pause();
    for (wait, seconds) in [("0", 0), ("5s", 5), ("1h", 30)] {
        let started = Instant::now();
        let request = read(&format!("?after=end&wait={wait}")).to_request();
        let body = actix_web::test::call_and_read_body(&app, request).await;

        assert_eq!(body, "{\"cursor\":\"0:8,1:0\"}\n");
        let waited = started.elapsed();
        let expected = Duration::from_secs(seconds);
        assert!(waited >= expected && waited < expected + Duration::from_millis(100), "{wait}: {waited:?}");
    }
}

#[actix_web::test]
async fn empty_id_of_the_last_event_begins_as_none() {
    let server = TestServer::new();
    let app = init_service(App::new().configure(api::configure(Arc::clone(&server.state), Surface::Both))).await;
    let request =
        read("?after=0:7").insert_header(("accept", "text/event-stream")).insert_header(("last-event-id", ""));

    let response = call_service(&app, request.to_request()).await;

    assert_eq!(response.status(), 200);
    let mut body = Box::pin(response.into_body());
    let first = poll_fn(|cx| body.as_mut().poll_next(cx)).await.unwrap().unwrap();
    assert_eq!(first, "retry: 2000\nid: 0:7,1:0\n\n");
}

#[actix_web::test]
async fn an_event_stream_follows_the_topic_until_its_token_expires() {
    let server = TestServer::new();
    let app = init_service(App::new().configure(api::configure(Arc::clone(&server.state), Surface::Both))).await;
    tokio::time::pause();
    let request = read("").insert_header(("accept", "text/event-stream")).insert_header(("last-event-id", "0:7,1:0"));
    let response = call_service(&app, request.to_request()).await;
    assert_eq!(response.headers().get("content-type").unwrap(), "text/event-stream");
    let mut body = Box::pin(response.into_body());
    let mut next = async || {
        let piece = poll_fn(|cx| body.as_mut().poll_next(cx)).await;
        piece.map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap())
    };

    assert_eq!(next().await.as_deref(), Some("retry: 2000\nid: 0:7,1:0\n\n"));
    let record = next().await.unwrap();
    assert!(record.starts_with("event: record\nid: 0:8,1:0\ndata: {\"topic\":\"t\"") && record.ends_with("}\n\n"));
    assert_eq!(server.metrics.topic_readers.get(), 1);
    assert_eq!(next().await.as_deref(), Some(": keep-alive\n\n"));
    // The token is valid for ten minutes, and one more of leeway.
    server.dispatch.clock.0.store(NOW + 660_000, SeqCst);
    assert_eq!(next().await, None);
    drop(body);
    assert_eq!(server.metrics.topic_readers.get(), 0);
}

#[actix_web::test]
async fn group_of_an_event_stream_stays_registered() {
    let server = TestServer::new();
    let app = init_service(App::new().configure(api::configure(Arc::clone(&server.state), Surface::Both))).await;
    tokio::time::pause();
    let request = read("?group=g&after=end").insert_header(("accept", "text/event-stream"));
    let mut body = Box::pin(call_service(&app, request.to_request()).await.into_body());
    let mut next =
        async || poll_fn(|cx| body.as_mut().poll_next(cx)).await.expect("the stream goes on").expect("a piece");
    let registrations = || server.topic_log.registrations.load(SeqCst);
    assert_eq!(registrations(), 1);

    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(200) {
        next().await;
    }

    assert_eq!(registrations(), 4);
}

#[actix_web::test]
async fn concurrent_readers_are_bounded_and_a_stop_ends_their_waits() {
    let mut config = TestConfig::default();
    config.options.reads.readers_max = 1;
    let server = TestServer::with_config(config);
    let app = init_service(App::new().configure(api::configure(Arc::clone(&server.state), Surface::Both))).await;

    let waiting = call_service(&app, read("?after=end&wait=30s").to_request()).await;
    server.send(read("?limit=1")).await.problem(503, "INFRASTRUCTURE_ERROR");
    server.state.end_streams();
    let body = actix_web::test::read_body(waiting).await;

    assert_eq!(body, "{\"cursor\":\"0:8,1:0\"}\n");
    assert_eq!(server.metrics.topic_readers.get(), 0);
}
