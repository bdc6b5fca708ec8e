//! The probe of the store: whether its Redis accepts a write and keeps it.
use async_trait::async_trait;
use ports::Error;
use ports::probe::{Probe, ProbeReport};

use crate::store::client::RedisStore;

/// The store's probe: its Redis accepts a write, and its settings still keep what was written.
pub struct RedisStoreProbe(pub RedisStore);

#[async_trait]
impl Probe for RedisStoreProbe {
    fn name(&self) -> &'static str {
        "db"
    }

    async fn check(&self) -> Result<ProbeReport, Error> {
        let report = self.0.inner.redis.check().await?;
        self.0.recheck_durability().await?;
        Ok(report)
    }

    fn saturation(&self) -> Option<f64> {
        self.0.inner.redis.saturation()
    }
}
