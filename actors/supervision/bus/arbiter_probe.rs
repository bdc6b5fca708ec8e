//! The probe of an arbiter: a closure that its thread must run in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use actix_rt::ArbiterHandle;
use tokio::time::Instant;
use tracing::Level;

use crate::events::event::SupervisionEvent;

pub(crate) struct ArbiterProbe {
    name: String,
    arbiter: ArbiterHandle,
    replied: Arc<AtomicBool>,
    sent_at: Instant,
    stalled: bool,
}

impl ArbiterProbe {
    pub(crate) fn new(name: &str, arbiter: ArbiterHandle) -> ArbiterProbe {
        ArbiterProbe {
            name: name.into(),
            arbiter,
            replied: Arc::new(true.into()),
            sent_at: Instant::now(),
            stalled: false,
        }
    }

    /// Checks the reply to the last probe and, after a reply, sends the next one. Returns an event when the verdict changed.
    pub(crate) fn check(&mut self, now: Instant, limit: Duration) -> Option<SupervisionEvent> {
        let waited = now.duration_since(self.sent_at);
        if self.replied.load(SeqCst) {
            self.sent_at = now;
            self.replied = Arc::new(false.into());
            let replied = self.replied.clone();
            // A dead thread accepts no closure and so never replies: it counts as stalled.
            let _ = self.arbiter.spawn_fn(move || replied.store(true, SeqCst));
            return std::mem::take(&mut self.stalled).then(|| self.event("arbiter_recovered", Level::INFO, waited));
        }
        if waited > limit && !self.stalled {
            self.stalled = true;
            return Some(self.event("arbiter_stalled", Level::ERROR, waited));
        }
        None
    }

    fn event(&self, event: &'static str, level: Level, stalled_for: Duration) -> SupervisionEvent {
        SupervisionEvent::new(event, level)
            .with_text("arbiter", self.name.as_str())
            .with_millis("stall_ms", stalled_for)
    }
}
