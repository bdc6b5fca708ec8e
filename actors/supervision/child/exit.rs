//! Exit reasons: a closed set of words for logs and metrics, with free text only in the detail.

/// Why a child no longer runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// The actor called `ctx.stop()` or `ctx.terminate()`, or an operator stopped it.
    Normal,
    /// The actor panicked in a handler, a timer, a future or its factory.
    Panic {
        /// The text of the panic.
        detail: String,
        /// Where the panic occurred, as `file:line:column`.
        location: String,
        /// Type name of the message that was being handled, if a [`MailboxPermit`](crate::MailboxPermit) was held.
        message: Option<&'static str>,
    },
    /// An operator, a test or the progress watchdog killed the actor.
    Killed {
        /// The name and reason that the killer gave.
        by: String,
    },
    /// The child was asked to end and did.
    Shutdown,
    /// The child was asked to end, did not end in time and was killed.
    ShutdownTimeout,
    /// `started()` and its `ctx.wait` futures did not finish in time.
    StartTimeout,
    /// The strategy stopped the child because a sibling failed.
    Sibling {
        /// Id of the sibling that failed.
        failed: String,
    },
    /// A supervisor counted more failures than its restart intensity allows, and ended.
    Escalated {
        /// The exceeded limit and the last failure.
        detail: String,
    },
    /// The thread of the child ended or does not respond.
    ArbiterLost,
}

impl ExitReason {
    /// The word in events, logs and metric labels: `panic`, `normal`, `shutdown`, `killed`, `shutdown_timeout`, `start_timeout`,
    /// `sibling`, `escalated` or `arbiter_lost`.
    pub fn as_str(&self) -> &'static str {
        match self {
            ExitReason::Normal => "normal",
            ExitReason::Panic { .. } => "panic",
            ExitReason::Killed { .. } => "killed",
            ExitReason::Shutdown => "shutdown",
            ExitReason::ShutdownTimeout => "shutdown_timeout",
            ExitReason::StartTimeout => "start_timeout",
            ExitReason::Sibling { .. } => "sibling",
            ExitReason::Escalated { .. } => "escalated",
            ExitReason::ArbiterLost => "arbiter_lost",
        }
    }

    /// The free text of the reason, for the variants that have one.
    pub fn detail(&self) -> Option<&str> {
        match self {
            ExitReason::Panic { detail, .. } | ExitReason::Escalated { detail } => Some(detail),
            ExitReason::Killed { by } => Some(by),
            ExitReason::Sibling { failed } => Some(failed),
            ExitReason::Normal
            | ExitReason::Shutdown
            | ExitReason::ShutdownTimeout
            | ExitReason::StartTimeout
            | ExitReason::ArbiterLost => None,
        }
    }

    /// Whether a [`Transient`](crate::Restart::Transient) child is restarted after this exit: after all but normal and shutdown, as
    /// in OTP.
    pub fn is_abnormal(&self) -> bool {
        !matches!(self, ExitReason::Normal | ExitReason::Shutdown)
    }

    /// The exit code of a process whose whole tree ended for this reason: 0 after a shutdown, else 70 (`EX_SOFTWARE`), so that the
    /// platform restarts the process.
    pub fn exit_code(&self) -> i32 {
        if matches!(self, ExitReason::Shutdown) { 0 } else { 70 }
    }
}

/// Writes the word and, if present, the detail: `panic: index out of bounds`.
impl std::fmt::Display for ExitReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.detail() {
            Some(detail) => write!(f, "{}: {detail}", self.as_str()),
            None => f.write_str(self.as_str()),
        }
    }
}

/// The report of a child to its supervisor when it exits.
#[derive(Clone, Debug)]
pub(crate) struct ExitReport {
    pub(crate) reason: ExitReason,
    /// Messages that remain in the mailbox: kept for the next incarnation, or lost with the last one.
    pub(crate) queued: usize,
    /// Messages that were being handled and are lost, besides the one that panicked.
    pub(crate) in_flight: usize,
    /// The work that the actor had reported as in progress.
    pub(crate) in_progress: Option<String>,
}

impl ExitReport {
    /// The report of a child that held no message.
    pub(crate) fn without_messages(reason: ExitReason) -> ExitReport {
        ExitReport { reason, queued: 0, in_flight: 0, in_progress: None }
    }
}
