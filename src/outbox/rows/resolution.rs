//! Resolving an open batch whose outcome was not recorded: published, lost with its claimer, or not sent.
use std::time::Duration;

use crate::failure::FailureType;
use crate::ids::Token;
use crate::limits::{TRIAL_DEATHS_MAX, TRIAL_INTERVAL};
use crate::rows::claim::is_suspect;
use crate::rows::poison::PoisonAction;
use crate::rows::row::{OutboxRow, RowChange};
use crate::rows::status::RowState;

/// The outcome of an open batch, established after its producer session was fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchOutcome {
    /// The watermark is its token: it was published. Its rows are archived as SENT.
    Published,
    /// It was not published, and its claimer died while the batch was in flight: each row keeps the attempt and has one death more. A row
    /// that died in two trials is parked.
    ClaimerDied,
    /// It was not published, and its claimer was alive (the batch was aborted, fenced or returned): rows are due again and the attempt is
    /// subtracted.
    NotSent,
}

impl BatchOutcome {
    /// The outcome of batch `token` by the broker's watermark. Read the watermark after the batch's producer session was fenced: only then
    /// can the batch no longer commit. A partition's batches follow each other, so a watermark above the token belongs to a batch or to an
    /// exclusion that the store has forgotten ([`store_was_rewound`]): then nothing proves that all of this batch was published, and its rows
    /// are due again.
    pub fn from_watermark(watermark: Option<Token>, token: Token, claimer_died: bool) -> Self {
        match (watermark == Some(token), claimer_died) {
            (true, _) => BatchOutcome::Published,
            (false, true) => BatchOutcome::ClaimerDied,
            (false, false) => BatchOutcome::NotSent,
        }
    }

    /// The change of one row of the batch. `trial` is the poison rule for the row's topic and event type if the batch was a trial, `None` if it was
    /// an ordinary one. Without a change the row is archived as SENT.
    pub fn row_change<K: Clone>(self, row: &OutboxRow<K>, trial: Option<PoisonAction>) -> Option<RowChange<K>> {
        match self {
            BatchOutcome::Published => None,
            BatchOutcome::ClaimerDied => Some(claimer_died(row, trial)),
            BatchOutcome::NotSent => Some(not_sent(row)),
        }
    }
}

/// Whether the watermark shows that the store was rewound (a fail-over to a replica that lagged, a restore to an earlier point): the
/// broker has committed a batch with a token that the store has not given yet. `highest` is the highest token that the store knows of.
pub fn store_was_rewound(watermark: Option<Token>, highest: Token) -> bool {
    watermark.is_some_and(|watermark| watermark > highest)
}

/// The failure reason of a row that is parked as poison; `%d` is replaced by its deaths in trials.
pub const POISON_REASON: &str = "poison: the worker or the process crashed in %d attempts that sent only this event";

/// The failure reason of a row that is parked as poison after this number of deaths in trials.
pub fn poison_reason(trial_deaths: u32) -> String {
    POISON_REASON.replace("%d", &trial_deaths.to_string())
}

fn not_sent<K: Clone>(row: &OutboxRow<K>) -> RowChange<K> {
    RowChange { attempts: row.attempts.saturating_sub(1), ..row.with_state(state_before_claim(row)) }
}

fn claimer_died<K: Clone>(row: &OutboxRow<K>, trial: Option<PoisonAction>) -> RowChange<K> {
    let deaths = row.deaths.saturating_add(1);
    let trial_deaths = row.trial_deaths.saturating_add(u32::from(trial.is_some()));
    let poison = trial.filter(|_| trial_deaths >= TRIAL_DEATHS_MAX);
    let state = if let Some(poison) = poison {
        poison.state()
    } else if is_suspect(deaths) {
        RowState::Failed { due_in: TRIAL_INTERVAL }
    } else {
        state_before_claim(row)
    };
    RowChange {
        deaths,
        trial_deaths,
        failure_type: poison.map(|_| FailureType::System),
        reason: poison.map(|_| poison_reason(trial_deaths)),
        ..row.with_state(state)
    }
}

/// A row that blocks its key was due when it was claimed, and keeps its block.
fn state_before_claim<K>(row: &OutboxRow<K>) -> RowState {
    if row.blocks_key { RowState::Failed { due_in: Duration::ZERO } } else { RowState::Pending }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUE_NOW: RowState = RowState::Failed { due_in: Duration::ZERO };
    const NEXT_TRIAL: RowState = RowState::Failed { due_in: Duration::from_secs(10) };
    const POISON: RowState = RowState::Parked { blocks_key: true };
    const SKIPPED: RowState = RowState::Parked { blocks_key: false };
    const TRIAL: Option<PoisonAction> = Some(PoisonAction::BlockKey);

    fn row(deaths: u32, trial_deaths: u32, blocks_key: bool) -> OutboxRow<()> {
        OutboxRow { id: 1, key: (), attempts: 4, deaths, trial_deaths, blocks_key }
    }

    #[test]
    fn only_a_watermark_equal_to_the_token_proves_publication() {
        let cases = [
            (Some(7), true, BatchOutcome::Published),
            (Some(7), false, BatchOutcome::Published),
            (Some(8), true, BatchOutcome::ClaimerDied),
            (Some(8), false, BatchOutcome::NotSent),
            (Some(6), true, BatchOutcome::ClaimerDied),
            (Some(6), false, BatchOutcome::NotSent),
            (None, true, BatchOutcome::ClaimerDied),
            (None, false, BatchOutcome::NotSent),
        ];

        for (watermark, claimer_died, outcome) in cases {
            assert_eq!(BatchOutcome::from_watermark(watermark, 7, claimer_died), outcome, "{watermark:?}");
        }
    }

    #[test]
    fn watermark_above_every_known_token_shows_that_the_store_was_rewound() {
        assert!(store_was_rewound(Some(8), 7));
        assert!(!store_was_rewound(Some(7), 7));
        assert!(!store_was_rewound(None, 7));
    }

    #[test]
    fn row_that_was_not_sent_returns_to_its_state_before_the_claim() {
        for (row, state) in
            [(row(0, 0, false), RowState::Pending), (row(2, 0, true), DUE_NOW), (row(3, 1, true), DUE_NOW)]
        {
            for trial in [None, TRIAL] {
                let change = BatchOutcome::NotSent.row_change(&row, trial).expect("a change");
                assert_eq!(change, RowChange { attempts: 3, ..row.with_state(state) });
            }
        }
        let never_tried = OutboxRow { attempts: 0, ..row(0, 0, false) };
        assert_eq!(BatchOutcome::NotSent.row_change(&never_tried, None).map(|change| change.attempts), Some(0));
    }

    #[test]
    fn deaths_lead_to_a_trial_and_two_trial_deaths_to_parking() {
        let cases = [
            (row(0, 0, false), None, RowState::Pending, (1, 0)),
            (row(0, 0, true), None, DUE_NOW, (1, 0)),
            (row(1, 0, true), None, DUE_NOW, (2, 0)),
            (row(2, 0, false), None, NEXT_TRIAL, (3, 0)),
            (row(3, 0, true), TRIAL, NEXT_TRIAL, (4, 1)),
            (row(0, 0, true), TRIAL, DUE_NOW, (1, 1)),
            (row(4, 1, true), TRIAL, POISON, (5, 2)),
            (row(4, 2, true), TRIAL, POISON, (5, 3)),
            (row(3, 0, true), Some(PoisonAction::SkipRow), NEXT_TRIAL, (4, 1)),
            (row(4, 1, true), Some(PoisonAction::SkipRow), SKIPPED, (5, 2)),
            (row(4, 2, true), None, NEXT_TRIAL, (5, 2)),
            (row(u32::MAX, 0, true), None, NEXT_TRIAL, (u32::MAX, 0)),
        ];

        for (row, trial, state, (deaths, trial_deaths)) in cases {
            let change = BatchOutcome::ClaimerDied.row_change(&row, trial).expect("a change");
            assert_eq!((change.state, change.deaths, change.trial_deaths), (state, deaths, trial_deaths), "{row:?}");
            assert_eq!(change.attempts, 4, "the attempt counts");
            assert_eq!(change.awaits_trial(), state == NEXT_TRIAL);
        }
    }

    #[test]
    fn only_a_row_parked_as_poison_has_a_new_failure() {
        let parked = BatchOutcome::ClaimerDied.row_change(&row(4, 1, true), TRIAL).expect("a change");
        assert_eq!(parked.failure_type, Some(FailureType::System));
        let reason = "poison: the worker or the process crashed in 2 attempts that sent only this event";
        assert_eq!(parked.reason.as_deref(), Some(reason));

        let returned = BatchOutcome::ClaimerDied.row_change(&row(2, 0, true), None).expect("a change");
        assert_eq!((returned.failure_type, returned.reason), (None, None));
    }

    #[test]
    fn rows_of_a_published_batch_are_archived() {
        assert_eq!(BatchOutcome::Published.row_change(&row(1, 0, true), None), None);
    }
}
