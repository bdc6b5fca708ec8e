//! Counts duplicates, order violations and missing events in the event topic.
use std::collections::{HashMap, HashSet};

use ports::broker::consumer_groups::Delivery;
use serde_json::{Value, json};

use crate::error::Error;
use crate::program::ThrowawayData;

const PAGE_RECORDS_MAX: u32 = 1_000;

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
    let mut report = TopicReport::default();
    let (mut seen, mut last) = (HashSet::new(), HashMap::new());
    for_each_record(data, |delivery| report.count(delivery, &mut seen, &mut last)).await?;
    report.missing = expected.saturating_sub(seen.len() as u64);
    Ok(report)
}

/// Reads the whole event topic, while the service is stopped: one partition after the other, each in its order.
pub(crate) async fn for_each_record(data: &impl ThrowawayData, mut visit: impl FnMut(&Delivery)) -> Result<(), Error> {
    let (topics, topic) = (data.topics().await?, data.topic());
    for view in topics.list().await?.iter().filter(|view| view.name == topic) {
        for (partition, (first, next)) in (0..).zip(&view.partitions) {
            let mut at = *first;
            while at < *next {
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

    fn count(&mut self, delivery: &Delivery, seen: &mut HashSet<Vec<u8>>, last: &mut HashMap<String, u64>) {
        let header = |name: &str| delivery.record.header(name).map(<[u8]>::to_vec);
        self.events += 1;
        if !seen.insert(header("ce_id").unwrap_or_default()) {
            self.duplicates += 1;
        }
        let text = header("x-sequence").and_then(|value| String::from_utf8(value).ok());
        let sequence = text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let before = last.insert(delivery.record.key.to_string(), sequence).unwrap_or(0);
        if sequence != before + 1 {
            self.order_violations += 1;
        }
    }
}
