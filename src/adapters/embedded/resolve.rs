//! Resolving: what becomes of an open batch whose outcome was found out.
use ports::outbox::{BatchOutcome, FencedOutcome};
use ports::partitions::{Fence, Token};
use rusqlite::params;

use crate::blocks::{self, SUSPECT_DEATHS};
use crate::counts::code;
use crate::engine::Work;
use crate::error::Answer;
use crate::lease::{self, OpenClaim};
use crate::settle::{self, Sent};

/// Between two trials of a suspect, so that a service killed at random does not meet both.
const TRIALS_APART_MS: i64 = 10_000;

/// Deaths in a trial that convict.
const TRIAL_DEATHS: u32 = 2;

/// Closes an open batch under the fence.
pub(crate) fn resolve(
    work: &mut Work<'_>,
    fence: &Fence,
    token: Token,
    verdict: BatchOutcome,
) -> Answer<FencedOutcome> {
    let Some(lease) = lease::read(work, fence.partition.0)? else { return Ok(FencedOutcome::Stale) };
    let Some(open) = lease.open(fence, token).filter(|_| lease.counter == fence.counter) else {
        return Ok(lease.repeated(fence, token));
    };
    let rows = match verdict {
        BatchOutcome::Published => settle::archive(work, fence.partition.0, open, &Sent::default())?,
        BatchOutcome::ClaimerDied => give_back(work, fence.partition.0, open, Row::died)?,
        BatchOutcome::NotSent => give_back(work, fence.partition.0, open, Row::returned)?,
    };
    let counter = lease::close(work, fence, &lease)?;
    Ok(FencedOutcome::Done { counter, rows })
}

/// A row of the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    id: i64,
    key: [u8; 16],
    attempts: u32,
    deaths: u32,
    trial_deaths: u32,
    /// Whether its key waits behind it.
    head: bool,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Back {
    status: i64,
    next_attempt_at: Option<i64>,
    attempts: u32,
    deaths: u32,
    trial_deaths: u32,
}

impl Row {
    /// Nobody died: due at once, as before the claim.
    fn returned(&self, now: i64, _trial: bool) -> Back {
        let (status, next_attempt_at) = if self.head { (code::FAILED, Some(now)) } else { (code::PENDING, None) };
        let (deaths, trial_deaths) = (self.deaths, self.trial_deaths);
        Back { status, next_attempt_at, attempts: self.attempts.saturating_sub(1), deaths, trial_deaths }
    }

    /// Its claimer died with it: one death more, and beyond three it waits for its trial.
    fn died(&self, now: i64, trial: bool) -> Back {
        let deaths = self.deaths + 1;
        let trial_deaths = self.trial_deaths + u32::from(trial);
        let (status, next_attempt_at) = if trial && trial_deaths >= TRIAL_DEATHS {
            (code::PARKED, None)
        } else if deaths >= SUSPECT_DEATHS {
            (code::FAILED, Some(now.saturating_add(TRIALS_APART_MS)))
        } else if self.head {
            (code::FAILED, Some(now))
        } else {
            (code::PENDING, None)
        };
        Back { status, next_attempt_at, attempts: self.attempts, deaths, trial_deaths }
    }
}

fn give_back(work: &mut Work<'_>, partition: u32, open: &OpenClaim, fate: fn(&Row, i64, bool) -> Back) -> Answer<u64> {
    // Rows far behind the scan are ready again.
    work.lows.remove(&partition);
    let rows = batch(work, partition, open)?;
    let sql = work.sql;
    let mut put = sql.prepare_cached(
        "UPDATE outbox SET status = ?3, next_attempt_at = ?4, attempts = ?5, deaths = ?6, trial_deaths = ?7,
           failure_type = CASE ?3 WHEN 3 THEN 'SYSTEM' ELSE failure_type END, reason = CASE ?3 WHEN 3 THEN ?8 ELSE reason END
         WHERE partition = ?1 AND id = ?2",
    )?;
    for row in &rows {
        let back = fate(row, work.now.millis(), open.trial);
        let reason = format!("poison: its claimer died in {} trials in which it was the only work", back.trial_deaths);
        put.execute(params![
            partition,
            row.id,
            back.status,
            back.next_attempt_at,
            back.attempts,
            back.deaths,
            back.trial_deaths,
            reason
        ])?;
        work.counts.moved(partition, code::IN_FLIGHT, back.status, 1);
        if row.head || back.status != code::PENDING {
            blocks::refresh(work, partition, row.key)?;
        }
    }
    Ok(rows.len() as u64)
}

fn batch(work: &Work<'_>, partition: u32, open: &OpenClaim) -> Answer<Vec<Row>> {
    let mut statement = work.sql.prepare_cached(
        "SELECT q.id, q.key, q.attempts, q.deaths, q.trial_deaths, EXISTS (SELECT 1 FROM outbox_blocked b
           WHERE b.partition = q.partition AND b.key = q.key AND b.head_id = q.id)
         FROM outbox q WHERE q.partition = ?1 AND q.id BETWEEN ?2 AND ?3 AND q.status = 1 AND q.lease_version = ?4 ORDER BY q.id",
    )?;
    let rows = statement.query_map(params![partition, open.first, open.last, open.token as i64], |row| {
        Ok(Row {
            id: row.get(0)?,
            key: row.get(1)?,
            attempts: row.get(2)?,
            deaths: row.get(3)?,
            trial_deaths: row.get(4)?,
            head: row.get(5)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(deaths: u32, trial_deaths: u32, head: bool) -> Row {
        Row { id: 1, key: [0; 16], attempts: 4, deaths, trial_deaths, head }
    }

    #[test]
    fn a_returned_row_stands_where_it_stood() {
        assert_eq!((row(0, 0, false).returned(5, false).status, row(0, 0, false).returned(5, false).attempts), (0, 3));
        assert_eq!(
            (row(0, 0, true).returned(5, false).status, row(0, 0, true).returned(5, false).next_attempt_at),
            (2, Some(5))
        );
    }

    #[test]
    fn deaths_lead_to_a_trial_and_two_of_those_to_a_verdict() {
        let cases = [
            (row(0, 0, false), false, code::PENDING, None),
            (row(1, 0, true), false, code::FAILED, Some(100)),
            (row(2, 0, false), false, code::FAILED, Some(10_100)),
            (row(3, 0, true), true, code::FAILED, Some(10_100)),
            (row(4, 1, true), true, code::PARKED, None),
        ];

        for (row, trial, status, due) in cases {
            let back = row.died(100, trial);
            assert_eq!((back.status, back.next_attempt_at, back.attempts), (status, due, 4), "{row:?}");
        }
    }
}
