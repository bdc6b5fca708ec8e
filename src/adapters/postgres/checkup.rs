//! What a database tells whoever asks what is wrong: its clock, what it keeps on disk, and who holds its old rows back.
use std::time::Duration;

use domain::Timestamp;
use ports::Error;
use tokio::time::Instant;

use crate::error::{Answer, broken};
use crate::store::{Core, Postgres};
use crate::value::{get, get_time};

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkup {
    /// The server's version.
    pub version: String,
    /// Its clock, in the middle of the question.
    pub now: Timestamp,
    /// How long the question took.
    pub latency: Duration,
    /// Whether a commit that was answered survives a power cut.
    pub durable: bool,
    /// Age of the oldest transaction that still sees old rows, also of other databases' users and replication slots: it keeps the outbox
    /// from being cleaned.
    pub oldest_transaction: Option<Duration>,
    /// Connections in use, and how many there may be.
    pub connections: (u64, u64),
}

const ASK: &str = "SELECT current_setting('server_version'), clock_timestamp(),
     current_setting('fsync') = 'on' AND current_setting('synchronous_commit') <> 'off',
     extract(epoch FROM clock_timestamp() - (SELECT min(xact_start) FROM pg_stat_activity
       WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'))::float8,
     (SELECT count(*) FROM pg_stat_activity), current_setting('max_connections')::int8";

impl Postgres {
    /// Asks the database how it is. Changes nothing.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn checkup(&self) -> Result<Checkup, Error> {
        let core = self.core();
        self.run("checkup", async move { ask(&core).await }).await
    }
}

async fn ask(core: &Core) -> Answer<Checkup> {
    let session = core.others().await?;
    // The first question of a session pays for its preparation.
    session.read("SELECT 1", &[]).await?;
    let begun = Instant::now();
    let rows = session.read(ASK, &[]).await?;
    let row = rows.first().ok_or_else(|| broken("the checkup has no row"))?;
    let age: Option<f64> = get(row, 3)?;
    Ok(Checkup {
        version: get(row, 0)?,
        now: get_time(row, 1)?,
        latency: begun.elapsed(),
        durable: get(row, 2)?,
        oldest_transaction: age.map(|age| Duration::try_from_secs_f64(age).unwrap_or_default()),
        connections: (get::<i64>(row, 4)?.unsigned_abs(), get::<i64>(row, 5)?.unsigned_abs()),
    })
}
