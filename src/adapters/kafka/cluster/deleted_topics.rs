//! Topics of the installation that were deleted while the service runs: all but the watermark topic are created again.
use std::time::{Duration, Instant};

use ports::Error;

use crate::cluster::client::ClusterClient;
use crate::options::DeliveryGuarantee;

/// Time in which each topic is checked once.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// When to check whether topics of the relay were deleted, and which. One check is for one topic, in turn: the probes wait for it, and a slow
/// broker may take long for each topic.
#[derive(Debug)]
pub(crate) struct DeletionChecks {
    topics: Vec<String>,
    /// When to check next; `None` until all topics have existed once.
    next_at: Option<Instant>,
    /// Index of the topic that is next.
    next: usize,
    /// Whether the next check is for all topics, because a probe has failed.
    is_for_all: bool,
    /// The topic that the last check found missing, until all topics exist.
    missing: Option<String>,
}

impl DeletionChecks {
    /// Checks these topics, at least one.
    pub(crate) fn new(topics: Vec<String>) -> Self {
        Self { topics, next_at: None, next: 0, is_for_all: false, missing: None }
    }

    /// Whether all topics have existed once.
    pub(crate) fn have_begun(&self) -> bool {
        self.next_at.is_some()
    }

    /// The topic that the last check found missing.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// Records that all topics exist.
    pub(crate) fn record_ready(&mut self, now: Instant) {
        self.missing = None;
        self.schedule(now);
    }

    /// Makes the next check follow at once, for all topics.
    pub(crate) fn check_all(&mut self, now: Instant) {
        (self.next_at, self.is_for_all) = (Some(now), true);
    }

    /// The topics to check now; none if it is not time.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<String> {
        if self.next_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        if std::mem::take(&mut self.is_for_all) {
            return self.topics.clone();
        }
        let topic = self.missing.clone().unwrap_or_else(|| {
            self.next = (self.next + 1) % self.topics.len();
            self.topics[self.next].clone()
        });
        vec![topic]
    }

    /// Records the result of a check: the topic that it found missing.
    pub(crate) fn record(&mut self, missing: Option<String>, now: Instant) {
        self.missing = missing;
        self.schedule(now);
    }

    fn schedule(&mut self, now: Instant) {
        self.next_at = Some(now + CHECK_INTERVAL / self.topics.len() as u32);
    }
}

impl ClusterClient {
    /// The first of these topics that the cluster does not have.
    pub(crate) fn missing_topic(&self, names: &[String]) -> Result<Option<String>, Error> {
        for name in names {
            if self.topic_layout(name)?.is_none() {
                return Ok(Some(name.clone()));
            }
        }
        Ok(None)
    }

    /// Ensures the topics without which the relay cannot work, after all of them existed. A watermark topic that was deleted is not created:
    /// a batch that was published and is still open would look unpublished, and would be published twice.
    ///
    /// # Errors
    /// As `ensure_topics`; [`Error::Broken`] also where the watermark topic was deleted.
    pub(crate) async fn restore_own_topics(&self) -> Result<(), Error> {
        let names = self.options.own_topics();
        if self.options.guarantee != DeliveryGuarantee::ExactlyOnce || !self.has_any_topic()? {
            return self.ensure_topics(&names).await;
        }
        let watermarks = self.options.watermark_topic();
        let others: Vec<String> = names.into_iter().filter(|name| *name != watermarks).collect();
        self.ensure_topics(&others).await?;
        if let Some(layout) = self.topic_layout(&watermarks)? {
            return self.check_topic(&watermarks, &layout).await;
        }
        let command = self.creation_command(&watermarks, self.broker_ids()?.len());
        Err(Error::Broken(format!(
            "topic {watermarks} was deleted, and a running service does not create it again: without its watermarks, a batch that was published and is still open is published once more. Compare the events that are IN_FLIGHT with their topics; then run {command} and restart all instances, which register their transactional ids in it"
        )))
    }

    /// Whether the cluster has a topic of the installation. One with none of them is another cluster, or one that has lost all records: its
    /// watermarks decide nothing.
    fn has_any_topic(&self) -> Result<bool, Error> {
        for name in self.options.all_topics() {
            if self.topic_layout(&name)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(topics: &[&str]) -> Vec<String> {
        topics.iter().map(|topic| (*topic).to_owned()).collect()
    }

    #[test]
    fn each_check_is_for_one_topic_and_ten_seconds_are_for_all() {
        let (mut checks, start) = (DeletionChecks::new(names(&["a", "b", "c", "d"])), Instant::now());
        assert_eq!(checks.due(start), names(&[]), "they have never existed");
        checks.record_ready(start);

        let mut seen = Vec::new();
        for millis in (0..=10_000).step_by(500) {
            let now = start + Duration::from_millis(millis);
            let due = checks.due(now);
            assert!(due.len() <= 1, "{due:?}");
            if !due.is_empty() {
                checks.record(None, now);
            }
            seen.extend(due);
        }

        seen.sort();
        assert_eq!(seen, names(&["a", "b", "c", "d"]));
    }

    #[test]
    fn missing_topic_is_checked_until_it_is_back() {
        let (mut checks, start) = (DeletionChecks::new(names(&["a", "b"])), Instant::now());
        checks.check_all(start);
        assert_eq!(checks.due(start), names(&["a", "b"]));
        checks.record(Some("a".into()), start);

        let later = start + CHECK_INTERVAL;
        assert_eq!((checks.due(later), checks.missing()), (names(&["a"]), Some("a")));
        checks.record(Some("a".into()), later);
        checks.record_ready(later);

        assert_eq!((checks.due(later), checks.missing()), (names(&[]), None));
    }
}
