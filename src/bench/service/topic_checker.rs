//! Counts duplicates, order violations and missing events in the event topic.
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use ports::broker::consumer_groups::ConsumerRecord;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::error::Error;
use crate::program::ThrowawayData;

const PAGE_RECORDS_MAX: u32 = 1_000;
/// Longest wait for the markers of committed transactions: a broker that has just restarted needs some seconds.
const MARKERS_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause before a topic is read again.
const REPEAT_PAUSE: Duration = Duration::from_millis(500);

/// Counts over all partitions of the topic.
#[derive(Default)]
pub(crate) struct TopicReport {
    pub events: u64,
    pub duplicates: u64,
    pub order_violations: u64,
    pub missing: u64,
}

/// Reads the whole topic; `expected` is the number of events that must be in it.
pub(crate) async fn check_topic(data: &impl ThrowawayData, expected: u64) -> Result<TopicReport, Error> {
    let read = async || {
        let mut report = TopicReport::default();
        let (mut seen, mut last) = (HashSet::new(), HashMap::new());
        for_each_record(data, &data.topic(), |message| report.count(message, &mut seen, &mut last)).await?;
        report.missing = expected.saturating_sub(seen.len() as u64);
        Ok(report)
    };
    read_until_complete(read, |report| report.missing == 0).await
}

/// Reads again until the result is complete, for at most [`MARKERS_TIMEOUT`], and returns the last result. A broker acknowledges a commit before it
/// writes the markers that make the records visible, and a read ends before the first record without its marker.
pub(crate) async fn read_until_complete<T>(
    read: impl AsyncFn() -> Result<T, Error>,
    is_complete: impl Fn(&T) -> bool,
) -> Result<T, Error> {
    let started = Instant::now();
    loop {
        let result = read().await?;
        if is_complete(&result) || started.elapsed() > MARKERS_TIMEOUT {
            return Ok(result);
        }
        tokio::time::sleep(REPEAT_PAUSE).await;
    }
}

/// Reads a whole topic, while the service is stopped: one partition after the other, each in its order.
pub(crate) async fn for_each_record(
    data: &impl ThrowawayData,
    topic: &str,
    mut visit: impl FnMut(&ConsumerRecord),
) -> Result<(), Error> {
    let topics = data.topics().await?;
    for view in topics.list().await?.iter().filter(|view| view.name == topic) {
        for (partition, kept) in (0..).zip(&view.partitions) {
            let mut at = kept.start;
            while at < kept.end {
                let page = topics.read(&view.name, partition, at, PAGE_RECORDS_MAX).await?;
                let Some(end) = page.last() else { break };
                at = end.position.offset + 1;
                page.iter().for_each(&mut visit);
            }
        }
    }
    Ok(())
}

impl TopicReport {
    pub(crate) fn add(&mut self, other: &TopicReport) {
        self.events += other.events;
        self.duplicates += other.duplicates;
        self.order_violations += other.order_violations;
        self.missing += other.missing;
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "events": self.events, "duplicates": self.duplicates, "orderViolations": self.order_violations, "missing": self.missing,
        })
    }

    fn count(&mut self, message: &ConsumerRecord, seen: &mut HashSet<Vec<u8>>, last: &mut HashMap<String, u64>) {
        let header = |name: &str| message.record.header(name).map(<[u8]>::to_vec);
        self.events += 1;
        if !seen.insert(header("ce_id").unwrap_or_default()) {
            self.duplicates += 1;
        }
        let text = header("x-sequence").and_then(|value| String::from_utf8(value).ok());
        let sequence = text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let before = last.insert(message.record.key.to_string(), sequence).unwrap_or(0);
        if sequence != before + 1 {
            self.order_violations += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn topic_is_read_again_until_no_event_is_missing() {
        let missing = Cell::new(3_u64);
        let read = async || Ok(missing.replace(missing.get().saturating_sub(1)));

        let result = read_until_complete(read, |missing| *missing == 0).await;

        assert_eq!(result.expect("read"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn events_that_stay_missing_are_reported() {
        let started = Instant::now();

        let result = read_until_complete(async || Ok(2_u64), |missing| *missing == 0).await;

        assert_eq!(result.expect("read"), 2);
        assert!(
            started.elapsed() > MARKERS_TIMEOUT && started.elapsed() < 2 * MARKERS_TIMEOUT,
            "{:?}",
            started.elapsed()
        );
    }
}
