//! The dead letters that wait to be sent back, as `top` shows them. A count reads the dead-letter topics, so it is kept for some frames.
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::running_service::RunningService;

/// Time for which a count is kept, as the console keeps its own.
const KEPT: Duration = Duration::from_secs(10);
/// Most dead letters that are counted in each topic.
const COUNT_MAX: u32 = 1_000;
/// Longest count: the next frame must not wait for a broker that does not answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The dead letters of all topics that were not sent back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeadLetterSum {
    pub(super) waiting: u64,
    /// Whether there are more than were counted.
    pub(super) more: bool,
}

/// The last count and its time.
pub(super) struct DeadLetterCounter {
    /// The topics of other services; that of the orders is always counted.
    topics: Vec<String>,
    counted: Option<(Instant, Option<DeadLetterSum>)>,
}

impl DeadLetterCounter {
    pub(super) fn new(topics: Vec<String>) -> Self {
        Self { topics, counted: None }
    }

    /// The count; `None` without a broker, or where it failed or took too long: the other numbers are shown without it.
    pub(super) async fn sum(&mut self, service: &RunningService<'_>) -> Option<DeadLetterSum> {
        if let Some((_, sum)) = self.counted.filter(|(at, _)| at.elapsed() < KEPT) {
            return sum;
        }
        // A dry run changes nothing, so it may be dropped at any point.
        let sum = tokio::time::timeout(TIMEOUT, count(service, &self.topics)).await.ok().flatten();
        self.counted = Some((Instant::now(), sum));
        sum
    }
}

async fn count(service: &RunningService<'_>, topics: &[String]) -> Option<DeadLetterSum> {
    let dry_run = async |path: &str| {
        let body = json!({"dryRun": true, "limit": COUNT_MAX});
        service.send("POST", path, Some(body)).await.ok()
    };
    let mut sum = DeadLetterSum::default().with(&dry_run("/admin/dlt/redrive").await?);
    for topic in topics {
        match dry_run(&format!("/admin/dlt/redrive?topic={topic}")).await {
            Some(report) => sum = sum.with(&report),
            // The service may be configured with other topics than this command.
            None => sum.more = true,
        }
    }
    Some(sum)
}

impl DeadLetterSum {
    /// With the dead letters that the dry run of a redrive reports.
    fn with(self, report: &Value) -> Self {
        Self {
            waiting: self.waiting + report["matched"].as_u64().unwrap_or_default(),
            more: self.more || !report["next"].is_null(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dry_runs_of_all_topics_are_added() {
        let sum = DeadLetterSum::default().with(&json!({"matched": 2, "next": null}));
        assert_eq!(sum, DeadLetterSum { waiting: 2, more: false });
        let sum = sum.with(&json!({"matched": 1_000, "next": "3/17"})).with(&json!({"matched": 1, "next": null}));
        assert_eq!(sum, DeadLetterSum { waiting: 1_003, more: true });
    }
}
