//! Counts what the log holds: every answered order's event once, each key's in order and without a gap.
use std::collections::{HashMap, HashSet};

use ports::source::Delivery;
use posthaste::Config;
use serde_json::{Value, json};

use super::super::failure::Failure;

/// What was counted.
#[derive(Default)]
pub(super) struct Checked {
    pub events: u64,
    pub duplicates: u64,
    pub order_violations: u64,
    pub missing: u64,
}

pub(super) async fn check(config: &Config, expected: u64) -> Result<Checked, Failure> {
    let topics = posthaste::beside(config).await?.topics.ok_or_else(|| Failure::new("there is no broker"))?;
    let mut checked = Checked::default();
    let (mut seen, mut last) = (HashSet::new(), HashMap::new());
    let views = topics.list().await.map_err(Failure::new)?;
    for view in views.iter().filter(|view| view.name == config.topic()) {
        for (partition, (first, next)) in (0..).zip(&view.partitions) {
            let mut at = *first;
            while at < *next {
                let page = topics.read(&view.name, partition, at, 1_000).await.map_err(Failure::new)?;
                let Some(end) = page.last() else { break };
                at = end.position.offset + 1;
                page.iter().for_each(|delivery| checked.count(delivery, &mut seen, &mut last));
            }
        }
    }
    checked.missing = expected.saturating_sub(seen.len() as u64);
    Ok(checked)
}

impl Checked {
    pub(super) fn add(&mut self, other: &Checked) {
        self.events += other.events;
        self.duplicates += other.duplicates;
        self.order_violations += other.order_violations;
        self.missing += other.missing;
    }

    pub(super) fn json(&self) -> Value {
        json!({"events": self.events, "duplicates": self.duplicates, "order_violations": self.order_violations, "missing": self.missing})
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
