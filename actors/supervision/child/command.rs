//! The commands that a child receives from its supervisor and that an actor task receives from operators.

use tokio::time::Instant;

use crate::child::exit::ExitReason;

/// A supervisor's command to a child, actor or supervisor. The channels that carry it are unbounded because a command must neither be
/// lost nor wait. Each command comes from one step of a supervisor or from an operator, so their number is small.
#[derive(Debug)]
pub(crate) enum ChildCommand {
    /// Run as this incarnation.
    Start { generation: u64 },
    /// Finish the outstanding messages, then end.
    Drain(DrainRequest),
    /// End now. `is_final`: no incarnation follows.
    Kill { reason: ExitReason, is_final: bool },
    /// End the child's task in whatever state it is.
    Exit,
}

/// A request to drain, with the reason that becomes the exit reason of the child.
#[derive(Clone, Debug)]
pub(crate) struct DrainRequest {
    pub(crate) reason: ExitReason,
    /// No incarnation follows: the mailbox is closed too.
    pub(crate) is_final: bool,
    /// Overrides the child's own shutdown limit: a child that has not drained by then is killed. With `None`, each child has the time that its
    /// own spec grants.
    pub(crate) deadline: Option<Instant>,
}

/// A command to an actor task.
pub(crate) enum ActorCommand {
    /// A command of the task's supervisor.
    Supervise(ChildCommand),
    /// Panic at the next poll, as injected by this operator.
    Panic { by: String },
    /// End normally, as if the actor had called `ctx.stop()`.
    Stop,
    /// Read the mailbox's pause flag again, for it changed.
    CheckPaused,
}
