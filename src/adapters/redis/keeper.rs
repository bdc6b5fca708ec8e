//! The keeper: one small task for each handle. It says that the process lives, raises the cache's epoch when that is due, ends keys whose
//! end could not be told, and looks for a server that is away. It holds the handle only while it works, so that it ends with the last of them.
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use deadpool_redis::redis;
use ports::Error;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::link::{Ask, Caller};
use crate::open::Inner;

pub(crate) async fn keep(inner: Weak<Inner>, wake: Arc<Notify>) {
    let mut pause = Duration::ZERO;
    loop {
        let Some(inner) = inner.upgrade().filter(|inner| !inner.pool.is_closed()) else { return };
        let (first, max) = (inner.options.retry_first, inner.options.retry_max);
        let well = inner.tend().await.is_ok();
        pause = if well { Duration::ZERO } else { (pause * 2).clamp(first, max.max(first)) };
        let heartbeat = inner.options.heartbeat;
        drop(inner);
        if well {
            // Called or not, the next turn finds out what there is to do. Doubts in quick succession are answered by one raise.
            let _ = timeout(heartbeat, wake.notified()).await;
            sleep(first).await;
        } else {
            // Whoever calls now has only met what we know.
            sleep(pause).await;
        }
    }
}

impl Inner {
    async fn tend(&self) -> Result<(), Error> {
        let doubts = self.trust.lock().open();
        if let Some(doubts) = doubts {
            let epoch = self.raise().await?;
            self.trust.lock().raised(doubts, epoch, Instant::now());
        }
        self.beat().await?;
        self.back();
        self.pay().await
    }

    /// From now on nothing that stands in the cache is shown to anyone.
    async fn raise(&self) -> Result<u64, Error> {
        let mut raise = self.scripts.cache_raise.prepare_invoke();
        raise.key(self.names.epoch());
        self.ask_anyway(Caller::Keeper, "raise the cache's epoch", Ask::Script(&raise)).await
    }

    /// Renews the sign of life, and looks whether the epoch is still there.
    async fn beat(&self) -> Result<(), Error> {
        let mut pipe = redis::pipe();
        let life = u64::try_from(self.options.dead_after.as_millis()).unwrap_or(u64::MAX);
        let sign = self.names.sign(&self.options.instance);
        pipe.cmd("SET").arg(sign).arg(&self.boot).arg("PX").arg(life).ignore();
        pipe.get(self.names.epoch());
        let (epoch,): (Option<String>,) = self.ask_anyway(Caller::Keeper, "sign of life", Ask::Pipe(&pipe)).await?;
        let epoch = epoch.and_then(|text| text.parse().ok());
        if self.trust.lock().found(epoch, Instant::now()) {
            self.wake.notify_one();
        }
        Ok(())
    }
}
