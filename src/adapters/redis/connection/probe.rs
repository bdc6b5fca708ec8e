//! `Probe`: a ping and a write in one round trip; saturation is the share of the calls that may be in flight. It calls the server also while that
//! is marked unavailable, and an answer ends that state.
use std::time::Instant;

use async_trait::async_trait;
use deadpool_redis::redis;
use ports::Error;
use ports::probe::{Probe, ProbeReport};

use crate::connection::call::{Caller, Request};
use crate::connection::client::Redis;

/// Time to live of the probe's key: some rounds of probes, so that it disappears after the service.
const PROBE_TTL_MS: u64 = 60_000;

#[async_trait]
impl Probe for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn check(&self) -> Result<ProbeReport, Error> {
        let inner = &self.inner;
        let mut pipeline = redis::pipe();
        pipeline.cmd("PING").ignore();
        let key = inner.keys.probe(&inner.options.instance);
        pipeline.cmd("SET").arg(key).arg(&inner.boot_id).arg("PX").arg(PROBE_TTL_MS).ignore();
        let started = Instant::now();
        let written = inner.try_call(Caller::Probe, "probe", Request::Pipeline(&pipeline)).await;
        let latency = started.elapsed();
        inner.mark_available_after_write(&written);
        written?;
        Ok(ProbeReport { latency })
    }

    fn saturation(&self) -> Option<f64> {
        Some(self.inner.connection.saturation())
    }
}
