//! ScriptedEndpoint: the endpoint of a webhook, whose responses a test decides.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::endpoint::{EndpointError, EventRequest, WebhookClient};
use ports::{FailureType, FaultClass};

/// Decides the response to the body of a request.
type Responder = Box<dyn FnMut(&str) -> Result<u16, EndpointError> + Send>;

/// Records the bodies of all requests.
pub struct ScriptedEndpoint {
    respond: Mutex<Responder>,
    /// Time from a request to its response.
    delay: Mutex<Duration>,
    received: Mutex<Vec<String>>,
    urls: Mutex<Vec<String>>,
    accepted: Mutex<Vec<String>>,
    signed_at: Mutex<Vec<i64>>,
}

impl ScriptedEndpoint {
    /// An endpoint that responds like this.
    pub fn new(respond: impl FnMut(&str) -> Result<u16, EndpointError> + Send + 'static) -> Arc<Self> {
        let (received, accepted, signed_at) = (Mutex::default(), Mutex::default(), Mutex::default());
        let urls = Mutex::default();
        Arc::new(Self {
            respond: Mutex::new(Box::new(respond)),
            delay: Mutex::default(),
            received,
            urls,
            accepted,
            signed_at,
        })
    }

    /// Changes its responses from the next request on.
    pub fn set(&self, respond: impl FnMut(&str) -> Result<u16, EndpointError> + Send + 'static) {
        *self.respond.lock() = Box::new(respond);
    }

    /// Changes the time from a request to its response.
    pub fn set_delay(&self, delay: Duration) {
        *self.delay.lock() = delay;
    }

    /// The bodies of all requests so far.
    pub fn received(&self) -> Vec<String> {
        self.received.lock().clone()
    }

    /// The URLs of all requests so far.
    pub fn urls(&self) -> Vec<String> {
        self.urls.lock().clone()
    }

    /// The times in the signatures of all requests so far, in seconds.
    pub fn signed_at(&self) -> Vec<i64> {
        self.signed_at.lock().clone()
    }

    /// The bodies of the requests that it accepted.
    pub fn accepted(&self) -> Vec<String> {
        self.accepted.lock().clone()
    }
}

/// The result of a call that no endpoint accepts a connection for.
pub fn unreachable() -> Result<u16, EndpointError> {
    Err(EndpointError { fault: FaultClass::Transient, failure_type: FailureType::Network, reason: "refused".into() })
}

#[async_trait]
impl WebhookClient for ScriptedEndpoint {
    fn check_url(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    async fn post(&self, url: &str, event: EventRequest) -> Result<u16, EndpointError> {
        self.urls.lock().push(url.to_owned());
        let body = String::from_utf8(event.body.to_vec()).expect("text");
        self.received.lock().push(body.clone());
        let timestamp = event.attributes.iter().find(|(name, _)| &**name == "webhook-timestamp").expect("it is signed");
        let seconds = std::str::from_utf8(timestamp.1).expect("text").parse().expect("a number");
        self.signed_at.lock().push(seconds);
        let delay = *self.delay.lock();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let result = (self.respond.lock())(&body);
        if matches!(result, Ok(200..=299)) {
            self.accepted.lock().push(body);
        }
        result
    }
}
