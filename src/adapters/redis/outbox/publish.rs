//! Events of other services: a script numbers them and writes the batch at once.
use async_trait::async_trait;
use ports::Error;
use ports::outbox::events::{BatchCommit, EventBatch, EventStore};

use crate::idempotency::mark;
use crate::orders::order_store::{mark_field, parse_mark};
use crate::outbox::row;
use crate::store::arguments::ScriptArguments;
use crate::store::client::RedisStore;
use crate::store::reply::broken;

#[async_trait]
impl EventStore for RedisStore {
    async fn publish(&self, batch: EventBatch) -> Result<BatchCommit, Error> {
        let partitions = self.partitions();
        if let Some(event) = batch.events.iter().find(|event| event.partition.0 >= partitions) {
            return Err(Error::Rejected(format!("writing event {}: no partition {}", event.event_id, event.partition)));
        }
        let arguments = arguments(&batch)?;
        let mut reply = self.write_list("publish", &self.inner.scripts.publish, arguments).await?;
        match &*reply.text(0)? {
            "DONE" => {
                let is_new = (1..reply.len()).map(|index| reply.flag(index)).collect::<Result<_, _>>()?;
                Ok(BatchCommit::Done { is_new })
            }
            "TAKEN" => {
                let stored = reply.text(1)?;
                let mark = batch.mark.ok_or_else(|| broken("a mark for events without one"))?;
                Ok(BatchCommit::KeyUsed(parse_mark(mark.subject, &mark.key, &stored)?))
            }
            other => Err(broken(format!("the result of publishing is {other:?}"))),
        }
    }
}

fn arguments(batch: &EventBatch) -> Result<ScriptArguments, Error> {
    let mut arguments = match &batch.mark {
        Some(mark) => ScriptArguments::new()
            .text(mark_field(&mark.subject, &mark.key))
            .text(mark::completed(&mark.fingerprint, mark.order_id)),
        None => ScriptArguments::new().text("").text(""),
    };
    for event in &batch.events {
        let (topic, rest) = row::external_metadata(event)?;
        arguments = arguments.text(event.event_id.to_string()).text(event.key.to_string()).number(event.partition);
        arguments = arguments.text(&*event.kind).text(topic).text(rest).bytes(&event.payload);
        let extra = row::extra_metadata(event.event_id, &event.headers, &event.content_type, &event.request_id)?;
        arguments = arguments.text(extra);
    }
    Ok(arguments)
}
