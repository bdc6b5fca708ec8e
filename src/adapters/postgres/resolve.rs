//! Resolving: what becomes of an open batch whose outcome was found out.
use std::time::Duration;

use ports::outbox::{BatchOutcome, FencedOutcome};
use ports::partitions::{Fence, Token};

use crate::batch::{self, Row};
use crate::error::Answer;
use crate::store::Core;
use crate::waiting::{self, Move, SUSPECT_DEATHS, code};
use crate::{lease, settle};

/// Between two trials of a suspect, so that a service killed at random does not meet both.
const TRIALS_APART: Duration = Duration::from_secs(10);

/// Deaths in a trial that convict.
const TRIAL_DEATHS: i16 = 2;

/// Closes an open batch under the fence.
pub(crate) async fn resolve(core: &Core, fence: &Fence, token: Token, verdict: BatchOutcome) -> Answer<FencedOutcome> {
    let fate: fn(&Row, bool) -> Move = match verdict {
        BatchOutcome::Published => return settle::published(core, fence, token).await,
        BatchOutcome::ClaimerDied => died,
        BatchOutcome::NotSent => returned,
    };
    core.lows.lock().remove(&fence.partition.0);
    let (transaction, lease) = lease::lock(core.relay().await?, fence.partition).await?;
    let Some(trial) = lease.as_ref().and_then(|lease| lease.open(fence, token)).map(|open| open.trial) else {
        transaction.rollback().await?;
        return Ok(lease.map_or(FencedOutcome::Stale, |lease| lease.repeated(fence, token)));
    };
    let batch = batch::read(&transaction, fence.partition.0, token).await?;
    let moves: Vec<Move> = batch.iter().map(|row| fate(row, trial)).collect();
    waiting::move_rows(&transaction, fence.partition.0, &moves).await?;
    let counter = lease::close(&transaction, fence.partition).await?;
    transaction.commit().await?;
    Ok(FencedOutcome::Done { counter, rows: moves.len() as u64 })
}

/// Nobody died: due at once, as before the claim.
fn returned(row: &Row, _trial: bool) -> Move {
    let (status, due_in) = before(row);
    Move { status, due_in, attempts: (row.attempts - 1).max(0), ..row.stays() }
}

/// Its claimer died with it: one death more, and beyond three it waits for its trial.
fn died(row: &Row, trial: bool) -> Move {
    let deaths = row.deaths.saturating_add(1);
    let trial_deaths = row.trial_deaths + i16::from(trial);
    let convicted = trial && trial_deaths >= TRIAL_DEATHS;
    let (status, due_in) = if convicted {
        (code::PARKED, None)
    } else if deaths >= SUSPECT_DEATHS {
        (code::FAILED, Some(TRIALS_APART))
    } else {
        before(row)
    };
    let why = || format!("poison: its claimer died in {trial_deaths} trials in which it was the only work");
    let (failure_type, reason) = (convicted.then_some("SYSTEM"), convicted.then(why));
    Move { status, due_in, deaths, trial_deaths, failure_type, reason, ..row.stays() }
}

fn before(row: &Row) -> (i16, Option<Duration>) {
    if row.head { (code::FAILED, Some(Duration::ZERO)) } else { (code::PENDING, None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(deaths: i16, trial_deaths: i16, head: bool) -> Row {
        Row { id: 1, key: uuid::Uuid::nil(), attempts: 4, deaths, trial_deaths, head }
    }

    #[test]
    fn a_returned_row_stands_where_it_stood() {
        let (ready, head) = (returned(&row(0, 0, false), false), returned(&row(0, 0, true), false));
        assert_eq!((ready.status, ready.due_in, ready.attempts), (code::PENDING, None, 3));
        assert_eq!((head.status, head.due_in), (code::FAILED, Some(Duration::ZERO)));
    }

    #[test]
    fn deaths_lead_to_a_trial_and_two_of_those_to_a_verdict() {
        let cases = [
            (row(0, 0, false), false, code::PENDING, None),
            (row(1, 0, true), false, code::FAILED, Some(Duration::ZERO)),
            (row(2, 0, false), false, code::FAILED, Some(TRIALS_APART)),
            (row(3, 0, true), true, code::FAILED, Some(TRIALS_APART)),
            (row(4, 1, true), true, code::PARKED, None),
        ];

        for (row, trial, status, due_in) in cases {
            let back = died(&row, trial);
            assert_eq!((back.status, back.due_in, back.attempts), (status, due_in, 4), "{row:?}");
        }
    }
}
