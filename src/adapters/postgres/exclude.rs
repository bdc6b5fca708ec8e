//! Excluding: rows that do not go leave an open batch before it is published, and their keys' later rows with them.
use std::collections::HashMap;

use ports::outbox::{Disposition, Exclusion, FencedOutcome, RowId};
use ports::partitions::{Fence, Token};
use uuid::Uuid;

use crate::batch::{self, Row};
use crate::error::Answer;
use crate::lease;
use crate::store::Core;
use crate::waiting::{self, Move, code};

/// Excludes under the fence. The batch stays open for the rest.
pub(crate) async fn exclude(core: &Core, fence: &Fence, token: Token, rows: &[Exclusion]) -> Answer<FencedOutcome> {
    let partition = fence.partition.0;
    core.lows.lock().remove(&partition);
    let (transaction, lease) = lease::lock(core.relay().await?, fence.partition).await?;
    if lease.as_ref().and_then(|lease| lease.open(fence, token)).is_none() {
        transaction.rollback().await?;
        return Ok(FencedOutcome::Stale);
    }
    let batch = batch::read(&transaction, partition, token).await?;
    let moves = moves(&batch, rows);
    if moves.is_empty() && !rows.is_empty() {
        transaction.rollback().await?;
        return Ok(FencedOutcome::Stale);
    }
    waiting::move_rows(&transaction, partition, &moves).await?;
    let counter = lease::raise(&transaction, partition).await?;
    transaction.commit().await?;
    Ok(FencedOutcome::Done { counter, rows: moves.len() as u64 })
}

/// What becomes of each row that leaves the batch.
fn moves(batch: &[Row], rows: &[Exclusion]) -> Vec<Move> {
    let named: HashMap<RowId, &Exclusion> = rows.iter().map(|exclusion| (exclusion.row, exclusion)).collect();
    // Per key the first row that is excluded: from there on nothing of it goes.
    let mut firsts: HashMap<Uuid, RowId> = HashMap::new();
    for row in batch.iter().filter(|row| named.contains_key(&row.id)) {
        firsts.entry(row.key).or_insert(row.id);
    }
    let leaves = |row: &Row| match named.get(&row.id) {
        Some(exclusion) => Some(met_its_fate(row, exclusion)),
        None if firsts.get(&row.key).is_some_and(|first| *first < row.id) => Some(given_back(row)),
        None => None,
    };
    batch.iter().filter_map(leaves).collect()
}

fn met_its_fate(row: &Row, exclusion: &Exclusion) -> Move {
    let (status, due_in) = match exclusion.disposition {
        Disposition::Retry(delay) => (code::FAILED, Some(delay)),
        Disposition::ParkKey => (code::PARKED, None),
        Disposition::ParkRow => (code::PARKED_ALONE, None),
    };
    let (failure_type, reason) = (Some(exclusion.failure_type.as_str()), Some(exclusion.reason.clone()));
    Move { status, due_in, failure_type, reason, ..row.stays() }
}

/// A later row of an excluded row's key waits for its turn again; it was never tried.
fn given_back(row: &Row) -> Move {
    Move { status: code::PENDING, attempts: (row.attempts - 1).max(0), ..row.stays() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ports::FailureType;

    use super::*;

    fn row(id: RowId, key: u8) -> Row {
        Row { id, key: Uuid::from_bytes([key; 16]), attempts: 1, deaths: 0, trial_deaths: 0, head: false }
    }

    #[test]
    fn a_keys_first_excluded_row_takes_its_later_ones_back() {
        let batch = [row(1, 1), row(2, 1), row(3, 2), row(4, 1)];
        let fate = Disposition::Retry(Duration::from_secs(5));
        let excluded =
            Exclusion { row: 2, disposition: fate, failure_type: FailureType::Timeout, reason: "late".into() };

        let moves = moves(&batch, &[excluded]);

        let seen: Vec<_> = moves.iter().map(|one| (one.id, one.status, one.attempts)).collect();
        assert_eq!(seen, [(2, code::FAILED, 1), (4, code::PENDING, 0)]);
    }
}
