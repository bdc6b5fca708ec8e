//! The options of a whole tree: limits with their defaults, and the source of randomness.

use std::sync::Arc;
use std::time::Duration;

/// Limits of a [`SupervisionBus`](crate::SupervisionBus) and the tree behind it.
#[derive(Clone)]
pub struct Options {
    /// Number of the first event. 1; a process whose subscribers reconnect after its restart passes a number above those of the process
    /// before it, such as one made of its start time, so that no subscriber skips new events.
    pub first_event_seq: u64,
    /// Events kept for subscribers that reconnect with a sequence number. 1,000: an hour of a quiet tree, a minute of a crash loop.
    pub event_ring_capacity: usize,
    /// Events by which a slow subscriber may lag before it loses some. 1,024.
    pub subscriber_lag_max: usize,
    /// How often the watchdog inspects mailboxes, arbiters and progress. 100 ms: ten inspections within the second an operator waits.
    pub inspection_interval: Duration,
    /// Share of a mailbox's capacity from which it counts as saturated. 0.9.
    pub saturated_at: f64,
    /// Share of a mailbox's capacity at or below which a saturated one counts as recovered. 0.5: far enough below not to flap.
    pub recovered_at: f64,
    /// Least time between two `message_unhandled` events of one actor for one reason; the next event carries the count of all since. 1 s.
    pub unhandled_interval: Duration,
    /// An arbiter that does not respond for this long is stalled. 1 s: no handler may block a thread that long.
    pub arbiter_stalled_after: Duration,
    /// How long a killed child may take to report its exit before it counts as lost. 1 s: an actor task executes a kill at its next
    /// poll, so only a blocked or dead thread takes longer.
    pub kill_timeout: Duration,
    /// Longest time that a root which has exceeded its restart intensity gives its children to drain, all together. 25 s: an actor that takes
    /// longer hangs, and must not keep the process from its end.
    pub escalation_timeout: Duration,
    /// Source of jitter; each call returns a number in 0..1. Default: the thread's generator; tests pass a seeded one.
    pub random: Arc<dyn Fn() -> f64 + Send + Sync>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            first_event_seq: 1,
            event_ring_capacity: 1_000,
            subscriber_lag_max: 1_024,
            inspection_interval: Duration::from_millis(100),
            saturated_at: 0.9,
            recovered_at: 0.5,
            unhandled_interval: Duration::from_secs(1),
            arbiter_stalled_after: Duration::from_secs(1),
            kill_timeout: Duration::from_secs(1),
            escalation_timeout: Duration::from_secs(25),
            random: Arc::new(rand::random::<f64>),
        }
    }
}
