//! The outbox of the reference: exclusion, settlement and resolution of a claimed batch.
mod events;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use domain::{EventId, Timestamp};
use ports::outbox::{
    BatchOutcome, Claim, ClaimOutcome, Disposition, Exclusion, ExclusionOutcome, FencedOutcome, OutboxStore,
    PoisonAction, PoisonPolicy, PoisonRow, ResolvedBatch, RowCounts, RowId, RowStatus, Settlement,
};
use ports::partitions::{LeaseFence, PartitionNo, Token};
use ports::{Error, FailureType};

use crate::reference::state::{Reference, Row, State};

/// A row with this many deaths in trials is parked.
const TRIAL_DEATHS_MAX: u32 = 2;
/// The most characters of a stored failure reason.
const REASON_CHARS_MAX: usize = 256;

/// The stored form of a failure reason: without NUL characters, at most 256 characters.
pub(crate) fn stored_reason(reason: &str) -> String {
    reason.replace('\0', "").chars().take(REASON_CHARS_MAX).collect()
}

impl Row {
    /// Makes a row of a resolved batch due again: a head stays FAILED and blocks its key.
    fn make_due_again(&mut self, now: Timestamp) {
        self.status = if self.blocks_key { RowStatus::Failed } else { RowStatus::Pending };
        self.due = self.blocks_key.then_some(now);
    }

    /// Returns a row to PENDING, with its attempt, because an earlier row of its key was excluded.
    fn return_to_pending(&mut self) {
        (self.status, self.due) = (RowStatus::Pending, None);
        self.return_attempt();
    }

    /// Takes back the attempt that the claim counted.
    fn return_attempt(&mut self) {
        (self.attempts, self.last_attempts[0]) = (self.attempts - 1, self.last_attempts[1]);
    }

    fn apply(&mut self, disposition: Disposition, now: Timestamp) {
        match disposition {
            Disposition::Retry(delay) => {
                (self.status, self.due, self.blocks_key) = (RowStatus::Failed, Some(now.plus(delay)), true);
            }
            Disposition::ParkKey => (self.status, self.due, self.parked_with_key) = (RowStatus::Parked, None, true),
            Disposition::ParkRow => (self.status, self.due, self.parked_with_key) = (RowStatus::Parked, None, false),
        }
    }

    /// Parks a row that died in its trials, as the policy of its topic and event type says.
    fn park_as_poison(&mut self, policy: &PoisonPolicy, now: Timestamp) -> PoisonRow {
        let reason = format!(
            "poison: the worker or the process crashed in {} attempts that sent only this event",
            self.trial_deaths
        );
        self.failure = Some((FailureType::System, reason.clone()));
        self.apply(
            match policy.value_for(&self.event.topic, &self.event.event_type) {
                PoisonAction::BlockKey => Disposition::ParkKey,
                PoisonAction::SkipRow => Disposition::ParkRow,
            },
            now,
        );
        PoisonRow {
            id: self.id,
            event_id: self.event.event_id,
            key: self.event.key.clone(),
            event_type: std::sync::Arc::clone(&self.event.event_type),
            request_id: self.event.request_id.clone(),
            attempts: self.attempts,
            reason,
        }
    }

    fn mark_sent(&mut self, now: Timestamp) {
        (self.status, self.due, self.sent_at) = (RowStatus::Sent, None, Some(now));
    }
}

impl State {
    /// Whether this owner, in this epoch, has this batch open.
    fn has_open(&mut self, fence: &LeaseFence, token: Token) -> bool {
        let lease = self.lease(fence.partition);
        lease.is_held_by(&fence.owner, fence.epoch) && lease.open.as_ref().is_some_and(|open| open.token == token)
    }

    /// The outcome for a batch that is not open: done if this owner closed it last in this epoch, else stale.
    fn repeated_close(&mut self, fence: &LeaseFence, token: Token) -> FencedOutcome {
        let lease = self.lease(fence.partition);
        if lease.is_held_by(&fence.owner, fence.epoch) && lease.closed == token && lease.open.is_none() {
            return FencedOutcome::Done { counter: lease.counter, rows: 0 };
        }
        FencedOutcome::Stale
    }

    fn close(&mut self, partition: PartitionNo, token: Token, rows: u64) -> FencedOutcome {
        let lease = self.lease(partition);
        (lease.counter, lease.open, lease.closed) = (lease.counter + 1, None, token);
        FencedOutcome::Done { counter: lease.counter, rows }
    }

    fn exclude(
        &mut self,
        fence: &LeaseFence,
        token: Token,
        exclusions: &[Exclusion],
        now: Timestamp,
    ) -> ExclusionOutcome {
        if !self.has_open(fence, token) || self.lease(fence.partition).counter != fence.counter {
            return ExclusionOutcome::Stale;
        }
        let by_row: BTreeMap<RowId, &Exclusion> =
            exclusions.iter().map(|exclusion| (exclusion.row, exclusion)).collect();
        let mut excluded_keys = BTreeSet::new();
        let mut rows = 0;
        for row in self.batch(fence.partition, token) {
            if let Some(exclusion) = by_row.get(&row.id) {
                row.attempts = exclusion.attempts;
                row.failure = Some((exclusion.failure_type, stored_reason(&exclusion.reason)));
                row.apply(exclusion.disposition, now);
                excluded_keys.insert(row.event.key.group());
            } else if excluded_keys.contains(&row.event.key.group()) {
                row.return_to_pending();
            } else {
                continue;
            }
            rows += 1;
        }
        if rows == 0 && !exclusions.is_empty() {
            return ExclusionOutcome::Stale;
        }
        let lease = self.lease(fence.partition);
        lease.counter += 1;
        let new_token = lease.counter;
        lease.open.as_mut().expect("the batch is open").token = new_token;
        self.batch(fence.partition, token).for_each(|row| row.token = new_token);
        ExclusionOutcome::Done { token: new_token, rows }
    }

    fn settle(&mut self, settlement: Settlement, now: Timestamp) -> FencedOutcome {
        let Settlement { fence, token, positions, by_fallback } = settlement;
        if !self.has_open(&fence, token) {
            return self.repeated_close(&fence, token);
        }
        let mut positions: BTreeMap<RowId, _> = positions.iter().cloned().collect();
        let mut rows = 0;
        for row in self.batch(fence.partition, token) {
            row.mark_sent(now);
            row.sent_to = positions.remove(&row.id);
            row.by_fallback = by_fallback.contains(&row.id);
            rows += 1;
        }
        self.close(fence.partition, token, rows)
    }

    fn resolve(
        &mut self,
        (fence, token): (&LeaseFence, Token),
        outcome: BatchOutcome,
        poison: &PoisonPolicy,
        now: Timestamp,
    ) -> ResolvedBatch {
        if !self.has_open(fence, token) {
            return self.repeated_close(fence, token).into();
        }
        let trial = self.lease(fence.partition).open.as_ref().is_some_and(|open| open.trial);
        let (mut rows, mut parked) = (0, Vec::new());
        for row in self.batch(fence.partition, token) {
            rows += 1;
            match outcome {
                BatchOutcome::Published => row.mark_sent(now),
                BatchOutcome::NotSent => {
                    row.return_attempt();
                    row.make_due_again(now);
                }
                BatchOutcome::ClaimerDied => {
                    row.deaths += 1;
                    row.trial_deaths += u32::from(trial);
                    row.make_due_again(now);
                    if row.trial_deaths >= TRIAL_DEATHS_MAX {
                        parked.push(row.park_as_poison(poison, now));
                    }
                }
            }
        }
        ResolvedBatch { closed: self.close(fence.partition, token, rows), parked }
    }

    fn depth(&self, now: Timestamp) -> RowCounts {
        let count = |status| self.rows.values().filter(|row| row.status == status).count() as u64;
        let is_parked_with_key = |row: &&Row| row.status == RowStatus::Parked && row.parked_with_key;
        let parked: Vec<&Row> = self.rows.values().filter(is_parked_with_key).collect();
        let waits_for_an_operator =
            |row: &Row| parked.iter().any(|head| head.event.key == row.event.key && head.id < row.id);
        let unsent = |row: &&Row| !row.is_sent() && row.status != RowStatus::Parked && !waits_for_an_operator(row);
        RowCounts {
            pending: count(RowStatus::Pending),
            in_flight: count(RowStatus::InFlight),
            failed: count(RowStatus::Failed),
            parked: count(RowStatus::Parked),
            sent: count(RowStatus::Sent),
            oldest_unsent: self.rows.values().filter(unsent).map(|row| now.since(row.created_at)).max(),
        }
    }
}

#[async_trait]
impl OutboxStore for Reference {
    async fn claim(&self, claim: Claim) -> Result<ClaimOutcome, Error> {
        Ok(self.state.lock().claim(claim, 0, self.now()))
    }

    async fn exclude(&self, fence: &LeaseFence, token: Token, rows: &[Exclusion]) -> Result<ExclusionOutcome, Error> {
        Ok(self.state.lock().exclude(fence, token, rows, self.now()))
    }

    async fn settle(&self, settlement: Settlement) -> Result<FencedOutcome, Error> {
        Ok(self.state.lock().settle(settlement, self.now()))
    }

    async fn resolve(
        &self,
        fence: &LeaseFence,
        token: Token,
        outcome: BatchOutcome,
        poison: &PoisonPolicy,
    ) -> Result<ResolvedBatch, Error> {
        Ok(self.state.lock().resolve((fence, token), outcome, poison, self.now()))
    }

    async fn depth(&self) -> Result<RowCounts, Error> {
        Ok(self.state.lock().depth(self.now()))
    }

    async fn contains(&self, event: EventId) -> Result<bool, Error> {
        Ok(self.state.lock().rows.values().any(|row| row.event.event_id == event))
    }

    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let now = self.now();
        let mut state = self.state.lock();
        let old = state.rows.values().filter(|row| row.sent_at.is_some_and(|sent| now.since(sent) > keep));
        let old: Vec<RowId> = old.map(|row| row.id).take(limit as usize).collect();
        for id in &old {
            state.rows.remove(id);
        }
        Ok(old.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_reason_has_at_most_256_characters_and_no_nul() {
        let reason = format!("\0é{}", "é\0".repeat(300));

        assert_eq!(stored_reason(&reason), "é".repeat(256));
        assert_eq!(stored_reason("a\0b"), "ab");
    }
}
