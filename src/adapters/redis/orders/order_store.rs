//! `OrderStore`: orders as texts in one hash, with one index for each way to list them. Order ids sort by creation.
use std::time::Duration;

use async_trait::async_trait;
use deadpool_redis::redis::{Value, cmd};
use domain::{Order, OrderId, Status, Subject};
use ports::Error;
use ports::orders::idempotency::BeginOutcome;
use ports::orders::{Commit, CommitOutcome, IdempotencyRecord, LIST_BYTES, NewRow, OrderFilter, OrderStore, PageStart};

use crate::idempotency::stored_value;
use crate::orders::order_json;
use crate::outbox::row;
use crate::store::arguments::ScriptArguments;
use crate::store::call::millis;
use crate::store::client::RedisStore;
use crate::store::reply::{Reply, broken};

#[async_trait]
impl OrderStore for RedisStore {
    async fn commit(&self, commit: Commit) -> Result<CommitOutcome, Error> {
        let partitions = self.partitions();
        if let Some(row) = commit.events.iter().find(|row| row.partition.0 >= partitions) {
            return Err(Error::Rejected(format!("writing event {}: no partition {}", row.event_id, row.partition)));
        }
        let arguments = commit_arguments(&commit)?;
        let mut reply = self.write_list("commit", &self.inner.scripts.commit, arguments).await?;
        match &*reply.text(0)? {
            "DONE" => Ok(CommitOutcome::Done),
            "STALE" => Ok(CommitOutcome::Stale { current: reply.number(1)? }),
            "MISSING" => Ok(CommitOutcome::Missing),
            "TAKEN" => {
                let stored = reply.text(1)?;
                let idempotency_record = commit
                    .idempotency_record
                    .ok_or_else(|| broken("an idempotency record for a commit without one"))?;
                Ok(CommitOutcome::KeyUsed(parse_stored_value(
                    idempotency_record.subject,
                    &idempotency_record.key,
                    &stored,
                )?))
            }
            other => Err(broken(format!("the result of a commit is {other:?}"))),
        }
    }

    async fn find(&self, id: OrderId) -> Result<Option<Order>, Error> {
        let arguments =
            ScriptArguments::new().text("orders:all").text(format!("[{id}")).number(0).number(1).number(LIST_BYTES);
        let orders = self.orders("find", arguments).await?;
        Ok(orders.into_iter().find(|order| order.id == id))
    }

    async fn list(&self, filter: &OrderFilter, from: PageStart, limit: u32) -> Result<Vec<Order>, Error> {
        let (bound, skip) = match from {
            PageStart::Offset(skip) => ("+".to_owned(), skip),
            PageStart::After(id) => (format!("({id}"), 0),
        };
        let skip = skip.min(i64::MAX as u64);
        let arguments =
            ScriptArguments::new().text(exact_index(filter)).text(bound).number(skip).number(limit).number(LIST_BYTES);
        self.orders("list", arguments).await
    }

    async fn count(&self, filter: &OrderFilter) -> Result<u64, Error> {
        let mut count = cmd("ZCARD");
        count.arg(format!("{}{}", self.inner.prefix, exact_index(filter)));
        self.read_command("count", count).await
    }

    async fn oldest(&self, status: Status, after: Option<OrderId>, limit: u32) -> Result<Vec<OrderId>, Error> {
        let bound = after.map_or("-".to_owned(), |id| format!("({id}"));
        let index = exact_index(&OrderFilter { owner: None, status: Some(status) });
        let arguments = ScriptArguments::new().text(index).text(bound).number(limit);
        let mut reply = self.read_list("oldest", &self.inner.scripts.oldest_ids, arguments).await?;
        let id = |text: String| OrderId::parse(&text).ok_or_else(|| broken(format!("{text:?} is not an order id")));
        (0..reply.len()).map(|index| id(reply.text(index)?)).collect()
    }

    async fn find_idempotency_record(
        &self,
        subject: &Subject,
        key: &str,
        keep: Duration,
    ) -> Result<Option<IdempotencyRecord>, Error> {
        let arguments = ScriptArguments::new().text(record_field(subject, key)).number(millis(keep));
        match self.read("find_idempotency_record", &self.inner.scripts.find_idempotency_record, arguments).await? {
            Value::Nil => Ok(None),
            value => {
                let text = Reply::single(value).text(0)?;
                parse_stored_value(subject.clone(), key, &text).map(Some)
            }
        }
    }

    async fn sweep_idempotency_records(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let arguments = ScriptArguments::new().number(millis(keep)).number(limit);
        let reply =
            self.write("sweep_idempotency_records", &self.inner.scripts.sweep_idempotency_records, arguments).await?;
        Reply::single(reply).number(0)
    }
}

impl RedisStore {
    async fn orders(&self, operation: &'static str, arguments: ScriptArguments) -> Result<Vec<Order>, Error> {
        let mut reply = self.read_list(operation, &self.inner.scripts.list, arguments).await?;
        (0..reply.len()).map(|index| parse_order(&reply.text(index)?)).collect()
    }
}

fn commit_arguments(commit: &Commit) -> Result<ScriptArguments, Error> {
    let Commit { order, expected, events, idempotency_record } = commit;
    let text =
        order_json::format(order).ok_or_else(|| Error::Rejected(format!("order {} cannot be serialised", order.id)))?;
    let expected = expected.map_or(String::new(), |version| version.to_string());
    let mut arguments = ScriptArguments::new().text(order.id.to_string()).text(expected).number(order.version);
    arguments = arguments.text(order.status.as_str()).text(order.owner.as_str()).text(text);
    arguments = match idempotency_record {
        Some(idempotency_record) => arguments
            .text(record_field(&idempotency_record.subject, &idempotency_record.key))
            .text(stored_value::completed(&idempotency_record.fingerprint, idempotency_record.order_id)),
        None => arguments.text("").text(""),
    };
    for event in events {
        let NewRow { event_id, key, event_type, partition, payload, headers, content_type, request_id, .. } = event;
        arguments = arguments.text(event_id.to_string()).text(key.to_string()).number(partition).text(&**event_type);
        arguments = arguments.text(row::event_metadata(event)?).bytes(payload).text(row::extra_metadata(
            *event_id,
            headers,
            content_type,
            request_id,
        )?);
    }
    Ok(arguments)
}

/// The index that contains exactly the orders of the filter.
fn exact_index(filter: &OrderFilter) -> String {
    match (&filter.owner, filter.status) {
        (None, None) => "orders:all".to_owned(),
        (None, Some(status)) => format!("orders:in:{}", status.as_str()),
        (Some(owner), None) => format!("orders:of:{}", owner.as_str()),
        (Some(owner), Some(status)) => format!("orders:of:{}\0{}", owner.as_str(), status.as_str()),
    }
}

/// Parses a stored value: version and status for the scripts, then the order's text.
fn parse_order(value: &str) -> Result<Order, Error> {
    let text = value.splitn(3, ' ').nth(2).unwrap_or_default();
    order_json::parse(text).ok_or_else(|| broken("an order of an unknown format"))
}

/// The field of a record. The subject's length comes first, so that `ann` with `b:c` differs from `ann:b` with `c`.
pub(crate) fn record_field(subject: &Subject, key: &str) -> String {
    let subject = subject.as_str();
    format!("{}:{subject}:{key}", subject.len())
}

pub(crate) fn parse_stored_value(subject: Subject, key: &str, text: &str) -> Result<IdempotencyRecord, Error> {
    match stored_value::parse(text) {
        Some(BeginOutcome::Completed { order_id, fingerprint: Some(fingerprint) }) => {
            Ok(IdempotencyRecord { subject, key: key.into(), fingerprint, order_id })
        }
        _ => Err(broken("an idempotency record of an unknown format")),
    }
}
