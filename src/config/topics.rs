//! `[topics.NAME]`: the rules of single topics, and the consumers that send their events to a URL.
use std::time::Duration;

use app::consume::chain::PoisonMessageAction;
use app::relay::chain::Fallback;
use outbox::topics::{all_topics, dead_letter_topic};
use outbox::{PoisonAction, RetryPolicy};
use secrecy::SecretString;
use serde::Deserialize;

use super::consumer::FallbackKind;

/// The rules of one topic. An absent rule is that of the key that `config/default.toml` names.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicSettings {
    pub partitions: Option<u32>,
    pub attempts_max: Option<u32>,
    pub retry_base: Option<Duration>,
    pub retry_max: Option<Duration>,
    pub retry_jitter: Option<f64>,
    pub poison: Option<PoisonAction>,
    pub fallback: Option<Fallback>,
    pub consumers: u32,
    pub consumer_url: SecretString,
    pub consumer_attempts_max: u32,
    pub consumer_fallback: FallbackKind,
    pub consumer_fallback_url: SecretString,
    pub consumer_poison: PoisonMessageAction,
}

impl TopicSettings {
    /// The topic itself, and its retry topics and dead letters where its rules use them.
    pub(super) fn topics(&self, name: &str) -> Vec<String> {
        if self.consumers > 0 {
            return all_topics(name);
        }
        let dead_letters = (self.fallback == Some(Fallback::DeadLetter)).then(|| dead_letter_topic(name));
        std::iter::once(name.to_owned()).chain(dead_letters).collect()
    }

    /// Attempts and delays, those of `outbox.retry` where the topic has none; `None` where it has none at all.
    pub(super) fn retry(&self, default: &RetryPolicy) -> Option<RetryPolicy> {
        let set = self.attempts_max.is_some() || self.retry_jitter.is_some();
        (set || self.retry_base.is_some() || self.retry_max.is_some()).then(|| RetryPolicy {
            attempts_max: self.attempts_max.unwrap_or(default.attempts_max),
            base: self.retry_base.unwrap_or(default.base),
            max: self.retry_max.unwrap_or(default.max),
            jitter: self.retry_jitter.unwrap_or(default.jitter),
        })
    }
}
