//! The action on a row that was not published: retry, then its fallback, then parking. Decided by topic and event type.
use serde::Deserialize;
use std::collections::HashMap;
use std::time::Duration;

use ports::FaultClass;

use outbox::topic_rules::applicable;
use outbox::{PoisonAction, PoisonPolicy, RetryDecision, RetryPolicy, TopicRules};

/// Destination of an event that its topic does not accept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fallback {
    /// The row is parked.
    #[default]
    None,
    /// The record is sent to `<topic>-dlt`, with the failure in headers.
    DeadLetter,
}

/// The rules of topics and event types; what has no entry has the defaults.
#[derive(Clone, Debug, Default)]
pub struct ChainRules {
    /// Number of attempts and their delays.
    pub retry: RetryPolicy,
    /// Attempts and delays of topics that differ.
    pub retry_by_topic: HashMap<String, RetryPolicy>,
    /// Effect of a parked row.
    pub poison: PoisonPolicy,
    /// Destination of a row after its last attempt.
    pub fallback: TopicRules<Fallback>,
}

impl ChainRules {
    /// Attempts and delays of a topic's events.
    pub fn retry_of(&self, topic: &str) -> &RetryPolicy {
        applicable(self.retry_by_topic.get(topic), None).unwrap_or(&self.retry)
    }

    /// The row's number of attempts after this failure.
    pub fn attempts_counted(&self, failure: PublishFailure<'_>) -> u32 {
        if failure.is_outage {
            self.retry_of(failure.topic).attempts_after_outage(failure.attempt)
        } else {
            failure.attempt
        }
    }

    /// The longest delay of any topic.
    pub fn retry_delay_max(&self) -> Duration {
        self.retry_by_topic.values().map(|retry| retry.max).fold(self.retry.max, Duration::max)
    }
}

/// Next step for a row that was not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainStep {
    /// The row becomes FAILED and is due again after this delay.
    Retry(Duration),
    /// The record is sent to its fallback.
    Fallback,
    /// The row becomes PARKED.
    Park(PoisonAction),
}

/// One failed attempt to publish a row.
#[derive(Clone, Copy, Debug)]
pub struct PublishFailure<'a> {
    /// Topic of the row.
    pub topic: &'a str,
    /// Event type of the row.
    pub event_type: &'a str,
    /// Number of the failed attempt, from 1.
    pub attempt: u32,
    /// Fault class of the failure.
    pub fault: FaultClass,
    /// Whether the broker, or the topic partition, was not reachable: the attempt reached nothing that could judge the row.
    pub is_outage: bool,
    /// Whether the fallback failed, not the row's own topic.
    pub in_fallback: bool,
    /// Whether the row has its payload. Without it nothing can be sent to a fallback.
    pub has_payload: bool,
}

/// Decides the next step. `throttling` and `random` are those of [`RetryPolicy::decide`]. An outage parks nothing, however long it lasts, also
/// where a lowered `attempts_max` leaves no attempt.
pub fn next_step(rules: &ChainRules, failure: PublishFailure<'_>, throttling: f64, random: f64) -> ChainStep {
    let retry = rules.retry_of(failure.topic);
    let attempts_max = if failure.is_outage { retry.attempts_max.saturating_sub(1) } else { u32::MAX };
    let attempts = rules.attempts_counted(failure).min(attempts_max);
    let decision = retry.decide(attempts, failure.fault, throttling, random);
    if let RetryDecision::RetryIn(delay) = decision {
        return ChainStep::Retry(delay);
    }
    let fallback = rules.fallback.value_for(failure.topic, failure.event_type);
    if fallback == Fallback::DeadLetter && !failure.in_fallback && failure.has_payload {
        return ChainStep::Fallback;
    }
    ChainStep::Park(rules.poison.value_for(failure.topic, failure.event_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four attempts: three retries.
    fn rules(fallback: Fallback) -> ChainRules {
        ChainRules {
            retry: RetryPolicy { attempts_max: 4, ..RetryPolicy::default() },
            fallback: TopicRules::from_iter([("ORDER_CREATED", fallback)]),
            ..ChainRules::default()
        }
    }

    fn failure(topic: &str, attempt: u32, fault: FaultClass) -> PublishFailure<'_> {
        let (is_outage, in_fallback, has_payload) = (false, false, true);
        PublishFailure { topic, event_type: "ORDER_CREATED", attempt, fault, is_outage, in_fallback, has_payload }
    }

    fn steps(rules: &ChainRules, fault: FaultClass) -> Vec<ChainStep> {
        (1..=4).map(|attempt| next_step(rules, failure("order.events", attempt, fault), 1.0, 0.5)).collect()
    }

    fn seconds(s: u64) -> ChainStep {
        ChainStep::Retry(std::time::Duration::from_secs(s))
    }

    #[test]
    fn fallback_follows_after_the_last_retry() {
        let steps = steps(&rules(Fallback::DeadLetter), FaultClass::Transient);
        assert_eq!(steps, [seconds(1), seconds(2), seconds(4), ChainStep::Fallback]);
        assert_eq!(rules(Fallback::DeadLetter).attempts_counted(failure("order.events", 3, FaultClass::Transient)), 3);
    }

    #[test]
    fn outage_never_uses_up_the_attempts() {
        let cases = [(4, [1, 2, 2, 4, 4], [1, 2, 2, 3, 999]), (1, [1; 5], [0, 1, 2, 3, 999])];
        for (attempts_max, delays, counts) in cases {
            for fallback in [Fallback::None, Fallback::DeadLetter] {
                let mut rules = rules(fallback);
                rules.retry.attempts_max = attempts_max;
                let outage =
                    |at| PublishFailure { is_outage: true, ..failure("order.events", at, FaultClass::Transient) };
                let step = |attempt| next_step(&rules, outage(attempt), 1.0, 0.5);
                let attempts = [1, 2, 3, 4, 1_000];
                assert_eq!(attempts.map(step), delays.map(seconds));
                assert_eq!(attempts.map(|attempt| rules.attempts_counted(outage(attempt))), counts);
            }
        }
    }

    #[test]
    fn permanent_failure_goes_to_the_fallback_at_once() {
        let steps = steps(&rules(Fallback::DeadLetter), FaultClass::Permanent);
        assert_eq!(steps[0], ChainStep::Fallback);
    }

    #[test]
    fn row_without_a_fallback_is_parked_after_the_last_retry() {
        let steps = steps(&rules(Fallback::None), FaultClass::Transient);
        assert_eq!(steps, [seconds(1), seconds(2), seconds(4), ChainStep::Park(PoisonAction::BlockKey)]);
    }

    #[test]
    fn permanent_failure_of_the_fallback_parks_the_row_by_its_types_rule() {
        let mut rules = rules(Fallback::DeadLetter);
        rules.poison.insert("ORDER_CREATED", PoisonAction::SkipRow);
        let failure = PublishFailure { in_fallback: true, ..failure("order.events", 1, FaultClass::Permanent) };
        assert_eq!(next_step(&rules, failure, 1.0, 0.5), ChainStep::Park(PoisonAction::SkipRow));
    }

    #[test]
    fn row_without_its_payload_is_parked_although_its_type_has_a_fallback() {
        let failure = PublishFailure { has_payload: false, ..failure("order.events", 1, FaultClass::Permanent) };
        assert_eq!(next_step(&rules(Fallback::DeadLetter), failure, 1.0, 0.5), ChainStep::Park(PoisonAction::BlockKey));
    }

    #[test]
    fn topics_rules_come_before_those_of_the_event_type() {
        let mut rules = rules(Fallback::DeadLetter);
        rules.retry_by_topic.insert("invoices".into(), RetryPolicy { attempts_max: 2, ..RetryPolicy::default() });
        rules.fallback.insert_topic("invoices", Fallback::None);
        rules.poison.insert_topic("invoices", PoisonAction::SkipRow);

        let step = |topic, attempt| next_step(&rules, failure(topic, attempt, FaultClass::Transient), 1.0, 0.5);

        assert_eq!([step("invoices", 1), step("invoices", 2)], [seconds(1), ChainStep::Park(PoisonAction::SkipRow)]);
        assert_eq!([step("customers", 2), step("customers", 4)], [seconds(2), ChainStep::Fallback]);
    }
}
