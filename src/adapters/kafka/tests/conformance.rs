//! Every port's word, exactly once and at least once.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kafka::{BrokerProbe, Guarantee, Kafka};
use kit::{Backend, TestClock, conformance_suite};
use ports::Error;
use ports::broker::Broker;
use ports::probe::Probe;
use ports::source::{ConsumerGroups, GroupMember};
use ports::topics::TopicReader;

use crate::proxy::Proxy;
use crate::support::{Sweep, opened, options, servers};

struct Real {
    kafka: Kafka,
    clock: TestClock,
    _sweep: Sweep,
}

/// Groups are the broker's own and know no prefix: a case's get one.
struct Apart(Kafka);

#[async_trait]
impl ConsumerGroups for Apart {
    async fn join(
        &self,
        group: &str,
        topics: &[String],
        member: u32,
        members: u32,
    ) -> Result<Arc<dyn GroupMember>, Error> {
        let group = format!("{}{group}", self.0.options().topic_prefix);
        self.0.join(&group, topics, member, members).await
    }
}

impl Real {
    async fn open(guarantee: Guarantee) -> Self {
        let clock = TestClock::default();
        let mut options = options(&servers(), &clock);
        options.guarantee = guarantee;
        let kafka = opened(options).await;
        Self { clock, _sweep: Sweep::after(&kafka), kafka }
    }

    /// Ages are measured by the adapter's clock, pauses by the runtime's.
    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        tokio::time::pause();
        tokio::time::advance(by).await;
        tokio::time::resume();
    }
}

macro_rules! backend {
    ($name:ident, $guarantee:expr) => {
        struct $name(Real);

        #[async_trait]
        impl Backend for $name {
            async fn fresh() -> Self {
                Self(Real::open($guarantee).await)
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
            fn poll_timeout(&self) -> Duration {
                Duration::from_millis(1_500)
            }
            fn broker(&self) -> Arc<dyn Broker> {
                Arc::new(self.0.kafka.clone())
            }
            fn consumer_groups(&self) -> Arc<dyn ConsumerGroups> {
                Arc::new(Apart(self.0.kafka.clone()))
            }
            fn topics(&self) -> Arc<dyn TopicReader> {
                Arc::new(self.0.kafka.clone())
            }
        }
    };
}

backend!(ExactlyOnce, Guarantee::ExactlyOnce);

conformance_suite!(broker, ExactlyOnce);
conformance_suite!(consumer_groups, ExactlyOnce);
conformance_suite!(topics, ExactlyOnce);

/// A broker whose wire can be cut.
struct Wired {
    kafka: Kafka,
    proxy: Proxy,
}

#[async_trait]
impl Backend for Wired {
    async fn fresh() -> Self {
        let proxy = Proxy::to(&servers());
        Self { kafka: opened(options(&proxy.address, &TestClock::default())).await, proxy }
    }
    async fn advance(&self, _by: Duration) {}
    fn probes(&self) -> Vec<Arc<dyn Probe>> {
        vec![Arc::new(BrokerProbe(self.kafka.clone()))]
    }
    async fn cut_off(&self) -> bool {
        self.proxy.cut();
        true
    }
}

conformance_suite!(probe, Wired);
