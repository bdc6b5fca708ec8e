//! OTP's three choices for a child: restart type, shutdown, and the strategy of its supervisor.

use std::time::Duration;

use crate::child::exit::ExitReason;

/// When a child that exited is started again: OTP's restart type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// After every exit, also a normal one.
    Permanent,
    /// Only after an abnormal exit, see [`ExitReason::is_abnormal`].
    Transient,
    /// Never, not even when the strategy stops it with a failed sibling.
    Temporary,
}

impl Restart {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Restart::Permanent => "permanent",
            Restart::Transient => "transient",
            Restart::Temporary => "temporary",
        }
    }

    pub(crate) fn applies_after(self, reason: &ExitReason) -> bool {
        match self {
            Restart::Permanent => true,
            Restart::Transient => reason.is_abnormal(),
            Restart::Temporary => false,
        }
    }
}

/// How a child is stopped: OTP's shutdown value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// The child is killed at once, without a drain (`brutal_kill`).
    Brutal,
    /// The child is asked to drain, and killed at this limit. A supervisor kills those of its children that have not drained by then, and ends
    /// once all have ended.
    Timeout(Duration),
    /// The child is asked to drain, without a limit. For supervisors, whose children have limits of their own.
    Infinity,
}

impl Shutdown {
    /// Longer than any process runs, and an instant plus this much does not overflow.
    pub(crate) const UNLIMITED: Duration = Duration::from_secs(86_400 * 365);

    /// The value as events show it: `brutal`, the limit in milliseconds, or `infinity`.
    pub(crate) fn to_text(self) -> String {
        match self {
            Shutdown::Brutal => "brutal".into(),
            Shutdown::Timeout(limit) => limit.as_millis().to_string(),
            Shutdown::Infinity => "infinity".into(),
        }
    }

    /// How long the child may drain; none: it is killed without a drain.
    pub(crate) fn drain_limit(self) -> Option<Duration> {
        match self {
            Shutdown::Brutal => None,
            Shutdown::Timeout(limit) => Some(limit),
            Shutdown::Infinity => Some(Self::UNLIMITED),
        }
    }
}

/// Which siblings are stopped and restarted with a failed child: OTP's supervision strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The failed child alone is restarted.
    OneForOne,
    /// The children that were started after the failed one, too.
    RestForOne,
    /// All children of the supervisor.
    OneForAll,
}

impl Strategy {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Strategy::OneForOne => "one_for_one",
            Strategy::RestForOne => "rest_for_one",
            Strategy::OneForAll => "one_for_all",
        }
    }

    /// Whether the child at index `other` is stopped when the child at index `failed` fails.
    pub(crate) fn affects(self, failed: usize, other: usize) -> bool {
        match self {
            Strategy::OneForOne => false,
            Strategy::RestForOne => other > failed,
            Strategy::OneForAll => other != failed,
        }
    }
}
