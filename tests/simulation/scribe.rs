//! A handler that fails as it is told and remembers what it was given, and messages as other services write them.
use std::sync::Arc;

use app::consume::handlers::{EventHandler, HandlerFault, Handlers};
use app::contract::{self, DecodedEvent};
use domain::{EventType, Hlc, OrderEvent, OrderId};
use parking_lot::Mutex;
use ports::broker::Record;
use ports::inbox::Effect;
use tokio::time::Instant;

use crate::life::TOPIC;

/// One message as the handler met it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When.
    pub at: Instant,
    /// Whose.
    pub order_id: OrderId,
    /// The order's version after it.
    pub version: u64,
    /// Whether it was taken.
    pub taken: bool,
}

type Fails = Box<dyn Fn(&DecodedEvent) -> bool + Send + Sync>;

/// The handler. It fails for what `fails` picks, as often as it has failures left.
pub struct Scribe {
    ordered: bool,
    left: Mutex<usize>,
    fails: Fails,
    seen: Mutex<Vec<Seen>>,
}

impl Scribe {
    /// A handler of every type.
    pub fn new(
        ordered: bool,
        failures: usize,
        fails: impl Fn(&DecodedEvent) -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { ordered, left: Mutex::new(failures), fails: Box::new(fails), seen: Mutex::default() })
    }

    /// Itself, for every type.
    pub fn handlers(self: &Arc<Self>) -> Handlers {
        let kinds = [EventType::OrderCreated, EventType::OrderStatusChanged, EventType::OrderCancelled];
        kinds.into_iter().fold(Handlers::default(), |handlers, kind| handlers.with(kind, self.clone()))
    }

    /// Everything it was given, in order.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// The versions of an order in the order in which they were taken.
    pub fn taken(&self, id: OrderId) -> Vec<u64> {
        self.seen().iter().filter(|seen| seen.taken && seen.order_id == id).map(|seen| seen.version).collect()
    }

    fn takes(&self, event: &DecodedEvent) -> bool {
        let mut left = self.left.lock();
        if *left == 0 || !(self.fails)(event) {
            return true;
        }
        *left -= 1;
        false
    }
}

impl EventHandler for Scribe {
    fn needs_order(&self) -> bool {
        self.ordered
    }

    fn handle(&self, event: &DecodedEvent) -> Result<Vec<Effect>, HandlerFault> {
        let taken = self.takes(event);
        let version = event.after.as_ref().map_or(0, |after| after.version);
        self.seen.lock().push(Seen { at: Instant::now(), order_id: event.order_id, version, taken });
        if taken { Ok(Vec::new()) } else { Err(HandlerFault { retryable: true, reason: "scribe: not now".into() }) }
    }
}

/// An event as another region wrote it.
pub fn from_region(event: &OrderEvent, region: &str, hlc: Hlc) -> Record {
    let text = |name: &str, value: String| (name.into(), value.into_bytes().into());
    Record {
        topic: TOPIC.into(),
        key: event.order_id.to_string().into(),
        headers: vec![
            text("ce_id", event.id.to_string()),
            text("x-region", region.to_owned()),
            text("x-hlc", hlc.to_string()),
            text("x-sequence", event.sequence.to_string()),
        ],
        value: contract::encode(event, contract::LATEST).into(),
        timestamp: event.occurred_at,
    }
}
