//! Generated tables of cases (input and expected result), so that a store that restates a rule in another language is held to it.
use crate::rows::claim::{claim_size, rows_taken};
use crate::rows::poison::PoisonAction;
use crate::rows::resolution::BatchOutcome;
use crate::rows::row::{OutboxRow, RowChange};

/// One row of a batch that is resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolutionCase {
    /// The row while it is in flight.
    pub row: OutboxRow<()>,
    /// The outcome of its batch.
    pub outcome: BatchOutcome,
    /// The poison rule for the row if its batch is a trial.
    pub trial: Option<PoisonAction>,
    /// The expected change; `None` where the row is archived as SENT.
    pub change: Option<RowChange<()>>,
}

/// Every combination of outcome, trial with its poison rule, block, one or four attempts, up to five deaths and up to two earlier trial deaths.
/// Ids ascend from 1.
pub fn resolution_cases() -> Vec<ResolutionCase> {
    let mut cases = Vec::new();
    for outcome in [BatchOutcome::Published, BatchOutcome::ClaimerDied, BatchOutcome::NotSent] {
        let trials = [None, Some(PoisonAction::BlockKey), Some(PoisonAction::SkipRow)];
        for (trial, blocks_key) in trials.into_iter().flat_map(|trial| [(trial, false), (trial, true)]) {
            for (attempts, deaths) in
                [1, 4].into_iter().flat_map(|attempts| (0..=5).map(move |deaths| (attempts, deaths)))
            {
                for trial_deaths in 0..=deaths.min(2) {
                    let id = cases.len() as i64 + 1;
                    let row = OutboxRow { id, key: (), attempts, deaths, trial_deaths, blocks_key };
                    let change = outcome.row_change(&row, trial);
                    cases.push(ResolutionCase { row, outcome, trial, change });
                }
            }
        }
    }
    cases
}

/// A claim with one limit and the deaths of its candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimSizeCase {
    /// Most rows of the claim.
    pub limit: u32,
    /// The deaths of each candidate, in id order; all are below the suspects' number and their payloads are small.
    pub deaths: Vec<u32>,
    /// How many of the candidates the claim takes, from the first on.
    pub taken: usize,
}

/// Claims of limits 1 to 200 over candidates of which one, at different indexes, has one or two deaths.
pub fn claim_size_cases() -> Vec<ClaimSizeCase> {
    let mut cases = Vec::new();
    for limit in [1, 2, 7, 8, 9, 16, 63, 64, 65, 128, 200] {
        for deaths in 0..=2 {
            let size = claim_size(limit, deaths) as usize;
            let indexes = [0, 1, size.saturating_sub(1), size, size + 1, limit as usize];
            for index in indexes {
                let mut candidates = vec![0; limit as usize + 2];
                if let Some(candidate) = candidates.get_mut(index) {
                    *candidate = deaths;
                }
                let taken = rows_taken(candidates.iter().map(|deaths| (*deaths, 1)), limit);
                let case = ClaimSizeCase { limit, deaths: candidates, taken };
                if !cases.contains(&case) {
                    cases.push(case);
                }
            }
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SUSPECT_DEATHS;
    use crate::rows::status::RowStatus;

    #[test]
    fn resolution_cases_reach_every_kind_of_change() {
        let cases = resolution_cases();
        let statuses = |outcome| {
            let changes = cases.iter().filter(move |case| case.outcome == outcome).map(|case| &case.change);
            let mut statuses: Vec<_> =
                changes.map(|change| change.as_ref().map(|change| change.state.status())).collect();
            statuses.sort_unstable();
            statuses.dedup();
            statuses
        };

        assert_eq!(cases.len(), 3 * 6 * 2 * 15);
        assert_eq!(statuses(BatchOutcome::Published), [None]);
        assert_eq!(statuses(BatchOutcome::NotSent), [Some(RowStatus::Pending), Some(RowStatus::Failed)]);
        let all = [Some(RowStatus::Pending), Some(RowStatus::Failed), Some(RowStatus::Parked)];
        assert_eq!(statuses(BatchOutcome::ClaimerDied), all);
    }

    #[test]
    fn claim_size_cases_take_between_one_row_and_the_limit() {
        let cases = claim_size_cases();

        assert!(cases.iter().all(|case| (1..=case.limit as usize).contains(&case.taken)));
        assert!(cases.iter().all(|case| case.deaths.iter().all(|deaths| *deaths < SUSPECT_DEATHS)));
        assert!(cases.iter().any(|case| case.limit == 200 && case.taken == 25));
        assert!(cases.iter().any(|case| case.limit == 200 && case.taken == 200));
    }
}
