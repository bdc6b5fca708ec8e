//! The dead letters of every topic that the service publishes to: that of the orders, and those of other services.
use futures::future::try_join_all;

use super::dead_letters::{DeadLetterFilter, DeadLetters};
use crate::error::QueryError;

/// Operator actions on the dead letters of several topics, each topic by itself. Errors and cancellation are those of [`DeadLetters`].
pub struct DeadLettersByTopic {
    of_orders: DeadLetters,
    of_others: Vec<DeadLetters>,
    /// Those of all webhooks, which are listed and redriven for each webhook by itself.
    of_webhooks: Option<DeadLetters>,
}

/// The service publishes to no topic of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no dead letters are kept for topic {topic}; topics with dead letters: {}", .known.join(", "))]
pub struct UnknownTopic {
    /// The name that was asked for.
    pub topic: String,
    /// Full names of the topics, that of the orders first.
    pub known: Vec<String>,
}

/// Number of dead letters of one topic that were not redriven yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingDeadLetters {
    /// Full name of the topic.
    pub topic: String,
    /// The number, as far as they were counted.
    pub waiting: u64,
    /// Whether there may be more.
    pub more: bool,
}

impl DeadLettersByTopic {
    /// The dead letters of the orders' topic and of `others`, which are full names.
    pub fn new(of_orders: DeadLetters, others: &[String]) -> Self {
        let of_others = others.iter().filter(|topic| ***topic != *of_orders.topic());
        let of_others = of_others.map(|topic| of_orders.clone().for_topic(topic)).collect();
        Self { of_orders, of_others, of_webhooks: None }
    }

    /// Counts the dead letters of webhooks too. `base` is the full name of the topic that they share, without `-dlt`.
    #[must_use]
    pub fn with_webhooks(self, base: &str) -> Self {
        Self { of_webhooks: Some(self.of_orders.clone().for_topic(base)), ..self }
    }

    /// The dead letters of a topic; `None` is the topic of the orders.
    ///
    /// # Errors
    /// The service publishes to no such topic, so it must not redrive to it.
    pub fn for_topic(&self, topic: Option<&str>) -> Result<&DeadLetters, UnknownTopic> {
        let Some(topic) = topic else { return Ok(&self.of_orders) };
        let unknown = || UnknownTopic { topic: topic.to_owned(), known: self.topics().map(str::to_owned).collect() };
        self.all().find(|dead_letters| dead_letters.topic() == topic).ok_or_else(unknown)
    }

    /// Whether there are topics of other services.
    pub fn has_others(&self) -> bool {
        !self.of_others.is_empty()
    }

    /// Full names of the topics, that of the orders first.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.all().map(DeadLetters::topic)
    }

    /// Counts the dead letters that were not redriven yet, at most `limit` of each topic. Omits topics without any.
    pub async fn waiting(&self, limit: u32) -> Result<Vec<WaitingDeadLetters>, QueryError> {
        self.waiting_of(self.all(), limit).await
    }

    /// Counts the dead letters of all webhooks that were not redriven yet, at most `limit`; `None` without any.
    pub async fn waiting_of_webhooks(&self, limit: u32) -> Result<Option<WaitingDeadLetters>, QueryError> {
        Ok(self.waiting_of(self.of_webhooks.iter(), limit).await?.pop())
    }

    async fn waiting_of(
        &self,
        topics: impl Iterator<Item = &DeadLetters>,
        limit: u32,
    ) -> Result<Vec<WaitingDeadLetters>, QueryError> {
        let existing = self.of_orders.existing_topics().await?;
        let counts = topics.filter(|dead_letters| dead_letters.has_records(&existing)).map(async |dead_letters| {
            let report = dead_letters.count(&DeadLetterFilter::default(), limit).await?;
            let (topic, waiting, more) = (dead_letters.topic().to_owned(), report.matched, report.next.is_some());
            Ok::<_, QueryError>(WaitingDeadLetters { topic, waiting, more })
        });
        let counts = try_join_all(counts).await?;
        Ok(counts.into_iter().filter(|count| count.waiting > 0 || count.more).collect())
    }

    fn all(&self) -> impl Iterator<Item = &DeadLetters> {
        std::iter::once(&self.of_orders).chain(&self.of_others)
    }
}
