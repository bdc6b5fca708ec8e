//! `RedriveLedger`: which dead letters were sent back, by whom and why.
use std::time::Duration;

use async_trait::async_trait;
use domain::Timestamp;
use ports::Error;
use ports::operators::Audit;
use ports::redrives::{DeadLetterId, RedriveLedger, RedriveRecord};
use rusqlite::{Connection, OptionalExtension, params};

use crate::engine::Work;
use crate::error::Answer;
use crate::open::Embedded;

#[async_trait]
impl RedriveLedger for Embedded {
    async fn reserve(
        &self,
        letters: &[DeadLetterId],
        again_after: Duration,
        audit: &Audit,
    ) -> Result<Vec<bool>, Error> {
        let (letters, audit, stale) = (letters.to_vec(), audit.clone(), self.before(again_after));
        self.write("letters_take", move |work| letters.iter().map(|letter| take(work, letter, stale, &audit)).collect())
            .await
    }

    async fn confirm(&self, letters: &[DeadLetterId]) -> Result<(), Error> {
        let text = "UPDATE redriven_letter SET arrived = 1
                    WHERE topic = ?1 AND partition = ?2 AND offset = ?3 AND timestamp = ?4";
        self.each("letters_arrived", letters, text).await
    }

    async fn release(&self, letters: &[DeadLetterId]) -> Result<(), Error> {
        let text = "DELETE FROM redriven_letter
                    WHERE topic = ?1 AND partition = ?2 AND offset = ?3 AND timestamp = ?4 AND arrived = 0";
        self.each("letters_release", letters, text).await
    }

    async fn find(&self, letters: &[DeadLetterId]) -> Result<Vec<Option<RedriveRecord>>, Error> {
        let letters = letters.to_vec();
        self.read("letters_known", move |sql| letters.iter().map(|letter| known(sql, letter)).collect()).await
    }
}

impl Embedded {
    async fn each(&self, doing: &'static str, letters: &[DeadLetterId], text: &'static str) -> Result<(), Error> {
        let letters = letters.to_vec();
        self.write(doing, move |work| {
            let mut statement = work.sql.prepare_cached(text)?;
            for DeadLetterId { position: at, timestamp } in &letters {
                statement.execute(params![&*at.topic, at.partition, at.offset as i64, timestamp.millis()])?;
            }
            Ok(())
        })
        .await
    }
}

fn take(work: &Work<'_>, letter: &DeadLetterId, stale: i64, audit: &Audit) -> Answer<bool> {
    let mut put = work.sql.prepare_cached(
        "INSERT INTO redriven_letter (topic, partition, offset, timestamp, taken_at, who, why) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT DO UPDATE SET taken_at = excluded.taken_at, who = excluded.who, why = excluded.why
         WHERE arrived = 0 AND taken_at <= ?8",
    )?;
    let DeadLetterId { position: at, timestamp } = letter;
    let (offset, now) = (at.offset as i64, work.now.millis());
    let values =
        params![&*at.topic, at.partition, offset, timestamp.millis(), now, audit.operator, audit.reason, stale];
    Ok(put.execute(values)? > 0)
}

fn known(sql: &Connection, letter: &DeadLetterId) -> Answer<Option<RedriveRecord>> {
    let mut look = sql.prepare_cached(
        "SELECT who, why, taken_at, arrived FROM redriven_letter
         WHERE topic = ?1 AND partition = ?2 AND offset = ?3 AND timestamp = ?4",
    )?;
    let DeadLetterId { position: at, timestamp } = letter;
    let found = look.query_row(params![&*at.topic, at.partition, at.offset as i64, timestamp.millis()], |row| {
        let audit = Audit { operator: row.get(0)?, reason: row.get(1)? };
        Ok(RedriveRecord { audit, at: Timestamp::from_millis(row.get(2)?), confirmed: row.get(3)? })
    });
    Ok(found.optional()?)
}
