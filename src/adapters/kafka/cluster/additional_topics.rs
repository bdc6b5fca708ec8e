//! Topics of other services: created and checked like the installation's own, but none of them decides whether the relay works.
use std::time::{Duration, Instant};

use ports::Error;
use tokio::sync::watch;

use crate::cluster::client::ClusterClient;
use crate::cluster::topic_failures::TopicFailures;
use crate::error::is_temporary;

/// Interval between two checks of topics that are incomplete. Most often an operator must act, so a shorter one would only repeat requests.
const INCOMPLETE_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The state of the installation's additional topics: those of other services, to which it publishes. Belongs to the watcher's thread.
#[derive(Debug)]
pub(crate) struct AdditionalTopics {
    /// The result of the last check. A member of a group that reads a failed topic does not join.
    failures: watch::Sender<TopicFailures>,
    /// The last reported refusal.
    reported: Option<String>,
    is_incomplete: bool,
    checked_at: Option<Instant>,
}

impl AdditionalTopics {
    pub(crate) fn new(failures: watch::Sender<TopicFailures>) -> Self {
        Self { failures, reported: None, is_incomplete: false, checked_at: None }
    }

    /// Whether the last check has failed and is to be repeated now, after a permanent error too.
    pub(crate) fn are_due(&self) -> bool {
        self.is_incomplete && self.checked_at.is_none_or(|checked_at| checked_at.elapsed() >= INCOMPLETE_CHECK_INTERVAL)
    }

    /// Creates missing topics and checks existing ones. Reports a refusal once, until it changes.
    pub(crate) async fn ensure(&mut self, cluster: &ClusterClient) -> Result<(), Error> {
        let failures = cluster.ensure_additional_topics().await;
        let ensured = failures.result();
        match &ensured {
            Ok(()) => self.reported = None,
            Err(error) if is_temporary(error) => {}
            Err(error) => self.report(error),
        }
        self.failures.send_replace(failures);
        self.is_incomplete = ensured.is_err();
        self.checked_at = Some(Instant::now());
        ensured
    }

    fn report(&mut self, error: &Error) {
        let reason = Some(error.to_string());
        if self.reported != reason {
            tracing::error!(event = "further_topics_refused", error = %error, "topics of other services are missing: their events wait in the outbox, all others are published: {error}");
            self.reported = reason;
        }
    }
}
