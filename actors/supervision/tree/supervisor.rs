//! The state of a supervisor. A supervisor is a plain task, not an actor: it has no mailbox that could starve and runs no actor's code, which
//! could panic. While it waits for the start or exit of one child it does nothing else, as in OTP.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::bus::registry::RegistryEntry;
use crate::bus::supervision_bus::SupervisionBus;
use crate::bus::supervisor_command::SupervisorCommand;
use crate::child::backoff::Backoff;
use crate::child::exit::{ExitReason, ExitReport};
use crate::child::policy::Strategy;
use crate::child::signal::{ChildSignal, Lifecycle, SupervisorLink};
use crate::child::spec::{EscalationHook, SupervisorSpec};
use crate::tree::child_record::ChildRecord;
use crate::tree::restart_intensity::RestartIntensity;

pub(crate) struct Supervisor {
    pub(crate) name: String,
    pub(crate) label: Arc<str>,
    pub(crate) link: SupervisorLink,
    pub(crate) bus: SupervisionBus,
    /// `parent` in the snapshots of its children.
    pub(crate) visible_parent: Option<Arc<str>>,
    pub(crate) generation: u64,
    pub(crate) running: bool,
    /// The start has not been reported to the supervisor above.
    pub(crate) starting: bool,
    pub(crate) strategy: Strategy,
    pub(crate) intensity: RestartIntensity,
    pub(crate) backoff: Backoff,
    pub(crate) auto_shutdown: bool,
    pub(crate) parallel_shutdown: bool,
    pub(crate) sibling_drain_limit: Option<Duration>,
    pub(crate) children: Vec<ChildRecord>,
    pub(crate) last_token: u64,
    pub(crate) commands: mpsc::UnboundedReceiver<SupervisorCommand>,
    pub(crate) signals: mpsc::UnboundedReceiver<ChildSignal>,
    pub(crate) signal_sender: mpsc::UnboundedSender<ChildSignal>,
    /// Signals of other children that arrived while the supervisor waited for one child's signal.
    pub(crate) deferred_signals: VecDeque<ChildSignal>,
    pub(crate) shutdown_deadline: watch::Receiver<Option<Instant>>,
    pub(crate) before_escalation: Option<EscalationHook>,
}

impl Supervisor {
    /// A supervisor whose children are not launched yet. `parent` is the nearest visible supervisor above.
    pub(crate) fn new(
        spec: &SupervisorSpec,
        link: SupervisorLink,
        bus: SupervisionBus,
        parent: Option<Arc<str>>,
        commands: mpsc::UnboundedReceiver<SupervisorCommand>,
    ) -> Supervisor {
        let (signal_sender, signals) = mpsc::unbounded_channel();
        Supervisor {
            label: spec.label().into(),
            visible_parent: spec.path.as_deref().map(Arc::from).or(parent),
            name: spec.name.clone(),
            link,
            shutdown_deadline: bus.shutdown_deadline(),
            bus,
            generation: 0,
            running: false,
            starting: false,
            strategy: spec.strategy,
            intensity: RestartIntensity::new(spec.max_restarts, spec.window),
            backoff: spec.backoff,
            auto_shutdown: spec.auto_shutdown,
            parallel_shutdown: spec.parallel_shutdown,
            sibling_drain_limit: spec.sibling_drain_limit,
            children: Vec::new(),
            last_token: 0,
            commands,
            signals,
            signal_sender,
            deferred_signals: VecDeque::new(),
            before_escalation: None,
        }
    }

    pub(crate) fn update_entry(&self, path: &str, change: impl FnOnce(&mut RegistryEntry)) {
        // None only when the path was removed meanwhile: then there is no state to keep.
        let _ = self.bus.registry().with_entry(path, change);
    }

    /// Whether no supervisor is above: tokens of children count from 1.
    pub(crate) fn is_root(&self) -> bool {
        self.link.token == 0
    }

    /// Whether the whole tree is being shut down.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shutdown_deadline.borrow().is_some()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.bus.unregister_supervisor(&self.name);
        for child in &self.children {
            self.update_entry(&child.path, RegistryEntry::retire);
        }
        // A task that ends by a bug in this crate must not leave the supervisor above waiting.
        if self.running {
            let report = ExitReport::without_messages(ExitReason::ArbiterLost);
            self.link.notify(self.generation, Lifecycle::Exited(report));
        }
    }
}
