//! The table `idempotency`: keys in use and keys used. It is unlogged, so it costs no fsync and may lose its rows in a crash.
use std::time::Duration;

use domain::OrderId;
use ports::orders::idempotency::BeginOutcome;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::sql_value::{SqlValue, get, order_id, order_uuid, seconds};
use crate::connection::statement_error::StatementResult;
use crate::store::context::StoreContext;

/// Takes a key that is unused, expired, or held by an instance whose heartbeat expired.
const BEGIN: &str = "INSERT INTO idempotency AS i (subject, key, fingerprint, order_id, instance, until)
     VALUES ($1, $2, $3, NULL, $4, clock_timestamp() + make_interval(secs => $5))
     ON CONFLICT (subject, key) DO UPDATE SET fingerprint = excluded.fingerprint, order_id = NULL, instance = excluded.instance,
       until = excluded.until
     WHERE i.until <= clock_timestamp() OR (i.order_id IS NULL AND EXISTS (SELECT FROM relay_instance m WHERE m.instance = i.instance
       AND m.seen_at + m.dead_after <= clock_timestamp())) RETURNING 1";

const FIND: &str =
    "SELECT order_id, fingerprint FROM idempotency WHERE subject = $1 AND key = $2 AND until > clock_timestamp()";

const COMPLETE: &str = "INSERT INTO idempotency (subject, key, fingerprint, order_id, instance, until)
     VALUES ($1, $2, $3, $4, $5, clock_timestamp() + make_interval(secs => $6))
     ON CONFLICT (subject, key) DO UPDATE SET fingerprint = excluded.fingerprint, order_id = excluded.order_id,
       instance = excluded.instance, until = excluded.until";

const ABANDON: &str = "DELETE FROM idempotency WHERE subject = $1 AND key = $2 AND order_id IS NULL AND instance = $3";

/// Attempts to take a key that expires between the two statements.
const ATTEMPTS_MAX: u32 = 3;

/// Takes a key for `lock`, or reports its state.
pub(crate) async fn begin(
    context: &StoreContext,
    subject: &str,
    key: &str,
    fingerprint: &[u8; 32],
    lock: Duration,
) -> StatementResult<BeginOutcome> {
    let session = context.service_session().await?;
    let values: [SqlValue<'_>; 5] = [
        (&subject, Type::TEXT),
        (&key, Type::TEXT),
        (&fingerprint.as_slice(), Type::BYTEA),
        (&&*context.options.instance.0, Type::TEXT),
        (&seconds(lock), Type::FLOAT8),
    ];
    for _ in 0..ATTEMPTS_MAX {
        if !session.execute(BEGIN, &values).await?.is_empty() {
            return Ok(BeginOutcome::Acquired);
        }
        let rows = session.query(FIND, &values[..2]).await?;
        let Some(row) = rows.first() else { continue };
        return Ok(match get::<Option<Uuid>>(row, 0)? {
            None => BeginOutcome::InProgress,
            Some(created) => {
                let fingerprint = get::<&[u8]>(row, 1)?.try_into().ok();
                BeginOutcome::Completed { order_id: order_id(created), fingerprint }
            }
        });
    }
    Ok(BeginOutcome::InProgress)
}

/// Records for `keep` the order that a key created.
pub(crate) async fn complete(
    context: &StoreContext,
    subject: &str,
    key: &str,
    fingerprint: &[u8; 32],
    order_id: OrderId,
    keep: Duration,
) -> StatementResult<()> {
    let values: [SqlValue<'_>; 6] = [
        (&subject, Type::TEXT),
        (&key, Type::TEXT),
        (&fingerprint.as_slice(), Type::BYTEA),
        (&order_uuid(order_id), Type::UUID),
        (&&*context.options.instance.0, Type::TEXT),
        (&seconds(keep), Type::FLOAT8),
    ];
    context.service_session().await?.execute(COMPLETE, &values).await.map(|_| ())
}

/// Frees a key that created no order, unless another instance has taken it since, because this one seemed dead.
pub(crate) async fn abandon(context: &StoreContext, subject: &str, key: &str) -> StatementResult<()> {
    let values: [SqlValue<'_>; 3] =
        [(&subject, Type::TEXT), (&key, Type::TEXT), (&&*context.options.instance.0, Type::TEXT)];
    context.service_session().await?.execute(ABANDON, &values).await.map(|_| ())
}

/// Frees the keys that the previous process of this instance held. It is dead, because this process has its name.
pub(crate) async fn release_held_keys(context: &StoreContext) -> StatementResult<()> {
    let text = "DELETE FROM idempotency WHERE instance = $1 AND order_id IS NULL";
    let values: [SqlValue<'_>; 1] = [(&&*context.options.instance.0, Type::TEXT)];
    context.service_session().await?.execute(text, &values).await.map(|_| ())
}
