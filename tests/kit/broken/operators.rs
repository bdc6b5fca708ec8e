//! Operators' access to the outbox, with a flaw.
pub(crate) mod webhooks;

use std::sync::Arc;

use async_trait::async_trait;
use ports::Error;
use ports::operators::{
    Audit, AuditEntry, AuditFilter, OperatorOutcome, OutboxOperators, RedriveMode, RowDiagnosis, RowFilter,
    RowSelector, RowView,
};
use ports::outbox::{ClaimedRow, RowId};

use crate::broken::flaw::Flaw;

pub(crate) struct BrokenOperators {
    pub(crate) inner: Arc<dyn OutboxOperators>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl OutboxOperators for BrokenOperators {
    async fn rows(&self, filter: &RowFilter, limit: u32) -> Result<Vec<RowView>, Error> {
        let all = RowFilter { after: filter.after, ..RowFilter::default() };
        self.inner.rows(if self.flaw == Flaw::ListIgnoresFilter { &all } else { filter }, limit).await
    }
    async fn row(&self, id: RowId) -> Result<Option<RowView>, Error> {
        self.inner.row(id).await
    }
    async fn diagnose(&self, selector: RowSelector) -> Result<Option<RowDiagnosis>, Error> {
        let diagnosis = self.inner.diagnose(selector).await?;
        let hides = self.flaw == Flaw::HidesBlockingRow;
        Ok(diagnosis.map(|found| if hides { RowDiagnosis { head: None, ..found } } else { found }))
    }
    async fn event(&self, id: RowId) -> Result<Option<ClaimedRow>, Error> {
        let hides = self.flaw == Flaw::HidesPayload;
        let event = self.inner.event(id).await?;
        Ok(event.map(|event| if hides { ClaimedRow { payload: None, ..event } } else { event }))
    }
    async fn audit_entries(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditEntry>, Error> {
        let all = AuditFilter { after: filter.after, ..AuditFilter::default() };
        let first = AuditFilter { after: None, ..filter.clone() };
        let filter = match self.flaw {
            Flaw::AuditIgnoresFilter => &all,
            Flaw::AuditRepeatsFirstPage => &first,
            _ => filter,
        };
        self.inner.audit_entries(filter, limit).await
    }
    async fn retry(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        if self.flaw == Flaw::RetryChangesNothing {
            return Ok(OperatorOutcome::Done(1));
        }
        self.inner.retry(id, audit).await
    }
    async fn park(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        if self.flaw == Flaw::ParkChangesNothing {
            return Ok(OperatorOutcome::Done(1));
        }
        self.inner.park(id, audit).await
    }
    async fn redrive_row(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        self.inner.redrive_row(id, audit).await
    }
    async fn redrive(
        &self,
        filter: &RowFilter,
        limit: u32,
        mode: RedriveMode,
        audit: &Audit,
    ) -> Result<OperatorOutcome, Error> {
        let mode = if self.flaw == Flaw::DryRunRedrives { RedriveMode::Execute } else { mode };
        self.inner.redrive(filter, limit, mode, audit).await
    }
}
