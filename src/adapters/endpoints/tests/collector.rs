//! Requests to a collector of spans: what it receives, and what a failure says.
use std::time::Duration;

use endpoints::{CollectorEndpoint, CollectorOptions};
use ureq::http::{HeaderMap, HeaderValue};

use crate::test_server::{Reaction, TestServer};

const WAIT_MAX: Duration = Duration::from_secs(10);

fn collector(server: &TestServer) -> CollectorEndpoint {
    let url = format!("http://{}/secret-tenant/v1/traces", server.address).parse().unwrap();
    let headers = HeaderMap::from_iter([("authorization".parse().unwrap(), HeaderValue::from_static("Bearer secret"))]);
    CollectorEndpoint::new(CollectorOptions { url, headers, roots: None })
}

/// Posts on a blocking thread, as the exporter does, while this one serves.
async fn post(collector: CollectorEndpoint, timeout: Duration) -> Result<(u16, Vec<u8>), String> {
    tokio::task::spawn_blocking(move || collector.post(b"{}", timeout)).await.unwrap()
}

#[tokio::test]
async fn collector_receives_json_with_the_configured_headers() {
    let response = "HTTP/1.1 200 OK\r\ncontent-length: 21\r\n\r\n{\"partialSuccess\":{}}";
    let server = TestServer::start(Reaction::Write(response)).await;

    let reply = post(collector(&server), WAIT_MAX).await;

    assert_eq!(reply, Ok((200, b"{\"partialSuccess\":{}}".to_vec())));
    let request = server.requests().remove(0).to_lowercase();
    for expected in
        ["post /secret-tenant/v1/traces http", "content-type: application/json", "authorization: bearer secret"]
    {
        assert!(request.contains(expected), "{expected} in {request}");
    }
    assert!(request.ends_with("\r\n\r\n{}"), "{request}");
}

#[tokio::test]
async fn status_of_a_refusal_is_a_reply_and_silence_is_an_error_without_secrets() {
    let refusing = TestServer::start(Reaction::Write("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")).await;
    let silent = TestServer::start(Reaction::Wait).await;
    let closed = TestServer::start(Reaction::Close).await;

    assert_eq!(post(collector(&refusing), WAIT_MAX).await, Ok((401, Vec::new())));
    for server in [silent, closed] {
        let error = post(collector(&server), Duration::from_millis(200)).await.unwrap_err();
        assert!(error.contains("127.0.0.1") && !error.contains("secret"), "{error}");
    }
}
