//! `Probe`: a sign of life that takes metadata, the leaders of our topics, and the controller.
use async_trait::async_trait;
use ports::Error;
use ports::probe::{Probe, ProbeReport};

use crate::keeper::Ask;
use crate::open::Kafka;

/// The broker's pulse. It fails, with the reason, while the installation's topics are not as they must be.
pub struct BrokerProbe(pub Kafka);

#[async_trait]
impl Probe for BrokerProbe {
    fn name(&self) -> &'static str {
        "broker"
    }

    async fn check(&self) -> Result<ProbeReport, Error> {
        self.0.inner.keeper.ask(|answer| Ask::ProbeReport { answer }).await
    }
}
