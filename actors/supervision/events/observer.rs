//! The observer: the hook through which another crate counts events and messages.

use std::time::Duration;

use crate::events::event::SupervisionEvent;

/// Receives every event of a tree and every handled message, for example to count them. Both methods are called on the thread where
/// the fact occurs: an implementation must be quick, must not block and must not panic.
pub trait Observer: Send + Sync {
    /// An event was published; called after the event is on the stream and in the log.
    fn lifecycle(&self, _event: &SupervisionEvent) {}

    /// An actor of this kind finished a message, also by a panic. `wait` is the time in the mailbox, `work` the time in the handler
    /// and its future.
    fn handled(&self, _kind: &'static str, _wait: Duration, _work: Duration) {}
}

/// Ignores every event and message.
pub(crate) struct NoopObserver;

impl Observer for NoopObserver {}
