//! Excluding rows from an open batch before it is published: the excluded rows fail or park, later rows of their keys go back.
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::Duration;

use crate::failure::{FailureType, truncate_reason};
use crate::ids::RowId;
use crate::rows::row::{OutboxRow, RowChange};
use crate::rows::status::RowState;

/// The action on an excluded row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// FAILED: due again after this delay, by the store's clock.
    Retry(Duration),
    /// PARKED: later rows of the key wait for an operator too.
    ParkKey,
    /// PARKED: later rows of the key go on.
    ParkRow,
}

impl Disposition {
    /// The state of a row with this disposition.
    pub fn state(self) -> RowState {
        match self {
            Disposition::Retry(due_in) => RowState::Failed { due_in },
            Disposition::ParkKey => RowState::Parked { blocks_key: true },
            Disposition::ParkRow => RowState::Parked { blocks_key: false },
        }
    }
}

/// A row that leaves an open batch without being published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exclusion {
    /// The row, which must belong to the batch.
    pub row: RowId,
    /// The row's number of attempts after the exclusion. After an outage it may be lower than the number that the claim counted:
    /// [`RetryPolicy::attempts_after_outage`](crate::RetryPolicy::attempts_after_outage).
    pub attempts: u32,
    /// The action on the row.
    pub disposition: Disposition,
    /// Where the failure came from.
    pub failure_type: FailureType,
    /// Why the row cannot be published; stored truncated to 256 characters.
    pub reason: String,
}

/// The changes that the exclusions cause in a batch, in id order. `batch` holds the rows left in the batch, in id order. Later rows of an
/// excluded row's key return to PENDING with their attempt returned, also behind [`Disposition::ParkRow`]: the worker drops them from
/// its batch. Of two exclusions of one row the last one counts.
///
/// `None` means that no named row is left in the batch: the request is stale and changes nothing, not even the counter. An empty list of
/// exclusions is not stale.
pub fn changes<K: Clone + Eq + Hash>(batch: &[OutboxRow<K>], exclusions: &[Exclusion]) -> Option<Vec<RowChange<K>>> {
    let excluded: HashMap<RowId, &Exclusion> = exclusions.iter().map(|exclusion| (exclusion.row, exclusion)).collect();
    let mut stopped_keys: HashSet<&K> = HashSet::new();
    let mut changes = Vec::new();
    for row in batch {
        if let Some(exclusion) = excluded.get(&row.id) {
            stopped_keys.insert(&row.key);
            changes.push(excluded_row(row, exclusion));
        } else if stopped_keys.contains(&row.key) {
            changes.push(later_row(row));
        }
    }
    let stale = changes.is_empty() && !exclusions.is_empty();
    (!stale).then_some(changes)
}

fn excluded_row<K: Clone>(row: &OutboxRow<K>, exclusion: &Exclusion) -> RowChange<K> {
    RowChange {
        attempts: exclusion.attempts,
        failure_type: Some(exclusion.failure_type),
        reason: Some(truncate_reason(&exclusion.reason)),
        ..row.with_state(exclusion.disposition.state())
    }
}

/// The broker never received this row, so its attempt does not count.
fn later_row<K: Clone>(row: &OutboxRow<K>) -> RowChange<K> {
    RowChange { attempts: row.attempts.saturating_sub(1), ..row.with_state(RowState::Pending) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: RowId, key: char) -> OutboxRow<char> {
        OutboxRow { id, key, attempts: 1, deaths: 1, trial_deaths: 0, blocks_key: false }
    }

    fn exclude(row: RowId, disposition: Disposition) -> Exclusion {
        Exclusion { row, attempts: 1, disposition, failure_type: FailureType::Timeout, reason: "late".into() }
    }

    #[test]
    fn first_excluded_row_of_a_key_takes_the_later_ones_back() {
        let batch = [row(1, 'a'), row(2, 'a'), row(3, 'b'), row(4, 'a'), row(5, 'b')];
        let due_in = Duration::from_secs(5);
        let (failed, parked_key) = (RowState::Failed { due_in }, RowState::Parked { blocks_key: true });
        let parked_row = RowState::Parked { blocks_key: false };
        let (retry, park_key, park_row) = (Disposition::Retry(due_in), Disposition::ParkKey, Disposition::ParkRow);
        type ExpectedChanges<'a> = &'a [(RowId, RowState, u32)];
        let cases: [(&[Exclusion], ExpectedChanges<'_>); 6] = [
            (&[], &[]),
            (&[exclude(2, retry)], &[(2, failed, 1), (4, RowState::Pending, 0)]),
            (&[exclude(1, park_row)], &[(1, parked_row, 1), (2, RowState::Pending, 0), (4, RowState::Pending, 0)]),
            (&[exclude(4, park_key), exclude(2, retry)], &[(2, failed, 1), (4, parked_key, 1)]),
            (&[exclude(5, park_key), exclude(9, retry)], &[(5, parked_key, 1)]),
            (&[exclude(3, retry), exclude(3, park_row)], &[(3, parked_row, 1), (5, RowState::Pending, 0)]),
        ];

        for (exclusions, expected) in cases {
            let changes = changes(&batch, exclusions).expect("a named row is left");
            let seen: Vec<_> = changes.iter().map(|change| (change.id, change.state, change.attempts)).collect();
            assert_eq!(seen, expected, "{exclusions:?}");
            assert!(changes.iter().all(|change| change.deaths == 1), "deaths stay");
        }
    }

    #[test]
    fn exclusion_stores_its_failure_and_a_returned_row_keeps_its_own() {
        let long = Exclusion { reason: "x".repeat(300), ..exclude(1, Disposition::ParkKey) };

        let changes = changes(&[row(1, 'a'), row(2, 'a')], &[long]).expect("row 1 is left");

        assert_eq!(changes[0].failure_type, Some(FailureType::Timeout));
        assert_eq!(changes[0].reason.as_deref(), Some(&*"x".repeat(256)));
        assert_eq!((changes[1].failure_type, changes[1].reason.as_ref()), (None, None));
    }

    #[test]
    fn excluded_row_has_the_attempts_of_its_exclusion() {
        let claimed = OutboxRow { attempts: 7, ..row(1, 'a') };
        let outage = Exclusion { attempts: 6, ..exclude(1, Disposition::Retry(Duration::ZERO)) };

        let changes = changes(&[claimed], &[outage]).expect("row 1 is left");

        assert_eq!(changes[0].attempts, 6);
    }

    #[test]
    fn exclusion_of_rows_that_left_the_batch_is_stale() {
        assert_eq!(changes(&[row(1, 'a')], &[exclude(2, Disposition::ParkKey)]), None);
        assert_eq!(changes::<char>(&[], &[exclude(2, Disposition::ParkKey)]), None);
        assert_eq!(changes::<char>(&[], &[]), Some(Vec::new()));
    }
}
