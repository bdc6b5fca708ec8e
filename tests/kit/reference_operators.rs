//! The reference's side for operators.
use async_trait::async_trait;
use domain::Timestamp;
use ports::Error;
use ports::operators::{Audit, OperatorOutcome, OutboxOperators, RowDiagnosis, RowFilter, RowSelector, RowView};
use ports::outbox::{RowId, RowStatus};

use crate::reference::{Reference, Row, State};

fn view(row: &Row) -> RowView {
    RowView {
        id: row.id,
        event_id: row.written.event_id,
        key: row.written.key,
        kind: row.written.kind.as_str().to_owned(),
        partition: row.written.partition,
        status: row.status,
        lease_owner: row.owner.clone(),
        lease_version: row.token,
        retry_count: row.attempts,
        next_attempt_at: row.due,
        failure_type: row.failure.as_ref().map(|(kind, _)| *kind),
        last_failure_reason: row.failure.as_ref().map(|(_, reason)| reason.clone()).or_else(|| row.parked.clone()),
        created_at: row.created_at,
        sent_at: row.sent_at,
    }
}

fn lets_through(filter: &RowFilter, row: &Row, now: Timestamp) -> bool {
    filter.status.is_none_or(|status| row.status == status)
        && filter.key.is_none_or(|key| row.written.key == key)
        && filter.kind.as_ref().is_none_or(|kind| row.written.kind.as_str() == kind)
        && filter.failure_type.is_none_or(|kind| row.failure.as_ref().is_some_and(|(failed, _)| *failed == kind))
        && filter.older_than.is_none_or(|age| now.since(row.created_at) >= age)
        && filter.after.is_none_or(|after| row.id > after)
}

impl Row {
    fn wake(&mut self, now: Timestamp) {
        if self.status == RowStatus::Parked {
            (self.attempts, self.deaths, self.trial_deaths) = (0, 0, 0);
        }
        (self.status, self.due, self.head) = (RowStatus::Failed, Some(now), true);
    }
}

impl State {
    /// Changes one row if it stands in one of these states.
    fn operate(
        &mut self,
        id: RowId,
        from: &[RowStatus],
        audit: &Audit,
        change: impl FnOnce(&mut Row),
    ) -> OperatorOutcome {
        let Some(row) = self.rows.get_mut(&id) else { return OperatorOutcome::Missing };
        if !from.contains(&row.status) {
            return OperatorOutcome::WrongStatus(row.status);
        }
        change(row);
        let partition = row.written.partition;
        self.lease(partition).counter += 1;
        self.audits.push(audit.clone());
        OperatorOutcome::Done(1)
    }

    fn diagnose(&self, whose: RowSelector) -> Option<RowDiagnosis> {
        let row = match whose {
            RowSelector::Event(event) => self.rows.values().find(|row| row.written.event_id == event)?,
            RowSelector::Key(key) => {
                let mut of_key = self.rows.values().filter(|row| row.written.key == key);
                of_key.clone().find(|row| !row.left()).or_else(|| of_key.next_back())?
            }
        };
        let before = |other: &&Row| other.written.key == row.written.key && other.id < row.id && other.holds_its_key();
        let head = self.rows.values().find(before).filter(|_| !row.left());
        let lease = &self.leases[row.written.partition.0 as usize];
        Some(RowDiagnosis {
            row: view(row),
            head: head.map(view),
            owner: lease.owner.clone(),
            epoch: lease.epoch,
            deaths: row.deaths,
            sent_to: row.sent_to.clone(),
            by_fallback: row.by_fallback,
        })
    }
}

#[async_trait]
impl OutboxOperators for Reference {
    async fn rows(&self, filter: &RowFilter, limit: u32) -> Result<Vec<RowView>, Error> {
        let now = self.now();
        let state = self.state.lock();
        let shown = state.rows.values().filter(|row| lets_through(filter, row, now));
        Ok(shown.take(limit as usize).map(view).collect())
    }

    async fn row(&self, id: RowId) -> Result<Option<RowView>, Error> {
        Ok(self.state.lock().rows.get(&id).map(view))
    }

    async fn diagnose(&self, selector: RowSelector) -> Result<Option<RowDiagnosis>, Error> {
        Ok(self.state.lock().diagnose(selector))
    }

    async fn retry(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let now = self.now();
        let from = [RowStatus::Failed, RowStatus::Parked];
        Ok(self.state.lock().operate(id, &from, audit, |row| row.wake(now)))
    }

    async fn park(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let from = [RowStatus::Pending, RowStatus::Failed];
        Ok(self.state.lock().operate(id, &from, audit, |row| {
            (row.status, row.due, row.holds_key) = (RowStatus::Parked, None, true);
            row.parked.get_or_insert_with(|| audit.parked());
        }))
    }

    async fn redrive(
        &self,
        filter: &RowFilter,
        limit: u32,
        commit: bool,
        audit: &Audit,
    ) -> Result<OperatorOutcome, Error> {
        let now = self.now();
        let filter = RowFilter { status: Some(RowStatus::Parked), ..filter.clone() };
        let mut state = self.state.lock();
        let parked: Vec<RowId> =
            state.rows.values().filter(|row| lets_through(&filter, row, now)).map(|row| row.id).collect();
        if !commit {
            return Ok(OperatorOutcome::Done(parked.len() as u64));
        }
        let woken = &parked[..parked.len().min(limit as usize)];
        for id in woken {
            let row = state.rows.get_mut(id).expect("just listed");
            row.wake(now);
            let partition = row.written.partition;
            state.lease(partition).counter += 1;
        }
        state.audits.push(audit.clone());
        Ok(OperatorOutcome::Done(woken.len() as u64))
    }
}
