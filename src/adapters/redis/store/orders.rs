//! `OrderStore`: orders as texts in one hash, and a list for each way to look for them. Ids sort as orders were created.
use std::time::Duration;

use async_trait::async_trait;
use deadpool_redis::redis::Value;
use domain::{Order, OrderId, Status, Subject};
use ports::Error;
use ports::orders::{Commit, Committed, IdempotencyMark, NewRow, OrderFilter, OrderStore, PageStart};

use super::words::{Reply, Words, broken};
use super::{RedisStore, millis, row};
use crate::{mark, order_text};

#[async_trait]
impl OrderStore for RedisStore {
    async fn commit(&self, commit: Commit) -> Result<Committed, Error> {
        let partitions = self.partitions();
        if let Some(row) = commit.events.iter().find(|row| row.partition.0 >= partitions) {
            return Err(Error::Rejected(format!("writing event {}: no partition {}", row.event_id, row.partition)));
        }
        let words = words(&commit)?;
        let mut told = self.parts("commit", &self.inner.scripts.commit, words).await?;
        match &*told.text(0)? {
            "DONE" => Ok(Committed::Done),
            "STALE" => Ok(Committed::Stale { current: told.number(1)? }),
            "MISSING" => Ok(Committed::Missing),
            "TAKEN" => {
                let taken = told.text(1)?;
                let asked = commit.mark.ok_or_else(|| broken("a mark that nobody asked about"))?;
                Ok(Committed::KeyUsed(read_mark(asked.subject, &asked.key, &taken)?))
            }
            other => Err(broken(format!("a commit came to {other}"))),
        }
    }

    async fn find(&self, id: OrderId) -> Result<Option<Order>, Error> {
        let words = Words::new().text("orders:all").text(format!("[{id}")).number(0).number(1).text("newest");
        let found = self.orders("find", words).await?;
        Ok(found.into_iter().find(|order| order.id == id))
    }

    async fn list(&self, filter: &OrderFilter, from: PageStart, limit: u32) -> Result<Vec<Order>, Error> {
        let (bound, skip) = match from {
            PageStart::Offset(skip) => ("+".to_owned(), skip),
            PageStart::After(id) => (format!("({id}"), 0),
        };
        let skip = skip.min(i64::MAX as u64);
        let words = Words::new().text(list_of(filter)).text(bound).number(skip).number(limit).text("newest");
        self.orders("list", words).await
    }

    async fn count(&self, filter: &OrderFilter) -> Result<u64, Error> {
        let mut count = deadpool_redis::redis::cmd("ZCARD");
        count.arg(format!("{}{}", self.inner.front, list_of(filter)));
        self.look_at("count", count).await
    }

    async fn oldest(&self, status: Status, after: Option<OrderId>, limit: u32) -> Result<Vec<OrderId>, Error> {
        let bound = after.map_or("-".to_owned(), |id| format!("({id}"));
        let list = list_of(&OrderFilter { owner: None, status: Some(status) });
        let words = Words::new().text(list).text(bound).number(0).number(limit).text("oldest");
        let mut told = self.seen("oldest", &self.inner.scripts.list, words).await?;
        (0..told.len()).map(|at| OrderId::parse(&told.text(at)?).ok_or_else(|| broken("an order's id"))).collect()
    }

    async fn find_mark(&self, subject: &Subject, key: &str, keep: Duration) -> Result<Option<IdempotencyMark>, Error> {
        let words = Words::new().text("find").text(mark_name(subject, key)).number(millis(keep));
        match self.look("find_mark", &self.inner.scripts.marks, words).await? {
            Value::Nil => Ok(None),
            found => {
                let text = Reply::one(found).text(0)?;
                read_mark(subject.clone(), key, &text).map(Some)
            }
        }
    }

    async fn sweep_marks(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let words = Words::new().text("sweep").number(limit).number(millis(keep));
        let told = self.change("sweep_marks", &self.inner.scripts.marks, words).await?;
        Reply::one(told).number(0)
    }
}

impl RedisStore {
    async fn orders(&self, doing: &'static str, words: Words) -> Result<Vec<Order>, Error> {
        let mut told = self.seen(doing, &self.inner.scripts.list, words).await?;
        (0..told.len()).map(|at| read_order(&told.text(at)?)).collect()
    }
}

fn words(commit: &Commit) -> Result<Words, Error> {
    let Commit { order, expected, events, mark } = commit;
    let text =
        order_text::write(order).ok_or_else(|| Error::Rejected(format!("order {} cannot be written", order.id)))?;
    let expected = expected.map_or(String::new(), |version| version.to_string());
    let mut words = Words::new().text(order.id.to_string()).text(expected).number(order.version);
    words = words.text(order.status.as_str()).text(order.owner.as_str()).text(text);
    words = match mark {
        Some(mark) => {
            words.text(mark_name(&mark.subject, &mark.key)).text(mark::completed(&mark.fingerprint, mark.order_id))
        }
        None => words.text("").text(""),
    };
    for event in events {
        let NewRow { event_id, key, kind, partition, payload, .. } = event;
        words = words.text(event_id.to_string()).text(key.to_string()).number(partition).text(kind.as_str());
        words = words.text(row::entry(event)?).bytes(payload);
    }
    Ok(words)
}

/// The narrowest list.
fn list_of(filter: &OrderFilter) -> String {
    match (&filter.owner, filter.status) {
        (None, None) => "orders:all".to_owned(),
        (None, Some(status)) => format!("orders:in:{}", status.as_str()),
        (Some(owner), None) => format!("orders:of:{}", owner.as_str()),
        (Some(owner), Some(status)) => format!("orders:of:{}\0{}", owner.as_str(), status.as_str()),
    }
}

/// A value: version and state for the scripts, then the order.
fn read_order(value: &str) -> Result<Order, Error> {
    let text = value.splitn(3, ' ').nth(2).unwrap_or_default();
    order_text::read(text).ok_or_else(|| broken("an order in no form we know"))
}

/// The subject's length stands first: `ann` with `b:c` is not `ann:b` with `c`.
fn mark_name(subject: &Subject, key: &str) -> String {
    let subject = subject.as_str();
    format!("{}:{subject}:{key}", subject.len())
}

fn read_mark(subject: Subject, key: &str, text: &str) -> Result<IdempotencyMark, Error> {
    match mark::read(text) {
        Some(ports::idempotency::BeginOutcome::Completed { order_id, fingerprint: Some(fingerprint) }) => {
            Ok(IdempotencyMark { subject, key: key.into(), fingerprint, order_id })
        }
        _ => Err(broken("a mark in no form we know")),
    }
}
