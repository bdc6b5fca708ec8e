//! RecordingHandler: a handler of consumed events that fails on request and records its calls; and events as other regions write them.
use std::sync::Arc;
use std::time::Duration;

use app::consume::chain::HandlerChain;
use app::consume::event_handler::{ConsumedEvent, EventHandler, HandlerFault};
use app::consume::handlers::Handlers;
use app::contract::{self, DecodedEvent};
use async_trait::async_trait;
use domain::{EventId, EventType, Hlc, OrderEvent, OrderId};
use parking_lot::Mutex;
use ports::FailureType;
use ports::broker::Record;
use ports::inbox::Effect;
use tokio::time::Instant;

use crate::support::process::TOPIC;

/// A call of the handler.
#[derive(Clone, Debug)]
pub struct HandlerCall {
    /// Virtual time of the call.
    pub at: Instant,
    /// Id in the value of the message.
    pub event_id: EventId,
    /// The order of the event.
    pub order_id: OrderId,
    /// The order's version after the event.
    pub version: u64,
    /// Whether the handler succeeded.
    pub succeeded: bool,
}

type EventPredicate = Box<dyn Fn(&DecodedEvent) -> bool + Send + Sync>;

/// The handler. It fails for events that `fails` selects, until its failures are used up.
pub struct RecordingHandler {
    needs_order: bool,
    failures_left: Mutex<usize>,
    fails: EventPredicate,
    /// Duration of each call.
    delay: Mutex<Duration>,
    calls: Mutex<Vec<HandlerCall>>,
}

impl RecordingHandler {
    /// A handler that fails `failures` times.
    pub fn new(
        needs_order: bool,
        failures: usize,
        fails: impl Fn(&DecodedEvent) -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            needs_order,
            failures_left: Mutex::new(failures),
            fails: Box::new(fails),
            delay: Mutex::default(),
            calls: Mutex::default(),
        })
    }

    /// Changes the duration of the calls.
    pub fn set_delay(&self, delay: Duration) {
        *self.delay.lock() = delay;
    }

    /// Registers this handler for every event type.
    pub fn for_all_types(self: &Arc<Self>) -> Handlers {
        for_all_types(&self.chain())
    }

    /// A chain with this handler and nothing else.
    pub fn chain(self: &Arc<Self>) -> HandlerChain {
        HandlerChain::new(self.clone())
    }

    /// Every call so far, in order.
    pub fn calls(&self) -> Vec<HandlerCall> {
        self.calls.lock().clone()
    }

    /// The versions of an order whose events were handled, in the order of the calls.
    pub fn handled(&self, id: OrderId) -> Vec<u64> {
        self.calls().iter().filter(|call| call.succeeded && call.order_id == id).map(|call| call.version).collect()
    }

    fn succeeds(&self, event: &DecodedEvent) -> bool {
        let mut left = self.failures_left.lock();
        if *left == 0 || !(self.fails)(event) {
            return true;
        }
        *left -= 1;
        false
    }
}

#[async_trait]
impl EventHandler for RecordingHandler {
    fn needs_order(&self) -> bool {
        self.needs_order
    }

    async fn handle(&self, consumed: ConsumedEvent<'_>) -> Result<Vec<Effect>, HandlerFault> {
        let event = consumed.event;
        let succeeded = self.succeeds(event);
        let version = event.after.as_ref().map_or(0, |after| after.version);
        let (at, event_id, order_id) = (Instant::now(), event.event_id, event.order_id);
        self.calls.lock().push(HandlerCall { at, event_id, order_id, version, succeeded });
        let delay = *self.delay.lock();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if succeeded {
            Ok(Vec::new())
        } else {
            Err(HandlerFault { retryable: true, failure_type: FailureType::System, reason: "handler: not now".into() })
        }
    }
}

/// Registers a chain for every event type.
pub fn for_all_types(chain: &HandlerChain) -> Handlers {
    EventType::ALL
        .into_iter()
        .fold(Handlers::default(), |handlers, event_type| handlers.with(event_type, chain.clone()))
}

/// The record of an event that another region wrote.
pub fn from_region(event: &OrderEvent, region: &str, hlc: Hlc) -> Record {
    let headers = [
        ("ce_id", event.id.to_string()),
        ("x-region", region.to_owned()),
        ("x-hlc", hlc.to_string()),
        ("x-sequence", event.sequence.to_string()),
    ];
    let headers = headers.into_iter().collect();
    Record {
        topic: TOPIC.into(),
        key: event.order_id.to_string().into(),
        headers,
        value: contract::encode(event, contract::LATEST).into(),
        timestamp: event.occurred_at,
    }
}
