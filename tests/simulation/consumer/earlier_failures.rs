//! Messages that another consumer could not process, and topics with the names of retry topics.
use std::sync::Arc;
use std::time::Duration;

use actors::TopicConsumers;
use app::consume::chain::{ChainLimits, PoisonMessageAction};
use app::consume::topic_chain::{TopicChain, TopicFallback};
use async_trait::async_trait;
use domain::Hlc;
use kit::Factory;
use kit::clock::START_TIME;
use parking_lot::Mutex;
use ports::broker::Record;
use ports::endpoint::{EndpointError, EventEndpoint, EventRequest};
use ports::{FailureType, FaultClass};

use super::{DEAD_LETTERS, append, environment};
use crate::support::environment::{Environment, seed};
use crate::support::process::{TIMEOUT, TOPIC};
use crate::support::record_faults::header;
use crate::support::recording_handler::{RecordingHandler, from_region};

/// The header of a record that another consumer has tried five times.
const FIVE_ATTEMPTS: (&str, [u8; 4]) = ("retry_topic-attempts", [0, 0, 0, 6]);

#[tokio::test(start_paused = true)]
async fn event_of_the_topic_itself_has_all_attempts_whatever_its_headers_say() {
    let handler = RecordingHandler::new(true, 1, |_| true);
    let process = environment(&handler).start().await;
    let (_, placed) = Factory::seeded(seed(), TOPIC.into()).placed("ann");
    let mut record = from_region(&placed, "local", Hlc { millis: START_TIME.millis(), counter: 0 });
    record.headers.push(FIVE_ATTEMPTS.0, &FIVE_ATTEMPTS.1);

    append(&process, record).await;

    process.wait_until("the second attempt succeeds", TIMEOUT, async || handler.calls().len() == 2).await;
    process.wait_until_consumed(TIMEOUT).await;
    assert!(handler.calls()[1].succeeded);
    assert!(process.records(DEAD_LETTERS).await.is_empty());
}

/// Refuses every event for now, and counts them.
#[derive(Default)]
struct RefusingEndpoint(Mutex<u32>);

#[async_trait]
impl EventEndpoint for RefusingEndpoint {
    async fn send(&self, _: EventRequest) -> Result<(), EndpointError> {
        *self.0.lock() += 1;
        let (fault, failure_type) = (FaultClass::Transient, FailureType::System);
        Err(EndpointError { fault, failure_type, reason: "503".to_owned() })
    }
}

#[tokio::test(start_paused = true)]
async fn consumers_of_topics_that_are_named_like_forwarding_topics_have_their_own() {
    for topic in ["payments-retry-1", "payments-dlt"] {
        let endpoint = Arc::new(RefusingEndpoint::default());
        let limits = ChainLimits { attempts_max: 3, poison: PoisonMessageAction::DeadLetter };
        let chain = TopicChain { endpoint: endpoint.clone(), fallback: TopicFallback::None, limits };
        let mut environment = Environment::new();
        environment.consumes = true;
        environment.topic_consumers = vec![TopicConsumers { topic: topic.to_owned(), members: 1, chain }];
        let process = environment.start().await;
        let headers = [FIVE_ATTEMPTS].into_iter().collect();
        let value = b"paid".as_slice().into();
        let record = Record { topic: topic.into(), key: "7".into(), headers, value, timestamp: START_TIME };

        append(&process, record).await;

        let own = format!("{topic}-dlt");
        let is_dead = async || process.records(&own).await.len() == 1;
        process.wait_until("it is a dead letter of this topic", TIMEOUT, is_dead).await;
        process.advance(Duration::from_secs(60)).await;
        assert_eq!(*endpoint.0.lock(), 3, "{topic}");
        assert_eq!(header(&process.records(&own).await[0].record, "kafka_original-topic"), topic);
    }
}
