//! A store for the events of other services, with a flaw.
use std::sync::Arc;

use async_trait::async_trait;
use domain::EventId;
use ports::Error;
use ports::outbox::events::{EventBatch, EventBatchOutcome, EventStore};

use crate::broken::flaw::Flaw;

pub(crate) struct BrokenEvents {
    pub(crate) inner: Arc<dyn EventStore>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl EventStore for BrokenEvents {
    async fn publish(&self, mut batch: EventBatch) -> Result<EventBatchOutcome, Error> {
        match self.flaw {
            Flaw::DropsRecordOfEvents => batch.idempotency_record = None,
            Flaw::ReversesBatches => batch.events.reverse(),
            Flaw::ScattersKeysOfEvents => {
                for (number, event) in (0..).zip(&mut batch.events) {
                    event.key = ports::outbox::EventKey::from_text(&format!("{}-{number}", event.key));
                }
            }
            Flaw::PublishesEventsTwice => {
                let again: Vec<_> = batch.events.clone();
                let again = again.into_iter().map(|mut event| {
                    let mut id = event.event_id.bytes();
                    id[15] ^= 0xff;
                    event.event_id = EventId::from_bytes(id);
                    event
                });
                self.inner.publish(EventBatch { events: again.collect(), idempotency_record: None }).await?;
            }
            _ => {}
        }
        self.inner.publish(batch).await
    }
}
