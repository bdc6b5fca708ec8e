//! The topics that only the service writes, as the SQL functions know them.
use tokio_postgres::types::Type;

use crate::connection::session::CommitWait;
use crate::connection::sql_value::SqlValue;
use crate::connection::statement_error::StatementResult;
use crate::store::context::StoreContext;

/// Serializes services that start at the same time.
const LOCK: &str = "SELECT FROM installation FOR NO KEY UPDATE";
const STORE: &str = "UPDATE installation SET internal_topics = $1 WHERE internal_topics <> $1";
/// Restores the keys of topics that are not internal any more; their sequence numbers continue. No topic's name begins with `internal:`.
const RELEASE_KEYS: &str = "WITH released AS (DELETE FROM outbox_sequence
       WHERE topic >= 'internal:' AND topic < 'internal;' AND substr(topic, 10) <> ALL ($1) RETURNING *)
     INSERT INTO outbox_sequence AS s SELECT substr(topic, 10), key, last, partition, key_group, false FROM released
     ON CONFLICT (topic, key) DO UPDATE SET last = greatest(s.last, excluded.last), wakes = false";
/// Moves the sequence of each key that has published to an internal topic behind the prefix `internal:`. The functions then treat the key as a new
/// one, whose topic they check. A key that an open transaction has locked is left to the next start.
const WITHDRAW_KEYS: &str = "WITH unlocked AS (SELECT topic, key FROM outbox_sequence WHERE topic = ANY ($1) FOR UPDATE SKIP LOCKED),
       withdrawn AS (DELETE FROM outbox_sequence s USING unlocked u WHERE s.topic = u.topic AND s.key = u.key RETURNING s.*)
     INSERT INTO outbox_sequence AS s SELECT 'internal:' || topic, key, last, partition, key_group, false FROM withdrawn
     ON CONFLICT (topic, key) DO UPDATE SET last = greatest(s.last, excluded.last), wakes = false";

/// Stores the names of this service's internal topics, to which `posthaste.publish` then refuses events. Services with different
/// configurations overwrite each other: the one that started last decides, and the relay of each parks what its own configuration forbids.
pub(crate) async fn store(context: &StoreContext) -> StatementResult<()> {
    let topics = || vec![(&context.options.internal_topics as _, Type::TEXT_ARRAY)];
    let statements: [(&str, Vec<SqlValue<'_>>); 4] =
        [(LOCK, vec![]), (STORE, topics()), (RELEASE_KEYS, topics()), (WITHDRAW_KEYS, topics())];
    let session = context.service_session().await?;
    session.execute_all(context.options.lock_timeout, CommitWait::Flush, &statements).await.map(|_| ())
}
