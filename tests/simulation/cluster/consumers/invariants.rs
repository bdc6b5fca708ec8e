//! The invariants of the consumers at the end of a run: the topic against the inbox and the dead letters.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::{EventId, OrderId};
use outbox::topics::{consumed_topics, dead_letter_topic};
use ports::broker::consumer_groups::ConsumerRecord;
use ports::inbox::Inbox;

use crate::cluster::instance::ClusterContext;
use crate::cluster::invariants::Violation;
use crate::cluster::kafka::groups::coordinator::partitions_of;
use crate::support::consumption::Consumption;
use crate::support::process::{GROUP, TOPIC};
use crate::support::record_faults::header;

/// The consumers of a run.
pub struct ConsumerInvariants<'a>(pub &'a ClusterContext);

impl ConsumerInvariants<'_> {
    /// The partitions with messages that the group has not acknowledged, each with their number.
    pub fn remaining(&self) -> Vec<(String, u64)> {
        let kafka = &self.0.kafka;
        let topics: Vec<Arc<str>> = consumed_topics(TOPIC).into_iter().map(Arc::from).collect();
        let left = partitions_of(&topics).map(|one| {
            let messages = kafka.visible_from(&one, kafka.coordinator().committed(GROUP, &one));
            (format!("{}-{}", one.0, one.1), messages)
        });
        left.filter(|(_, messages)| *messages > 0).collect()
    }

    /// What the consumers have not acknowledged, for the message of a failed run.
    pub fn remaining_work(&self) -> Violation {
        format!("undecided transactions: {}, not consumed: {:?}", !self.0.kafka.is_decided(), self.remaining())
    }

    /// Each event of the topic is applied once or is a dead letter, as its handler demands, and the effects of a key are those of its last
    /// applied event. Only a store that was rewound may apply an event again, and then in another order.
    pub async fn check(&self) -> Result<(), Violation> {
        let (published, dead_letters) = (self.0.kafka.read(TOPIC), self.0.kafka.read(&dead_letter_topic(TOPIC)));
        let applied = self.applied_events()?;
        let consumption = Consumption { published: &published, dead_letters: &dead_letters, applied: &applied };
        consumption.check_once()?;
        self.check_causes(&dead_letters)?;
        if self.0.postgres.fail_overs() == 0 && self.0.handler.is_ordered() {
            consumption.check_order()?;
            self.check_effects(&published, &applied).await?;
        }
        Ok(())
    }

    /// The ids of the applied events in their order. An event that a lost timeline had applied too is named once.
    fn applied_events(&self) -> Result<Vec<String>, Violation> {
        let (mut timelines, mut all) = (BTreeSet::new(), Vec::new());
        for applied in self.0.postgres.applied_events() {
            let event = applied.event_id.to_string();
            if !timelines.insert((applied.timeline, event.clone())) {
                return Err(format!("event {event} was applied twice"));
            }
            if !all.contains(&event) {
                all.push(event);
            }
        }
        Ok(all)
    }

    fn check_causes(&self, dead_letters: &[ConsumerRecord]) -> Result<(), Violation> {
        for message in dead_letters {
            let event = header(&message.record, "ce_id");
            let id = EventId::parse(&event).ok_or_else(|| format!("a dead letter has the event id {event:?}"))?;
            if !self.0.handler.plan(id).is_dead_letter() {
                return Err(format!("event {event} is a dead letter although its handler accepts it"));
            }
        }
        Ok(())
    }

    /// The stamp of each order is that of its last applied event: an event and its effects commit together.
    async fn check_effects(&self, published: &[ConsumerRecord], applied: &[String]) -> Result<(), Violation> {
        let records = published.iter().map(|message| (header(&message.record, "ce_id"), &message.record));
        let records: BTreeMap<String, _> = records.collect();
        let mut last: BTreeMap<&str, i64> = BTreeMap::new();
        for record in applied.iter().filter_map(|event| records.get(event)) {
            let sequence: i64 = header(record, "x-sequence").parse().expect("a sequence is a number");
            last.insert(&record.key, sequence - 1);
        }
        for (key, version) in last {
            let order = OrderId::parse(key).ok_or_else(|| format!("a record has the key {key:?}"))?;
            let stamp = self.0.postgres.data().remote(order).await.expect("the reference answers");
            if stamp.as_ref().map(|stamp| stamp.hlc.millis) != Some(version) {
                return Err(format!("key {key}: its last event has version {version}, its effect is {stamp:?}"));
            }
        }
        Ok(())
    }
}
