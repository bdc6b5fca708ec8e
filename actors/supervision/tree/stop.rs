//! Stops the children in reverse start order: each is drained within its own limit, then killed.

use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;

use crate::bus::snapshot::ActorState;
use crate::child::command::{ChildCommand, DrainRequest};
use crate::child::exit::{ExitReason, ExitReport};
use crate::child::policy::Shutdown;
use crate::child::signal::Lifecycle;
use crate::tree::supervisor::Supervisor;

impl Supervisor {
    pub(crate) async fn stop_all(&mut self, request: &DrainRequest) {
        let stopped = if self.parallel_shutdown { self.stop_in_parallel(request).await } else { Vec::new() };
        for index in (0..self.children.len()).rev().filter(|index| !stopped.contains(index)) {
            self.stop_child(index, request).await;
        }
        self.end_children();
    }

    /// Asks all running children that may drain before it waits for any of them. Returns their indices.
    async fn stop_in_parallel(&mut self, request: &DrainRequest) -> Vec<usize> {
        let asked_at = Instant::now();
        let drains = |index: &usize| {
            let child = &self.children[*index];
            child.running && child.shutdown.drain_limit().is_some()
        };
        let draining: Vec<usize> = (0..self.children.len()).filter(drains).collect();
        for index in &draining {
            self.announce_stop(*index, &request.reason, request.is_final);
            self.send_drain(*index, request);
        }
        for index in draining.iter().rev().copied() {
            let limit = self.children[index].shutdown.drain_limit().unwrap_or_default();
            let report = self.await_drained(index, request, limit, asked_at).await;
            self.record_stopped(index, &report, request.is_final);
        }
        draining
    }

    /// Kills all children in reverse start order.
    pub(crate) async fn kill_all(&mut self, reason: &ExitReason, is_final: bool) {
        for index in (0..self.children.len()).rev() {
            if self.announce_stop(index, reason, is_final) {
                let report = self.kill(index, reason, is_final).await;
                self.record_stopped(index, &report, is_final);
            }
        }
        self.end_children();
    }

    fn end_children(&mut self) {
        self.running = false;
        self.deferred_signals.clear();
        for child in &mut self.children {
            child.restart_at = None;
        }
    }

    /// Stops one child as its spec says, or earlier at the request's deadline. After a final request it does not restart, so its mailbox is
    /// closed too.
    pub(crate) async fn stop_child(&mut self, index: usize, request: &DrainRequest) {
        if !self.announce_stop(index, &request.reason, request.is_final) {
            return;
        }
        let report = match self.children[index].shutdown.drain_limit() {
            None => self.kill(index, &request.reason, request.is_final).await,
            Some(limit) => {
                self.send_drain(index, request);
                self.await_drained(index, request, limit, Instant::now()).await
            }
        };
        self.record_stopped(index, &report, request.is_final);
    }

    /// Publishes the stop of a running child and returns true. Keeps a child that does not run from starting and returns false.
    fn announce_stop(&mut self, index: usize, reason: &ExitReason, is_final: bool) -> bool {
        if self.children[index].running {
            self.bus.publish(self.child_event(index, "child_stopping", Level::INFO).with_reason(reason));
            return true;
        }
        self.children[index].restart_at = None;
        if is_final {
            let child = &self.children[index];
            self.record_unfinished(index, child.outstanding(), false);
            // An error means that the child's task has ended already.
            let _ = child.commands.send(ChildCommand::Exit);
            self.update_entry(&child.path, |entry| entry.state = ActorState::Stopped);
        }
        false
    }

    async fn kill(&mut self, index: usize, reason: &ExitReason, is_final: bool) -> ExitReport {
        // A failed send shows as a signal that does not arrive.
        let _ = self.children[index].commands.send(ChildCommand::Kill { reason: reason.clone(), is_final });
        self.await_exit(index).await
    }

    fn send_drain(&self, index: usize, request: &DrainRequest) {
        let child = &self.children[index];
        // A supervisor that stops its children reads no other command: its own limit is part of the request.
        let own = match child.shutdown {
            Shutdown::Timeout(limit) if child.is_supervisor() => Some(Instant::now() + limit),
            Shutdown::Timeout(_) | Shutdown::Brutal | Shutdown::Infinity => None,
        };
        let deadline = [request.deadline, own].into_iter().flatten().min();
        // A failed send shows as a signal that does not arrive.
        let _ = child.commands.send(ChildCommand::Drain(DrainRequest { deadline, ..request.clone() }));
    }

    /// Waits for the exit of a child that was asked to drain, and kills it at its limit.
    async fn await_drained(
        &mut self,
        index: usize,
        request: &DrainRequest,
        limit: Duration,
        asked_at: Instant,
    ) -> ExitReport {
        let child = &self.children[index];
        let (token, generation, is_supervisor) = (child.token, child.generation, child.is_supervisor());
        // A supervisor ends by itself at the deadline of a shutdown or of its request, as soon as its children have ended.
        let until = |own: Instant, shutdown: Option<Instant>| match is_supervisor {
            true => own,
            false => [shutdown, request.deadline].into_iter().flatten().fold(own, Instant::min),
        };
        let limit = if is_supervisor { Shutdown::UNLIMITED } else { limit };
        let remaining = limit.saturating_sub(asked_at.elapsed());
        match self.await_signal(token, generation, remaining, until).await {
            Some(Lifecycle::Exited(report)) => report,
            Some(Lifecycle::Started) => ExitReport::without_messages(ExitReason::ArbiterLost),
            None => {
                let event = self.child_event(index, "shutdown_timeout", Level::WARN);
                self.bus.publish(event.with_millis("limit_ms", asked_at.elapsed()));
                let report = self.kill(index, &ExitReason::ShutdownTimeout, request.is_final).await;
                // A child that was killed at the request's deadline exited for the request's reason.
                match request.deadline {
                    Some(_) if !self.is_shutting_down() => ExitReport { reason: request.reason.clone(), ..report },
                    Some(_) | None => report,
                }
            }
        }
    }

    fn record_stopped(&mut self, index: usize, report: &ExitReport, is_final: bool) {
        if is_final {
            let was_killed = report.reason == ExitReason::ShutdownTimeout;
            self.record_unfinished(index, report.queued + report.in_flight, was_killed);
        }
        let state = if is_final { ActorState::Stopped } else { ActorState::Restarting };
        self.record_exit(index, report, "child_exited", state);
    }
}
