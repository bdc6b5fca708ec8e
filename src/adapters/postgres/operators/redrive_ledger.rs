//! The port `RedriveLedger`: the dead letters that operators redrove, with operator and reason.
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::operators::Audit;
use ports::operators::redrives::{DeadLetterId, RedriveLedger, RedriveRecord};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::sql_value::{SqlValue, get, get_time, seconds};
use crate::connection::statement_error::{StatementResult, retry_conflicts};
use crate::store::context::StoreContext;
use crate::store::postgres::Postgres;

/// Writes the rows in one order, so that two reservations of the same dead letters never deadlock.
const RESERVE: &str = "INSERT INTO redriven_dead_letter AS r (topic, partition, \"offset\", timestamp, taken_at, operator, reason)
     SELECT u.*, clock_timestamp(), $5, $6 FROM (SELECT DISTINCT * FROM unnest($1::text[], $2::int4[], $3::int8[], $4::int8[])
       ORDER BY 1, 2, 3, 4) AS u
     ON CONFLICT (topic, partition, \"offset\", timestamp)
       DO UPDATE SET taken_at = excluded.taken_at, operator = excluded.operator, reason = excluded.reason
       WHERE NOT r.arrived AND r.taken_at <= excluded.taken_at - make_interval(secs => $7)
     RETURNING topic, partition, \"offset\", timestamp";

const CONFIRM: &str =
    "UPDATE redriven_dead_letter SET arrived = true WHERE (topic, partition, \"offset\", timestamp) IN
     (SELECT * FROM unnest($1::text[], $2::int4[], $3::int8[], $4::int8[]))";

const RELEASE: &str =
    "DELETE FROM redriven_dead_letter WHERE NOT arrived AND (topic, partition, \"offset\", timestamp) IN
     (SELECT * FROM unnest($1::text[], $2::int4[], $3::int8[], $4::int8[]))";

const FIND: &str = "SELECT topic, partition, \"offset\", timestamp, operator, reason, taken_at, arrived FROM redriven_dead_letter
     WHERE (topic, partition, \"offset\", timestamp) IN (SELECT * FROM unnest($1::text[], $2::int4[], $3::int8[], $4::int8[]))";

#[async_trait]
impl RedriveLedger for Postgres {
    async fn reserve(
        &self,
        dead_letters: &[DeadLetterId],
        reservation_timeout: Duration,
        audit: &Audit,
    ) -> Result<Vec<bool>, Error> {
        let (context, dead_letters, audit) = (self.context(), dead_letters.to_vec(), audit.clone());
        self.run("redrive_reserve", async move {
            retry_conflicts!(reserve(&context, &dead_letters, reservation_timeout, &audit))
        })
        .await
    }

    async fn confirm(&self, dead_letters: &[DeadLetterId]) -> Result<(), Error> {
        self.update_all("redrive_confirm", dead_letters, CONFIRM).await
    }

    async fn release(&self, dead_letters: &[DeadLetterId]) -> Result<(), Error> {
        self.update_all("redrive_release", dead_letters, RELEASE).await
    }

    async fn find(&self, dead_letters: &[DeadLetterId]) -> Result<Vec<Option<RedriveRecord>>, Error> {
        let (context, dead_letters) = (self.context(), dead_letters.to_vec());
        self.run("redrive_find", async move {
            let columns = DeadLetterColumns::new(&dead_letters);
            let rows = context.service_session().await?.query(FIND, &columns.values()).await?;
            let records = rows
                .iter()
                .map(|row| Ok((read_key(row)?, read_record(row)?)))
                .collect::<StatementResult<HashMap<_, _>>>()?;
            Ok(dead_letters.iter().map(|dead_letter| records.get(&dead_letter_key(dead_letter)).cloned()).collect())
        })
        .await
    }
}

impl Postgres {
    async fn update_all(
        &self,
        operation: &'static str,
        dead_letters: &[DeadLetterId],
        text: &'static str,
    ) -> Result<(), Error> {
        let (context, dead_letters) = (self.context(), dead_letters.to_vec());
        self.run(operation, async move {
            let columns = DeadLetterColumns::new(&dead_letters);
            retry_conflicts!(async {
                context.service_session().await?.execute(text, &columns.values()).await.map(|_| ())
            })
        })
        .await
    }
}

async fn reserve(
    context: &StoreContext,
    dead_letters: &[DeadLetterId],
    reservation_timeout: Duration,
    audit: &Audit,
) -> StatementResult<Vec<bool>> {
    let (columns, after) = (DeadLetterColumns::new(dead_letters), seconds(reservation_timeout));
    let mut values = columns.values();
    values.extend::<[SqlValue<'_>; 3]>([
        (&audit.operator, Type::TEXT),
        (&audit.reason, Type::TEXT),
        (&after, Type::FLOAT8),
    ]);
    let rows = context.service_session().await?.execute(RESERVE, &values).await?;
    let reserved = rows.iter().map(read_key).collect::<StatementResult<HashSet<_>>>()?;
    Ok(dead_letters.iter().map(|dead_letter| reserved.contains(&dead_letter_key(dead_letter))).collect())
}

/// The primary key of a dead letter's row.
type DeadLetterKey = (String, i32, i64, i64);

fn dead_letter_key(dead_letter: &DeadLetterId) -> DeadLetterKey {
    let position = &dead_letter.position;
    (position.topic.to_string(), position.partition as i32, position.offset as i64, dead_letter.timestamp.millis())
}

fn read_key(row: &Row) -> StatementResult<DeadLetterKey> {
    Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?, get(row, 3)?))
}

fn read_record(row: &Row) -> StatementResult<RedriveRecord> {
    let audit = Audit { operator: get(row, 4)?, reason: get(row, 5)? };
    Ok(RedriveRecord { audit, at: get_time(row, 6)?, confirmed: get(row, 7)? })
}

/// Dead letters, one array per column.
struct DeadLetterColumns<'a> {
    topics: Vec<&'a str>,
    partitions: Vec<i32>,
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
}

impl<'a> DeadLetterColumns<'a> {
    fn new(dead_letters: &'a [DeadLetterId]) -> Self {
        Self {
            topics: dead_letters.iter().map(|dead_letter| &*dead_letter.position.topic).collect(),
            partitions: dead_letters.iter().map(|dead_letter| dead_letter.position.partition as i32).collect(),
            offsets: dead_letters.iter().map(|dead_letter| dead_letter.position.offset as i64).collect(),
            timestamps: dead_letters.iter().map(|dead_letter| dead_letter.timestamp.millis()).collect(),
        }
    }

    fn values(&self) -> Vec<SqlValue<'_>> {
        vec![
            (&self.topics, Type::TEXT_ARRAY),
            (&self.partitions, Type::INT4_ARRAY),
            (&self.offsets, Type::INT8_ARRAY),
            (&self.timestamps, Type::INT8_ARRAY),
        ]
    }
}
