//! While the store is not there yet: alive, not started, and every refusal in the envelope.
use api::{Early, Listeners, wait_on};
use domain::Timestamp;
use serde_json::Value;
use telemetry::Metrics;

use crate::server::{blocking, exchange, head};

#[actix_web::test]
async fn a_service_that_waits_for_its_store_answers_in_the_shapes_clients_know() {
    let listeners = Listeners::bind("127.0.0.1:0", None).unwrap();
    let address = listeners.addresses().unwrap()[0];
    let early = Early { region: "r1".into(), metrics: Metrics::new(), now: || Timestamp::from_millis(0) };
    let waiting = wait_on(&listeners, &early).unwrap();

    blocking(move || {
        let ask = |path: &str| exchange(address, head(&format!("GET {path} HTTP/1.1\r\nx-request-id: me")));
        for (path, status) in [("/livez", 200), ("/actuator/health/liveness", 200), ("/metrics", 200)] {
            let answer = ask(path);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        }
        for path in ["/startupz", "/readyz", "/actuator/health", "/actuator/health/readiness", "/orders", "/no/such"] {
            let answer = ask(path);
            assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 5\r\n"), "{path}: {answer}");
            assert!(answer.contains("x-request-id: me\r\n") && answer.contains("x-region-id: r1\r\n"), "{answer}");
        }
        let refused = ask("/orders");
        assert!(refused.contains("content-type: application/problem+json\r\n"), "{refused}");
        let body: Value = serde_json::from_str(refused.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert_eq!((&body["code"], &body["status"]), (&"INFRASTRUCTURE_ERROR".into(), &503.into()));
        assert_eq!((&body["instance"], &body["requestId"]), (&"/orders".into(), &"me".into()));
        assert!(ask("/metrics").contains("# TYPE outbox_pending_count gauge"));
    })
    .await;
    waiting.stop().await;
}
