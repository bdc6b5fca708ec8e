//! The processing chain: primary handler → retry → fallback → permanent failure, decided per event type.
use std::collections::HashMap;

use ports::Fault;

use outbox::{RetryDecision, RetryPolicy};

/// What a permanently failed event does to its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Poison {
    /// Later events of the key wait for a human.
    #[default]
    BlockKey,
    /// They go on.
    SkipRow,
}

/// Where an event goes that its primary handler will never take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// Nowhere.
    #[default]
    None,
    /// To `<topic>-dlt`, with the failure in headers.
    DeadLetter,
}

/// The rules of every type; a type without its own has the defaults.
#[derive(Clone, Debug, Default)]
pub struct ChainRules {
    /// How often and when to retry.
    pub retry: RetryPolicy,
    /// Per type name.
    pub poison: HashMap<String, Poison>,
    /// Per type name.
    pub fallback: HashMap<String, Fallback>,
}

/// What becomes of a row that did not go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainStep {
    /// FAILED; due again after this.
    Retry(std::time::Duration),
    /// Hand it to its fallback.
    Fallback,
    /// PARKED.
    Park(Poison),
}

/// One failure as the chain sees it.
#[derive(Clone, Copy, Debug)]
pub struct PublishFailure<'a> {
    /// The event's type.
    pub kind: &'a str,
    /// Which attempt failed, from 1.
    pub attempt: u32,
    /// How.
    pub fault: Fault,
    /// Whether it was the fallback that failed.
    pub in_fallback: bool,
}

/// The next processor of the chain. `throttle` and `chance` as for [`retry::verdict`].
pub fn next_step(rules: &ChainRules, failure: PublishFailure<'_>, throttle: f64, chance: f64) -> ChainStep {
    let decision = rules.retry.decide(failure.attempt, failure.fault, throttle, chance);
    if let RetryDecision::RetryIn(delay) = decision {
        return ChainStep::Retry(delay);
    }
    let fallback = rules.fallback.get(failure.kind).copied().unwrap_or_default();
    if fallback == Fallback::DeadLetter && !failure.in_fallback {
        return ChainStep::Fallback;
    }
    ChainStep::Park(rules.poison.get(failure.kind).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seed's examples allow three retries: four attempts.
    fn rules(fallback: Fallback) -> ChainRules {
        ChainRules {
            retry: RetryPolicy { attempts_max: 4, ..RetryPolicy::default() },
            fallback: HashMap::from([("ORDER_CREATED".to_owned(), fallback)]),
            poison: HashMap::new(),
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
    fn scenario_1_retries_are_used_up_and_the_fallback_takes_it() {
        let steps = steps(&rules(Fallback::DeadLetter), Fault::Transient);
        assert_eq!(steps, [seconds(1), seconds(2), seconds(4), ChainStep::Fallback]);
    }

    #[test]
    fn scenario_2_what_no_retry_mends_goes_to_the_fallback_at_once() {
        let steps = steps(&rules(Fallback::DeadLetter), Fault::Permanent);
        assert_eq!(steps[0], ChainStep::Fallback);
    }

    #[test]
    fn scenario_3_without_a_fallback_it_fails_for_good() {
        let steps = steps(&rules(Fallback::None), Fault::Transient);
        assert_eq!(steps, [seconds(1), seconds(2), seconds(4), ChainStep::Park(Poison::BlockKey)]);
    }

    #[test]
    fn a_fallback_that_fails_for_good_parks_and_the_type_says_how() {
        let mut rules = rules(Fallback::DeadLetter);
        rules.poison.insert("ORDER_CREATED".to_owned(), Poison::SkipRow);
        let failure = PublishFailure { kind: "ORDER_CREATED", attempt: 1, fault: Fault::Permanent, in_fallback: true };
        assert_eq!(next_step(&rules, failure, 1.0, 0.5), ChainStep::Park(Poison::SkipRow));
    }
}
