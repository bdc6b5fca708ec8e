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

/// A poll that failed. No message of it is acknowledged, so all are delivered again.
pub struct FailedPoll {
    /// The error of a port.
    pub error: Error,
    /// Whether messages had arrived, so that the member has partitions.
    pub has_messages: bool,
}

impl From<Error> for FailedPoll {
    /// The poll failed before a message arrived.
    fn from(error: Error) -> Self {
        Self { error, has_messages: false }
    }
}

/// Polls and processes the messages of a group. Its futures stay on the actor's thread, so they need not be `Send`.
#[async_trait(?Send)]
pub trait ConsumerPoll: Send + Sync {
    /// Name of the consumer group.
    fn group(&self) -> &str;

    /// Whether the group gives the partitions of a consumer that cannot join it to other members.
    fn reassigns_partitions(&self) -> bool;

    /// Whether the service stops: no further poll begins.
    fn is_stopping(&self) -> bool;

    /// Counts a poll that failed.
    fn count_failure(&self);

    /// Polls once; joins the group first if there is no membership. Returns the membership for the next poll.
    ///
    /// # Errors
    /// The error of a port.
    async fn poll_once(
        &self,
        member: Option<Arc<dyn GroupMember>>,
        number: u32,
        timeout: Duration,
    ) -> Result<(Arc<dyn GroupMember>, PollProgress), FailedPoll>;
}
