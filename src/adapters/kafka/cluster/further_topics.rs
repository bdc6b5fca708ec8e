//! Topics of other services: created and checked like the installation's own, but none of them decides whether the relay works.
use std::time::{Duration, Instant};

use ports::Error;

use crate::cluster::client::ClusterClient;
use crate::error::may_pass;

/// Interval between two checks of topics that were refused. An operator must act, so a shorter one would only repeat requests.
const REFUSED_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// State of the installation's further topics, in the watcher's thread.
#[derive(Debug, Default)]
pub(crate) struct FurtherTopics {
    /// The last reported refusal.
    refused: Option<String>,
    checked_at: Option<Instant>,
}

impl FurtherTopics {
    /// Whether they were refused and must be checked again.
    pub(crate) fn are_due(&self) -> bool {
        self.refused.is_some() && self.checked_at.is_none_or(|at| at.elapsed() >= REFUSED_CHECK_INTERVAL)
    }

    /// Creates missing topics and checks existing ones. Reports a refusal once, until it changes.
    pub(crate) async fn ensure(&mut self, cluster: &ClusterClient) -> Result<(), Error> {
        let ensured = cluster.ensure_further_topics().await;
        match &ensured {
            Ok(()) => self.refused = None,
            Err(error) if may_pass(error) => {}
            Err(error) => self.report(error),
        }
        self.checked_at = Some(Instant::now());
        ensured
    }

    fn report(&mut self, error: &Error) {
        let reason = Some(error.to_string());
        if self.refused != reason {
            tracing::error!(event = "further_topics_refused", error = %error, "topics of other services are missing: their events wait in the outbox, all others are published: {error}");
            self.refused = reason;
        }
    }
}
