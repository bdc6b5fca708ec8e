//! Fault injection: a script decides which call fails and how, and wrappers around ports apply it. A test keeps a handle on the
//! script and may change it while the service runs. Random faults come from a seed.

mod broker;
mod cache;
mod idempotency;
mod script;
mod store;
mod webhooks;

pub use self::broker::FaultyBroker;
pub use self::cache::FaultyCache;
pub use self::idempotency::FaultyIdempotency;
pub use self::script::{Call, FaultScript, InjectedFault};
pub use self::store::{FaultyEvents, FaultyInbox, FaultyLeases, FaultyOrders, FaultyOutbox};
pub use self::webhooks::FaultyWebhooks;
