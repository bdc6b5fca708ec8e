//! The reference's outbox: what becomes of a claimed batch.
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use domain::Timestamp;
use ports::outbox::{
    BatchOutcome, Claim, Claimed, Depth, Disposition, Exclusion, FencedOutcome, OutboxStore, RowId, RowStatus,
    Settlement,
};
use ports::partitions::{Fence, PartitionNo, Token};
use ports::{Error, FailureType};

use crate::reference::{Reference, Row, State};

/// Deaths in trials that convict.
const CONVICTED: u32 = 2;

impl Row {
    /// Back in line: a head keeps its block.
    fn give_back(&mut self, now: Timestamp) {
        self.status = if self.head { RowStatus::Failed } else { RowStatus::Pending };
        self.due = self.head.then_some(now);
    }

    fn suffer(&mut self, fate: Disposition, now: Timestamp) {
        match fate {
            Disposition::Retry(delay) => {
                (self.status, self.due, self.head) = (RowStatus::Failed, Some(now.after(delay)), true);
            }
            Disposition::ParkKey => (self.status, self.due, self.holds_key) = (RowStatus::Parked, None, true),
            Disposition::ParkRow => (self.status, self.due, self.holds_key) = (RowStatus::Parked, None, false),
        }
    }

    fn send(&mut self, now: Timestamp) {
        (self.status, self.due, self.sent_at) = (RowStatus::Sent, None, Some(now));
    }
}

impl State {
    /// Whether this owner, in this epoch, has this batch open.
    fn holds(&mut self, fence: &Fence, token: Token) -> bool {
        let lease = self.lease(fence.partition);
        lease.owner.as_ref() == Some(&fence.owner)
            && lease.epoch == fence.epoch
            && lease.open.as_ref().is_some_and(|open| open.token == token)
    }

    /// Whether this owner, in this epoch, has closed this batch last: then it is told again that it is closed.
    fn closed_last(&mut self, fence: &Fence, token: Token) -> FencedOutcome {
        let lease = self.lease(fence.partition);
        let ours = lease.owner.as_ref() == Some(&fence.owner) && lease.epoch == fence.epoch;
        if ours && lease.closed == token && lease.open.is_none() {
            return FencedOutcome::Done { counter: lease.counter, rows: 0 };
        }
        FencedOutcome::Stale
    }

    fn close(&mut self, partition: PartitionNo, token: Token, rows: u64) -> FencedOutcome {
        let lease = self.lease(partition);
        (lease.counter, lease.open, lease.closed) = (lease.counter + 1, None, token);
        FencedOutcome::Done { counter: lease.counter, rows }
    }

    fn exclude(&mut self, fence: &Fence, token: Token, exclusions: &[Exclusion], now: Timestamp) -> FencedOutcome {
        if !self.holds(fence, token) || self.lease(fence.partition).counter != fence.counter {
            return FencedOutcome::Stale;
        }
        let named: BTreeMap<RowId, &Exclusion> = exclusions.iter().map(|named| (named.row, named)).collect();
        let mut stopped = BTreeSet::new();
        let mut rows = 0;
        for row in self.batch(fence.partition, token) {
            if let Some(exclusion) = named.get(&row.id) {
                let reason = exclusion.reason.chars().take(256).collect();
                row.failure = Some((exclusion.failure_type, reason));
                row.suffer(exclusion.disposition, now);
                stopped.insert(row.written.key);
            } else if stopped.contains(&row.written.key) {
                row.attempts -= 1;
                row.give_back(now);
            } else {
                continue;
            }
            rows += 1;
        }
        let lease = self.lease(fence.partition);
        lease.counter += 1;
        FencedOutcome::Done { counter: lease.counter, rows }
    }

    fn settle(&mut self, settlement: Settlement, now: Timestamp) -> FencedOutcome {
        let Settlement { fence, token, positions, by_fallback } = settlement;
        if !self.holds(&fence, token) {
            return self.closed_last(&fence, token);
        }
        let mut positions: BTreeMap<RowId, _> = positions.into_iter().collect();
        let mut rows = 0;
        for row in self.batch(fence.partition, token) {
            row.send(now);
            row.sent_to = positions.remove(&row.id);
            row.by_fallback = by_fallback.contains(&row.id);
            rows += 1;
        }
        self.close(fence.partition, token, rows)
    }

    fn resolve(&mut self, fence: &Fence, token: Token, verdict: BatchOutcome, now: Timestamp) -> FencedOutcome {
        if !self.holds(fence, token) {
            return self.closed_last(fence, token);
        }
        let trial = self.lease(fence.partition).open.as_ref().is_some_and(|open| open.trial);
        let mut rows = 0;
        for row in self.batch(fence.partition, token) {
            rows += 1;
            match verdict {
                BatchOutcome::Published => row.send(now),
                BatchOutcome::NotSent => {
                    row.attempts -= 1;
                    row.give_back(now);
                }
                BatchOutcome::ClaimerDied => {
                    row.deaths += 1;
                    row.trial_deaths += u32::from(trial);
                    row.give_back(now);
                    if row.trial_deaths >= CONVICTED {
                        row.failure = Some((FailureType::System, "killed its process in two trials".to_owned()));
                        row.suffer(Disposition::ParkKey, now);
                    }
                }
            }
        }
        self.close(fence.partition, token, rows)
    }

    fn depth(&self, now: Timestamp) -> Depth {
        let count = |status| self.rows.values().filter(|row| row.status == status).count() as u64;
        let waits = |row: &&Row| !row.left() && row.status != RowStatus::Parked;
        Depth {
            pending: count(RowStatus::Pending),
            in_flight: count(RowStatus::InFlight),
            failed: count(RowStatus::Failed),
            parked: count(RowStatus::Parked),
            sent: count(RowStatus::Sent),
            oldest_unsent: self.rows.values().filter(waits).map(|row| now.since(row.created_at)).max(),
        }
    }
}

#[async_trait]
impl OutboxStore for Reference {
    async fn claim(&self, claim: Claim) -> Result<Claimed, Error> {
        Ok(self.state.lock().claim(claim, self.now()))
    }

    async fn exclude(&self, fence: &Fence, token: Token, rows: &[Exclusion]) -> Result<FencedOutcome, Error> {
        Ok(self.state.lock().exclude(fence, token, rows, self.now()))
    }

    async fn settle(&self, settlement: Settlement) -> Result<FencedOutcome, Error> {
        Ok(self.state.lock().settle(settlement, self.now()))
    }

    async fn resolve(&self, fence: &Fence, token: Token, verdict: BatchOutcome) -> Result<FencedOutcome, Error> {
        Ok(self.state.lock().resolve(fence, token, verdict, self.now()))
    }

    async fn depth(&self) -> Result<Depth, Error> {
        Ok(self.state.lock().depth(self.now()))
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
