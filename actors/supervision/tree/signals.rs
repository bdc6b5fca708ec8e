//! Waits for a signal of one child (started, exited) while signals of other children arrive.

use std::time::Duration;

use tokio::time::Instant;

use crate::child::exit::{ExitReason, ExitReport};
use crate::child::policy::Shutdown;
use crate::child::signal::{ChildSignal, Lifecycle};
use crate::tree::supervisor::Supervisor;

impl Supervisor {
    /// Waits for the exit of a child that was killed. A child that sends no signal runs on a blocked or dead thread.
    pub(crate) async fn await_exit(&mut self, index: usize) -> ExitReport {
        let child = &self.children[index];
        let limit = if child.is_supervisor() { Shutdown::UNLIMITED } else { self.bus.options().kill_timeout };
        let (token, generation) = (child.token, child.generation);
        loop {
            match self.await_signal(token, generation, limit, |own, _| own).await {
                Some(Lifecycle::Exited(report)) => return report,
                Some(Lifecycle::Started) => {}
                None => {
                    let queued = self.children[index].outstanding();
                    return ExitReport { reason: ExitReason::ArbiterLost, queued, in_flight: 0, in_progress: None };
                }
            }
        }
    }

    /// Waits for a signal of one incarnation and defers all others. `until` computes the end of the wait from the time at which `limit`
    /// has passed and from the deadline of a shutdown, if one has begun. Returns `None` if no signal arrives until then.
    pub(crate) async fn await_signal(
        &mut self,
        token: u64,
        generation: u64,
        limit: Duration,
        until: impl Fn(Instant, Option<Instant>) -> Instant,
    ) -> Option<Lifecycle> {
        let own = Instant::now() + limit;
        let matches = |signal: &ChildSignal| (signal.token, signal.generation) == (token, generation);
        if let Some(at) = self.deferred_signals.iter().position(matches) {
            return self.deferred_signals.remove(at).map(|signal| signal.lifecycle);
        }
        loop {
            let shutdown = *self.shutdown_deadline.borrow_and_update();
            // Cancel-safe: each branch takes nothing from its source unless it wins. Neither channel can close: the bus holds the sender
            // of `shutdown_deadline`, and this supervisor one of `signals`.
            tokio::select! {
                biased;
                signal = self.signals.recv() => {
                    let signal = signal?;
                    if matches(&signal) {
                        return Some(signal.lifecycle);
                    }
                    self.deferred_signals.push_back(signal);
                }
                _ = self.shutdown_deadline.changed() => {}
                () = tokio::time::sleep_until(until(own, shutdown)) => return None,
            }
        }
    }
}
