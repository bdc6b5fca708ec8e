//! `Idempotency` in a table that may forget: the quick first line where no Redis is configured. It is not logged, so it costs no fsync.
use std::time::Duration;

use async_trait::async_trait;
use domain::{OrderId, Subject};
use ports::Error;
use ports::idempotency::{BeginOutcome, Idempotency};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::error::Answer;
use crate::store::{Core, Postgres};
use crate::value::{Value, get, order_id, order_uuid, seconds};

/// Free, over, or in the hand of an instance that is known to be dead.
const BEGIN: &str = "INSERT INTO idempotency AS i (subject, key, fingerprint, order_id, instance, until)
     VALUES ($1, $2, $3, NULL, $4, clock_timestamp() + make_interval(secs => $5))
     ON CONFLICT (subject, key) DO UPDATE SET fingerprint = excluded.fingerprint, order_id = NULL, instance = excluded.instance,
       until = excluded.until
     WHERE i.until <= clock_timestamp() OR (i.order_id IS NULL AND EXISTS (SELECT FROM member m WHERE m.instance = i.instance
       AND m.seen_at + m.dead_after <= clock_timestamp())) RETURNING 1";

const LOOK: &str =
    "SELECT order_id, fingerprint FROM idempotency WHERE subject = $1 AND key = $2 AND until > clock_timestamp()";

const COMPLETE: &str = "INSERT INTO idempotency (subject, key, fingerprint, order_id, instance, until)
     VALUES ($1, $2, $3, $4, $5, clock_timestamp() + make_interval(secs => $6))
     ON CONFLICT (subject, key) DO UPDATE SET fingerprint = excluded.fingerprint, order_id = excluded.order_id,
       instance = excluded.instance, until = excluded.until";

const ABANDON: &str = "DELETE FROM idempotency WHERE subject = $1 AND key = $2 AND order_id IS NULL";

/// Times a key that ends between taking it and looking at it is reached for again.
const TRIES_MAX: u32 = 3;

#[async_trait]
impl Idempotency for Postgres {
    async fn begin(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        lock: Duration,
    ) -> Result<BeginOutcome, Error> {
        let (core, subject, key, fingerprint) = (self.core(), subject.clone(), key.to_string(), *fingerprint);
        self.run("key_begin", async move { begin(&core, subject.as_str(), &key, &fingerprint, lock).await }).await
    }

    async fn complete(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        order_id: OrderId,
        keep: Duration,
    ) -> Result<(), Error> {
        let (core, subject, key, fingerprint) = (self.core(), subject.clone(), key.to_string(), *fingerprint);
        self.run("key_complete", async move {
            let values: [Value<'_>; 6] = [
                (&subject.as_str(), Type::TEXT),
                (&key, Type::TEXT),
                (&fingerprint.as_slice(), Type::BYTEA),
                (&order_uuid(order_id), Type::UUID),
                (&&*core.options.instance.0, Type::TEXT),
                (&seconds(keep), Type::FLOAT8),
            ];
            core.others().await?.once(COMPLETE, &values).await.map(|_| ())
        })
        .await
    }

    async fn abandon(&self, subject: &Subject, key: &str) -> Result<(), Error> {
        let (core, subject, key) = (self.core(), subject.clone(), key.to_string());
        self.run("key_abandon", async move {
            let values: [Value<'_>; 2] = [(&subject.as_str(), Type::TEXT), (&key, Type::TEXT)];
            core.others().await?.once(ABANDON, &values).await.map(|_| ())
        })
        .await
    }
}

async fn begin(core: &Core, subject: &str, key: &str, fingerprint: &[u8; 32], lock: Duration) -> Answer<BeginOutcome> {
    let session = core.others().await?;
    let values: [Value<'_>; 5] = [
        (&subject, Type::TEXT),
        (&key, Type::TEXT),
        (&fingerprint.as_slice(), Type::BYTEA),
        (&&*core.options.instance.0, Type::TEXT),
        (&seconds(lock), Type::FLOAT8),
    ];
    for _ in 0..TRIES_MAX {
        if !session.once(BEGIN, &values).await?.is_empty() {
            return Ok(BeginOutcome::Acquired);
        }
        let rows = session.read(LOOK, &values[..2]).await?;
        let Some(row) = rows.first() else { continue };
        return Ok(match get::<Option<Uuid>>(row, 0)? {
            None => BeginOutcome::InProgress,
            Some(made) => {
                let fingerprint = get::<&[u8]>(row, 1)?.try_into().ok();
                BeginOutcome::Completed { order_id: order_id(made), fingerprint }
            }
        });
    }
    Ok(BeginOutcome::InProgress)
}

/// Keys that the process before this one held: it is dead, since we have its name.
pub(crate) async fn bury(core: &Core) -> Answer<()> {
    let text = "DELETE FROM idempotency WHERE instance = $1 AND order_id IS NULL";
    core.others().await?.once(text, &[(&&*core.options.instance.0, Type::TEXT)]).await.map(|_| ())
}
