//! A client disconnects before its response: actix drops the future of its request.
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::support::test_server::*;

/// The value of a series in the exposition of the metrics.
fn value_of(server: &TestServer, series: &str) -> Option<f64> {
    let text = server.metrics.render();
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

#[actix_web::test]
async fn a_change_is_completed_and_counted_without_its_client() {
    let server = TestServer::new();
    tokio::time::pause();
    *server.dispatch.is_paused.lock() = true;
    let failures = "orders_operation_failure_count_total{operation=\"create\"}";
    let request = server.send(post("/orders", ORDER).insert_header(user("ann")));

    let gone = timeout(Duration::from_millis(100), request).await;

    assert!(gone.is_err(), "the command waits in its mailbox");
    assert_eq!(value_of(&server, failures), None);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(value_of(&server, failures), Some(1.0), "it has expired");
}

#[actix_web::test]
async fn a_request_without_a_response_is_counted() {
    let server = TestServer::new();
    *server.dispatch.is_paused.lock() = true;
    let request = server.send(post("/orders", ORDER).insert_header(user("ann")));

    assert!(timeout(Duration::from_millis(100), request).await.is_err(), "the command waits in its mailbox");

    let count = "http_server_requests_seconds_count{method=\"POST\",status=\"499\",uri=\"/orders\"}";
    assert_eq!(value_of(&server, count), Some(1.0), "{}", server.metrics.render());
}
