//! The chain of a topic of other services: one endpoint for all of its events, whatever their types are, then its fallback.
use std::sync::Arc;

use ports::broker::Record;
use ports::endpoint::EventEndpoint;

use crate::consume::chain::{ChainLimits, ChainOutcome, HandlerResult};
use crate::consume::post_handler::{post, request_with_whole_value};

const GROUP_PREFIX: &str = "posthaste-";

/// The group that holds the offsets of a topic's consumers.
pub fn group(topic: &str) -> String {
    format!("{GROUP_PREFIX}{topic}")
}

/// Whether a group is that of a topic's consumers, in this version or with another configuration: no other reader may move its offsets.
pub fn is_group(name: &str) -> bool {
    name.starts_with(GROUP_PREFIX)
}

/// The action on an event that the endpoint of its topic did not accept.
#[derive(Clone)]
pub enum TopicFallback {
    /// The poison rule of the chain decides at once.
    None,
    /// The event counts as consumed.
    Record,
    /// Another endpoint receives it, once.
    Post(Arc<dyn EventEndpoint>),
}

/// Endpoint and rules of one topic. The value of an event is not decoded: its contract belongs to the service that published it.
#[derive(Clone)]
pub struct TopicChain {
    /// Receives each event by POST.
    pub endpoint: Arc<dyn EventEndpoint>,
    /// The action where it does not accept one.
    pub fallback: TopicFallback,
    /// Attempts, and the rule for events that nothing accepts.
    pub limits: ChainLimits,
}

impl TopicChain {
    /// Runs the chain once, as [`ChainLimits::run`] says. `attempt` counts from 1.
    pub async fn run(&self, record: &Record, attempt: u32) -> ChainOutcome {
        let fallback = match &self.fallback {
            TopicFallback::None => None,
            fallback => Some(fallback.accept(record)),
        };
        self.limits.run(attempt, post(&*self.endpoint, request_with_whole_value(record)), fallback).await
    }
}

impl TopicFallback {
    async fn accept(&self, record: &Record) -> HandlerResult {
        match self {
            TopicFallback::None | TopicFallback::Record => Ok(Vec::new()),
            TopicFallback::Post(endpoint) => post(&**endpoint, request_with_whole_value(record)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use domain::Timestamp;
    use futures::FutureExt;
    use outbox::{FailureType, FaultClass};
    use ports::endpoint::{EndpointError, EventRequest};

    use super::*;
    use crate::consume::chain::{FailureAction, PoisonMessageAction};

    /// Answers every event with this fault, or accepts it.
    struct Answers(Option<FaultClass>);

    #[async_trait]
    impl EventEndpoint for Answers {
        async fn send(&self, _: EventRequest) -> Result<(), EndpointError> {
            let error = |fault| EndpointError { fault, failure_type: FailureType::System, reason: "503".to_owned() };
            self.0.map_or(Ok(()), |fault| Err(error(fault)))
        }
    }

    fn outcome(
        endpoint: Option<FaultClass>,
        fallback: TopicFallback,
        poison: PoisonMessageAction,
        attempt: u32,
    ) -> &'static str {
        let limits = ChainLimits { attempts_max: 2, poison };
        let chain = TopicChain { endpoint: Arc::new(Answers(endpoint)), fallback, limits };
        let (topic, value) = ("invoices".into(), b"not JSON".as_slice().into());
        let record =
            Record { topic, key: "7".into(), headers: Default::default(), value, timestamp: Timestamp::from_millis(0) };
        match chain.run(&record, attempt).now_or_never().expect("no endpoint of these tests waits") {
            ChainOutcome::Handled { fallback_after: None, .. } => "accepted",
            ChainOutcome::Handled { fallback_after: Some(_), .. } => "fallback",
            ChainOutcome::NotHandled { action: FailureAction::Retry, .. } => "retry",
            ChainOutcome::NotHandled { action: FailureAction::BlockKey, .. } => "blocked",
            ChainOutcome::NotHandled { action: FailureAction::DeadLetter, .. } => "dead letter",
        }
    }

    #[test]
    fn retries_come_before_the_fallback_and_the_fallback_before_the_poison_rule() {
        let post = |fault| TopicFallback::Post(Arc::new(Answers(fault)) as Arc<dyn EventEndpoint>);
        let (late, never) = (Some(FaultClass::Transient), Some(FaultClass::Permanent));
        let (dead, block) = (PoisonMessageAction::DeadLetter, PoisonMessageAction::BlockKey);
        let cases = [
            (None, TopicFallback::None, dead, 1, "accepted"),
            (late, TopicFallback::Record, dead, 1, "retry"),
            (never, TopicFallback::Record, dead, 1, "fallback"),
            (late, TopicFallback::Record, dead, 2, "fallback"),
            (late, post(None), dead, 2, "fallback"),
            (late, post(never), dead, 2, "dead letter"),
            (late, post(never), block, 2, "blocked"),
            (late, TopicFallback::None, dead, 2, "dead letter"),
            (never, TopicFallback::None, block, 1, "blocked"),
        ];
        for (number, (endpoint, fallback, poison, attempt, expected)) in cases.into_iter().enumerate() {
            assert_eq!(outcome(endpoint, fallback, poison, attempt), expected, "case {number}");
        }
    }
}
