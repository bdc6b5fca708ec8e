//! Orders, rows, items, ids and records generated from a seed: the same seed generates the same data.
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use domain::{
    ChangeContext, EventId, EventType, Hlc, Item, Items, Money, NewOrder, Order, OrderEvent, OrderId, RegionId, Status,
    Subject, Timestamp,
};
use ports::broker::Record;
use ports::clock::Rng;
use ports::event_headers::EventHeaders;
use ports::orders::{Commit, IdempotencyRecord, NewRow, RegionStamp, TraceContext, event_key};
use ports::outbox::EventKey;
use ports::partitions::PartitionNo;

use crate::clock::{START_TIME, SeededRng};

/// Generates test data. Each timestamp is a millisecond later than the one before.
pub struct Factory {
    rng: SeededRng,
    millis: AtomicI64,
    topic: Arc<str>,
}

impl Factory {
    /// A factory of this seed, whose events go to `topic`.
    pub fn seeded(seed: u64, topic: Arc<str>) -> Self {
        Self { rng: SeededRng::new(seed), millis: AtomicI64::new(START_TIME.millis()), topic }
    }

    /// The next timestamp: a millisecond later.
    pub fn next_timestamp(&self) -> Timestamp {
        Timestamp::from_millis(self.millis.fetch_add(1, Ordering::Relaxed))
    }

    /// A new order id of this instant.
    pub fn order_id(&self, at: Timestamp) -> OrderId {
        OrderId::new_v7(at, self.rng.entropy())
    }

    /// A new event id of the next instant.
    pub fn event_id(&self) -> EventId {
        EventId::new_v7(self.next_timestamp(), self.rng.entropy())
    }

    /// Items with `count` lines, some with special characters and extreme prices.
    pub fn items(&self, count: u32) -> Items {
        let lines = (0..count).map(|line| {
            let (name, price) = match line % 3 {
                0 => ("Kaffee".to_owned(), "4.50"),
                1 => (format!("naïve ☕ \"{line}\" 'n' \\ , NULL"), "1234567890.123456789012"),
                _ => (format!("{line} %s; --"), "0.00"),
            };
            let price = Money::parse(price).expect("the price is valid");
            Item::new(&name, line + 1, price).expect("the line is valid")
        });
        Items::new(lines.collect()).expect("the number of lines and their total are in range")
    }

    /// A new order of `owner`, and its event.
    pub fn placed(&self, owner: &str) -> (Order, OrderEvent) {
        let now = self.next_timestamp();
        Order::place(NewOrder {
            id: self.order_id(now),
            event_id: self.event_id(),
            owner: Subject::new(owner).expect("the owner's name is valid"),
            items: self.items(3),
            region: RegionId::new("eu-west-1"),
            now,
            physical_time: now,
            received: Hlc::default(),
        })
    }

    /// The order with its status changed, and the event.
    pub fn status_changed(&self, order: &Order, to: Status) -> (Order, OrderEvent) {
        let (event_id, region, now) = (self.event_id(), RegionId::new("us-east-1"), self.next_timestamp());
        let change = ChangeContext { event_id, region, now, physical_time: now, received: Hlc::default() };
        order.change_status(to, change).expect("the status change is allowed")
    }

    /// The outbox row of an event, not yet written.
    pub fn row(&self, event: &OrderEvent, partition: PartitionNo) -> NewRow {
        NewRow {
            event_id: event.id,
            key: event_key(event.order_id),
            event_type: event.event_type.as_str().into(),
            topic: Arc::clone(&self.topic),
            partition,
            payload: format!(r#"{{"orderId":"{}","sequence":{}}}"#, event.order_id, event.sequence).into_bytes().into(),
            sequence: event.sequence,
            occurred_at: event.occurred_at,
            stamp: Some(RegionStamp { region: event.region.clone(), hlc: event.hlc }),
            trace: None,
            request_id: Some("request-1".into()),
            headers: EventHeaders::default(),
            content_type: None,
            contract_checksum: Some(0x8000_0000 | event.sequence as u32),
        }
    }

    /// The row of another service's event, not yet written: a key that is not a UUID, a type and a topic of its own, headers, no JSON.
    pub fn external_row(&self, key: &str, sequence: u64, partition: PartitionNo) -> NewRow {
        NewRow {
            event_id: self.event_id(),
            key: EventKey::parse(key).expect("the key is legal"),
            event_type: "com.example.customer/moved v2".into(),
            topic: "customers".into(),
            partition,
            payload: [0, 159, 146, 150].as_slice().into(),
            sequence,
            occurred_at: self.next_timestamp(),
            stamp: None,
            trace: None,
            request_id: Some("request-7".into()),
            headers: EventHeaders::from_pairs([("tenant", "müller & \"söhne\""), ("empty", "")]),
            content_type: Some("application/x-protobuf".into()),
            contract_checksum: None,
        }
    }

    /// A commit that places a new order.
    pub fn creation(&self, owner: &str, partition: PartitionNo) -> Commit {
        let (order, event) = self.placed(owner);
        Commit { order, expected: None, events: vec![self.row(&event, partition)], idempotency_record: None }
    }

    /// A commit that changes an order's status.
    pub fn change(&self, order: &Order, to: Status, partition: PartitionNo) -> Commit {
        let (next, event) = self.status_changed(order, to);
        Commit {
            order: next,
            expected: Some(order.version),
            events: vec![self.row(&event, partition)],
            idempotency_record: None,
        }
    }

    /// The durable idempotency record of a creation.
    pub fn idempotency_record(&self, order: &Order, key: &str) -> IdempotencyRecord {
        IdempotencyRecord {
            subject: order.owner.clone(),
            key: key.into(),
            fingerprint: [u8::try_from(key.len() % 251).expect("below 251"); 32],
            order_id: order.id,
        }
    }

    /// A random trace context with a state.
    pub fn trace(&self) -> TraceContext {
        TraceContext {
            parent: format!(
                "00-{:016x}{:016x}-{:016x}-01",
                self.rng.next_u64(),
                self.rng.next_u64(),
                self.rng.next_u64()
            )
            .into(),
            state: Some("vendor=opaque".into()),
        }
    }

    /// A record for the factory's topic, with text headers and a binary one.
    pub fn record(&self, key: &str, value: &str) -> Record {
        Record {
            topic: Arc::clone(&self.topic),
            key: key.into(),
            headers: [
                ("ce_type", EventType::OrderCreated.as_str().as_bytes()),
                ("ce_id", self.event_id().to_string().as_bytes()),
                ("x-bytes", &[0, 255, 13, 10]),
            ]
            .into_iter()
            .collect(),
            value: value.as_bytes().into(),
            timestamp: self.next_timestamp(),
        }
    }
}
