//! Calls of an endpoint: what it receives, and what its response or its failure means.
use std::time::Duration;

use endpoints::{HttpEndpoint, Options};
use ports::endpoint::{EndpointError, EventEndpoint, EventRequest};
use ports::{FailureType, FaultClass};

use crate::test_server::{Reaction, TestServer};

const ACCEPTED: Reaction = Reaction::Write("HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\nok");

fn event() -> EventRequest {
    let headers: [(&str, &[u8]); 19] = [
        ("ce_id", b"0197a1f0-0000-7000-8000-000000000001"),
        ("ce_type", b"ORDER_CREATED"),
        ("ce_source", b"/posthaste/eu~1?a=b&c"),
        ("ce_partitionkey", "Z\u{fc}rich".as_bytes()),
        ("ce_subject", b"100% \"new\"\n"),
        ("content-type", b"application/json"),
        ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("x-sequence", b"1"),
        ("kafka_original-offset", &[0, 0, 0, 0, 0, 0, 0, 9]),
        ("x-forwarded-for", b"10.0.0.1"),
        ("x-Real-IP", b"10.0.0.1"),
        ("x-original-url", b"/admin"),
        ("x-rewrite_url", b"/admin"),
        ("x-http-method-override", b"DELETE"),
        ("x-originator", b"shop"),
        ("X-Tenant", b"blue"),
        ("X-Forwarded-Host", b"evil"),
        ("x-bad", b"line\r\nfeed"),
        ("id", b"0197a1f0-0000-7000-8000-000000000001"),
    ];
    let attributes = headers.into_iter().collect();
    EventRequest { attributes, body: br#"{"orderId":"1"}"#.as_slice().into() }
}

fn options(address: &str) -> Options {
    let url = format!("http://{address}/events?token=secret").parse().unwrap();
    Options { timeout: Duration::from_secs(10), ..Options::new(url) }
}

async fn call(reaction: Reaction) -> Result<(), EndpointError> {
    let server = TestServer::start(reaction).await;
    HttpEndpoint::new(options(&server.address.to_string())).send(event()).await
}

#[tokio::test]
async fn endpoint_receives_the_event_in_cloudevents_binary_mode() {
    let server = TestServer::start(ACCEPTED).await;

    HttpEndpoint::new(options(&server.address.to_string())).send(event()).await.unwrap();

    let request = server.requests().remove(0);
    let (header, body) = request.split_once("\r\n\r\n").unwrap();
    let lines: Vec<String> = header.lines().map(str::to_lowercase).collect();
    assert_eq!((lines[0].as_str(), body), ("post /events?token=secret http/1.1", r#"{"orderId":"1"}"#));
    for expected in [
        "ce-id: 0197a1f0-0000-7000-8000-000000000001",
        "ce-type: order_created",
        "ce-source: /posthaste/eu~1?a=b&c",
        "ce-partitionkey: z%c3%bcrich",
        "ce-subject: 100%25%20%22new%22%0a",
        "content-type: application/json",
        "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "x-sequence: 1",
        "x-originator: shop",
        "x-tenant: blue",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected} in {lines:?}");
    }
    for absent in ["kafka", "x-bad", "id:", "x-forwarded", "x-real", "x-original-", "x-rewrite", "x-http-method"] {
        assert!(!lines.iter().any(|line| line.starts_with(absent)), "{absent} in {lines:?}");
    }
}

#[tokio::test]
async fn events_share_a_connection_that_stays_open() {
    let server = TestServer::start(ACCEPTED).await;
    let endpoint = HttpEndpoint::new(options(&server.address.to_string()));

    for _ in 0..3 {
        endpoint.send(event()).await.unwrap();
    }

    assert_eq!((server.requests().len(), server.connections()), (3, 1));
}

#[tokio::test]
async fn redirect_is_not_followed_and_refuses_the_event() {
    let target = TestServer::start(ACCEPTED).await;
    let response =
        format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: http://{}/\r\ncontent-length: 0\r\n\r\n", target.address);

    let error = call(Reaction::Write(response.leak())).await.unwrap_err();

    assert_eq!((error.fault, target.requests().len()), (FaultClass::Permanent, 0));
    assert!(error.reason.contains("307") && error.reason.contains("not followed"), "{error}");
}

#[tokio::test]
async fn missing_response_is_a_time_out() {
    let server = TestServer::start(Reaction::Wait).await;
    let mut options = options(&server.address.to_string());
    options.timeout = Duration::from_millis(200);

    let error = HttpEndpoint::new(options).send(event()).await.unwrap_err();

    assert_eq!((error.fault, error.failure_type), (FaultClass::Transient, FailureType::Timeout));
}

#[tokio::test]
async fn cut_and_refused_connections_and_unreadable_responses_are_temporary() {
    let closed = TestServer::start(Reaction::Close).await;
    let unused = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let garbage = TestServer::start(Reaction::Write("SSH-2.0-OpenSSH_9.2\r\n\r\n")).await;

    for address in [closed.address, unused, garbage.address] {
        let error = HttpEndpoint::new(options(&address.to_string())).send(event()).await.unwrap_err();
        assert_eq!((error.fault, error.failure_type), (FaultClass::Transient, FailureType::Network), "{error}");
        assert!(!error.reason.contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn endless_body_does_not_change_the_outcome() {
    let accepted = "HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n";
    assert_eq!(call(Reaction::WriteForever(accepted)).await, Ok(()));

    let failed = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 1000000000\r\n\r\n";
    let error = call(Reaction::WriteForever(failed)).await.unwrap_err();
    assert_eq!((error.fault, error.failure_type), (FaultClass::SemiTransient, FailureType::System));
}
