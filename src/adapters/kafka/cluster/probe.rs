//! `Probe`: checks the cluster's metadata, the leaders of the installation's topics, and the controller.
use async_trait::async_trait;
use ports::Error;
use ports::probe::{Probe, ProbeReport};

use crate::adapter::Kafka;
use crate::cluster::watcher::ClusterRequest;

/// The broker's health probe. It fails, with the reason, while the installation's topics are missing or have wrong settings.
pub struct KafkaProbe(pub Kafka);

#[async_trait]
impl Probe for KafkaProbe {
    fn name(&self) -> &'static str {
        "broker"
    }

    async fn check(&self) -> Result<ProbeReport, Error> {
        self.0.inner.watcher.request(|reply| ClusterRequest::Probe { reply }).await
    }
}
