//! The port `Probe`: a commit that reaches the server's disk.
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use async_trait::async_trait;
use ports::Error;
use ports::probe::{Probe, ProbeReport};
use tokio::time::Instant;
use tokio_postgres::types::Type;

use crate::connection::session::PooledSession;
use crate::connection::sql_value::get;
use crate::connection::statement_error::StatementResult;
use crate::store::context::StoreContext;
use crate::store::oldest_transaction::AGE;
use crate::store::postgres::Postgres;

/// Probes the store by rewriting and committing a row. Its saturation is the larger of two shares: service connections in use, and the
/// fill of the commit queue.
pub struct PostgresProbe(pub Postgres);

const HEARTBEAT: &str = "INSERT INTO store_probe (instance, beaten_at) VALUES ($1, clock_timestamp())
     ON CONFLICT (instance) DO UPDATE SET beaten_at = excluded.beaten_at";

/// Larger than the free part of any allocated page.
const ALLOCATE: &str = "INSERT INTO disk_space_probe SELECT repeat('x', 262144)";

#[async_trait]
impl Probe for PostgresProbe {
    fn name(&self) -> &'static str {
        "db"
    }

    async fn check(&self) -> Result<ProbeReport, Error> {
        let started = Instant::now();
        let context = self.0.context();
        self.0.run("probe", async move { probe(&context).await }).await?;
        Ok(ProbeReport { latency: started.elapsed() })
    }

    fn saturation(&self) -> Option<f64> {
        Some(self.0.context().saturation().max(self.0.inner.opened.commits.saturation()))
    }
}

async fn probe(context: &Arc<StoreContext>) -> StatementResult<()> {
    if context.disk_full.load(Relaxed) {
        allocate(context.relay_session().await?).await?;
        context.disk_full.store(false, Relaxed);
    }
    context.relay_session().await?.execute(HEARTBEAT, &[(&&*context.options.instance.0, Type::TEXT)]).await?;
    if context.age_samples.begin() {
        let context = Arc::clone(context);
        // In a task of its own, so that the probe does not wait for it. After a failure the gauge keeps its value until the next sample.
        tokio::spawn(async move { drop(sample_transaction_age(&context).await) });
    }
    Ok(())
}

/// Allocates 256 KiB in a transaction that is rolled back. A disk that was full counts as repaired only after this: the heartbeat fits into allocated
/// pages, and would succeed on a disk where no order can be written.
///
/// # Errors
/// The class `DiskFull` if the server has no space.
pub(crate) async fn allocate(session: PooledSession) -> StatementResult<()> {
    let (transaction, _) = session.begin_with(ALLOCATE, &[]).await?;
    transaction.rollback().await
}

async fn sample_transaction_age(context: &StoreContext) -> StatementResult<()> {
    let Some(metrics) = &context.options.metrics else { return Ok(()) };
    let rows = context.relay_session().await?.query(AGE, &[]).await?;
    let age: Option<f64> = rows.first().map(|row| get(row, 0)).transpose()?.flatten();
    metrics.db_oldest_transaction_age_seconds.set(age.unwrap_or_default().max(0.0));
    Ok(())
}
