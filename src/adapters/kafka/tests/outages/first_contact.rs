//! The first calls of an adapter that has not reached a broker yet.
use std::net::TcpListener;
use std::time::Duration;

use kafka::Kafka;
use kit::TestClock;
use kit::wait::scaled;
use ports::Error;
use ports::broker::Broker;

use super::CALL_TIMEOUT;
use crate::proxy::Proxy;
use crate::support::{P0, options, servers};

/// A stop of the service waits for calls that have begun.
#[tokio::test]
async fn first_calls_end_with_the_first_failed_contact_and_not_with_the_connect_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let closed = Proxy::to(&servers());
    closed.cut();
    for address in [silent.local_addr().expect("bound").to_string(), closed.address.clone()] {
        let mut options = options(&address, &TestClock::default());
        options.connect_timeout = Duration::from_secs(3_600);
        let kafka = Kafka::open(options).expect("opened");

        let calls = async { (kafka.open_session(0).await, kafka.watermark(P0, None).await) };
        let calls = tokio::time::timeout(scaled(CALL_TIMEOUT), calls).await.expect("the first contact has failed");

        assert!(matches!(calls, (Err(Error::Unreachable(_)), Err(Error::Unreachable(_)))), "{address}: {calls:?}");
    }
}
