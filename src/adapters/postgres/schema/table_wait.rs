//! Lock timeouts of schema changes on tables that other sessions or autovacuum use.
use std::time::Duration;

use tokio_postgres::{Client, Error};

/// Sets how long a change waits for a table. Statements that need the table after it queue behind it, so it gives up after this time, is rolled
/// back, lets them pass and is tried again.
pub(crate) const TABLE_WAIT: &str = "SET LOCAL lock_timeout = '500ms'";
/// Sets how long a change waits when autovacuum works on the table: PostgreSQL cancels it for a transaction that has waited for deadlock_timeout. Not
/// for one that waits for less, and not while it prevents the wraparound of transaction ids.
pub(crate) const VACUUM_WAIT: &str = "SELECT set_config('lock_timeout', (setting::int + 500)::text, true) FROM pg_settings WHERE name = 'deadlock_timeout'";
/// The lock of autovacuum while it works on a table. A role without pg_read_all_stats cannot see which process is autovacuum's.
pub(crate) const VACUUM_LOCK: &str = "l.mode = 'ShareUpdateExclusiveLock'";
/// The pause between two attempts.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Whether a vacuum works on a table in the schema of the installation. Other transactions may use the table too.
pub(crate) async fn own_tables_are_vacuumed(client: &Client) -> Result<bool, Error> {
    let text = format!(
        "SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
         WHERE l.locktype = 'relation' AND l.granted AND {VACUUM_LOCK} AND l.pid IS DISTINCT FROM pg_backend_pid()
           AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('posthaste_migration')) LIMIT 1"
    );
    Ok(!client.query_typed(&text, &[]).await?.is_empty())
}
