//! `RedriveLedger`: the dead letters that were redriven, with operator and reason.
use std::time::Duration;

use async_trait::async_trait;
use domain::Timestamp;
use ports::Error;
use ports::operators::Audit;
use ports::operators::redrives::{DeadLetterId, RedriveLedger, RedriveRecord};
use rusqlite::{Connection, OptionalExtension, params};

use crate::connection::group_commit::WriteContext;
use crate::error::CommandResult;
use crate::store::Embedded;

#[async_trait]
impl RedriveLedger for Embedded {
    async fn reserve(
        &self,
        dead_letters: &[DeadLetterId],
        reservation_timeout: Duration,
        audit: &Audit,
    ) -> Result<Vec<bool>, Error> {
        let (dead_letters, audit, stale) = (dead_letters.to_vec(), audit.clone(), self.millis_ago(reservation_timeout));
        self.write("redrive_reserve", move |context| {
            dead_letters.iter().map(|dead_letter| reserve(context, dead_letter, stale, &audit)).collect()
        })
        .await
    }

    async fn confirm(&self, dead_letters: &[DeadLetterId]) -> Result<(), Error> {
        let text = "UPDATE redriven_dead_letter SET arrived = 1
                    WHERE topic = ?1 AND partition = ?2 AND offset = ?3 AND timestamp = ?4";
        self.execute_for_each("redrive_confirm", dead_letters, text).await
    }

    async fn release(&self, dead_letters: &[DeadLetterId]) -> Result<(), Error> {
        let text = "DELETE FROM redriven_dead_letter
                    WHERE topic = ?1 AND partition = ?2 AND offset = ?3 AND timestamp = ?4 AND arrived = 0";
        self.execute_for_each("redrive_release", dead_letters, text).await
    }

    async fn find(&self, dead_letters: &[DeadLetterId]) -> Result<Vec<Option<RedriveRecord>>, Error> {
        let dead_letters = dead_letters.to_vec();
        self.read("redrive_find", move |sql| {
            dead_letters.iter().map(|dead_letter| find_record(sql, dead_letter)).collect()
        })
        .await
    }
}

impl Embedded {
    async fn execute_for_each(
        &self,
        operation: &'static str,
        dead_letters: &[DeadLetterId],
        text: &'static str,
    ) -> Result<(), Error> {
        let dead_letters = dead_letters.to_vec();
        self.write(operation, move |context| {
            let mut statement = context.sql.prepare_cached(text)?;
            for DeadLetterId { position, timestamp } in &dead_letters {
                statement.execute(params![
                    &*position.topic,
                    position.partition,
                    position.offset as i64,
                    timestamp.millis()
                ])?;
            }
            Ok(())
        })
        .await
    }
}

fn reserve(context: &WriteContext<'_>, dead_letter: &DeadLetterId, stale: i64, audit: &Audit) -> CommandResult<bool> {
    let mut put = context.sql.prepare_cached(
        "INSERT INTO redriven_dead_letter (topic, partition, offset, timestamp, taken_at, operator, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT DO UPDATE SET taken_at = excluded.taken_at, operator = excluded.operator, reason = excluded.reason
         WHERE arrived = 0 AND taken_at <= ?8",
    )?;
    let DeadLetterId { position, timestamp } = dead_letter;
    let (offset, now) = (position.offset as i64, context.now.millis());
    let values = params![
        &*position.topic,
        position.partition,
        offset,
        timestamp.millis(),
        now,
        audit.operator,
        audit.reason,
        stale
    ];
    Ok(put.execute(values)? > 0)
}

fn find_record(sql: &Connection, dead_letter: &DeadLetterId) -> CommandResult<Option<RedriveRecord>> {
    let mut select = sql.prepare_cached(
        "SELECT operator, reason, taken_at, arrived FROM redriven_dead_letter
         WHERE topic = ?1 AND partition = ?2 AND offset = ?3 AND timestamp = ?4",
    )?;
    let DeadLetterId { position, timestamp } = dead_letter;
    let found = select.query_row(
        params![&*position.topic, position.partition, position.offset as i64, timestamp.millis()],
        |row| {
            let audit = Audit { operator: row.get(0)?, reason: row.get(1)? };
            Ok(RedriveRecord { audit, at: Timestamp::from_millis(row.get(2)?), confirmed: row.get(3)? })
        },
    );
    Ok(found.optional()?)
}
