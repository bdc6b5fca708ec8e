//! `OutboxOperators`: looking and acting.
use async_trait::async_trait;
use ports::Error;
use ports::operators::{Audit, OperatorOutcome, OutboxOperators, RowDiagnosis, RowFilter, RowSelector, RowView};
use ports::outbox::RowId;

use crate::error::retried;
use crate::operate::{self, Act};
use crate::row_view::{self, Question};
use crate::standing;
use crate::store::Postgres;

#[async_trait]
impl OutboxOperators for Postgres {
    async fn rows(&self, filter: &RowFilter, limit: u32) -> Result<Vec<RowView>, Error> {
        let (core, question) = (self.core(), Question::of(filter));
        self.run("outbox_rows", async move { question.rows(&core.others().await?, limit).await }).await
    }

    async fn row(&self, id: RowId) -> Result<Option<RowView>, Error> {
        let core = self.core();
        self.run("outbox_row", async move { row_view::find(&core.others().await?, id).await }).await
    }

    async fn diagnose(&self, selector: RowSelector) -> Result<Option<RowDiagnosis>, Error> {
        let core = self.core();
        self.run("outbox_standing", async move { standing::standing(&core.others().await?, selector).await }).await
    }

    async fn retry(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let (core, audit) = (self.core(), audit.clone());
        self.run("outbox_retry", async move { retried!(operate::act(&core, Act::Retry, id, &audit)) }).await
    }

    async fn park(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let (core, audit) = (self.core(), audit.clone());
        self.run("outbox_park", async move { retried!(operate::act(&core, Act::Park, id, &audit)) }).await
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
                return operate::count_parked(&core, &filter).await;
            }
            retried!(operate::redrive(&core, &filter, limit, &audit))
        })
        .await
    }
}
