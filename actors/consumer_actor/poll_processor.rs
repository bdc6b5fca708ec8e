//! PollProcessor: what one kind of consumer does with the messages of a poll. All kinds share the loop: join the group, poll, record the messages in
//! progress (for panic reports), process, count.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::broker::consumer_groups::{ConsumerRecord, GroupMember};

use crate::consumer_actor::consumer_loop::{ConsumerPoll, PollProgress};
use crate::consumer_actor::group_consumer::GroupConsumer;
use crate::consumer_actor::message_log;

/// The work of one kind of consumer. Its futures stay on the actor's thread.
#[async_trait(?Send)]
pub trait PollProcessor: Send + Sync {
    /// What [`PollProcessor::begin`] passes to [`PollProcessor::process`].
    type PollState;

    /// The group whose messages these are.
    fn consumer(&self) -> &GroupConsumer;

    /// Begins a poll. Returns the most messages that the poll may return, or `None`, after a wait of at most `timeout`, where no messages are wanted now.
    async fn begin(&self, timeout: Duration) -> Option<(u32, Self::PollState)>;

    /// Processes the messages of a poll, at least one, and acknowledges them. Returns the number of those that failed by themselves, and whether any
    /// was acknowledged.
    ///
    /// # Errors
    /// Returns the error of a port; no message of the poll is acknowledged then, so all are delivered again.
    async fn process(
        &self,
        begun: Self::PollState,
        member: &dyn GroupMember,
        messages: &[ConsumerRecord],
    ) -> Result<(u64, PollProgress), Error>;

    /// Ends a poll that has begun, also one that returned no message or an error, or that did not complete. `failed` messages were not processed.
    fn end(&self, failed: u64);
}

#[async_trait(?Send)]
impl<W: PollProcessor> ConsumerPoll for W {
    fn group(&self) -> &str {
        &self.consumer().group
    }

    fn is_stopping(&self) -> bool {
        self.consumer().is_stopping()
    }

    async fn poll_once(
        &self,
        member: Option<Arc<dyn GroupMember>>,
        number: u32,
        timeout: Duration,
    ) -> Result<(Arc<dyn GroupMember>, PollProgress), Error> {
        let member = match member {
            Some(member) => member,
            None => self.consumer().join(number).await?,
        };
        let Some((limit, begun)) = self.begin(timeout).await else {
            return Ok((member, PollProgress::Idle));
        };
        let mut begun_poll = PollGuard { work: self, failed: 0 };
        let (failed, result) = poll(self, begun, &*member, limit, timeout).await;
        begun_poll.failed = failed;
        drop(begun_poll);
        result.map(|progress| (member, progress))
    }
}

/// A poll that has begun. Its drop ends the poll also when the actor panics or is stopped: the restarted actor has the same work.
struct PollGuard<'a, W: PollProcessor> {
    work: &'a W,
    failed: u64,
}

impl<W: PollProcessor> Drop for PollGuard<'_, W> {
    fn drop(&mut self) {
        self.work.end(self.failed);
    }
}

/// Polls once and processes what arrives. Returns the number of messages that were not processed, beside the result.
async fn poll<W: PollProcessor>(
    work: &W,
    begun: W::PollState,
    member: &dyn GroupMember,
    limit: u32,
    timeout: Duration,
) -> (u64, Result<PollProgress, Error>) {
    let messages = match member.poll(limit, timeout).await {
        Ok(messages) if messages.is_empty() => return (0, Ok(PollProgress::Idle)),
        Ok(messages) => work.consumer().received(messages),
        Err(error) => return (0, Err(error)),
    };
    let _in_progress = message_log::in_progress(&messages);
    match work.process(begun, member, &messages).await {
        Ok((failed, progress)) => (failed, Ok(progress)),
        // No message of the poll is acknowledged: the processing of each has failed.
        Err(error) => (messages.len() as u64, Err(error)),
    }
}
