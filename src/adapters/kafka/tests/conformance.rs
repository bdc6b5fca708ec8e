//! The conformance suites of the ports.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kafka::{DeliveryGuarantee, Kafka, KafkaProbe};
use kit::{Backend, TestClock, conformance_suite};
use ports::broker::Broker;
use ports::broker::consumer_groups::ConsumerGroups;
use ports::broker::topics::TopicReader;
use ports::probe::Probe;

use crate::proxy::Proxy;
use crate::support::{TopicCleanup, opened, options, servers, settle};

struct KafkaFixture {
    kafka: Kafka,
    clock: TestClock,
    _cleanup: TopicCleanup,
}

impl KafkaFixture {
    async fn open(guarantee: DeliveryGuarantee) -> Self {
        let clock = TestClock::default();
        let mut options = options(&servers(), &clock);
        options.guarantee = guarantee;
        let kafka = opened(options).await;
        Self { clock, _cleanup: TopicCleanup::after(&kafka), kafka }
    }

    /// Advances the adapter's clock, which measures ages, and the runtime's clock, which measures pauses.
    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        tokio::time::pause();
        tokio::time::advance(by).await;
        tokio::time::resume();
    }
}

macro_rules! backend {
    ($name:ident, $guarantee:expr) => {
        struct $name(KafkaFixture);

        #[async_trait]
        impl Backend for $name {
            async fn fresh() -> Self {
                Self(KafkaFixture::open($guarantee).await)
            }
            async fn advance(&self, by: Duration) {
                self.0.advance(by).await;
            }
            fn partitions(&self) -> u32 {
                self.0.kafka.options().partitions
            }
            fn topic(&self) -> Arc<str> {
                self.0.kafka.options().topic("order.events").into()
            }
            fn settle(&self) {
                settle(&self.0.kafka.options().all_topics());
            }
            fn poll_timeout(&self) -> Duration {
                Duration::from_millis(1_500)
            }
            fn broker(&self) -> Arc<dyn Broker> {
                Arc::new(self.0.kafka.clone())
            }
            fn consumer_groups(&self) -> Arc<dyn ConsumerGroups> {
                Arc::new(self.0.kafka.clone())
            }
            fn topics(&self) -> Arc<dyn TopicReader> {
                Arc::new(self.0.kafka.clone())
            }
        }
    };
}

backend!(ExactlyOnce, DeliveryGuarantee::ExactlyOnce);

conformance_suite!(broker, ExactlyOnce);
conformance_suite!(consumer_groups, ExactlyOnce);
conformance_suite!(topics, ExactlyOnce);

/// A broker behind a proxy that can cut its connections.
struct Proxied {
    kafka: Kafka,
    proxy: Proxy,
}

#[async_trait]
impl Backend for Proxied {
    async fn fresh() -> Self {
        let proxy = Proxy::to(&servers());
        Self { kafka: opened(options(&proxy.address, &TestClock::default())).await, proxy }
    }
    async fn advance(&self, _by: Duration) {}
    fn probes(&self) -> Vec<Arc<dyn Probe>> {
        vec![Arc::new(KafkaProbe(self.kafka.clone()))]
    }
    async fn disconnect(&self) {
        self.proxy.cut();
    }
}

conformance_suite!(probe, Proxied);
