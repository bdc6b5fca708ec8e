//! The handler of consumed events. Its failures are drawn from the seed and the event, so that they are the same on every instance and in each
//! repetition.
use std::sync::Arc;

use app::consume::chain::HandlerChain;
use app::consume::event_handler::{ConsumedEvent, EventHandler, HandlerFault};
use app::consume::handlers::Handlers;
use async_trait::async_trait;
use domain::{EventId, Hlc, RegionId};
use kit::clock::SeededRng;
use ports::inbox::Effect;

use crate::cluster::consumers::failure_plan::{FailurePlan, FailureRates};
use crate::cluster::trace::{Trace, hash_text};
use crate::support::recording_handler::for_all_types;

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

    /// The failures of the handler for an event.
    pub fn plan(&self, event: EventId) -> FailurePlan {
        self.rates.draw(&SeededRng::new(hash_text(self.seed, &event.to_string())))
    }

    /// Registers the handler for every event type.
    pub fn for_all_types(self: &Arc<Self>) -> Handlers {
        for_all_types(&HandlerChain::new(self.clone()))
    }
}

#[async_trait]
impl EventHandler for SimulatedHandler {
    fn needs_order(&self) -> bool {
        self.needs_order
    }

    async fn handle(&self, consumed: ConsumedEvent<'_>) -> Result<Vec<Effect>, HandlerFault> {
        let event = consumed.event;
        let version = event.after.as_ref().map_or(0, |after| after.version);
        let plan = self.plan(event.event_id);
        let duration = plan.duration(consumed.attempt);
        if !duration.is_zero() {
            self.trace.add("slow handler", u64::from(consumed.attempt), duration.as_millis() as u64);
            tokio::time::sleep(duration).await;
        }
        let failure = plan.failure(consumed.attempt);
        let (key, number, topic, attempt) = (event.order_id, version + 1, &consumed.record.topic, consumed.attempt);
        self.trace.print(format_args!("handled {key}@{number} of {topic}, attempt {attempt}: {failure:?}"));
        let (failure, kind) = match failure {
            None => {
                let hlc = Hlc { millis: version as i64, counter: 0 };
                let region = RegionId::new(REGION);
                return Ok(vec![Effect::StoreRemoteStamp { order_id: event.order_id, region, hlc }]);
            }
            Some(failure) if failure.retryable => (failure, "transient failure"),
            Some(failure) => (failure, "permanent failure"),
        };
        self.trace.add(kind, u64::from(consumed.attempt), 0);
        Err(failure)
    }
}
