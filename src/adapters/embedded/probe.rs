//! `Probe`: signs of life that take the whole way to the disk.
use async_trait::async_trait;
use ports::Error;
use ports::probe::{Probe, Pulse};
use tokio::time::Instant;

use crate::open::Embedded;

/// The store's pulse: a row rewritten through the writer. Its saturation is the writer's queue.
pub struct StoreProbe(pub Embedded);

/// The broker's pulse. It lives in the same file, so it beats or stops with the store.
pub struct BrokerProbe(pub Embedded);

#[async_trait]
impl Probe for StoreProbe {
    fn name(&self) -> &'static str {
        "db"
    }

    async fn check(&self) -> Result<Pulse, Error> {
        let saturation = self.0.saturation();
        let pulse = beat(&self.0).await?;
        Ok(Pulse { saturation: Some(saturation), ..pulse })
    }
}

#[async_trait]
impl Probe for BrokerProbe {
    fn name(&self) -> &'static str {
        "broker"
    }

    async fn check(&self) -> Result<Pulse, Error> {
        beat(&self.0).await
    }
}

async fn beat(store: &Embedded) -> Result<Pulse, Error> {
    let begun = Instant::now();
    store
        .write("probe", |work| {
            let mut beat = work.sql.prepare_cached(
                "INSERT INTO heartbeat (one, beaten_at) VALUES (1, ?1) ON CONFLICT DO UPDATE SET beaten_at = excluded.beaten_at",
            )?;
            beat.execute([work.now.millis()])?;
            Ok(())
        })
        .await?;
    Ok(Pulse { latency: begun.elapsed(), saturation: None })
}
