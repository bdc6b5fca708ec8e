//! An acceptance that this process remembers until it has received the reply.
use ports::partitions::TimelineAcceptance;

/// An acceptance that was sent. If its reply is lost, the transaction's number shows whether it was done.
#[derive(Clone, Debug)]
pub(crate) struct UnansweredAcceptance {
    /// The timeline on which the transaction ran, and which it accepted.
    pub(crate) timeline: String,
    /// The transaction's number as text.
    pub(crate) transaction: String,
    /// The result for the caller.
    pub(crate) acceptance: TimelineAcceptance,
}
