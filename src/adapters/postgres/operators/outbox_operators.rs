//! The port `OutboxOperators`: listing, diagnosing and changing rows.
use async_trait::async_trait;
use ports::Error;
use ports::operators::{
    Audit, AuditEntry, AuditFilter, OperatorOutcome, OutboxOperators, RedriveMode, RowDiagnosis, RowFilter,
    RowSelector, RowView,
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
        let (context, query) = (self.context(), RowQuery::new(filter));
        self.run("outbox_rows", async move { query.rows(&context.service_session().await?, limit).await }).await
    }

    async fn row(&self, id: RowId) -> Result<Option<RowView>, Error> {
        let context = self.context();
        self.run("outbox_row", async move { row_query::find(&context.service_session().await?, id).await }).await
    }

    async fn diagnose(&self, selector: RowSelector) -> Result<Option<RowDiagnosis>, Error> {
        let context = self.context();
        let diagnose = async move { diagnosis::diagnose(&context.service_session().await?, selector).await };
        self.run("outbox_diagnose", diagnose).await
    }

    async fn event(&self, id: RowId) -> Result<Option<ClaimedRow>, Error> {
        let context = self.context();
        self.run("outbox_event", async move { claimed_row::find(&context.service_session().await?, id).await }).await
    }

    async fn audit_entries(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditEntry>, Error> {
        let (context, filter) = (self.context(), filter.clone());
        self.run("audit", async move { audit_log::entries(&context.service_session().await?, &filter, limit).await })
            .await
    }

    async fn retry(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let (context, audit) = (self.context(), audit.clone());
        self.run("outbox_retry", async move { retry_conflicts!(row_actions::retry(&context, id, &audit)) }).await
    }

    async fn park(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let (context, audit) = (self.context(), audit.clone());
        self.run("outbox_park", async move { retry_conflicts!(row_actions::park(&context, id, &audit)) }).await
    }

    async fn redrive_row(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let (context, audit) = (self.context(), audit.clone());
        self.run("outbox_redrive", async move { retry_conflicts!(row_actions::redrive_row(&context, id, &audit)) })
            .await
    }

    async fn redrive(
        &self,
        filter: &RowFilter,
        limit: u32,
        mode: RedriveMode,
        audit: &Audit,
    ) -> Result<OperatorOutcome, Error> {
        let (context, filter, audit) = (self.context(), filter.clone(), audit.clone());
        self.run("outbox_redrive", async move {
            if mode == RedriveMode::DryRun {
                return row_actions::count_parked(&context, &filter).await;
            }
            row_actions::redrive(&context, &filter, limit, &audit).await
        })
        .await
    }
}
