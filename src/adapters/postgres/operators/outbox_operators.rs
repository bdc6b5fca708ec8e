//! The port `OutboxOperators`: listing, diagnosing and changing rows.
use async_trait::async_trait;
use ports::Error;
use ports::operators::{
    Audit, AuditEntry, AuditFilter, OperatorOutcome, OutboxOperators, RowDiagnosis, RowFilter, RowSelector, RowView,
};
use ports::outbox::{ClaimedRow, RowId};

use crate::connection::statement_error::retry_conflicts;
use crate::operators::row_query::{self, RowQuery};
use crate::operators::{audit_log, diagnosis, row_actions};
use crate::outbox::claimed_row;
use crate::store::postgres::Postgres;

#[async_trait]
impl OutboxOperators for Postgres {
    async fn rows(&self, filter: &RowFilter, limit: u32) -> Result<Vec<RowView>, Error> {
        let (core, query) = (self.core(), RowQuery::of(filter));
        self.run("outbox_rows", async move { query.rows(&core.service_session().await?, limit).await }).await
    }

    async fn row(&self, id: RowId) -> Result<Option<RowView>, Error> {
        let core = self.core();
        self.run("outbox_row", async move { row_query::find(&core.service_session().await?, id).await }).await
    }

    async fn diagnose(&self, selector: RowSelector) -> Result<Option<RowDiagnosis>, Error> {
        let core = self.core();
        let diagnose = async move { diagnosis::diagnose(&core.service_session().await?, selector).await };
        self.run("outbox_diagnose", diagnose).await
    }

    async fn event(&self, id: RowId) -> Result<Option<ClaimedRow>, Error> {
        let core = self.core();
        self.run("outbox_event", async move { claimed_row::find(&core.service_session().await?, id).await }).await
    }

    async fn audit_entries(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditEntry>, Error> {
        let (core, filter) = (self.core(), filter.clone());
        self.run("audit", async move { audit_log::entries(&core.service_session().await?, &filter, limit).await }).await
    }

    async fn retry(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let (core, audit) = (self.core(), audit.clone());
        self.run("outbox_retry", async move { retry_conflicts!(row_actions::retry(&core, id, &audit)) }).await
    }

    async fn park(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let (core, audit) = (self.core(), audit.clone());
        self.run("outbox_park", async move { retry_conflicts!(row_actions::park(&core, id, &audit)) }).await
    }

    async fn redrive_row(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let (core, audit) = (self.core(), audit.clone());
        self.run("outbox_redrive", async move { retry_conflicts!(row_actions::redrive_row(&core, id, &audit)) }).await
    }

    async fn redrive(
        &self,
        filter: &RowFilter,
        limit: u32,
        commit: bool,
        audit: &Audit,
    ) -> Result<OperatorOutcome, Error> {
        let (core, filter, audit) = (self.core(), filter.clone(), audit.clone());
        self.run("outbox_redrive", async move {
            if !commit {
                return row_actions::count_parked(&core, &filter).await;
            }
            retry_conflicts!(row_actions::redrive(&core, &filter, limit, &audit))
        })
        .await
    }
}
