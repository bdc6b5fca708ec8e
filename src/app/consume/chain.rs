//! The chain of one event type: primary handler, then retries, then the fallback, then its poison rule.
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use outbox::topics::RETRY_DELAYS;
use ports::FailureType;
use ports::inbox::Effect;
use serde::Deserialize;

use crate::consume::event_handler::{ConsumedEvent, EventHandler, HandlerFault};

/// Most attempts of one message: the first, and one in each retry topic.
pub const ATTEMPTS_MAX: u32 = RETRY_DELAYS.len() as u32 + 1;

/// The action on a message that neither its handler nor its fallback accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoisonMessageAction {
    /// It becomes a dead letter, and the key's later messages continue.
    #[default]
    DeadLetter,
    /// It stays in the last retry topic until a handler accepts it, and the key's later messages wait behind it.
    BlockKey,
}

/// How often a handler is tried, and what follows when none accepts a message.
#[derive(Clone, Copy, Debug)]
pub struct ChainLimits {
    /// Attempts, the first included; from 1 to [`ATTEMPTS_MAX`].
    pub attempts_max: u32,
    /// The rule for messages that no handler accepts.
    pub poison: PoisonMessageAction,
}

/// Handlers and rules of one event type.
#[derive(Clone)]
pub struct HandlerChain {
    primary: Arc<dyn EventHandler>,
    fallback: Option<Arc<dyn EventHandler>>,
    limits: ChainLimits,
}

/// Result of the chain for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainOutcome {
    /// The primary handler or the fallback accepted the event.
    Handled {
        /// Changes that commit together with the event's record in the inbox.
        effects: Vec<Effect>,
        /// Failure of the primary handler, where the fallback accepted the event.
        fallback_after: Option<HandlerFault>,
    },
    /// Neither of them did.
    NotHandled {
        /// Where the message goes.
        action: FailureAction,
        /// The failure of the last handler that was called.
        fault: HandlerFault,
    },
}

/// The action on a message that was not handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureAction {
    /// The next retry topic.
    Retry,
    /// Another round through the last retry topic, until a handler accepts the message; the later messages of its key wait.
    BlockKey,
    /// The dead-letter topic: no attempt is left, or none can succeed.
    DeadLetter,
}

/// Result of a handler: the effects of the event, or the failure.
pub type HandlerResult = Result<Vec<Effect>, HandlerFault>;

impl ChainLimits {
    /// Runs a chain once: the primary handler, and the fallback when no attempt is left or none can succeed. A panic of
    /// either is a failure that a later attempt may repair. `attempt` counts from 1.
    pub async fn run<P, F>(self, attempt: u32, primary: P, fallback: Option<F>) -> ChainOutcome
    where
        P: Future<Output = HandlerResult> + Send,
        F: Future<Output = HandlerResult> + Send,
    {
        let fault = match without_panic(primary).await {
            Ok(effects) => return ChainOutcome::Handled { effects, fallback_after: None },
            Err(fault) if fault.retryable && attempt < self.attempts_max => {
                return ChainOutcome::NotHandled { action: FailureAction::Retry, fault };
            }
            Err(fault) => fault,
        };
        let Some(fallback) = fallback else { return self.exhausted(fault) };
        match without_panic(fallback).await {
            Ok(effects) => ChainOutcome::Handled { effects, fallback_after: Some(fault) },
            Err(second) => {
                let reason = format!("{}; the fallback: {}", fault.reason, second.reason);
                self.exhausted(HandlerFault { reason, ..second })
            }
        }
    }

    fn exhausted(self, fault: HandlerFault) -> ChainOutcome {
        let action = match self.poison {
            PoisonMessageAction::DeadLetter => FailureAction::DeadLetter,
            PoisonMessageAction::BlockKey => FailureAction::BlockKey,
        };
        ChainOutcome::NotHandled { action, fault }
    }
}

/// Awaits a handler and turns its panic into a failure: an event that a handler cannot survive must not end the consumer of all others.
async fn without_panic(handler: impl Future<Output = HandlerResult>) -> HandlerResult {
    AssertUnwindSafe(handler).catch_unwind().await.unwrap_or_else(|panic| Err(fault_of_panic(&*panic)))
}

fn fault_of_panic(panic: &(dyn Any + Send)) -> HandlerFault {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    let reason = format!("the handler panicked: {}", text.unwrap_or("a panic without text"));
    HandlerFault { retryable: true, failure_type: FailureType::System, reason: outbox::truncate_reason(&reason) }
}

impl HandlerChain {
    /// A chain with all attempts, no fallback and dead letters.
    pub fn new(primary: Arc<dyn EventHandler>) -> Self {
        let limits = ChainLimits { attempts_max: ATTEMPTS_MAX, poison: PoisonMessageAction::default() };
        Self { primary, fallback: None, limits }
    }

    /// Sets the number of attempts, the first included; clamped to 1…[`ATTEMPTS_MAX`].
    #[must_use]
    pub fn attempts(mut self, attempts_max: u32) -> Self {
        self.limits.attempts_max = attempts_max.clamp(1, ATTEMPTS_MAX);
        self
    }

    /// Sets the handler of events that the primary handler does not accept.
    #[must_use]
    pub fn fallback(mut self, fallback: Arc<dyn EventHandler>) -> Self {
        self.fallback = Some(fallback);
        self
    }

    /// Sets the rule for messages that no handler accepts.
    #[must_use]
    pub fn poison(mut self, poison: PoisonMessageAction) -> Self {
        self.limits.poison = poison;
        self
    }

    /// Whether a key's events must be handled in order.
    pub fn needs_order(&self) -> bool {
        let fallback_needs = self.fallback.as_ref().is_some_and(|fallback| fallback.needs_order());
        self.primary.needs_order() || fallback_needs || self.limits.poison == PoisonMessageAction::BlockKey
    }

    /// Runs the chain once, as [`ChainLimits::run`] says.
    pub async fn run(&self, consumed: ConsumedEvent<'_>) -> ChainOutcome {
        // `handle` is called inside the futures: it may panic before it returns its own.
        let primary = async { self.primary.handle(consumed).await };
        let fallback = self.fallback.as_ref().map(|fallback| async move { fallback.handle(consumed).await });
        self.limits.run(consumed.attempt, primary, fallback).await
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use async_trait::async_trait;
    use domain::{EventId, EventType, OrderId, Timestamp};
    use ports::broker::Record;

    use super::*;
    use crate::contract::DecodedEvent;

    /// Fails in this way, or never.
    struct Scripted(Option<HandlerFault>);

    #[async_trait]
    impl EventHandler for Scripted {
        fn needs_order(&self) -> bool {
            false
        }

        async fn handle(&self, _: ConsumedEvent<'_>) -> Result<Vec<Effect>, HandlerFault> {
            self.0.clone().map_or(Ok(Vec::new()), Err)
        }
    }

    /// Panics before it returns a future, or while its future runs.
    struct Panics {
        at_once: bool,
    }

    impl EventHandler for Panics {
        fn needs_order(&self) -> bool {
            false
        }

        fn handle<'a, 'b, 'c>(
            &'a self,
            _: ConsumedEvent<'b>,
        ) -> Pin<Box<dyn Future<Output = HandlerResult> + Send + 'c>>
        where
            'a: 'c,
            'b: 'c,
        {
            assert!(!self.at_once, "no such {}", "currency");
            Box::pin(async { panic!("漢{}", "漢".repeat(1_000)) })
        }
    }

    fn fault(retryable: bool, reason: &str) -> HandlerFault {
        HandlerFault { retryable, failure_type: FailureType::Timeout, reason: reason.to_owned() }
    }

    fn not_handled(action: FailureAction, fault: HandlerFault) -> ChainOutcome {
        ChainOutcome::NotHandled { action, fault }
    }

    fn handler(fault: Option<HandlerFault>) -> Arc<dyn EventHandler> {
        Arc::new(Scripted(fault))
    }

    fn outcome(chain: &HandlerChain, attempt: u32) -> ChainOutcome {
        let now = Timestamp::from_millis(0);
        let event = DecodedEvent {
            schema_version: 2,
            event_id: EventId::new_v7(now, [1; 10]),
            event_type: EventType::OrderCreated,
            order_id: OrderId::new_v7(now, [2; 10]),
            occurred_at: now,
            after: None,
        };
        let (topic, value) = ("order.events".into(), [].into());
        let record = Record { topic, key: "k".into(), headers: Default::default(), value, timestamp: now };
        let consumed = ConsumedEvent { event: &event, record: &record, attempt };
        chain.run(consumed).now_or_never().expect("no handler of these tests waits")
    }

    /// First scenario of the requirements: three retries, then the fallback.
    #[test]
    fn fallback_follows_after_the_last_attempt() {
        let late = fault(true, "time-out");
        let chain = HandlerChain::new(handler(Some(late.clone()))).attempts(4).fallback(handler(None));

        let outcomes: Vec<_> = (1..=4).map(|attempt| outcome(&chain, attempt)).collect();

        let retry = not_handled(FailureAction::Retry, late.clone());
        let handled = ChainOutcome::Handled { effects: Vec::new(), fallback_after: Some(late) };
        assert_eq!(outcomes, [retry.clone(), retry.clone(), retry, handled]);
    }

    /// The second scenario: an exception that is not retryable.
    #[test]
    fn failure_that_no_retry_repairs_goes_to_the_fallback_at_once() {
        let refused = fault(false, "illegal argument");
        let chain = HandlerChain::new(handler(Some(refused.clone()))).fallback(handler(None));

        let handled = ChainOutcome::Handled { effects: Vec::new(), fallback_after: Some(refused) };
        assert_eq!(outcome(&chain, 1), handled);
    }

    /// The third scenario: permanent failure after three retries.
    #[test]
    fn without_a_fallback_the_last_attempt_fails_for_good() {
        let late = fault(true, "time-out");
        let chain = HandlerChain::new(handler(Some(late.clone()))).attempts(4);

        assert_eq!(outcome(&chain, 3), not_handled(FailureAction::Retry, late.clone()));
        assert_eq!(outcome(&chain, 4), not_handled(FailureAction::DeadLetter, late));
    }

    #[test]
    fn failure_of_the_fallback_names_both_and_obeys_the_poison_rule() {
        let chain = HandlerChain::new(handler(Some(fault(false, "400")))).fallback(handler(Some(fault(true, "503"))));
        let both = fault(true, "400; the fallback: 503");

        assert_eq!(outcome(&chain, 1), not_handled(FailureAction::DeadLetter, both.clone()));
        assert_eq!(
            outcome(&chain.poison(PoisonMessageAction::BlockKey), 1),
            not_handled(FailureAction::BlockKey, both)
        );
    }

    #[test]
    fn panic_of_a_handler_or_fallback_is_a_failure_that_may_pass() {
        let fault = |reason: &str| HandlerFault {
            retryable: true,
            failure_type: FailureType::System,
            reason: reason.to_owned(),
        };
        let panicked = fault("the handler panicked: no such currency");
        let chain = HandlerChain::new(Arc::new(Panics { at_once: true })).attempts(2);

        assert_eq!(outcome(&chain, 1), not_handled(FailureAction::Retry, panicked.clone()));
        assert_eq!(outcome(&chain, 2), not_handled(FailureAction::DeadLetter, panicked.clone()));
        assert_eq!(
            outcome(&chain.clone().fallback(handler(None)), 2),
            ChainOutcome::Handled { effects: Vec::new(), fallback_after: Some(panicked) }
        );
        let both = outcome(&chain.fallback(Arc::new(Panics { at_once: false })), 2);
        let cut = "漢".repeat(256 - "the handler panicked: ".len());
        let reason = format!("the handler panicked: no such currency; the fallback: the handler panicked: {cut}");
        assert_eq!(both, not_handled(FailureAction::DeadLetter, fault(&reason)));
    }

    #[test]
    fn attempts_stay_within_the_retry_topics_and_blocked_keys_are_ordered() {
        let late = fault(true, "time-out");
        let chain = HandlerChain::new(handler(Some(late.clone()))).attempts(99);

        assert_eq!(outcome(&chain, ATTEMPTS_MAX - 1), not_handled(FailureAction::Retry, late.clone()));
        assert_eq!(outcome(&chain, ATTEMPTS_MAX), not_handled(FailureAction::DeadLetter, late));
        assert!(!chain.needs_order() && chain.poison(PoisonMessageAction::BlockKey).needs_order());
    }
}
