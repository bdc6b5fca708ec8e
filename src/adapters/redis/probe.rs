//! `Probe`: a ping and a write, in one round trip; its saturation is the pool's. It asks also while the server counts as away, and its success ends that.
use std::time::Instant;

use async_trait::async_trait;
use deadpool_redis::redis;
use ports::Error;
use ports::probe::{Probe, ProbeReport};

use crate::link::{Ask, Caller};
use crate::open::Redis;

/// What the probe writes outlives some rounds and not the service.
const LEFT_FOR_MS: u64 = 60_000;

#[async_trait]
impl Probe for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn check(&self) -> Result<ProbeReport, Error> {
        let inner = &self.inner;
        let mut pipe = redis::pipe();
        pipe.cmd("PING").ignore();
        let name = inner.names.probe(&inner.options.instance);
        pipe.cmd("SET").arg(name).arg(&inner.boot).arg("PX").arg(LEFT_FOR_MS).ignore();
        let begun = Instant::now();
        let () = inner.ask_anyway(Caller::Probe, "probe", Ask::Pipe(&pipe)).await?;
        let latency = begun.elapsed();
        inner.back();
        Ok(ProbeReport { latency })
    }

    fn saturation(&self) -> Option<f64> {
        let pool = self.inner.pool.status();
        Some((pool.size - pool.available.min(pool.size)) as f64 / pool.max_size.max(1) as f64)
    }
}
