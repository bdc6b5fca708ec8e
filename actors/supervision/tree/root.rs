//! The root supervisor: start of a tree, its end, and its ordered shutdown.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::Level;

use crate::bus::drain_report::{DrainReport, UnfinishedActor};
use crate::bus::registry::RegistryEntry;
use crate::bus::snapshot::ActorState;
use crate::bus::supervision_bus::SupervisionBus;
use crate::bus::supervisor_command::CommandSender;
use crate::child::command::{ChildCommand, DrainRequest};
use crate::child::exit::ExitReason;
use crate::child::panic_guard::install_panic_hook;
use crate::child::signal::{ChildSignal, Lifecycle, SupervisorLink};
use crate::child::spec::SupervisorSpec;
use crate::events::event::SupervisionEvent;
use crate::tree::{run, watchdog};

/// The root of a running tree. If it is dropped, the tree continues to run.
pub struct RootSupervisor {
    commands: CommandSender,
    done: watch::Receiver<Option<ExitReason>>,
    bus: SupervisionBus,
}

impl RootSupervisor {
    /// Starts the tree on this thread's `LocalSet` or actix `System`. Resolves when every child was started once, or where a start
    /// failed, when its retry is scheduled. A tree that escalated meanwhile shows it in [`done`](RootSupervisor::done).
    ///
    /// From then on a panic inside an actor is reported by its `child_exited` event and no longer by the panic hook.
    ///
    /// # Panics
    /// When two children have the same path, or outside a `LocalSet`.
    pub async fn start(spec: SupervisorSpec, bus: SupervisionBus) -> RootSupervisor {
        install_panic_hook();
        let (signal_sender, signals) = mpsc::unbounded_channel();
        let label: Arc<str> = spec.label().into();
        let link = SupervisorLink { path: label.clone(), token: 0, signals: signal_sender };
        let commands = run::launch(spec, link, bus.clone(), None, None);
        // The supervisor's task was spawned just now and cannot have ended.
        let _ = commands.send(ChildCommand::Start { generation: 1 });
        let (started_sender, started) = oneshot::channel();
        let (done_sender, done) = watch::channel(None);
        let monitor = monitor(bus.clone(), label, commands.clone(), signals, started_sender, done_sender);
        drop(tokio::task::spawn_local(monitor));
        // An error means that the tree ended before it had started; `done` has the reason.
        let _ = started.await;
        RootSupervisor { commands, done, bus }
    }

    /// Resolves when the tree has ended, with the reason: shutdown, or escalated after the root drained its children (then exit with
    /// [`ExitReason::exit_code`]). Cancel-safe, and may be called again.
    pub async fn done(&self) -> ExitReason {
        reason_of(self.done.clone()).await
    }

    /// Resolves with the reason as soon as the root escalates, while its children still drain, or when the tree has ended otherwise. Cancel-safe, and
    /// may be called again.
    pub async fn escalated(&self) -> ExitReason {
        // Both only wait; dropping either loses nothing.
        tokio::select! {
            biased;
            reason = reason_of(self.bus.escalated()) => reason,
            reason = self.done() => reason,
        }
    }

    /// The bus that the tree was started with.
    pub fn bus(&self) -> &SupervisionBus {
        &self.bus
    }

    /// Stops the tree: children in reverse start order, each drained within its own limit; at the deadline all others are killed.
    /// Resolves when all have ended, at the latest [`Options::kill_timeout`](crate::Options::kill_timeout) after the deadline.
    pub async fn shutdown(self, deadline: Duration) -> DrainReport {
        let began = Instant::now();
        let deadline = began + deadline;
        self.bus.begin_shutdown(deadline);
        let request = DrainRequest { reason: ExitReason::Shutdown, is_final: true, deadline: None };
        // An error means that the tree has ended already; `done` has the reason.
        let _ = self.commands.send(ChildCommand::Drain(request));
        let wait_until = deadline + self.bus.options().kill_timeout;
        let end = tokio::time::timeout_at(wait_until, reason_of(self.done.clone()));
        let reason = end.await.unwrap_or(ExitReason::ShutdownTimeout);
        let mut unfinished = self.bus.take_unfinished();
        unfinished.extend(still_running(&self.bus, &unfinished));
        DrainReport { reason, elapsed: began.elapsed(), unfinished }
    }
}

async fn reason_of(mut end: watch::Receiver<Option<ExitReason>>) -> ExitReason {
    match end.wait_for(Option::is_some).await {
        Ok(reason) => reason.clone().unwrap_or(ExitReason::ArbiterLost),
        // The monitor task ended without a result: the thread of the tree has ended.
        Err(_) => ExitReason::ArbiterLost,
    }
}

/// Actors on threads that do not respond.
fn still_running(bus: &SupervisionBus, known: &[UnfinishedActor]) -> Vec<UnfinishedActor> {
    bus.registry().with_entries(|entries| {
        let running = entries.iter().filter(|(path, entry)| {
            entry.state != ActorState::Stopped && !known.iter().any(|actor| *actor.path == ***path)
        });
        let unfinished = running.filter_map(|(path, entry)| {
            let mailbox = entry.mailbox.as_ref()?;
            Some(UnfinishedActor { path: path.to_string(), queued_or_in_flight: mailbox.outstanding() })
        });
        unfinished.collect()
    })
}

/// Receives the signals of the root supervisor, runs the watchdog concurrently, and publishes the end of the tree.
async fn monitor(
    bus: SupervisionBus,
    label: Arc<str>,
    commands: CommandSender,
    mut signals: mpsc::UnboundedReceiver<ChildSignal>,
    started: oneshot::Sender<()>,
    done: watch::Sender<Option<ExitReason>>,
) {
    let began = Instant::now();
    let mut started = Some(started);
    let end = async {
        loop {
            match signals.recv().await.map(|signal| signal.lifecycle) {
                Some(Lifecycle::Started) => drop(started.take().map(|started| started.send(()))),
                Some(Lifecycle::Exited(report)) => return report.reason,
                None => return ExitReason::ArbiterLost,
            }
        }
    };
    // Cancel-safe: the watchdog holds no state between two inspections.
    let reason = tokio::select! {
        reason = end => reason,
        () = watchdog::run(bus.clone()) => ExitReason::ArbiterLost,
    };
    // An error means that the supervisor's task has ended already.
    let _ = commands.send(ChildCommand::Exit);
    bus.registry().with_entries(|entries| entries.values_mut().for_each(RegistryEntry::retire));
    let level = if reason.exit_code() == 0 { Level::INFO } else { Level::ERROR };
    let mut event = SupervisionEvent::new("tree_stopped", level).with_reason(&reason);
    (event.supervisor, event.child_type) = (label.clone(), "supervisor");
    event.child = label;
    let exit_code = u64::try_from(reason.exit_code()).unwrap_or(1);
    bus.publish(event.with_number("exit_code", exit_code).with_millis("elapsed_ms", began.elapsed()));
    // An error means that the `RootSupervisor` was dropped.
    let _ = done.send(Some(reason));
}
