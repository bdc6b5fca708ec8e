//! The run loop of a supervisor: it launches its children, executes commands, and handles exits and due restarts, one at a time.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::Level;

use crate::bus::supervision_bus::SupervisionBus;
use crate::bus::supervisor_command::{CommandSender, SupervisorCommand};
use crate::child::command::{ChildCommand, DrainRequest};
use crate::child::exit::ExitReason;
use crate::child::policy::Strategy;
use crate::child::signal::{ChildSignal, Lifecycle, SupervisorLink};
use crate::child::spec::{ChildBody, ChildSpec, SupervisorSpec};
use crate::tree::child_record::ChildRecord;
use crate::tree::supervisor::Supervisor;
use crate::tree::watchdog::remaining_unhandled;

/// The next step of the run loop.
enum Action {
    Execute(SupervisorCommand),
    HandleSignal(ChildSignal),
    StartChild(usize),
    ReportStarted,
    End,
}

/// Spawns the task of a supervisor and of all its children; they run only after `ChildCommand::Start`. `above` is the label of the
/// supervisor above, `parent` the nearest one that is visible.
///
/// # Panics
/// When two children have the same path: a programming error.
pub(crate) fn launch(
    spec: SupervisorSpec,
    link: SupervisorLink,
    bus: SupervisionBus,
    above: Option<&str>,
    parent: Option<Arc<str>>,
) -> CommandSender {
    let (sender, commands) = mpsc::unbounded_channel();
    bus.register_supervisor(&spec.name, sender.clone());
    bus.supervisor_registry().record_launch(&spec, above);
    let mut supervisor = Supervisor::new(&spec, link, bus, parent, commands);
    supervisor.before_escalation = spec.before_escalation;
    for child in spec.children {
        let path: Arc<str> = child.path.as_str().into();
        assert!(supervisor.bus.registry().reserve(&path), "two children at {path}: a programming error");
        supervisor.launch_child(child);
    }
    drop(tokio::task::spawn_local(supervisor.run()));
    CommandSender::Supervisor(sender)
}

impl Supervisor {
    /// Launches a child whose path is reserved, as the last in start order.
    fn launch_child(&mut self, spec: ChildSpec) {
        self.last_token += 1;
        let path: Arc<str> = spec.path.as_str().into();
        let link = SupervisorLink { path: path.clone(), token: self.last_token, signals: self.signal_sender.clone() };
        let (arbiter, stuck_after) = (spec.arbiter.clone(), spec.stuck_after);
        let child = ChildRecord::launch(spec, self.last_token, |body| match body {
            ChildBody::Actor { launch, .. } => CommandSender::Actor(launch(link, arbiter)),
            ChildBody::Supervisor(spec) => {
                launch(*spec, link, self.bus.clone(), Some(&self.label), self.visible_parent.clone())
            }
        });
        self.update_entry(&path, |entry| {
            entry.commands = Some(child.commands.clone());
            entry.mailbox = child.mailbox.clone();
            entry.stuck_after = stuck_after;
            (entry.supervisor, entry.parent) = (self.label.clone(), self.visible_parent.clone());
        });
        self.children.push(child);
    }

    async fn run(mut self) {
        loop {
            match self.next().await {
                Action::Execute(command) => {
                    if !self.execute(command).await {
                        return;
                    }
                }
                Action::HandleSignal(signal) => self.handle_signal(signal).await,
                Action::StartChild(index) => self.start_child(index).await,
                Action::ReportStarted => {
                    self.starting = false;
                    self.link.notify(self.generation, Lifecycle::Started);
                }
                Action::End => return,
            }
        }
    }

    /// Commands before exits before starts, so that a long series of starts delays neither.
    async fn next(&mut self) -> Action {
        if let Ok(command) = self.commands.try_recv() {
            return Action::Execute(command);
        }
        if let Some(signal) = self.deferred_signals.pop_front() {
            return Action::HandleSignal(signal);
        }
        if let Ok(signal) = self.signals.try_recv() {
            return Action::HandleSignal(signal);
        }
        let may_start = self.running && !self.is_shutting_down();
        let due = if may_start { self.children.iter().filter_map(|child| child.restart_at).min() } else { None };
        let now = Instant::now();
        if due.is_some_and(|due| due <= now) {
            let index = self.children.iter().position(|child| child.restart_at.is_some_and(|due| due <= now));
            return Action::StartChild(index.expect("the earliest is among them"));
        }
        if self.running && self.starting {
            return Action::ReportStarted;
        }
        let next_start = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        // Cancel-safe: each branch takes nothing from its source unless it wins.
        tokio::select! {
            biased;
            command = self.commands.recv() => command.map_or(Action::End, Action::Execute),
            signal = self.signals.recv() => signal.map_or(Action::End, Action::HandleSignal),
            () = next_start => {
                let index = self.children.iter().position(|child| child.restart_at == due);
                index.map_or(Action::End, Action::StartChild)
            }
        }
    }

    /// Returns false when the task is to end.
    async fn execute(&mut self, command: SupervisorCommand) -> bool {
        match command {
            SupervisorCommand::Supervise(ChildCommand::Start { generation }) => {
                self.generation = generation;
                (self.running, self.starting) = (true, true);
                let now = Instant::now();
                for child in self.children.iter_mut().filter(|child| !child.running) {
                    (child.restart_at, child.failures) = (Some(now), 0);
                }
                true
            }
            SupervisorCommand::Supervise(ChildCommand::Drain(request)) => {
                if self.running {
                    self.stop_all(&request).await;
                    self.report_own_exit(request.reason);
                }
                !request.is_final
            }
            SupervisorCommand::Supervise(ChildCommand::Kill { reason, is_final }) => {
                if self.running {
                    self.kill_all(&reason, is_final).await;
                    self.report_own_exit(reason);
                }
                !is_final
            }
            SupervisorCommand::Supervise(ChildCommand::Exit) => false,
            SupervisorCommand::AddChild(spec) => {
                self.add_child(spec);
                true
            }
            SupervisorCommand::RemoveChild { id, reply } => {
                // An error means that the caller no longer waits.
                let _ = reply.send(self.remove_child(&id).await);
                true
            }
        }
    }

    async fn handle_signal(&mut self, signal: ChildSignal) {
        let Lifecycle::Exited(report) = signal.lifecycle else { return };
        let current = self
            .children
            .iter()
            .position(|child| child.token == signal.token && child.generation == signal.generation && child.running);
        if let (Some(index), true) = (current, self.running) {
            self.handle_exit(index, report, "child_exited").await;
        }
    }

    fn add_child(&mut self, spec: ChildSpec) {
        self.launch_child(spec);
        // Unless the strategy is one_for_one, the child must not start before the siblings that it depends on.
        let last_restart = self.children.iter().filter_map(|child| child.restart_at).max();
        let siblings = last_restart.filter(|_| self.strategy != Strategy::OneForOne);
        let (now, index) = (Instant::now(), self.children.len() - 1);
        if self.running {
            self.children[index].restart_at = Some(siblings.map_or(now, |at| at.max(now)));
        }
        self.bus.publish(self.child_event(index, "child_added", Level::INFO));
    }

    async fn remove_child(&mut self, id: &str) -> bool {
        let Some(index) = self.children.iter().position(|child| child.id == id) else { return false };
        self.stop_child(index, &DrainRequest { reason: ExitReason::Shutdown, is_final: true, deadline: None }).await;
        let event = self.child_event(index, "child_removed", Level::INFO);
        let path = self.children.remove(index).path.clone();
        let unhandled = self.bus.registry().with_entry(&path, |entry| remaining_unhandled(&path, entry));
        self.bus.registry().remove(&path);
        for unhandled in unhandled.unwrap_or_default() {
            self.bus.publish(self.bus.expected_in_shutdown(unhandled));
        }
        self.bus.publish(event);
        true
    }
}
