//! `OutboxOperators`: looking goes to the readers, acting to the writer.
use async_trait::async_trait;
use ports::Error;
use ports::operators::{Audit, OperatorOutcome, OutboxOperators, RowDiagnosis, RowFilter, RowSelector, RowView};
use ports::outbox::RowId;

use crate::open::Embedded;
use crate::row_view::{self, Question};
use crate::{operate, standing};

#[async_trait]
impl OutboxOperators for Embedded {
    async fn rows(&self, filter: &RowFilter, limit: u32) -> Result<Vec<RowView>, Error> {
        let question = Question::of(filter, self.inner.clock.now());
        self.read("outbox_rows", move |sql| question.rows(sql, limit)).await
    }

    async fn row(&self, id: RowId) -> Result<Option<RowView>, Error> {
        self.read("outbox_row", move |sql| row_view::find(sql, id)).await
    }

    async fn diagnose(&self, selector: RowSelector) -> Result<Option<RowDiagnosis>, Error> {
        self.read("outbox_standing", move |sql| standing::standing(sql, selector)).await
    }

    async fn retry(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let audit = audit.clone();
        self.write("outbox_retry", move |work| operate::retry(work, id, &audit)).await
    }

    async fn park(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let audit = audit.clone();
        self.write("outbox_park", move |work| operate::park(work, id, &audit)).await
    }

    async fn redrive(
        &self,
        filter: &RowFilter,
        limit: u32,
        commit: bool,
        audit: &Audit,
    ) -> Result<OperatorOutcome, Error> {
        let (filter, audit) = (filter.clone(), audit.clone());
        self.write("outbox_redrive", move |work| operate::redrive(work, &filter, limit, commit, &audit)).await
    }
}
