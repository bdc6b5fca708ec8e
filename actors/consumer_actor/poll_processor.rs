//! PollProcessor: processes the messages of a poll for one kind of consumer. All kinds share the loop: join the group, poll, record the messages
//! in progress (for panic reports), process, count.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::broker::consumer_groups::{ConsumerRecord, GroupMember};

use crate::consumer_actor::consumer_poll::{ConsumerPoll, FailedPoll, PollProgress};
use crate::consumer_actor::group_consumer::GroupConsumer;
use crate::consumer_actor::message_log;

/// A poll that may begin.
pub struct PollPermit<S> {
    /// Most messages that the poll may return.
    pub messages_max: u32,
    /// The state of the poll, for [`PollProcessor::process`].
    pub state: S,
}

/// Result of processing the messages of a poll.
pub struct ProcessedPoll {
    /// Number of messages that failed individually.
    pub failed: u64,
    /// Whether any message was acknowledged.
    pub progress: PollProgress,
}

/// Processes the polls of one kind of consumer. Its futures stay on the actor's thread, so they need not be `Send`.
#[async_trait(?Send)]
pub trait PollProcessor: Send + Sync {
    /// The state of a poll from [`PollProcessor::begin`] to [`PollProcessor::process`].
    type PollState;

    /// The group whose messages these are.
    fn consumer(&self) -> &GroupConsumer;

    /// Begins a poll. Returns `None`, after a wait of at most `timeout`, where no messages are wanted now.
    async fn begin(&self, timeout: Duration) -> Option<PollPermit<Self::PollState>>;

    /// Processes the messages of a poll, at least one, and acknowledges them.
    ///
    /// # Errors
    /// Returns the error of a port; no message of the poll is acknowledged then, so all are delivered again.
    async fn process(
        &self,
        state: Self::PollState,
        member: &dyn GroupMember,
        messages: &[ConsumerRecord],
    ) -> Result<ProcessedPoll, Error>;

    /// Ends a poll that has begun, also one that returned no message or an error, or that did not complete. `failed` messages were not processed.
    fn end(&self, failed: u64);
}

#[async_trait(?Send)]
impl<P: PollProcessor> ConsumerPoll for P {
    fn group(&self) -> &str {
        &self.consumer().group
    }

    fn reassigns_partitions(&self) -> bool {
        self.consumer().groups.reassigns_partitions()
    }

    fn is_stopping(&self) -> bool {
        self.consumer().is_stopping()
    }

    fn count_failure(&self) {
        self.consumer().metrics.kafka_consumer_poll_failures_total.inc();
    }

    async fn poll_once(
        &self,
        member: Option<Arc<dyn GroupMember>>,
        number: u32,
        timeout: Duration,
    ) -> Result<(Arc<dyn GroupMember>, PollProgress), FailedPoll> {
        let member = match member {
            Some(member) => member,
            None => self.consumer().join(number).await?,
        };
        let Some(permit) = self.begin(timeout).await else {
            return Ok((member, PollProgress::Idle));
        };
        let mut poll_guard = PollGuard { processor: self, failed: 0 };
        let result = poll(&mut poll_guard, permit, &*member, timeout).await;
        drop(poll_guard);
        result.map(|progress| (member, progress))
    }
}

/// A poll that has begun. Its drop ends the poll also when the actor panics or is stopped: the restarted actor has the same processor.
struct PollGuard<'a, P: PollProcessor> {
    processor: &'a P,
    /// Number of messages that were not processed.
    failed: u64,
}

impl<P: PollProcessor> Drop for PollGuard<'_, P> {
    fn drop(&mut self) {
        self.processor.end(self.failed);
    }
}

/// Polls once and processes what arrives. Counts the messages that were not processed in the guard.
async fn poll<P: PollProcessor>(
    guard: &mut PollGuard<'_, P>,
    PollPermit { messages_max, state }: PollPermit<P::PollState>,
    member: &dyn GroupMember,
    timeout: Duration,
) -> Result<PollProgress, FailedPoll> {
    let messages = member.poll(messages_max, timeout).await?;
    if messages.is_empty() {
        return Ok(PollProgress::Idle);
    }
    let messages = guard.processor.consumer().normalize_headers(messages);
    let _in_progress = message_log::in_progress(&messages);
    let processed = guard.processor.process(state, member, &messages).await;
    // After an error no message of the poll is acknowledged: the processing of each has failed.
    guard.failed = processed.as_ref().map_or(messages.len() as u64, |processed| processed.failed);
    processed.map(|processed| processed.progress).map_err(|error| FailedPoll { error, has_messages: true })
}
