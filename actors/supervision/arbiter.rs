//! The pulse of a thread: a question it must answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use actix_rt::ArbiterHandle;
use tokio::time::Instant;
use tracing::Level;

use crate::event::Event;

pub(crate) struct Pulse {
    name: String,
    arbiter: ArbiterHandle,
    answered: Arc<AtomicBool>,
    asked_at: Instant,
    stalled: bool,
}

impl Pulse {
    pub(crate) fn new(name: &str, arbiter: ArbiterHandle) -> Pulse {
        Pulse { name: name.into(), arbiter, answered: Arc::new(true.into()), asked_at: Instant::now(), stalled: false }
    }

    /// Looks for the answer to the last question, asks the next one, and tells when the verdict changed.
    pub(crate) fn look(&mut self, now: Instant, limit: Duration) -> Option<Event> {
        let waited = now.duration_since(self.asked_at);
        if self.answered.load(SeqCst) {
            self.asked_at = now;
            self.answered = Arc::new(false.into());
            let answer = self.answered.clone();
            // A thread that is gone takes no question and so never answers: it counts as stalled.
            let _ = self.arbiter.spawn_fn(move || answer.store(true, SeqCst));
            return std::mem::take(&mut self.stalled).then(|| self.event("arbiter_recovered", Level::INFO, waited));
        }
        if waited > limit && !self.stalled {
            self.stalled = true;
            return Some(self.event("arbiter_stalled", Level::ERROR, waited));
        }
        None
    }

    fn event(&self, event: &'static str, level: Level, stalled_for: Duration) -> Event {
        Event::new(event, level).text("arbiter", self.name.as_str()).millis("stall_ms", stalled_for)
    }
}
