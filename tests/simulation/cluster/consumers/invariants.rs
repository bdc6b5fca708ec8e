//! The invariants of the consumers at the end of a run: the topic against the inbox and the dead letters.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::{EventId, OrderId};
use outbox::topics::{consumed_topics, dead_letter_topic};
use ports::broker::Record;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::inbox::{Inbox, RemoteStamp};

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

    /// The messages that the consumers have not acknowledged, for the message of a failed run.
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
        check_causes(&dead_letters, |event| self.0.handler.plan(event).is_dead_letter())?;
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

    /// The stamp of each order is that of its last applied event: an event and its effects commit together.
    async fn check_effects(&self, published: &[ConsumerRecord], applied: &[String]) -> Result<(), Violation> {
        for (key, version) in last_versions(published, applied) {
            let order = OrderId::parse(key).ok_or_else(|| format!("a record has the key {key:?}"))?;
            let stamp = self.0.postgres.data().remote_stamp(order).await.expect("the reference answers");
            check_effect(key, version, stamp.as_ref())?;
        }
        Ok(())
    }
}

/// No event is a dead letter although its handler accepts it.
fn check_causes(dead_letters: &[ConsumerRecord], is_rejected: impl Fn(EventId) -> bool) -> Result<(), Violation> {
    for message in dead_letters {
        let event = header(&message.record, "ce_id");
        let id = EventId::parse(&event).ok_or_else(|| format!("a dead letter has the event id {event:?}"))?;
        if !is_rejected(id) {
            return Err(format!("event {event} is a dead letter although its handler accepts it"));
        }
    }
    Ok(())
}

/// The version of each key's last applied event.
fn last_versions<'a>(published: &'a [ConsumerRecord], applied: &[String]) -> BTreeMap<&'a str, i64> {
    let records = published.iter().map(|message| (header(&message.record, "ce_id"), &message.record));
    let records: BTreeMap<String, _> = records.collect();
    let version = |record: &&'a Record| {
        let record: &'a Record = record;
        let sequence: i64 = header(record, "x-sequence").parse().expect("a sequence is a number");
        (&*record.key, sequence - 1)
    };
    // Of two events with one key the later one counts.
    applied.iter().filter_map(|event| records.get(event)).map(version).collect()
}

fn check_effect(key: &str, version: i64, stamp: Option<&RemoteStamp>) -> Result<(), Violation> {
    if stamp.map(|stamp| stamp.hlc.millis) == Some(version) {
        return Ok(());
    }
    Err(format!("key {key}: its last event has version {version}, its effect is {stamp:?}"))
}

#[cfg(test)]
mod tests {
    use domain::{Hlc, RegionId};
    use kit::Factory;
    use ports::broker::Position;

    use super::*;

    fn message(key: &str, number: u8, sequence: u64) -> ConsumerRecord {
        let mut record = Factory::seeded(1, TOPIC.into()).record(key, "v");
        let (id, sequence) = (event(number), sequence.to_string());
        record.headers = [("ce_id", &id), ("x-sequence", &sequence)].into_iter().collect();
        ConsumerRecord { position: Position { topic: TOPIC.into(), partition: 0, offset: u64::from(number) }, record }
    }

    fn event(number: u8) -> String {
        EventId::from_bytes([number; 16]).to_string()
    }

    #[test]
    fn dead_letter_of_an_accepting_handler_is_found() {
        let dead_letters = [message("a", 1, 1), message("b", 2, 1)];
        let check = |rejected: &[u8]| {
            check_causes(&dead_letters, |id| rejected.iter().any(|number| id == EventId::from_bytes([*number; 16])))
        };

        assert_eq!(check(&[1, 2]), Ok(()));
        assert!(check(&[1]).unwrap_err().contains("is a dead letter although"));
        let mut without_id = dead_letters[0].clone();
        without_id.record.headers.clear();
        assert!(check_causes(&[without_id], |_| true).unwrap_err().contains("has the event id"));
    }

    #[test]
    fn last_version_of_a_key_is_that_of_its_last_applied_event() {
        let published = [message("a", 1, 1), message("a", 2, 2), message("b", 3, 1), message("c", 4, 1)];

        let versions = last_versions(&published, &[event(1), event(3), event(2), event(9)]);

        assert_eq!(versions, BTreeMap::from([("a", 1), ("b", 0)]));
    }

    #[test]
    fn effect_of_another_version_or_without_a_stamp_is_found() {
        let stamp = |millis| RemoteStamp { region: RegionId::new("handled"), hlc: Hlc { millis, counter: 0 } };

        assert_eq!(check_effect("a", 1, Some(&stamp(1))), Ok(()));
        for wrong in [Some(stamp(0)), Some(stamp(2)), None] {
            assert!(check_effect("a", 1, wrong.as_ref()).unwrap_err().contains("its effect is"));
        }
    }
}
