//! Endpoints of other systems, which receive consumed events one by one.
mod webhook_documents;
pub mod webhooks;

use std::sync::Arc;

use ::outbox::{FailureType, FaultClass};
use async_trait::async_trait;

use crate::broker::RecordHeaders;

/// One event for an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRequest {
    /// The event's attributes, as the headers of its record name them (`ce_id`, `traceparent`).
    pub attributes: RecordHeaders,
    /// The value of the event; one of the orders' topic without the frame of a schema registry.
    pub body: Arc<[u8]>,
}

/// Why an endpoint did not accept an event. Where no response arrived it may have accepted it: receivers recognise repetitions by `ce_id`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct EndpointError {
    /// Whether another attempt can succeed.
    pub fault: FaultClass,
    /// The origin of the failure, as operators filter by it.
    pub failure_type: FailureType,
    /// Message for operators; without secrets and without the response.
    pub reason: String,
}

/// Sends requests to the endpoints of webhooks, whose URLs are not known at the start.
#[async_trait]
pub trait WebhookClient: Send + Sync {
    /// Checks the form of a URL.
    ///
    /// # Errors
    /// The requirement on the URL, as the end of a sentence that begins with its name.
    fn check_url(&self, url: &str) -> Result<(), String>;

    /// Sends one event and returns the status of the response, whatever it is. Not cancel-safe: the endpoint may receive the event after the
    /// call was dropped.
    ///
    /// # Errors
    /// No response arrived in time, or the address is not permitted.
    async fn post(&self, url: &str, event: EventRequest) -> Result<u16, EndpointError>;
}

/// An endpoint that receives events.
#[async_trait]
pub trait EventEndpoint: Send + Sync {
    /// Sends one event and waits for the response, within the adapter's time limit. Not cancel-safe: the endpoint may receive the event
    /// after the call was dropped.
    ///
    /// # Errors
    /// The endpoint refused the event, was not reachable, or did not respond in time.
    async fn send(&self, event: EventRequest) -> Result<(), EndpointError>;
}
