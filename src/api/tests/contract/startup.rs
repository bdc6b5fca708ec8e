//! The startup server, while the store is unavailable: live, not started, and problems for all other routes.
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use api::{Listeners, StartupContext, serve_startup};
use domain::Timestamp;
use kit::wait::scaled;
use serde_json::Value;
use telemetry::Metrics;

use crate::connections::request_bodies::{assert_last_response, chunked, chunks_and_next_request, until_close};
use crate::server::{blocking, exchange, head};

/// Runs of which one must keep to a limit.
const RUNS_MAX: usize = 5;

fn context() -> StartupContext {
    StartupContext {
        region: "r1".into(),
        metrics: Metrics::new(),
        now: || Timestamp::from_millis(0),
        header_timeout: scaled(Duration::from_secs(5)),
        body_timeout: Duration::from_secs(30),
        max_connections: 10,
    }
}

#[actix_web::test]
async fn while_the_store_is_unavailable_probes_and_problems_are_served() {
    let listeners = Listeners::bind("127.0.0.1:0", None).unwrap();
    let address = listeners.addresses().unwrap()[0];
    let startup = serve_startup(&listeners, &context()).unwrap();

    blocking(move || {
        let send = |path: &str| exchange(address, head(&format!("GET {path} HTTP/1.1\r\nx-request-id: me")));
        for (path, status) in [("/livez", 200), ("/actuator/health/liveness", 200), ("/metrics", 200)] {
            let response = send(path);
            assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {response}");
        }
        for path in ["/startupz", "/readyz", "/actuator/health", "/actuator/health/readiness", "/orders", "/no/such"] {
            let response = send(path);
            assert!(
                response.starts_with("HTTP/1.1 503 ") && response.contains("retry-after: 5\r\n"),
                "{path}: {response}"
            );
            assert!(
                response.contains("x-request-id: me\r\n") && response.contains("x-region-id: r1\r\n"),
                "{response}"
            );
        }
        let refused = send("/orders");
        assert!(refused.contains("content-type: application/problem+json\r\n"), "{refused}");
        assert!(
            refused.contains("cache-control: private, no-cache\r\n") && refused.contains("vary: Authorization\r\n")
        );
        let body: Value = serde_json::from_str(refused.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert_eq!((&body["code"], &body["status"]), (&"INFRASTRUCTURE_ERROR".into(), &503.into()));
        assert_eq!((&body["instance"], &body["requestId"]), (&"/orders".into(), &"me".into()));
        assert!(send("/metrics").contains("# TYPE outbox_pending_count gauge"));
    })
    .await;
    startup.stop().await;
}

#[actix_web::test]
async fn while_the_store_is_unavailable_nothing_follows_the_response_to_an_unread_body() {
    let listeners = Listeners::bind("127.0.0.1:0", None).unwrap();
    let address = listeners.addresses().unwrap()[0];
    let startup = serve_startup(&listeners, &context()).unwrap();

    blocking(move || {
        for (status, line) in [(503, "POST /orders"), (503, "GET /readyz"), (200, "GET /livez")] {
            for chunks in [3, 4, 40] {
                let mut bytes = chunked(line, &[]).into_bytes();
                bytes.extend(chunks_and_next_request(chunks));
                assert_last_response(&until_close(address, &bytes), status, &format!("{line}, {chunks} chunks"));
            }
        }
    })
    .await;
    startup.stop().await;
}

#[actix_web::test]
async fn while_the_store_is_unavailable_the_configured_limits_hold() {
    // Other work on the machine may delay some runs for as long as the default limit.
    for _ in 0..RUNS_MAX {
        if time_of_a_refusal().await < Duration::from_secs(4) {
            return;
        }
    }
    panic!("the default is 5 s");
}

/// The time until a client that never completes its head is refused, and the next one is served.
async fn time_of_a_refusal() -> Duration {
    let listeners = Listeners::bind("127.0.0.1:0", None).unwrap();
    let address = listeners.addresses().unwrap()[0];
    let header_timeout = Duration::from_millis(300);
    let startup =
        serve_startup(&listeners, &StartupContext { header_timeout, max_connections: 1, ..context() }).unwrap();

    let took = blocking(move || {
        let started = Instant::now();
        let mut late = TcpStream::connect(address).unwrap();
        late.write_all(b"GET /livez HTTP/1.1\r\n").unwrap();

        let response = exchange(address, head("GET /livez HTTP/1.1"));

        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        assert!(started.elapsed() >= header_timeout, "a second connection had to wait for the end of the first");
        let mut refused = String::new();
        late.read_to_string(&mut refused).unwrap();
        assert!(refused.starts_with("HTTP/1.1 408 "), "{refused}");
        started.elapsed()
    })
    .await;
    startup.stop().await;
    took
}
