//! Why a child ended: a closed set of words for logs and metrics, free text only in the detail.

/// Why a child is no longer running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It called `ctx.stop()` or `ctx.terminate()` itself, or an operator asked it to stop.
    Normal,
    /// It panicked.
    Panic {
        /// The panic's text.
        detail: String,
        /// `file:line:column` of the panic.
        location: String,
        /// Type name of the message that was being worked on, when a [`Slot`](crate::Slot) says so.
        message: Option<&'static str>,
    },
    /// An operator, a test or the progress watchdog killed it.
    Killed {
        /// Who, and why.
        by: String,
    },
    /// It was asked to end and did.
    Shutdown,
    /// It was asked to end, did not in time and was killed.
    ShutdownTimeout,
    /// `started()` and its `ctx.wait` futures did not finish in time.
    StartTimeout,
    /// It went down with a sibling that failed.
    Sibling {
        /// Id of the child that failed.
        failed: String,
    },
    /// A supervisor saw more failures than its intensity allows and gave up.
    Escalated {
        /// Which limit, and the last failure.
        detail: String,
    },
    /// The thread it lived on went away or no longer answers.
    ArbiterLost,
}

impl Reason {
    /// The word that stands in events, logs and metric labels: `panic`, `normal`, `shutdown`, `killed`, `shutdown_timeout`,
    /// `start_timeout`, `sibling`, `escalated` or `arbiter_lost`.
    pub fn word(&self) -> &'static str {
        match self {
            Reason::Normal => "normal",
            Reason::Panic { .. } => "panic",
            Reason::Killed { .. } => "killed",
            Reason::Shutdown => "shutdown",
            Reason::ShutdownTimeout => "shutdown_timeout",
            Reason::StartTimeout => "start_timeout",
            Reason::Sibling { .. } => "sibling",
            Reason::Escalated { .. } => "escalated",
            Reason::ArbiterLost => "arbiter_lost",
        }
    }

    /// The free text that belongs to the word, if there is any.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Reason::Panic { detail, .. } | Reason::Escalated { detail } => Some(detail),
            Reason::Killed { by } => Some(by),
            Reason::Sibling { failed } => Some(failed),
            Reason::Normal
            | Reason::Shutdown
            | Reason::ShutdownTimeout
            | Reason::StartTimeout
            | Reason::ArbiterLost => None,
        }
    }

    /// Whether a transient child is restarted after it.
    pub fn abnormal(&self) -> bool {
        !matches!(self, Reason::Normal | Reason::Shutdown)
    }

    /// The process exit code when a whole tree ends so: 0 after a shutdown, else 70 (`EX_SOFTWARE`), so that the platform restarts us.
    pub fn exit_code(&self) -> i32 {
        if matches!(self, Reason::Shutdown) { 0 } else { 70 }
    }
}

/// Word and detail, as an operator reads them: `panic: index out of bounds`.
impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.detail() {
            Some(detail) => write!(f, "{}: {detail}", self.word()),
            None => f.write_str(self.word()),
        }
    }
}

/// What a child's last sign of life says.
#[derive(Clone, Debug)]
pub(crate) struct Exit {
    pub(crate) reason: Reason,
    /// Messages that still wait in the mailbox (kept for the next incarnation, or lost with the last one).
    pub(crate) queued: usize,
    /// Messages that were being worked on and are lost, besides the one that panicked.
    pub(crate) in_flight: usize,
}

impl Exit {
    pub(crate) fn bare(reason: Reason) -> Exit {
        Exit { reason, queued: 0, in_flight: 0 }
    }
}
