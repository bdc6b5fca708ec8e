//! One consumed message as data: decode, apply the region rule, call the handler, decide between processing, retry and dead letter.
use domain::{Hlc, Order, RegionId, Timestamp};
use ports::FailureType;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::inbox::{Effect, ProcessedEvent};

use crate::consume::chain::{ChainOutcome, FailureAction};
use crate::consume::event_handler::{ConsumedEvent, HandlerFault};
use crate::consume::handlers::Handlers;
use crate::consume::spring_headers;
use crate::contract::{self, DecodedEvent};
use crate::policy::conflict::{self, ConflictDecision, VersionStamp};

/// A message with its decoded event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedMessage {
    /// The event in the value.
    pub event: DecodedEvent,
    /// Region and stamp of the event.
    pub stamp: VersionStamp,
    /// Whether the stamp is that of the `x-hlc` header. Without the header it is made of the event's time and version.
    pub has_hlc: bool,
}

/// The region that an event comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventOrigin {
    /// This region, under its present or an earlier id, or no region that the event names: the region rule does not apply.
    Local,
    /// Another region: the event applies unless the last update of its order wins by [`conflict::decide`].
    Remote {
        /// The order's [`last_update`]; `None` where this store knows no update of the order.
        last_update: Option<VersionStamp>,
    },
}

/// Decision on a message.
#[derive(Clone, Debug, PartialEq)]
pub enum MessageDecision {
    /// Record the event in the inbox, with its effects.
    Process {
        /// The event and the effects that commit with it.
        event: ProcessedEvent,
        /// The region rule's decision. An event that it rejects is recorded without effects.
        region_rule: ConflictDecision,
        /// Failure of the primary handler, where the fallback accepted the event.
        fallback_after: Option<MessageFailure>,
    },
    /// Forward the message to a retry topic or to the dead letters.
    Forward {
        /// Where it is forwarded to.
        action: FailureAction,
        /// Failure that is written into the headers.
        failure: MessageFailure,
    },
}

/// Why a message was not processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageFailure {
    /// Class of the failure.
    pub failure_type: FailureType,
    /// Class name of the error, in the form of the Java consumers of this topic.
    pub class: &'static str,
    /// Message for operators, stored in a header and logged: never the content of the message.
    pub reason: String,
}

impl MessageFailure {
    /// The failure of a message that its handler did not accept.
    pub fn from_handler(fault: HandlerFault) -> Self {
        let reason = outbox::truncate_reason(&fault.reason);
        Self { failure_type: fault.failure_type, class: "posthaste.HandlerFault", reason }
    }
}

/// Decodes a message and checks that its headers name the same event.
///
/// # Errors
/// The message cannot be decoded, now or later: it goes to the dead-letter topic without a retry.
pub fn decode(message: &ConsumerRecord) -> Result<DecodedMessage, MessageFailure> {
    let record = &message.record;
    let event = contract::decode(&record.value).map_err(|error| undecodable(error.to_string()))?;
    let other_id = record.text("ce_id").filter(|id| *id != event.event_id.to_string());
    if let Some(other) = other_id {
        return Err(undecodable(format!("ce_id is {other}, the value has {}", event.event_id)));
    }
    let version = event.after.as_ref().map_or(0, |after| after.version);
    let fallback = stamp_of(event.occurred_at, version);
    let hlc = record.text("x-hlc").and_then(Hlc::parse);
    // No region has a control character in its name, and stores do not accept a zero byte.
    let named = record.text("x-region").filter(|name| !name.contains(char::is_control));
    let region = RegionId::new(named.unwrap_or(""));
    let (stamp, has_hlc) = (VersionStamp { hlc: hlc.unwrap_or(fallback), region }, hlc.is_some());
    Ok(DecodedMessage { event, stamp, has_hlc })
}

fn undecodable(reason: String) -> MessageFailure {
    MessageFailure {
        failure_type: FailureType::Validation,
        class: "org.springframework.kafka.support.serializer.DeserializationException",
        reason: outbox::truncate_reason(&reason),
    }
}

/// Whether the event names another region. The region rule then applies to it, unless the outbox of this region contains it.
pub fn is_remote(decoded: &DecodedMessage, local: &RegionId) -> bool {
    decoded.stamp.region != *local && !decoded.stamp.region.as_str().is_empty()
}

/// The update of the order that an event of another region must win against: the order's last change in this store, or the last remote
/// update, whichever is later. An event without an `x-hlc` header is compared with the order's time and version, from which its own stamp is made.
pub fn last_update(
    decoded: &DecodedMessage,
    order: Option<&Order>,
    remote: Option<VersionStamp>,
) -> Option<VersionStamp> {
    let persisted = order.map(|order| VersionStamp {
        hlc: if decoded.has_hlc { order.hlc } else { stamp_of(order.updated_at, order.version) },
        region: order.region.clone(),
    });
    persisted.max(remote)
}

fn stamp_of(time: Timestamp, version: u64) -> Hlc {
    Hlc { millis: time.millis(), counter: u32::try_from(version).unwrap_or(u32::MAX) }
}

/// Decides what to do with a message, and runs the chain of its type unless the region rule rejects the event. `latest_accepted_time` is the
/// latest time that the stamp of a remote event may have.
pub async fn decide(
    handlers: &Handlers,
    message: &ConsumerRecord,
    decoded: &DecodedMessage,
    origin: EventOrigin,
    latest_accepted_time: Timestamp,
) -> MessageDecision {
    let event = &decoded.event;
    let processed = |effects| ProcessedEvent { event_id: event.event_id, position: message.position.clone(), effects };
    let region_rule = match &origin {
        EventOrigin::Local => ConflictDecision::Apply,
        EventOrigin::Remote { last_update } => {
            conflict::decide(last_update.as_ref(), &decoded.stamp, latest_accepted_time)
        }
    };
    if region_rule != ConflictDecision::Apply {
        return MessageDecision::Process { event: processed(Vec::new()), region_rule, fallback_after: None };
    }
    let consumed = ConsumedEvent { event, record: &message.record, attempt: spring_headers::attempt(&message.record) };
    match handlers.chain(event.event_type).run(consumed).await {
        ChainOutcome::Handled { mut effects, fallback_after } => {
            if origin != EventOrigin::Local {
                let VersionStamp { hlc, region } = decoded.stamp.clone();
                effects.push(Effect::StoreRemoteStamp { order_id: event.order_id, region, hlc });
            }
            let fallback_after = fallback_after.map(MessageFailure::from_handler);
            MessageDecision::Process { event: processed(effects), region_rule, fallback_after }
        }
        ChainOutcome::NotHandled { action, fault } => {
            MessageDecision::Forward { action, failure: MessageFailure::from_handler(fault) }
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::{EventId, EventType, Item, Items, Money, NewOrder, OrderId, Status, Subject};
    use ports::broker::{Position, Record, RecordHeaders};

    use super::*;
    use crate::contract::OrderAfterEvent;

    fn stamp(millis: i64, counter: u32, region: &str) -> VersionStamp {
        VersionStamp { hlc: Hlc { millis, counter }, region: RegionId::new(region) }
    }

    /// An order that this region changed at 1,000 ms as its version 4, with a stamp that other regions had advanced to 9,000 ms.
    fn order() -> Order {
        let (order, _) = Order::place(NewOrder {
            id: OrderId::from_bytes([1; 16]),
            event_id: EventId::from_bytes([2; 16]),
            owner: Subject::new("ann").unwrap(),
            items: Items::new(vec![Item::new("Tea", 1, Money::from_parts(250, 2).unwrap()).unwrap()]).unwrap(),
            region: RegionId::new("eu"),
            now: Timestamp::from_millis(1_000),
            physical_time: Timestamp::from_millis(1_000),
            received: Hlc::default(),
        });
        Order { version: 4, hlc: Hlc { millis: 9_000, counter: 2 }, ..order }
    }

    fn message(stamp: VersionStamp, has_hlc: bool) -> DecodedMessage {
        let event = DecodedEvent {
            schema_version: 2,
            event_id: EventId::from_bytes([3; 16]),
            event_type: EventType::OrderStatusChanged,
            order_id: order().id,
            occurred_at: Timestamp::from_millis(stamp.hlc.millis),
            after: Some(OrderAfterEvent { status: Status::Processing, version: stamp.hlc.counter.into() }),
        };
        DecodedMessage { event, stamp, has_hlc }
    }

    #[test]
    fn reason_of_an_undecodable_message_is_short_and_has_none_of_its_value() {
        let long_id = "9".repeat(10_000);
        let sample = crate::contract::contracts()[0].samples[0].as_bytes();
        let cases: [(&[u8], &str); 3] = [
            (b"\"4111 1111\"", ""),
            (br#"{"schemaVersion":2,"eventId":"","eventType":"","orderId":"","items":"4111 1111"}"#, ""),
            (sample, &long_id),
        ];
        for (value, id) in cases {
            let headers: RecordHeaders = [("ce_id", id.as_bytes())].into_iter().collect();
            let timestamp = Timestamp::from_millis(0);
            let record =
                Record { topic: "order.events".into(), key: "k".into(), headers, value: value.into(), timestamp };
            let position = Position { topic: "order.events".into(), partition: 0, offset: 0 };

            let failure = decode(&ConsumerRecord { position, record }).expect_err("not an event");

            let reason = failure.reason;
            assert!(!reason.contains("4111") && reason.chars().count() <= 256, "{reason}");
        }
    }

    #[test]
    fn remote_event_is_compared_with_the_later_of_both_updates() {
        let event = message(stamp(8_000, 0, "us"), true);
        let own = stamp(9_000, 2, "eu");
        let cases = [
            (None, None, None),
            (None, Some(stamp(7_000, 0, "us")), Some(stamp(7_000, 0, "us"))),
            (Some(order()), None, Some(own.clone())),
            (Some(order()), Some(stamp(7_000, 0, "us")), Some(own)),
            (Some(order()), Some(stamp(9_001, 0, "us")), Some(stamp(9_001, 0, "us"))),
        ];
        for (order, remote, expected) in cases {
            assert_eq!(last_update(&event, order.as_ref(), remote), expected);
        }
    }

    #[test]
    fn event_without_a_stamp_is_compared_with_the_orders_time_and_version() {
        let decided = |time, version| {
            let event = message(stamp(time, version, "us"), false);
            let last = last_update(&event, Some(&order()), None);
            conflict::decide(last.as_ref(), &event.stamp, Timestamp::from_millis(61_000))
        };

        assert_eq!(decided(1_000, 3), ConflictDecision::Stale);
        assert_eq!(decided(999, 9), ConflictDecision::Stale);
        assert_eq!(decided(1_000, 4), ConflictDecision::Apply, "the greater region name wins a tie");
        assert_eq!(decided(1_000, 5), ConflictDecision::Apply);
        assert_eq!(decided(1_001, 0), ConflictDecision::Apply);
    }
}
