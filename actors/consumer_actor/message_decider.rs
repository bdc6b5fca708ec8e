//! MessageDecider: a kind of consumer that decides on each message individually. It processes keys concurrently and the messages of a key one
//! after the other, and applies all decisions of a poll together.
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use ports::Error;
use ports::broker::consumer_groups::{ConsumerRecord, GroupMember};
use tracing::Instrument;

use crate::consumer_actor::decisions::Decisions;
use crate::consumer_actor::forwarding::{DueMessages, by_key};
use crate::consumer_actor::group_consumer::GroupConsumer;
use crate::consumer_actor::message_log;
use crate::consumer_actor::poll_processor::{PollPermit, PollProcessor, ProcessedPoll};

/// Decides on the messages of one kind of consumer. Its futures stay on the actor's thread, so they need not be `Send`.
#[async_trait(?Send)]
pub trait MessageDecider: Send + Sync {
    /// Whether the key of every message is the id of an order, also where the value cannot be decoded.
    const KEY_IS_ORDER: bool;

    /// The group whose messages these are.
    fn group_consumer(&self) -> &GroupConsumer;

    /// Most messages of one poll.
    fn batch(&self) -> u32;

    /// Decides on a message and adds the decisions to `decisions`, which has those on the earlier messages of its key in this poll. The caller
    /// adds the acknowledgement.
    ///
    /// # Errors
    /// Returns the error of a port; no message of the poll is acknowledged then.
    async fn decide(&self, message: &ConsumerRecord, decisions: &mut Decisions) -> Result<(), Error>;
}

#[async_trait(?Send)]
impl<D: MessageDecider> PollProcessor for D {
    type PollState = ();

    fn consumer(&self) -> &GroupConsumer {
        self.group_consumer()
    }

    async fn begin(&self, _: Duration) -> Option<PollPermit<()>> {
        Some(PollPermit { messages_max: self.batch(), state: () })
    }

    async fn process(
        &self,
        (): (),
        member: &dyn GroupMember,
        messages: &[ConsumerRecord],
    ) -> Result<ProcessedPoll, Error> {
        let consumer = self.group_consumer();
        let DueMessages { due, .. } = consumer.due(member, messages, |_| true).await?;
        let by_key = stream::iter(by_key(due)).map(|messages| decide_key(self, messages));
        let decided: Vec<Decisions> = by_key.buffered(consumer.parallel_keys.max(1)).try_collect().await?;
        let mut decisions = Decisions::default();
        decided.into_iter().for_each(|of_key| decisions.append(of_key));
        if consumer.is_stopping() {
            decisions.acknowledge_up_to_undone(messages);
        }
        let processed = ProcessedPoll { failed: decisions.failed, progress: decisions.progress() };
        consumer.apply(decisions, member).await?;
        Ok(processed)
    }

    fn end(&self, failed: u64) {
        self.group_consumer().metrics.kafka_consumer_errors.inc_by(failed);
    }
}

/// Decides on the messages of one key, one after the other; on no further one when the service stops.
async fn decide_key<D: MessageDecider>(decider: &D, messages: Vec<&ConsumerRecord>) -> Result<Decisions, Error> {
    let mut decisions = Decisions::default();
    for message in messages {
        if decider.group_consumer().is_stopping() {
            break;
        }
        decider.decide(message, &mut decisions).instrument(message_log::span(message, D::KEY_IS_ORDER)).await?;
        decisions.acknowledge.push(message.position.clone());
    }
    Ok(decisions)
}
