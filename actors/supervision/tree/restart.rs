//! The reactions of a supervisor to the exit of a child: restart it with the siblings that its strategy names, terminate it, or escalate.

use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;

use crate::bus::registry::RegistryEntry;
use crate::bus::snapshot::ActorState;
use crate::child::command::DrainRequest;
use crate::child::exit::{ExitReason, ExitReport};
use crate::child::panic_guard::without_panic;
use crate::child::policy::Restart;
use crate::tree::supervisor::Supervisor;

impl Supervisor {
    pub(crate) async fn handle_exit(&mut self, index: usize, report: ExitReport, event_name: &'static str) {
        if self.is_shutting_down() {
            self.record_unfinished(index, report.queued + report.in_flight, false);
            return self.record_exit(index, &report, event_name, ActorState::Stopped);
        }
        if !self.children[index].restart.applies_after(&report.reason) {
            self.record_exit(index, &report, event_name, ActorState::Stopped);
            return self.terminate_child(index, &report.reason).await;
        }
        self.record_exit(index, &report, event_name, ActorState::Restarting);
        let exceeded = self.intensity.record_failure(Instant::now());
        self.store_failures();
        if exceeded {
            return self.escalate(index, &report.reason).await;
        }
        let delay = self.next_delay(index);
        let restart_at = Instant::now() + delay;
        let group = self.stop_affected_siblings(index).await;
        if self.running {
            self.schedule_restart(index, &report.reason, delay, restart_at, group);
        }
    }

    /// Shows the failures in the snapshot.
    fn store_failures(&self) {
        self.bus.supervisor_registry().set_failures(&self.name, self.intensity.failures().clone());
    }

    /// Forgets a child that is not restarted: its mailbox closes, its registry entry stays and keeps the exit reason.
    async fn terminate_child(&mut self, index: usize, reason: &ExitReason) {
        self.bus.publish(self.child_event(index, "child_terminated", Level::INFO).with_reason(reason));
        let child = self.children.remove(index);
        self.update_entry(&child.path, RegistryEntry::retire);
        // Of several significant children that end together, the first ends the supervisor.
        if self.auto_shutdown && child.significant && self.running {
            self.stop_all(&DrainRequest { reason: ExitReason::Shutdown, is_final: false, deadline: None }).await;
            self.report_own_exit(ExitReason::Shutdown);
        }
    }

    /// Stops all children and exits as escalated; the supervisor above then decides, as in OTP. Above the root there is none: the tree ends.
    async fn escalate(&mut self, index: usize, reason: &ExitReason) {
        let exceeded = self.child_event(index, "intensity_exceeded", Level::ERROR).with_reason(reason);
        self.bus.publish(self.with_intensity(exceeded));
        let child = &self.children[index];
        let (count, window) = (self.intensity.count(), self.intensity.window);
        let detail = format!("{count} restarts in {window:?}, last {}: {reason}", child.path);
        let sibling = ExitReason::Sibling { failed: child.id.clone() };
        let deadline = self.sibling_drain_limit.filter(|_| !self.is_root()).map(|limit| Instant::now() + limit);
        let (escalated, request) =
            (ExitReason::Escalated { detail }, DrainRequest { reason: sibling, is_final: self.is_root(), deadline });
        if self.is_root() {
            self.begin_root_escalation(index, &escalated, &request).await;
        }
        self.stop_all(&request).await;
        self.intensity.clear();
        self.store_failures();
        self.report_own_exit(escalated);
    }

    /// Begins the shutdown of the tree. The failed child ends first, because no message to it can be handled any more; the others run until the
    /// work of `before_escalation` is done.
    async fn begin_root_escalation(&mut self, failed: usize, reason: &ExitReason, request: &DrainRequest) {
        let limit = self.bus.options().escalation_timeout;
        self.bus.begin_shutdown(Instant::now() + limit);
        self.bus.record_root_escalation(reason.clone());
        self.stop_child(failed, request).await;
        if let Some(work) = self.before_escalation.take() {
            // The children need the other half. After the limit the work is dropped unfinished: the shutdown must not wait for it.
            // A panic of the work must not end the shutdown.
            let work = without_panic(async move { work(limit / 2).await });
            let _ = tokio::time::timeout(limit / 2, work).await;
        }
    }

    fn next_delay(&mut self, index: usize) -> Duration {
        let random = (self.bus.options().random)();
        let child = &mut self.children[index];
        if child.uptime > self.backoff.reset_after {
            child.failures = 0;
        }
        child.failures += 1;
        self.backoff.delay(child.failures, random)
    }

    /// Stops, in reverse order, the siblings that the strategy restarts with the failed child. Returns the tokens of the group to
    /// restart, the failed child last.
    async fn stop_affected_siblings(&mut self, failed: usize) -> Vec<u64> {
        let reason = ExitReason::Sibling { failed: self.children[failed].id.clone() };
        let failed_token = self.children[failed].token;
        let strategy = self.strategy;
        let siblings: Vec<usize> =
            (0..self.children.len()).rev().filter(|sibling| strategy.affects(failed, *sibling)).collect();
        let mut group = Vec::new();
        for sibling in &siblings {
            let is_final = self.children[*sibling].restart == Restart::Temporary;
            let deadline = self.sibling_drain_limit.map(|limit| Instant::now() + limit);
            self.stop_child(*sibling, &DrainRequest { reason: reason.clone(), is_final, deadline }).await;
            if !is_final {
                group.push(self.children[*sibling].token);
            }
        }
        // Temporary siblings are not restarted. Also in reverse order, so that a removal shifts no index that is still to come.
        for sibling in siblings {
            if !group.contains(&self.children[sibling].token) {
                self.terminate_child(sibling, &reason).await;
            }
        }
        group.push(failed_token);
        group
    }

    /// Sets the time at which a group of children starts again, the failed child last. `delay` is the back-off of that child, for the event.
    fn schedule_restart(
        &mut self,
        failed: usize,
        reason: &ExitReason,
        delay: Duration,
        restart_at: Instant,
        group: Vec<u64>,
    ) {
        let failed_token = group.last().copied();
        // The failed child has another index if a temporary sibling before it was removed.
        let failed = self.children.iter().position(|child| Some(child.token) == failed_token).unwrap_or(failed);
        for child in self.children.iter_mut().filter(|child| group.contains(&child.token)) {
            child.restart_at = Some(restart_at);
        }
        let attempt = self.children[failed].failures;
        // Two failures in a row may be a coincidence; from the third on an operator should investigate.
        let level = if attempt >= 3 { Level::WARN } else { Level::INFO };
        let event = self
            .child_event(failed, "restart_scheduled", level)
            .with_reason(reason)
            .with_number("attempt", attempt.into())
            .with_millis("delay_ms", delay)
            .with_number("group", group.len() as u64 - 1);
        self.bus.publish(self.with_intensity(event));
    }
}
