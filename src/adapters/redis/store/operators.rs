//! `OutboxOperators`: looking along the narrowest list, acting in one script.
use async_trait::async_trait;
use ports::Error;
use ports::operators::{Audit, OperatorOutcome, OutboxOperators, RowDiagnosis, RowFilter, RowSelector, RowView};
use ports::outbox::{RowId, RowStatus};
use ports::partitions::InstanceId;

use super::RedisStore;
use super::row::{Shown, shown};
use super::words::{Reply, Words, broken};

/// Rows that one look takes along.
const PAGE: u32 = 500;

#[async_trait]
impl OutboxOperators for RedisStore {
    async fn rows(&self, filter: &RowFilter, limit: u32) -> Result<Vec<RowView>, Error> {
        let (mut found, mut after) = (Vec::new(), filter.after.unwrap_or(0));
        let now = if filter.older_than.is_some() { Some(self.now().await?) } else { None };
        while found.len() < limit as usize {
            let words = Words::new().text(set_of(filter)).number(after).number(PAGE);
            let page = self.seen("outbox_rows", &self.inner.scripts.rows, words).await?.lists()?;
            let whole = page.len() == PAGE as usize;
            for row in page {
                let view = shown(row)?.view;
                after = view.id;
                if lets(filter, &view, now) && found.len() < limit as usize {
                    found.push(view);
                }
            }
            if !whole {
                break;
            }
        }
        Ok(found)
    }

    async fn row(&self, id: RowId) -> Result<Option<RowView>, Error> {
        let words = Words::new().text("all").number(id.saturating_sub(1)).number(1);
        let found = self.seen("outbox_row", &self.inner.scripts.rows, words).await?.lists()?.pop();
        let view = found.map(shown).transpose()?.map(|row| row.view);
        Ok(view.filter(|view| view.id == id))
    }

    async fn diagnose(&self, selector: RowSelector) -> Result<Option<RowDiagnosis>, Error> {
        let words = match selector {
            RowSelector::Event(event) => Words::new().text("event").text(event.to_string()),
            RowSelector::Key(key) => Words::new().text("key").text(key.to_string()),
        };
        let mut told = self.seen("outbox_standing", &self.inner.scripts.standing, words).await?;
        if told.len() == 0 {
            return Ok(None);
        }
        let Shown { view, deaths, by_fallback, sent_to } = shown(Reply::of(told.take(0))?)?;
        let head = Reply::of(told.take(1))?;
        let head = if head.len() == 0 { None } else { Some(shown(head)?.view) };
        let owner = told.maybe(2)?.map(|owner| InstanceId(owner.into()));
        Ok(Some(RowDiagnosis { row: view, head, owner, epoch: told.number(3)?, deaths, sent_to, by_fallback }))
    }

    async fn retry(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        self.act_on_one("retry", id, audit).await
    }

    async fn park(&self, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        self.act_on_one("park", id, audit).await
    }

    async fn redrive(
        &self,
        filter: &RowFilter,
        limit: u32,
        commit: bool,
        audit: &Audit,
    ) -> Result<OperatorOutcome, Error> {
        let filter = RowFilter { status: Some(RowStatus::Parked), ..filter.clone() };
        let rows = self.rows(&filter, if commit { limit } else { u32::MAX }).await?;
        if !commit {
            return Ok(OperatorOutcome::Done(rows.len() as u64));
        }
        let mut changed = 0;
        for rows in rows.chunks(PAGE as usize) {
            let words = Words::new().text("redrive").text(&audit.operator).text(&audit.reason);
            let words = rows.iter().fold(words, |words, row| words.number(row.id));
            changed += self.parts("outbox_redrive", &self.inner.scripts.act, words).await?.number::<u64>(0)?;
        }
        Ok(OperatorOutcome::Done(changed))
    }
}

impl RedisStore {
    async fn act_on_one(&self, action: &'static str, id: RowId, audit: &Audit) -> Result<OperatorOutcome, Error> {
        let words = Words::new().text(action).text(&audit.operator).text(&audit.reason).number(id);
        let mut told = self.parts("outbox_act", &self.inner.scripts.act, words).await?;
        if told.number::<u64>(0)? > 0 {
            return Ok(OperatorOutcome::Done(1));
        }
        match told.maybe(1)? {
            None => Ok(OperatorOutcome::Missing),
            Some(status) => RowStatus::parse(&status)
                .map(OperatorOutcome::WrongStatus)
                .ok_or_else(|| broken(format!("a row is {status:?}"))),
        }
    }
}

/// The narrowest set of ids.
fn set_of(filter: &RowFilter) -> String {
    match (filter.key, filter.status) {
        (Some(key), _) => format!("key:{key}"),
        (None, Some(status)) => format!("status:{}", status.as_str()),
        (None, None) => "all".to_owned(),
    }
}

fn lets(filter: &RowFilter, view: &RowView, now: Option<domain::Timestamp>) -> bool {
    let RowFilter { status, key, kind, failure_type, older_than, after: _ } = filter;
    status.is_none_or(|status| status == view.status)
        && key.is_none_or(|key| key == view.key)
        && kind.as_ref().is_none_or(|kind| *kind == view.kind)
        && failure_type.is_none_or(|failure| Some(failure) == view.failure_type)
        && older_than.zip(now).is_none_or(|(age, now)| now.since(view.created_at) >= age)
}
