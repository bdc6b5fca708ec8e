//! The oldest transaction that holds back VACUUM: an expression for its age, and when the metric is sampled.
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Its age in seconds, as an expression; NULL if there is none. A transaction holds VACUUM back by its snapshot (`backend_xmin`), and from its
/// first write until its end by its own id (`backend_xid`): one that has written and is idle under READ COMMITTED has no snapshot. A prepared
/// one has no session.
macro_rules! age {
    () => {
        "extract(epoch FROM clock_timestamp() - (SELECT min(began) FROM (
           SELECT xact_start AS began FROM pg_stat_activity WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
             AND pid <> pg_backend_pid() AND backend_type = 'client backend'
           UNION ALL SELECT prepared FROM pg_prepared_xacts) holder))::float8"
    };
}
pub(crate) use age;

/// Reads that age in a statement of its own, for the metric.
pub(crate) const AGE: &str = concat!("SELECT ", age!());

/// Time between two samples: the statement reads the state of every session of the server, and a scrape is rarely more frequent.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(15);

/// When the age was sampled last.
#[derive(Default)]
pub(crate) struct AgeSamples(Mutex<Option<Instant>>);

impl AgeSamples {
    /// Whether the last sample is old enough for another one, which then begins now.
    pub(crate) fn begin(&self) -> bool {
        let (mut last, now) = (self.0.lock(), Instant::now());
        let is_due = last.is_none_or(|last| now >= last + SAMPLE_INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}
