//! Events of other services: a script numbers them and writes the batch at once.
use async_trait::async_trait;
use ports::Error;
use ports::outbox::events::{EventBatch, EventBatchOutcome, EventStore};

use crate::idempotency::stored_value;
use crate::orders::order_store::{parse_stored_value, record_field};
use crate::outbox::row;
use crate::store::arguments::ScriptArguments;
use crate::store::client::RedisStore;
use crate::store::reply::broken;

#[async_trait]
impl EventStore for RedisStore {
    async fn publish(&self, batch: EventBatch) -> Result<EventBatchOutcome, Error> {
        let partitions = self.partitions();
        if let Some(event) = batch.events.iter().find(|event| event.partition.0 >= partitions) {
            return Err(Error::Rejected(format!("writing event {}: no partition {}", event.event_id, event.partition)));
        }
        let arguments = arguments(&batch)?;
        let mut reply = self.write_list("publish", &self.inner.scripts.publish, arguments).await?;
        match &*reply.text(0)? {
            "DONE" => {
                let is_new = (1..reply.len()).map(|index| reply.flag(index)).collect::<Result<_, _>>()?;
                Ok(EventBatchOutcome::Done { is_new })
            }
            "TAKEN" => {
                let stored = reply.text(1)?;
                let idempotency_record =
                    batch.idempotency_record.ok_or_else(|| broken("an idempotency record for events without one"))?;
                Ok(EventBatchOutcome::KeyUsed(parse_stored_value(
                    idempotency_record.subject,
                    &idempotency_record.key,
                    &stored,
                )?))
            }
            other => Err(broken(format!("the result of publishing is {other:?}"))),
        }
    }
}

fn arguments(batch: &EventBatch) -> Result<ScriptArguments, Error> {
    let mut arguments = match &batch.idempotency_record {
        Some(idempotency_record) => ScriptArguments::new()
            .text(record_field(&idempotency_record.subject, &idempotency_record.key))
            .text(stored_value::completed(&idempotency_record.fingerprint, idempotency_record.order_id)),
        None => ScriptArguments::new().text("").text(""),
    };
    for event in &batch.events {
        let (topic, rest) = row::external_metadata(event)?;
        arguments = arguments.text(event.event_id.to_string()).text(event.key.to_string()).number(event.partition);
        arguments = arguments.text(&*event.event_type).text(topic).text(rest).bytes(&event.payload);
        let extra = row::extra_metadata(event.event_id, &event.headers, &event.content_type, &event.request_id)?;
        arguments = arguments.text(extra);
    }
    Ok(arguments)
}
