//! `OutboxOperators`: queries run on the readers, actions on the writer.
use async_trait::async_trait;
use ports::Error;
use ports::operators::{
    Audit, AuditEntry, AuditFilter, OperatorOutcome, OutboxOperators, RedriveMode, RowDiagnosis, RowFilter,
    RowSelector, RowView,
};
use ports::outbox::{ClaimedRow, RowId};

use crate::operators::actions;
use crate::operators::audit;
use crate::operators::diagnosis;
use crate::operators::rows::{self, OutboxRowQuery};
use crate::outbox::claim;
use crate::store::Embedded;

#[async_trait]
impl OutboxOperators for Embedded {
    async fn rows(&self, filter: &RowFilter, limit: u32) -> Result<Vec<RowView>, Error> {
        let query = OutboxRowQuery::new(filter, self.inner.clock.now());
        self.read("outbox_rows", move |sql| query.rows(sql, limit)).await
    }

    async fn row(&self, id: RowId) -> Result<Option<RowView>, Error> {
        self.read("outbox_row", move |sql| rows::find(sql, id)).await
    }

    async fn diagnose(&self, selector: RowSelector) -> Result<Option<RowDiagnosis>, Error> {
        self.read("outbox_diagnose", move |sql| diagnosis::diagnose(sql, selector)).await
    }

    async fn event(&self, id: RowId) -> Result<Option<ClaimedRow>, Error> {
        self.read("outbox_event", move |sql| claim::find_event(sql, id)).await
    }

    async fn audit_entries(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditEntry>, Error> {
        let filter = filter.clone();
        self.read("audit", move |sql| audit::entries(sql, &filter, limit)).await
    }

    async fn retry(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let audit = audit.clone();
        self.write("outbox_retry", move |context| actions::retry(context, id, &audit)).await
    }

    async fn park(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let audit = audit.clone();
        self.write("outbox_park", move |context| actions::park(context, id, &audit)).await
    }

    async fn redrive_row(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let audit = audit.clone();
        self.write("outbox_redrive", move |context| actions::redrive_row(context, id, &audit)).await
    }

    async fn redrive(
        &self,
        filter: &RowFilter,
        limit: u32,
        mode: RedriveMode,
        audit: &Audit,
    ) -> Result<OperatorOutcome, Error> {
        let (filter, audit) = (filter.clone(), audit.clone());
        self.write("outbox_redrive", move |context| actions::redrive(context, &filter, limit, mode, &audit)).await
    }
}
