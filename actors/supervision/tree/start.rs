//! Starts a child: waits until it has started, and aborts a start that takes too long.

use tokio::time::Instant;
use tracing::Level;

use crate::bus::snapshot::ActorState;
use crate::child::command::{ChildCommand, DrainRequest};
use crate::child::exit::{ExitReason, ExitReport};
use crate::child::signal::Lifecycle;
use crate::tree::supervisor::Supervisor;

impl Supervisor {
    pub(crate) async fn start_child(&mut self, index: usize) {
        if let Err(report) = self.try_start(index).await {
            let event_name = if self.is_shutting_down() { "child_exited" } else { "child_start_failed" };
            self.handle_exit(index, report, event_name).await;
        }
    }

    async fn try_start(&mut self, index: usize) -> Result<(), ExitReport> {
        let asked_at = Instant::now();
        let child = &mut self.children[index];
        child.generation += 1;
        child.restart_at = None;
        let (token, generation, limit) = (child.token, child.generation, child.start_timeout);
        if !child.commands.send(ChildCommand::Start { generation }) {
            return Err(ExitReport::without_messages(ExitReason::ArbiterLost));
        }
        // A shutdown of the whole tree ends the wait: a child that has not started need not start any more.
        let until = |own: Instant, shutdown: Option<Instant>| if shutdown.is_some() { Instant::now() } else { own };
        match self.await_signal(token, generation, limit, until).await {
            Some(Lifecycle::Started) => {}
            Some(Lifecycle::Exited(report)) => return Err(report),
            None => return Err(self.abort_start(index).await),
        }
        self.record_started(index, asked_at);
        Ok(())
    }

    fn record_started(&mut self, index: usize, asked_at: Instant) {
        let now = Instant::now();
        let child = &mut self.children[index];
        (child.running, child.started_at) = (true, now);
        let (generation, failures, downtime) = (child.generation, child.failures, now - child.exited_at);
        let last_exit = child.last_exit;
        let first = generation == 1;
        self.update_entry(&self.children[index].path, |entry| {
            (entry.state, entry.generation, entry.started_at) = (ActorState::Running, generation, Some(now));
            entry.restarts += u64::from(!first);
        });
        let mut event = match first {
            true => self.child_event(index, "child_started", Level::INFO).with_millis("startup_ms", now - asked_at),
            false => self
                .child_event(index, "child_restarted", Level::INFO)
                .with_number("attempt", failures.into())
                .with_millis("downtime_ms", downtime),
        };
        event.reason = last_exit;
        self.bus.publish(event);
    }

    /// Ends a start that takes too long, or that a shutdown made obsolete.
    async fn abort_start(&mut self, index: usize) -> ExitReport {
        let is_final = self.is_shutting_down();
        let reason = if is_final { ExitReason::Shutdown } else { ExitReason::StartTimeout };
        let child = &self.children[index];
        let command = match child.is_supervisor() {
            // Some of its children have started, and these must drain.
            true => ChildCommand::Drain(DrainRequest { reason, is_final, deadline: None }),
            false => ChildCommand::Kill { reason, is_final },
        };
        // A failed send shows as a signal that does not arrive.
        let _ = child.commands.send(command);
        self.await_exit(index).await
    }
}
