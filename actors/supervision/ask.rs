//! How a message can fail to be answered.

/// Why a message was not taken or not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The actor died while it worked on the message, is gone for good, or its inbox no longer takes anything.
    #[error("the actor is closed")]
    Closed,
    /// The deadline passed. Still queued, the message is skipped; already begun, the work goes on and keeps its slot.
    #[error("no answer within the deadline")]
    Timeout,
    /// Every slot of the inbox is taken. Nothing was sent.
    #[error("the inbox is full")]
    Overloaded,
}
