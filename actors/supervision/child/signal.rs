//! The signals that a child sends to its supervisor: it has started, it has exited.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::child::exit::ExitReport;

/// A change of a child's life cycle, as the child reports it.
pub(crate) enum Lifecycle {
    Started,
    Exited(ExitReport),
}

/// A lifecycle report and the incarnation that sent it. A supervisor ignores the signals of older incarnations.
pub(crate) struct ChildSignal {
    pub(crate) token: u64,
    pub(crate) generation: u64,
    pub(crate) lifecycle: Lifecycle,
}

/// A child's link to its supervisor.
#[derive(Clone)]
pub(crate) struct SupervisorLink {
    pub(crate) path: Arc<str>,
    pub(crate) token: u64,
    pub(crate) signals: mpsc::UnboundedSender<ChildSignal>,
}

impl SupervisorLink {
    pub(crate) fn notify(&self, generation: u64, lifecycle: Lifecycle) {
        // An error means that the supervisor has ended; no other component uses the signal.
        let _ = self.signals.send(ChildSignal { token: self.token, generation, lifecycle });
    }
}
