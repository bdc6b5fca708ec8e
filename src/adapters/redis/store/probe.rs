//! The probe of the store: whether its Redis accepts a write and keeps it.
use async_trait::async_trait;
use deadpool_redis::redis::cmd;
use domain::Timestamp;
use ports::Error;
use ports::probe::{Probe, ProbeReport};

use crate::store::client::RedisStore;

impl RedisStore {
    /// The time of the server, which measures leases and the due times of rows.
    ///
    /// # Errors
    /// The server did not answer.
    pub async fn server_time(&self) -> Result<Timestamp, Error> {
        let (seconds, micros): (i64, i64) = self.read_command("read its time", cmd("TIME")).await?;
        Ok(Timestamp::from_millis(seconds * 1_000 + micros / 1_000))
    }
}

/// The store's probe: its Redis accepts a write, and its settings still keep what was written. Its saturation is the share of the calls in
/// flight that may be: requests that Redis has not answered are its queue.
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
