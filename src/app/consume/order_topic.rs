//! OrderTopic: which records come from the topic of the orders. Only their values may have the frame of a schema registry; the values of
//! other topics belong to the services that publish them, and may begin with any byte.
use std::sync::Arc;

use outbox::topics::{WEBHOOK_HEADER, base_topic, dead_letter_topic};
use ports::broker::consumer_groups::ConsumerRecord;

use super::spring_headers;
use crate::contract::framing;

/// The topic of the orders by its full name.
#[derive(Clone, Debug)]
pub struct OrderTopic {
    name: Arc<str>,
    dead_letters: Arc<str>,
}

impl OrderTopic {
    /// The topic with this full name.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), dead_letters: dead_letter_topic(name).into() }
    }

    /// Whether a record was published to this topic: it is there, or in a retry or dead-letter topic of its consumer or of the webhooks.
    pub fn contains(&self, message: &ConsumerRecord) -> bool {
        let ConsumerRecord { position, record } = message;
        let of_webhooks = record.header(WEBHOOK_HEADER).is_some();
        let original = spring_headers::original_topic(record).filter(|_| of_webhooks);
        self.is_topic_or_derived(&position.topic) || original.is_some_and(|topic| self.is_topic_or_derived(topic))
    }

    /// The schema's id and the value without its frame; `None` and the whole value where the record has no frame.
    pub fn unframed<'a>(&self, message: &'a ConsumerRecord) -> (Option<u32>, &'a [u8]) {
        let value = &message.record.value;
        if self.contains(message) { framing::unframed(value) } else { (None, value) }
    }

    fn is_topic_or_derived(&self, topic: &str) -> bool {
        base_topic(topic) == &*self.name || topic == &*self.dead_letters
    }
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;
    use ports::broker::{Position, Record};

    use super::*;

    const FRAMED: [u8; 6] = [0, 0, 0, 0, 17, b'7'];

    fn consumer_record(topic: &str, headers: &[(&str, &str)]) -> ConsumerRecord {
        let headers = headers.iter().copied().collect();
        let timestamp = Timestamp::from_millis(0);
        ConsumerRecord {
            position: Position { topic: topic.into(), partition: 3, offset: 7 },
            record: Record { topic: topic.into(), key: "k".into(), headers, value: FRAMED.into(), timestamp },
        }
    }

    #[test]
    fn only_values_of_the_orders_topic_have_a_frame() {
        let of = |topic| ("kafka_original-topic", topic);
        let webhook = (WEBHOOK_HEADER, "1");
        let cases = [
            ("eu.order.events", vec![], true),
            ("eu.order.events-retry-2", vec![], true),
            ("eu.order.events-dlt", vec![of("eu.order.events")], true),
            ("eu.webhooks-retry-0", vec![webhook, of("eu.order.events")], true),
            ("eu.webhooks-dlt", vec![webhook, of("eu.order.events-dlt")], true),
            ("eu.webhooks-retry-0", vec![webhook, of("readings")], false),
            ("readings", vec![], false),
            ("readings-dlt", vec![of("eu.order.events")], false),
            ("order.events", vec![], false),
        ];
        for (topic, headers, framed) in cases {
            let message = consumer_record(topic, &headers);
            let expected = if framed { (Some(17), &FRAMED[5..]) } else { (None, &FRAMED[..]) };
            assert_eq!(OrderTopic::new("eu.order.events").unframed(&message), expected, "{topic} {headers:?}");
        }
    }
}
