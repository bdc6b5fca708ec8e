//! `OutboxOperators`: reads rows along the smallest index, changes them in one script.
use std::ops::ControlFlow;

use async_trait::async_trait;
use outbox::operator::{OperatorAction, parked_reason};
use ports::Error;
use ports::operators::{
    Audit, AuditEntry, AuditFilter, OperatorOutcome, OutboxOperators, RecordLocation, RedriveMode, RowDiagnosis,
    RowFilter, RowSelector, RowView, redrive_error_after,
};
use ports::outbox::{ClaimedRow, OutboxStore, RowId, RowStatus};
use ports::partitions::InstanceId;

use crate::outbox::row::{StoredRow, claimed_row, event_topic, stored_row};
use crate::store::arguments::ScriptArguments;
use crate::store::client::RedisStore;
use crate::store::reply::{Reply, broken};

/// Rows that one call reads or changes.
const PAGE: u32 = 500;

#[async_trait]
impl OutboxOperators for RedisStore {
    async fn rows(&self, filter: &RowFilter, limit: u32) -> Result<Vec<RowView>, Error> {
        let mut found = Vec::new();
        if limit > 0 {
            self.visit_rows(filter, |row| {
                found.push(row);
                if found.len() < limit as usize { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
            .await?;
        }
        Ok(found)
    }

    async fn row(&self, id: RowId) -> Result<Option<RowView>, Error> {
        let arguments = ScriptArguments::new().text("all").number(id.saturating_sub(1)).number(1);
        let row = self.read_list("outbox_row", &self.inner.scripts.rows, arguments).await?.lists()?.pop();
        let view = row.map(stored_row).transpose()?.map(|row| row.view);
        Ok(view.filter(|view| view.id == id))
    }

    async fn diagnose(&self, selector: RowSelector) -> Result<Option<RowDiagnosis>, Error> {
        let arguments = match selector {
            RowSelector::Event(event) => ScriptArguments::new().text("event").text(event.to_string()),
            RowSelector::Key(key) => ScriptArguments::new().text("key").text(key.to_string()),
        };
        let mut reply = self.read_list("outbox_diagnose", &self.inner.scripts.diagnose, arguments).await?;
        if reply.is_empty() {
            return Ok(None);
        }
        let StoredRow { view, deaths, by_fallback, position } = stored_row(Reply::from_value(reply.take(0))?)?;
        let head = Reply::from_value(reply.take(1))?;
        let head = if head.is_empty() { None } else { Some(stored_row(head)?.view) };
        let sent_to = match view.status {
            RowStatus::Sent => Some(RecordLocation::new(&event_topic(&reply.text(4)?)?, position, by_fallback)),
            RowStatus::Pending | RowStatus::InFlight | RowStatus::Failed | RowStatus::Parked => None,
        };
        let owner = reply.optional_text(2)?.map(|owner| InstanceId(owner.into()));
        Ok(Some(RowDiagnosis { row: view, head, owner, epoch: reply.number(3)?, deaths, sent_to, by_fallback }))
    }

    async fn event(&self, id: RowId) -> Result<Option<ClaimedRow>, Error> {
        let arguments = ScriptArguments::new().number(id);
        let row = self.read_list("outbox_event", &self.inner.scripts.event, arguments).await?;
        if row.is_empty() {
            return Ok(None);
        }
        let row = claimed_row(row)?;
        Ok(Some(ClaimedRow { attempt: row.attempt.max(1), ..row }))
    }

    async fn audit_entries(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditEntry>, Error> {
        self.audit_log(filter, limit).await
    }

    async fn retry(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        self.change_row(OperatorAction::Retry, id, audit).await
    }

    async fn park(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        self.change_row(OperatorAction::Park, id, audit).await
    }

    async fn redrive_row(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        self.change_row(OperatorAction::Redrive, id, audit).await
    }

    async fn redrive(
        &self,
        filter: &RowFilter,
        limit: u32,
        mode: RedriveMode,
        audit: &Audit,
    ) -> Result<OperatorOutcome, Error> {
        let filter = RowFilter { status: Some(RowStatus::Parked), ..filter.clone() };
        if mode == RedriveMode::DryRun {
            return Ok(OperatorOutcome::Done(self.count_parked(&filter).await?));
        }
        let rows = self.rows(&filter, limit).await?;
        let mut changed = 0;
        for rows in rows.chunks(PAGE as usize) {
            let arguments = rows
                .iter()
                .fold(action_arguments(OperatorAction::Redrive, audit), |arguments, row| arguments.number(row.id));
            let reply = self.write_list("outbox_redrive", &self.inner.scripts.change_rows, arguments).await;
            let mut reply = reply.map_err(|error| redrive_error_after(changed, error))?;
            changed += reply.number::<u64>(0)?;
        }
        Ok(OperatorOutcome::Done(changed))
    }
}

impl RedisStore {
    /// Counts the PARKED rows that match a filter for them. Without further conditions the index has their number; otherwise they are read page
    /// by page.
    async fn count_parked(&self, filter: &RowFilter) -> Result<u64, Error> {
        if *filter == (RowFilter { status: Some(RowStatus::Parked), ..RowFilter::default() }) {
            return Ok(self.depth().await?.parked);
        }
        let mut counted = 0;
        self.visit_rows(filter, |_| {
            counted += 1;
            ControlFlow::Continue(())
        })
        .await?;
        Ok(counted)
    }

    /// Reads the rows that match in id order, a page at a time, until `visit` breaks.
    async fn visit_rows(
        &self,
        filter: &RowFilter,
        mut visit: impl FnMut(RowView) -> ControlFlow<()> + Send,
    ) -> Result<(), Error> {
        let mut after = filter.after.unwrap_or(0);
        let now = if filter.older_than.is_some() { Some(self.server_time().await?) } else { None };
        loop {
            let arguments = ScriptArguments::new().text(smallest_index(filter)).number(after).number(PAGE);
            let page = self.read_list("outbox_rows", &self.inner.scripts.rows, arguments).await?.lists()?;
            let is_full = page.len() == PAGE as usize;
            for row in page {
                let view = stored_row(row)?.view;
                after = view.id;
                if matches(filter, &view, now) && visit(view).is_break() {
                    return Ok(());
                }
            }
            if !is_full {
                return Ok(());
            }
        }
    }

    async fn change_row(&self, action: OperatorAction, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let arguments = action_arguments(action, audit).number(id);
        let mut reply = self.write_list("outbox_act", &self.inner.scripts.change_rows, arguments).await?;
        if reply.number::<u64>(0)? > 0 {
            return Ok(OperatorOutcome::Done(1));
        }
        match reply.optional_text(1)? {
            None => Ok(OperatorOutcome::Missing),
            Some(status) => RowStatus::parse(&status)
                .map(OperatorOutcome::WrongStatus)
                .ok_or_else(|| broken(format!("a row's status is {status:?}"))),
        }
    }
}

/// The arguments of a statement, before the ids of its rows.
fn action_arguments(action: OperatorAction, audit: &Audit) -> ScriptArguments {
    let statuses = RowStatus::ALL.into_iter().filter(|status| action.applies_to(*status));
    let statuses: Vec<&str> = statuses.map(RowStatus::as_str).collect();
    ScriptArguments::new()
        .text(action.as_str())
        .text(&audit.operator)
        .text(&audit.reason)
        .text(statuses.join(" "))
        .text(parked_reason(&audit.operator, &audit.reason))
}

/// The set of ids that contains the fewest other rows.
fn smallest_index(filter: &RowFilter) -> String {
    match (&filter.key, filter.status, filter.partition) {
        (Some(key), _, _) => format!("key:{key}"),
        (None, Some(RowStatus::Pending), Some(partition)) => format!("live:{partition}"),
        (None, Some(RowStatus::InFlight), Some(partition)) => format!("flight:{partition}"),
        (None, Some(status), _) => format!("status:{}", status.as_str()),
        (None, None, _) => "all".to_owned(),
    }
}

fn matches(filter: &RowFilter, view: &RowView, now: Option<domain::Timestamp>) -> bool {
    let RowFilter { status, key, partition, event_type, failure_type, older_than, after: _ } = filter;
    status.is_none_or(|status| status == view.status)
        && key.as_ref().is_none_or(|key| *key == view.key)
        && partition.is_none_or(|partition| partition == view.partition)
        && event_type.as_ref().is_none_or(|event_type| *event_type == view.event_type)
        && failure_type.is_none_or(|failure| Some(failure) == view.failure_type)
        && older_than.zip(now).is_none_or(|(age, now)| now.since(view.created_at) >= age)
}
