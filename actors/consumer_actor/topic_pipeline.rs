//! TopicPipeline: the processing of a message of another service's topic. Call the endpoint → decide on the message.
use app::consume::chain::ChainOutcome;
use app::consume::message_decision::MessageFailure;
use app::consume::spring_headers;
use app::consume::topic_chain::TopicChain;
use async_trait::async_trait;
use ports::Error;
use ports::broker::consumer_groups::ConsumerRecord;

use crate::consumer_actor::decisions::Decisions;
use crate::consumer_actor::group_consumer::GroupConsumer;
use crate::consumer_actor::message_decider::MessageDecider;
use crate::consumer_actor::message_log;

/// The consumers of a topic as the configuration describes them.
#[derive(Clone)]
pub struct TopicConsumers {
    /// Full name of the topic.
    pub topic: String,
    /// Number of members in this instance.
    pub members: u32,
    /// Endpoint that receives the events, with its fallback.
    pub chain: TopicChain,
}

/// Shared by the consumers of one topic in an instance.
pub struct TopicPipeline {
    /// The group and its ports.
    pub consumer: GroupConsumer,
    /// Endpoint that receives the events, with its fallback.
    pub chain: TopicChain,
    /// Most events of one poll.
    pub batch: u32,
}

#[async_trait(?Send)]
impl MessageDecider for TopicPipeline {
    const KEY_IS_ORDER: bool = false;

    fn group_consumer(&self) -> &GroupConsumer {
        &self.consumer
    }

    fn batch(&self) -> u32 {
        self.batch
    }

    async fn decide(&self, message: &ConsumerRecord, decisions: &mut Decisions) -> Result<(), Error> {
        let (consumer, needs_order) = (&self.consumer, true);
        if consumer.queue_behind_earlier(message, needs_order, decisions).await? {
            return Ok(());
        }
        match self.chain.run(&message.record, spring_headers::attempt(&message.record)).await {
            ChainOutcome::Handled { fallback_after, .. } => {
                if let Some(fault) = fallback_after {
                    consumer.metrics.kafka_consumer_fallback_count.inc();
                    message_log::handled_by_fallback(message, &MessageFailure::from_handler(fault));
                }
                consumer.metrics.kafka_consumer_processed_count.inc();
                consumer.leave_retry_route(message, needs_order, decisions);
            }
            ChainOutcome::NotHandled { action, fault } => {
                consumer.forward_failed(message, needs_order, action, &MessageFailure::from_handler(fault), decisions);
            }
        }
        Ok(())
    }
}
