//! The maintenance task: one for each handle. It renews the heartbeat, raises the cache's epoch when that is due, sends the releases of
//! keys that failed, and tries a server that is unavailable. It holds the handle only while it works, so that it ends with the last one.
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use deadpool_redis::redis;
use ports::Error;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::connection::call::{Caller, Request};
use crate::connection::client::RedisInner;

pub(crate) async fn run(inner: Weak<RedisInner>, wakeup: Arc<Notify>) {
    let mut delay = Duration::ZERO;
    loop {
        let Some(inner) = inner.upgrade().filter(|inner| !inner.connection.is_closed()) else { return };
        let (delay_min, delay_max) = (inner.options.retry_delay_min, inner.options.retry_delay_max);
        let succeeded = inner.maintain().await.is_ok();
        delay = if succeeded { Duration::ZERO } else { (delay * 2).clamp(delay_min, delay_max.max(delay_min)) };
        let heartbeat_interval = inner.options.heartbeat_interval;
        drop(inner);
        if succeeded {
            // After a wake-up or the interval, the next round does all pending work. The pause lets one raise serve several reasons.
            let _ = timeout(heartbeat_interval, wakeup.notified()).await;
            sleep(delay_min).await;
        } else {
            // A wake-up brings no news while the server is unavailable.
            sleep(delay).await;
        }
    }
}

impl RedisInner {
    async fn maintain(&self) -> Result<(), Error> {
        let written = self.write_epoch_and_heartbeat().await;
        self.mark_available_after_write(&written);
        written?;
        self.flush_pending_releases().await
    }

    async fn write_epoch_and_heartbeat(&self) -> Result<(), Error> {
        self.raise_epoch_if_invalid().await?;
        self.send_heartbeat().await
    }

    /// Raises the epoch if the cache is invalid for this process, which ends every invalidation so far.
    pub(crate) async fn raise_epoch_if_invalid(&self) -> Result<(), Error> {
        let invalidations = self.epoch.lock().invalidations_to_end();
        if let Some(invalidations) = invalidations {
            let epoch = self.raise_epoch().await?;
            self.epoch.lock().record_raise(invalidations, epoch, Instant::now());
        }
        Ok(())
    }

    /// After this no instance serves an entry that was written before.
    async fn raise_epoch(&self) -> Result<u64, Error> {
        let mut raise = self.scripts.raise_epoch.prepare_invoke();
        raise.key(self.keys.epoch());
        self.try_call(Caller::Maintenance, "raise the cache's epoch", Request::Script(&raise)).await
    }

    /// Renews the heartbeat, and checks whether the epoch is still stored.
    async fn send_heartbeat(&self) -> Result<(), Error> {
        let mut pipeline = redis::pipe();
        let ttl_ms = u64::try_from(self.options.dead_after.as_millis()).unwrap_or(u64::MAX);
        let key = self.keys.heartbeat(&self.options.instance);
        pipeline.cmd("SET").arg(key).arg(&self.boot_id).arg("PX").arg(ttl_ms).ignore();
        pipeline.get(self.keys.epoch());
        let has_left = self.has_left.lock().await;
        if *has_left {
            return Ok(());
        }
        let (epoch,): (Option<String>,) =
            self.try_call(Caller::Maintenance, "heartbeat", Request::Pipeline(&pipeline)).await?;
        drop(has_left);
        let epoch = epoch.and_then(|text| text.parse().ok());
        if self.epoch.lock().check_stored(epoch, Instant::now()) {
            self.maintenance.notify_one();
        }
        Ok(())
    }
}
