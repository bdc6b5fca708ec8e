//! The errors of sending a message to an actor and of waiting for its reply.

/// Why a mailbox refused a message or a caller received no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The actor failed while it handled the message, ended for good, or its mailbox accepts no more messages.
    #[error("the actor or its mailbox is closed")]
    Closed,
    /// The deadline passed. A message that is still queued is skipped; work that has begun continues and keeps its permit.
    #[error("no reply within the deadline")]
    Timeout,
    /// Every permit of the mailbox is taken. The message was not sent.
    #[error("the mailbox is full")]
    Overloaded,
}
