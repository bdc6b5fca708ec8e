//! The handler that sends each event to an endpoint of another system.
use std::sync::Arc;

use async_trait::async_trait;
use outbox::FaultClass;
use ports::broker::Record;
use ports::endpoint::{EventEndpoint, EventRequest};
use ports::inbox::Effect;

use crate::consume::chain::HandlerResult;
use crate::consume::event_handler::{ConsumedEvent, EventHandler, HandlerFault};
use crate::consume::forward::is_failure_header;
use crate::contract::framing;

/// Sends events to an endpoint, each key's in order. The endpoint may receive an event again after a retry or a crash, with the same `ce_id`.
pub struct PostToEndpoint {
    endpoint: Arc<dyn EventEndpoint>,
}

impl PostToEndpoint {
    /// A handler of this endpoint.
    pub fn new(endpoint: Arc<dyn EventEndpoint>) -> Self {
        Self { endpoint }
    }
}

#[async_trait]
impl EventHandler for PostToEndpoint {
    fn needs_order(&self) -> bool {
        true
    }

    async fn handle(&self, consumed: ConsumedEvent<'_>) -> Result<Vec<Effect>, HandlerFault> {
        post(&*self.endpoint, request(consumed.record)).await
    }
}

/// Sends an event to an endpoint.
pub(crate) async fn post(endpoint: &dyn EventEndpoint, event: EventRequest) -> HandlerResult {
    let fault = match endpoint.send(event).await {
        Ok(()) => return Ok(Vec::new()),
        Err(error) => error,
    };
    let retryable = match fault.fault {
        FaultClass::Transient | FaultClass::SemiTransient => true,
        FaultClass::Permanent => false,
    };
    Err(HandlerFault { retryable, failure_type: fault.failure_type, reason: fault.reason })
}

/// The event as it was published: without the headers of its failures, and without a frame.
pub(crate) fn request(record: &Record) -> EventRequest {
    let (frame, value) = framing::unframed(&record.value);
    let body = if frame.is_some() { value.into() } else { Arc::clone(&record.value) };
    EventRequest { body, ..request_with_whole_value(record) }
}

/// The event without the headers of its failures. The value may have any form, so it stays as it is.
pub(crate) fn request_with_whole_value(record: &Record) -> EventRequest {
    EventRequest {
        attributes: record.headers.filtered(|name| !is_failure_header(name)),
        body: Arc::clone(&record.value),
    }
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;
    use ports::broker::RecordHeaders;

    use super::*;

    #[test]
    fn endpoint_receives_the_event_without_frame_and_failure_headers() {
        let own: [(&str, &[u8]); 3] = [("ce_id", b"1"), ("traceparent", b"00-1-2-01"), ("x-redriven-by", b"olga")];
        let added: [(&str, &[u8]); 2] = [("retry_topic-attempts", &[0, 0, 0, 2]), ("x-detour-round", b"4")];
        let kept: RecordHeaders = own.into_iter().collect();
        let record = Record {
            topic: "order.events-retry-0".into(),
            key: "k".into(),
            headers: own.into_iter().chain(added).collect(),
            value: [&[0, 0, 0, 0, 17][..], b"{}"].concat().into(),
            timestamp: Timestamp::from_millis(0),
        };

        let body = Arc::clone(&record.value);
        assert_eq!(request_with_whole_value(&record), EventRequest { attributes: kept.clone(), body });
        assert_eq!(request(&record), EventRequest { attributes: kept, body: b"{}".as_slice().into() });
    }
}
