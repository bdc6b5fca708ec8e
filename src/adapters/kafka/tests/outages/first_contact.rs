//! The first calls of an adapter that has not reached a broker yet.
use std::net::TcpListener;
use std::time::Duration;

use kafka::{Kafka, KafkaProbe};
use kit::TestClock;
use kit::wait::scaled;
use ports::Error;
use ports::broker::Broker;
use ports::probe::Probe;

use super::CALL_TIMEOUT;
use crate::proxy::Proxy;
use crate::support::{P0, options, servers};

fn patient(address: &str) -> Kafka {
    let mut options = options(address, &TestClock::default());
    options.connect_timeout = Duration::from_secs(3_600);
    Kafka::open(options).expect("opened")
}

/// A stop of the service waits for calls that have begun.
#[tokio::test]
async fn first_calls_end_when_connections_fail_and_not_with_the_connect_timeout() {
    let port_without_a_broker =
        TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let proxy = Proxy::to(&servers());
    proxy.cut();
    for address in [&port_without_a_broker.to_string(), &proxy.address] {
        let kafka = patient(address);

        let calls = async { (kafka.open_session(0).await, kafka.watermark(P0, None).await) };
        let calls = tokio::time::timeout(scaled(CALL_TIMEOUT), calls).await.expect("the first contact has failed");

        assert!(matches!(calls, (Err(Error::Unreachable(_)), Err(Error::Unreachable(_)))), "{address}: {calls:?}");
    }
}

#[tokio::test]
async fn first_call_waits_for_a_broker_that_answers_slowly() {
    let proxy = Proxy::to(&servers());
    proxy.hold_replies(true);
    let kafka = patient(&proxy.address);
    let first = tokio::spawn({
        let kafka = kafka.clone();
        async move { kafka.watermark(P0, None).await }
    });

    KafkaProbe(kafka).check().await.expect_err("the first contact has failed");
    assert!(!first.is_finished());
    proxy.hold_replies(false);

    assert_eq!(first.await.expect("it does not panic").expect("the broker answers"), None);
}
