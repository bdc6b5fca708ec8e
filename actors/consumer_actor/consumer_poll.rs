//! ConsumerPoll: one poll of a consumer group; ConsumerActor loops.
//!
//! Every PollProcessor is a ConsumerPoll: it processes the messages that a poll returns. Every MessageDecider is a PollProcessor: it decides on
//! one message at a time, in the order of each key.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::broker::consumer_groups::GroupMember;

/// Whether a poll without an error shows that the consumer processes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollProgress {
    /// Messages were processed and acknowledged.
    Advanced,
    /// No message arrived, none was due, or none is wanted now.
    Idle,
}

/// Polls and processes the messages of a group. Its futures stay on the actor's thread, so they need not be `Send`.
#[async_trait(?Send)]
pub trait ConsumerPoll: Send + Sync {
    /// Name of the consumer group.
    fn group(&self) -> &str;

    /// Whether the service stops: no further poll begins.
    fn is_stopping(&self) -> bool;

    /// Counts a poll that failed.
    fn count_failure(&self);

    /// Polls once; joins the group first if there is no membership. Returns the membership for the next poll.
    ///
    /// # Errors
    /// Returns the error of a port; no message of the poll is acknowledged then, so all are delivered again.
    async fn poll_once(
        &self,
        member: Option<Arc<dyn GroupMember>>,
        number: u32,
        timeout: Duration,
    ) -> Result<(Arc<dyn GroupMember>, PollProgress), Error>;
}
