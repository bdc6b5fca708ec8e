//! The handler of consumed events. Its failures are drawn from the seed and the event, so that every instance and each repetition meet the same
//! ones.
use std::sync::Arc;

use app::consume::chain::HandlerChain;
use app::consume::event_handler::{ConsumedEvent, EventHandler, HandlerFault};
use app::consume::handlers::Handlers;
use async_trait::async_trait;
use domain::{EventId, EventType, Hlc, RegionId};
use kit::clock::SeededRng;
use ports::inbox::Effect;

use crate::cluster::consumers::failure_plan::{FailurePlan, FailureRates};
use crate::cluster::trace::Trace;

/// The region in the stamps that the handler leaves.
const REGION: &str = "handled";

/// The handler. All instances share it.
pub struct SimulatedHandler {
    seed: u64,
    rates: FailureRates,
    /// Whether a key's events are handled in order.
    needs_order: bool,
    trace: Trace,
}

impl SimulatedHandler {
    /// A handler with these failures.
    pub fn new(seed: u64, rates: FailureRates, needs_order: bool, trace: Trace) -> Arc<Self> {
        Arc::new(Self { seed, rates, needs_order, trace })
    }

    /// Whether a key's events are handled in order.
    pub fn is_ordered(&self) -> bool {
        self.needs_order
    }

    /// How the handler meets an event.
    pub fn plan(&self, event: EventId) -> FailurePlan {
        let folded = event
            .to_string()
            .bytes()
            .fold(self.seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        self.rates.draw(&SeededRng::new(folded))
    }

    /// Registers the handler for every event type.
    pub fn for_all_types(self: &Arc<Self>) -> Handlers {
        let kinds = [EventType::OrderCreated, EventType::OrderStatusChanged, EventType::OrderCancelled];
        let chain = HandlerChain::of(self.clone());
        kinds.into_iter().fold(Handlers::default(), |handlers, kind| handlers.with(kind, chain.clone()))
    }
}

/// An event by its key and its number in it, for traces.
fn named(consumed: ConsumedEvent<'_>) -> String {
    let version = consumed.event.after.as_ref().map_or(0, |after| after.version);
    format!("{}@{}", consumed.event.order_id, version + 1)
}

#[async_trait]
impl EventHandler for SimulatedHandler {
    fn needs_order(&self) -> bool {
        self.needs_order
    }

    async fn handle(&self, consumed: ConsumedEvent<'_>) -> Result<Vec<Effect>, HandlerFault> {
        let event = consumed.event;
        let plan = self.plan(event.event_id);
        let duration = plan.duration(consumed.attempt);
        if !duration.is_zero() {
            self.trace.add("slow handler", u64::from(consumed.attempt), duration.as_millis() as u64);
            tokio::time::sleep(duration).await;
        }
        let failure = plan.failure(consumed.attempt);
        let (topic, attempt) = (&consumed.record.topic, consumed.attempt);
        self.trace.print(format_args!("handled {} of {topic}, attempt {attempt}: {failure:?}", named(consumed)));
        let (failure, kind) = match failure {
            None => {
                let version = event.after.as_ref().map_or(0, |after| after.version);
                let hlc = Hlc { millis: version as i64, counter: 0 };
                let region = RegionId::new(REGION);
                return Ok(vec![Effect::RememberRemote { order_id: event.order_id, region, hlc }]);
            }
            Some(failure) if failure.retryable => (failure, "transient failure"),
            Some(failure) => (failure, "permanent failure"),
        };
        self.trace.add(kind, u64::from(consumed.attempt), 0);
        Err(failure)
    }
}
