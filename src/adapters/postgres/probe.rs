//! `Probe`: a sign of life that takes the whole way to the disk.
use std::sync::atomic::Ordering::Relaxed;

use async_trait::async_trait;
use ports::Error;
use ports::probe::{Probe, ProbeReport};
use tokio::time::Instant;
use tokio_postgres::types::Type;

use crate::error::Answer;
use crate::store::{Core, Postgres};

/// The store's pulse: a row rewritten and committed. Its saturation is the larger of two shares: connections in use, and the queue of
/// commits.
pub struct StoreProbe(pub Postgres);

const BEAT: &str = "INSERT INTO heartbeat (instance, beaten_at) VALUES ($1, clock_timestamp())
     ON CONFLICT (instance) DO UPDATE SET beaten_at = excluded.beaten_at";

/// Room that must be seen before a disk that was full counts as mended: the pulse itself fits into pages that are there already, and
/// would beat on a disk where no order can be written.
const ROOM: &str = "INSERT INTO room SELECT repeat('x', 262144)";

#[async_trait]
impl Probe for StoreProbe {
    fn name(&self) -> &'static str {
        "db"
    }

    async fn check(&self) -> Result<ProbeReport, Error> {
        let begun = Instant::now();
        let core = self.0.core();
        self.0.run("probe", async move { beat(&core).await }).await?;
        Ok(ProbeReport { latency: begun.elapsed() })
    }

    fn saturation(&self) -> Option<f64> {
        Some(self.0.core().saturation().max(self.0.inner.queue.fill()))
    }
}

async fn beat(core: &Core) -> Answer<()> {
    if core.full.load(Relaxed) {
        let (transaction, _) = core.relay().await?.begin_with(ROOM, &[]).await?;
        transaction.rollback().await?;
        core.full.store(false, Relaxed);
    }
    core.relay().await?.once(BEAT, &[(&&*core.options.instance.0, Type::TEXT)]).await.map(|_| ())
}
