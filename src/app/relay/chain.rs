//! What happens to a row that was not published: retry, then its type's fallback, then parking. Decided per event type.
use serde::Deserialize;
use std::collections::HashMap;

use ports::Fault;

use outbox::{Poison, PoisonPolicy, RetryDecision, RetryPolicy};

/// Where an event goes when its topic will not accept it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fallback {
    /// The row is parked.
    #[default]
    None,
    /// The record is sent to `<topic>-dlt`, with the failure in headers.
    DeadLetter,
}

/// The rules of every event type; a type without an entry has the defaults.
#[derive(Clone, Debug, Default)]
pub struct ChainRules {
    /// Number of attempts and their delays.
    pub retry: RetryPolicy,
    /// Effect of a parked row, by event type.
    pub poison: PoisonPolicy,
    /// Fallback, by event type.
    pub fallback: HashMap<String, Fallback>,
}

/// Next step for a row that was not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainStep {
    /// The row becomes FAILED and is due again after this delay.
    Retry(std::time::Duration),
    /// The record is sent to its fallback.
    Fallback,
    /// The row becomes PARKED.
    Park(Poison),
}

/// One failed attempt to publish a row.
#[derive(Clone, Copy, Debug)]
pub struct PublishFailure<'a> {
    /// Event type of the row.
    pub kind: &'a str,
    /// Number of the failed attempt, from 1.
    pub attempt: u32,
    /// Fault class of the failure.
    pub fault: Fault,
    /// Whether the fallback failed, not the row's own topic.
    pub in_fallback: bool,
}

/// Decides the next step. `throttle` and `chance` are those of [`RetryPolicy::decide`].
pub fn next_step(rules: &ChainRules, failure: PublishFailure<'_>, throttle: f64, chance: f64) -> ChainStep {
    let decision = rules.retry.decide(failure.attempt, failure.fault, throttle, chance);
    if let RetryDecision::RetryIn(delay) = decision {
        return ChainStep::Retry(delay);
    }
    let fallback = rules.fallback.get(failure.kind).copied().unwrap_or_default();
    if fallback == Fallback::DeadLetter && !failure.in_fallback {
        return ChainStep::Fallback;
    }
    ChainStep::Park(rules.poison.of(failure.kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four attempts: three retries.
    fn rules(fallback: Fallback) -> ChainRules {
        ChainRules {
            retry: RetryPolicy { attempts_max: 4, ..RetryPolicy::default() },
            fallback: HashMap::from([("ORDER_CREATED".to_owned(), fallback)]),
            poison: PoisonPolicy::default(),
        }
    }

    fn steps(rules: &ChainRules, fault: Fault) -> Vec<ChainStep> {
        (1..=4)
            .map(|attempt| {
                next_step(rules, PublishFailure { kind: "ORDER_CREATED", attempt, fault, in_fallback: false }, 1.0, 0.5)
            })
            .collect()
    }

    fn seconds(s: u64) -> ChainStep {
        ChainStep::Retry(std::time::Duration::from_secs(s))
    }

    #[test]
    fn fallback_follows_after_the_last_retry() {
        let steps = steps(&rules(Fallback::DeadLetter), Fault::Transient);
        assert_eq!(steps, [seconds(1), seconds(2), seconds(4), ChainStep::Fallback]);
    }

    #[test]
    fn permanent_failure_goes_to_the_fallback_at_once() {
        let steps = steps(&rules(Fallback::DeadLetter), Fault::Permanent);
        assert_eq!(steps[0], ChainStep::Fallback);
    }

    #[test]
    fn row_without_a_fallback_is_parked_after_the_last_retry() {
        let steps = steps(&rules(Fallback::None), Fault::Transient);
        assert_eq!(steps, [seconds(1), seconds(2), seconds(4), ChainStep::Park(Poison::BlockKey)]);
    }

    #[test]
    fn permanent_failure_of_the_fallback_parks_the_row_by_its_types_rule() {
        let mut rules = rules(Fallback::DeadLetter);
        rules.poison.insert("ORDER_CREATED", Poison::SkipRow);
        let failure = PublishFailure { kind: "ORDER_CREATED", attempt: 1, fault: Fault::Permanent, in_fallback: true };
        assert_eq!(next_step(&rules, failure, 1.0, 0.5), ChainStep::Park(Poison::SkipRow));
    }
}
