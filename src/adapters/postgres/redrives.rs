//! `RedriveLedger`: which dead letters were sent back, by whom and why.
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::operators::Audit;
use ports::redrives::{DeadLetterId, RedriveLedger, RedriveRecord};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::{Answer, retried};
use crate::store::{Core, Postgres};
use crate::value::{Value, get, get_time, seconds};

/// In one order, so that two who take the same letters never wait for each other.
const TAKE: &str = "INSERT INTO redriven_letter AS r (topic, partition, \"offset\", timestamp, taken_at, who, why)
     SELECT u.*, clock_timestamp(), $5, $6 FROM (SELECT DISTINCT * FROM unnest($1::text[], $2::int4[], $3::int8[], $4::int8[])
       ORDER BY 1, 2, 3, 4) AS u
     ON CONFLICT (topic, partition, \"offset\", timestamp)
       DO UPDATE SET taken_at = excluded.taken_at, who = excluded.who, why = excluded.why
       WHERE NOT r.arrived AND r.taken_at <= excluded.taken_at - make_interval(secs => $7)
     RETURNING topic, partition, \"offset\", timestamp";

const ARRIVED: &str = "UPDATE redriven_letter SET arrived = true WHERE (topic, partition, \"offset\", timestamp) IN
     (SELECT * FROM unnest($1::text[], $2::int4[], $3::int8[], $4::int8[]))";

const RELEASE: &str = "DELETE FROM redriven_letter WHERE NOT arrived AND (topic, partition, \"offset\", timestamp) IN
     (SELECT * FROM unnest($1::text[], $2::int4[], $3::int8[], $4::int8[]))";

const KNOWN: &str = "SELECT topic, partition, \"offset\", timestamp, who, why, taken_at, arrived FROM redriven_letter
     WHERE (topic, partition, \"offset\", timestamp) IN (SELECT * FROM unnest($1::text[], $2::int4[], $3::int8[], $4::int8[]))";

#[async_trait]
impl RedriveLedger for Postgres {
    async fn reserve(
        &self,
        letters: &[DeadLetterId],
        again_after: Duration,
        audit: &Audit,
    ) -> Result<Vec<bool>, Error> {
        let (core, letters, audit) = (self.core(), letters.to_vec(), audit.clone());
        self.run("letters_take", async move { retried!(take(&core, &letters, again_after, &audit)) }).await
    }

    async fn confirm(&self, letters: &[DeadLetterId]) -> Result<(), Error> {
        self.each("letters_arrived", letters, ARRIVED).await
    }

    async fn release(&self, letters: &[DeadLetterId]) -> Result<(), Error> {
        self.each("letters_release", letters, RELEASE).await
    }

    async fn find(&self, letters: &[DeadLetterId]) -> Result<Vec<Option<RedriveRecord>>, Error> {
        let (core, letters) = (self.core(), letters.to_vec());
        self.run("letters_known", async move {
            let columns = Columns::of(&letters);
            let rows = core.others().await?.read(KNOWN, &columns.values()).await?;
            let known = rows.iter().map(|row| Ok((name(row)?, redriven(row)?))).collect::<Answer<HashMap<_, _>>>()?;
            Ok(letters.iter().map(|letter| known.get(&named(letter)).cloned()).collect())
        })
        .await
    }
}

impl Postgres {
    async fn each(&self, doing: &'static str, letters: &[DeadLetterId], text: &'static str) -> Result<(), Error> {
        let (core, letters) = (self.core(), letters.to_vec());
        self.run(doing, async move {
            let columns = Columns::of(&letters);
            retried!(async { core.others().await?.once(text, &columns.values()).await.map(|_| ()) })
        })
        .await
    }
}

async fn take(core: &Core, letters: &[DeadLetterId], again_after: Duration, audit: &Audit) -> Answer<Vec<bool>> {
    let (columns, after) = (Columns::of(letters), seconds(again_after));
    let mut values = columns.values();
    values.extend::<[Value<'_>; 3]>([
        (&audit.operator, Type::TEXT),
        (&audit.reason, Type::TEXT),
        (&after, Type::FLOAT8),
    ]);
    let rows = core.others().await?.once(TAKE, &values).await?;
    let taken = rows.iter().map(name).collect::<Answer<HashSet<_>>>()?;
    Ok(letters.iter().map(|letter| taken.contains(&named(letter))).collect())
}

/// A letter as the table names it.
type Name = (String, i32, i64, i64);

fn named(letter: &DeadLetterId) -> Name {
    let at = &letter.position;
    (at.topic.to_string(), at.partition as i32, at.offset as i64, letter.timestamp.millis())
}

fn name(row: &Row) -> Answer<Name> {
    Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?, get(row, 3)?))
}

fn redriven(row: &Row) -> Answer<RedriveRecord> {
    let audit = Audit { operator: get(row, 4)?, reason: get(row, 5)? };
    Ok(RedriveRecord { audit, at: get_time(row, 6)?, confirmed: get(row, 7)? })
}

/// Letters, one array for each column.
struct Columns<'a> {
    topics: Vec<&'a str>,
    partitions: Vec<i32>,
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
}

impl<'a> Columns<'a> {
    fn of(letters: &'a [DeadLetterId]) -> Self {
        Self {
            topics: letters.iter().map(|letter| &*letter.position.topic).collect(),
            partitions: letters.iter().map(|letter| letter.position.partition as i32).collect(),
            offsets: letters.iter().map(|letter| letter.position.offset as i64).collect(),
            timestamps: letters.iter().map(|letter| letter.timestamp.millis()).collect(),
        }
    }

    fn values(&self) -> Vec<Value<'_>> {
        vec![
            (&self.topics, Type::TEXT_ARRAY),
            (&self.partitions, Type::INT4_ARRAY),
            (&self.offsets, Type::INT8_ARRAY),
            (&self.timestamps, Type::INT8_ARRAY),
        ]
    }
}
