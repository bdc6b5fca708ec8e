//! The first calls of an adapter that has not reached a broker yet.
use std::time::Duration;

use kafka::{Kafka, KafkaProbe};
use kit::TestClock;
use kit::wait::{scaled, until_answered};
use ports::Error;
use ports::broker::Broker;
use ports::partitions::Token;
use ports::probe::Probe;

use super::CALL_TIMEOUT;
use crate::proxy::Proxy;
use crate::support::{P0, TIMEOUT, options, servers};

/// Not a free port: another test may get the same one.
const PORT_WITHOUT_A_BROKER: &str = "127.0.0.1:1";

fn patient(address: &str) -> Kafka {
    let mut options = options(address, &TestClock::default());
    options.connect_timeout = Duration::from_secs(3_600);
    Kafka::open(options).expect("opened")
}

/// A stop of the service waits for calls that have begun.
#[tokio::test]
async fn first_calls_end_when_connections_are_refused_and_not_with_the_connect_timeout() {
    let kafka = patient(PORT_WITHOUT_A_BROKER);

    let calls = async { (kafka.open_session(0).await, kafka.watermark(P0, None).await) };
    let calls = tokio::time::timeout(scaled(CALL_TIMEOUT), calls).await.expect("the first contact has failed");

    assert!(matches!(calls, (Err(Error::Unreachable(_)), Err(Error::Unreachable(_)))), "{calls:?}");
}

/// Holds the replies of the broker until the first contact has failed; returns the result of a call that began before.
async fn call_before_a_late_response(proxy: &Proxy) -> Result<Option<Token>, Error> {
    proxy.hold_replies(true);
    let kafka = patient(&proxy.address);
    let first = tokio::spawn({
        let kafka = kafka.clone();
        async move { kafka.watermark(P0, None).await }
    });
    KafkaProbe(kafka).check().await.expect_err("the first contact has failed");
    proxy.hold_replies(false);
    first.await.expect("it does not panic")
}

#[tokio::test]
async fn first_call_waits_for_a_broker_that_answers_slowly() {
    let proxy = Proxy::to(&servers());

    // Repeated where a pause of the machine exceeds the ten seconds after which the client itself ends the connection.
    let result = until_answered(TIMEOUT, || call_before_a_late_response(&proxy)).await;

    assert_eq!(result.expect("the broker answers"), None);
}
