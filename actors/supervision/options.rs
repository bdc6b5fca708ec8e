//! What the whole tree shares: limits with their defaults, the source of chance, and the hook another room may hang on.

use std::sync::Arc;
use std::time::Duration;

use crate::event::Event;

/// Limits of a [`Bus`](crate::Bus) and the tree behind it.
#[derive(Clone)]
pub struct Options {
    /// Events kept for those who come back with a sequence number. 1,000: an hour of a quiet tree, a minute of a crash loop.
    pub ring: usize,
    /// Events a slow subscriber may lag behind before it loses some. 1,024.
    pub broadcast: usize,
    /// How often mailboxes, arbiters and progress are looked at. 100 ms: ten looks within the second an operator waits.
    pub look_every: Duration,
    /// Share of an inbox's capacity from which it counts as saturated. 0.9.
    pub saturated_at: f64,
    /// Share of an inbox's capacity at or below which a saturated one counts as recovered. 0.5: far enough below not to flap.
    pub recovered_at: f64,
    /// Least time between two `dead_letter` events of one actor for one reason; what falls between is counted. 1 s.
    pub dead_letter_every: Duration,
    /// An arbiter that does not answer for this long is stalled. 1 s: no handler may hold a thread that long.
    pub arbiter_stalled_after: Duration,
    /// How long a killed child may take to say so before it counts as lost. 1 s: a cell answers at its next poll, so only a thread
    /// that is blocked or gone takes longer.
    pub kill_wait: Duration,
    /// Source of jitter, each call a number in 0..1. Default: the thread's generator; tests hand in a seeded one.
    pub random: Arc<dyn Fn() -> f64 + Send + Sync>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            ring: 1_000,
            broadcast: 1_024,
            look_every: Duration::from_millis(100),
            saturated_at: 0.9,
            recovered_at: 0.5,
            dead_letter_every: Duration::from_secs(1),
            arbiter_stalled_after: Duration::from_secs(1),
            kill_wait: Duration::from_secs(1),
            random: Arc::new(rand::random::<f64>),
        }
    }
}

/// Hears everything that happens in a tree, for example to count it. Called on the thread where it happens: must be quick, must not
/// block and must not panic.
pub trait Observer: Send + Sync {
    /// An event was put on the stream.
    fn lifecycle(&self, _event: &Event) {}

    /// An actor of this kind finished a message (also by a panic) that had waited for `wait` and was worked on for `work`.
    fn handled(&self, _kind: &'static str, _wait: Duration, _work: Duration) {}
}

/// Hears nothing.
pub(crate) struct Deaf;

impl Observer for Deaf {}
