//! The records that a supervisor makes of its children and itself: events, registry entries, and the unfinished actors of a shutdown.

use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;

use crate::bus::drain_report::UnfinishedActor;
use crate::bus::snapshot::ActorState;
use crate::child::exit::{ExitReason, ExitReport};
use crate::child::signal::Lifecycle;
use crate::events::event::SupervisionEvent;
use crate::tree::supervisor::Supervisor;

impl Supervisor {
    /// An event about a child, with the settings that decide how it is treated.
    pub(crate) fn child_event(&self, index: usize, event: &'static str, level: Level) -> SupervisionEvent {
        let child = &self.children[index];
        let mut event = SupervisionEvent::new(event, level)
            .with_text("restart", child.restart.as_str())
            .with_text("shutdown", child.shutdown.to_text())
            .with_text("strategy", self.strategy.as_str());
        (event.supervisor, event.child, event.kind) = (self.label.clone(), child.path.clone(), child.kind);
        event.child_type = if child.is_supervisor() { "supervisor" } else { "worker" };
        event.generation = child.generation;
        event
    }

    /// Adds the restart intensity and how much of it is used.
    pub(crate) fn with_intensity(&self, event: SupervisionEvent) -> SupervisionEvent {
        event
            .with_number("restarts_in_window", self.intensity.count() as u64)
            .with_number("max_restarts", self.intensity.max as u64)
            .with_millis("window_ms", self.intensity.window)
    }

    /// Records an exit or a failed start in the child's record, the registry and an event.
    pub(crate) fn record_exit(
        &mut self,
        index: usize,
        report: &ExitReport,
        event_name: &'static str,
        state: ActorState,
    ) {
        let now = Instant::now();
        let child = &mut self.children[index];
        let uptime = if child.running { now - child.started_at } else { Duration::ZERO };
        (child.running, child.uptime, child.exited_at) = (false, uptime, now);
        child.last_exit = Some(report.reason.as_str());
        let (path, generation, failures) = (child.path.clone(), child.generation, child.failures);
        self.update_entry(&path, |entry| {
            (entry.state, entry.generation) = (state, generation);
            entry.last_exit = Some(report.reason.to_string());
        });
        let failed_start = event_name == "child_start_failed";
        let level = if failed_start { Level::ERROR } else { level_of(&report.reason) };
        let mut event = self.child_event(index, event_name, level).with_reason(&report.reason);
        event = event.with_millis("uptime_ms", uptime);
        if failed_start {
            event = event.with_number("attempt", u64::from(failures) + 1);
        }
        event = event
            .with_number("mailbox_len", report.queued as u64)
            .with_number("in_flight_lost", report.in_flight as u64);
        if let Some(in_progress) = &report.in_progress {
            event = event.with_text("in_progress", in_progress.clone());
        }
        self.bus.publish(self.with_intensity(event));
    }

    /// Records, for the report of a shutdown, the messages that a child did not finish. `was_killed`: it is reported even without any.
    pub(crate) fn record_unfinished(&self, index: usize, queued_or_in_flight: usize, was_killed: bool) {
        let child = &self.children[index];
        if self.is_shutting_down() && !child.is_supervisor() && (was_killed || queued_or_in_flight > 0) {
            self.bus.record_unfinished(UnfinishedActor { path: child.path.to_string(), queued_or_in_flight });
        }
    }

    /// Reports to the supervisor above that this one has ended.
    pub(crate) fn report_own_exit(&mut self, reason: ExitReason) {
        self.running = false;
        let level = if matches!(reason, ExitReason::Escalated { .. }) { Level::ERROR } else { Level::INFO };
        let mut event = SupervisionEvent::new("supervisor_stopped", level)
            .with_text("strategy", self.strategy.as_str())
            .with_reason(&reason);
        (event.supervisor, event.child) = (self.label.clone(), self.label.clone());
        (event.child_type, event.generation) = ("supervisor", self.generation);
        self.bus.publish(event);
        self.link.notify(self.generation, Lifecycle::Exited(ExitReport::without_messages(reason)));
    }
}

fn level_of(reason: &ExitReason) -> Level {
    match reason {
        ExitReason::Panic { .. } | ExitReason::Escalated { .. } | ExitReason::ArbiterLost => Level::ERROR,
        ExitReason::Killed { .. }
        | ExitReason::ShutdownTimeout
        | ExitReason::StartTimeout
        | ExitReason::Sibling { .. } => Level::WARN,
        ExitReason::Normal | ExitReason::Shutdown => Level::INFO,
    }
}
