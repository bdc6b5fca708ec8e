//! The operators' access to the reference's outbox.
mod webhooks;

use async_trait::async_trait;
use domain::Timestamp;
use ports::Error;
use ports::operators::{
    Audit, AuditEntry, AuditFilter, OperatorAction, OperatorOutcome, OutboxOperators, RecordLocation, RedriveMode,
    RowDiagnosis, RowFilter, RowSelector, RowView,
};
use ports::outbox::{ClaimedRow, RowId, RowStatus};

use crate::reference::claims::claimed;
use crate::reference::outbox::stored_reason;
use crate::reference::state::{Reference, Row, State};

fn view(row: &Row) -> RowView {
    RowView {
        id: row.id,
        event_id: row.event.event_id,
        key: row.event.key.clone(),
        event_type: row.event.event_type.to_string(),
        partition: row.event.partition,
        status: row.status,
        lease_owner: row.owner.clone(),
        lease_version: row.token,
        retry_count: row.attempts,
        next_attempt_at: row.due,
        last_attempt_at: row.last_attempts[0],
        failure_type: row.failure.as_ref().map(|(kind, _)| *kind),
        last_failure_reason: row
            .failure
            .as_ref()
            .map(|(_, reason)| reason.clone())
            .or_else(|| row.parked_reason.clone()),
        created_at: row.created_at,
        sent_at: row.sent_at,
    }
}

fn matches_filter(filter: &RowFilter, row: &Row, now: Timestamp) -> bool {
    filter.status.is_none_or(|status| row.status == status)
        && filter.key.as_ref().is_none_or(|key| row.event.key == *key)
        && filter.partition.is_none_or(|partition| row.event.partition == partition)
        && filter.event_type.as_ref().is_none_or(|event_type| *row.event.event_type == **event_type)
        && filter.failure_type.is_none_or(|kind| row.failure.as_ref().is_some_and(|(failed, _)| *failed == kind))
        && filter.older_than.is_none_or(|age| now.since(row.created_at) >= age)
        && filter.after.is_none_or(|after| row.id > after)
}

/// The reason shown for a row that an operator parked before it failed.
fn parked_reason(audit: &Audit) -> String {
    let Audit { operator, reason } = audit;
    let text =
        if reason.is_empty() { format!("parked by {operator}") } else { format!("parked by {operator}: {reason}") };
    stored_reason(&text)
}

impl Row {
    /// Makes the row due now as the head of its key; the attempts and deaths of a PARKED row start again from 0.
    fn make_due(&mut self, now: Timestamp) {
        if self.status == RowStatus::Parked {
            (self.attempts, self.deaths, self.trial_deaths) = (0, 0, 0);
        }
        (self.status, self.due, self.blocks_key) = (RowStatus::Failed, Some(now), true);
    }
}

impl State {
    /// Changes one row if it has one of these statuses, and writes the audit entry.
    fn operate(
        &mut self,
        (action, id): (OperatorAction, RowId),
        from: &[RowStatus],
        (audit, now): (&Audit, Timestamp),
        change: impl FnOnce(&mut Row),
    ) -> OperatorOutcome {
        let Some(row) = self.rows.get_mut(&id) else { return OperatorOutcome::Missing };
        if !from.contains(&row.status) {
            return OperatorOutcome::WrongStatus(row.status);
        }
        change(row);
        let partition = row.event.partition;
        self.lease(partition).counter += 1;
        self.write_audit(action, id, audit, now);
        OperatorOutcome::Done(1)
    }

    fn write_audit(&mut self, action: OperatorAction, id: RowId, audit: &Audit, now: Timestamp) {
        let action = action.as_str().to_owned();
        let entry =
            AuditEntry { id: self.audits.len() as i64 + 1, at: now, action, row: Some(id), audit: audit.clone() };
        self.audits.push(entry);
    }

    fn diagnosis(&self, selector: RowSelector) -> Option<RowDiagnosis> {
        let row = match &selector {
            RowSelector::Event(event) => self.rows.values().find(|row| row.event.event_id == *event)?,
            RowSelector::Key(key) => {
                let mut of_key = self.rows.values().filter(|row| row.event.key == *key);
                of_key.clone().find(|row| !row.is_sent()).or_else(|| of_key.next_back())?
            }
        };
        let before = |other: &&Row| other.event.key == row.event.key && other.id < row.id && other.blocks_later_rows();
        let head = self.rows.values().find(before).filter(|_| !row.is_sent());
        let lease = &self.leases[row.event.partition.0 as usize];
        Some(RowDiagnosis {
            row: view(row),
            head: head.map(view),
            owner: lease.owner.clone(),
            epoch: lease.epoch,
            deaths: row.deaths,
            sent_to: row.is_sent().then(|| RecordLocation::new(&row.event.topic, row.sent_to.clone(), row.by_fallback)),
            by_fallback: row.by_fallback,
        })
    }
}

#[async_trait]
impl OutboxOperators for Reference {
    async fn rows(&self, filter: &RowFilter, limit: u32) -> Result<Vec<RowView>, Error> {
        let now = self.now();
        let state = self.state.lock();
        let rows = state.rows.values().filter(|row| matches_filter(filter, row, now));
        Ok(rows.take(limit as usize).map(view).collect())
    }

    async fn row(&self, id: RowId) -> Result<Option<RowView>, Error> {
        Ok(self.state.lock().rows.get(&id).map(view))
    }

    async fn diagnose(&self, selector: RowSelector) -> Result<Option<RowDiagnosis>, Error> {
        Ok(self.state.lock().diagnosis(selector))
    }

    async fn event(&self, id: RowId) -> Result<Option<ClaimedRow>, Error> {
        let attempts_made = |row: &Row| ClaimedRow { attempt: row.attempts.max(1), ..claimed(row) };
        Ok(self.state.lock().rows.get(&id).map(attempts_made))
    }

    async fn audit_entries(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditEntry>, Error> {
        let AuditFilter { row, action, operator, after } = filter;
        let matches = |entry: &&AuditEntry| {
            row.is_none_or(|row| entry.row == Some(row))
                && action.is_none_or(|action| entry.action == action.as_str())
                && operator.as_ref().is_none_or(|operator| *operator == entry.audit.operator)
                && after.is_none_or(|after| entry.id < after)
        };
        Ok(self.state.lock().audits.iter().rev().filter(matches).take(limit as usize).cloned().collect())
    }

    async fn retry(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let now = self.now();
        let from = [RowStatus::Failed, RowStatus::Parked];
        Ok(self.state.lock().operate((OperatorAction::Retry, id), &from, (audit, now), |row| row.make_due(now)))
    }

    async fn park(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let (from, now) = ([RowStatus::Pending, RowStatus::Failed], self.now());
        Ok(self.state.lock().operate((OperatorAction::Park, id), &from, (audit, now), |row| {
            (row.status, row.due, row.parked_with_key) = (RowStatus::Parked, None, true);
            row.parked_reason = Some(parked_reason(audit));
        }))
    }

    async fn redrive_row(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let (from, now) = ([RowStatus::Parked], self.now());
        Ok(self.state.lock().operate((OperatorAction::Redrive, id), &from, (audit, now), |row| row.make_due(now)))
    }

    async fn redrive(
        &self,
        filter: &RowFilter,
        limit: u32,
        mode: RedriveMode,
        audit: &Audit,
    ) -> Result<OperatorOutcome, Error> {
        let now = self.now();
        let filter = RowFilter { status: Some(RowStatus::Parked), ..filter.clone() };
        let mut state = self.state.lock();
        let parked: Vec<RowId> =
            state.rows.values().filter(|row| matches_filter(&filter, row, now)).map(|row| row.id).collect();
        if mode == RedriveMode::DryRun {
            return Ok(OperatorOutcome::Done(parked.len() as u64));
        }
        let redriven = &parked[..parked.len().min(limit as usize)];
        for id in redriven {
            let row = state.rows.get_mut(id).expect("the filter matched the row");
            row.make_due(now);
            let partition = row.event.partition;
            state.lease(partition).counter += 1;
            state.write_audit(OperatorAction::Redrive, *id, audit, now);
        }
        Ok(OperatorOutcome::Done(redriven.len() as u64))
    }
}
