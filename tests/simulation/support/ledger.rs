//! Ledger: every reply that clients received, and the guarantees that topic and store are checked for.
use std::collections::{BTreeMap, BTreeSet};

use app::error::CommandError;
use domain::{EventId, Order, OrderId, Status, Version};
use futures::future::join_all;
use kit::checkers::{AcknowledgedEvent, check};
use kit::clock::SeededRng;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::inbox::{Inbox, InboxOutcome, ProcessedEvent};
use ports::orders::{OrderFilter, OrderStore, PageStart};

use crate::support::external_events::{CUSTOMERS, random_batch};
use crate::support::process::{GROUP, Process, TOPIC};
use crate::support::record_faults::header;

/// An order as its client knows it from the replies.
#[derive(Clone, Debug)]
pub struct KnownOrder {
    /// Version of the last successful reply.
    pub version: Version,
    /// Status of the last successful reply.
    pub status: Status,
    /// A reply was lost since then: the order may have changed again.
    unknown: bool,
}

/// All replies of one scenario.
#[derive(Default)]
pub struct Ledger {
    /// Every order with a successful reply.
    pub orders: BTreeMap<OrderId, KnownOrder>,
    replies: Vec<AcknowledgedEvent>,
    /// The events of other services in successful replies.
    external_events: Vec<EventId>,
}

impl Ledger {
    /// Creates an order, which must succeed.
    pub async fn create_order(&mut self, process: &Process) -> OrderId {
        self.try_create_order(process).await.expect("the order is created")
    }

    /// Creates this many orders one after another.
    pub async fn create_orders(&mut self, process: &Process, orders: usize) -> Vec<OrderId> {
        let mut ids = Vec::with_capacity(orders);
        for _ in 0..orders {
            ids.push(self.create_order(process).await);
        }
        ids
    }

    /// Creates this many orders at once; failures are ignored.
    pub async fn create_concurrently(&mut self, process: &Process, orders: u64) {
        let results = join_all((0..orders).map(|_| process.create())).await;
        results.iter().flatten().for_each(|order| self.record(order));
    }

    /// Creates an order; the command may fail.
    pub async fn try_create_order(&mut self, process: &Process) -> Result<OrderId, CommandError> {
        let order = process.create().await?;
        self.record(&order);
        Ok(order.id)
    }

    /// Changes an order's status, which must succeed.
    pub async fn change_status(&mut self, process: &Process, id: OrderId, to: Status) {
        self.try_change_status(process, id, to).await.expect("the transition is legal");
    }

    /// Changes an order's status; the command may fail. A reply that claims "nothing changed" is checked by the later replies.
    pub async fn try_change_status(&mut self, process: &Process, id: OrderId, to: Status) -> Result<(), CommandError> {
        let known = self.orders.get_mut(&id).expect("the order has had a successful reply");
        match process.change(id, to).await {
            Ok(order) => {
                assert!(known.unknown || order.version == known.version + 1, "{id} jumped from {known:?} to {order:?}");
                self.record(&order);
                Ok(())
            }
            Err(error) => {
                known.unknown |= matches!(error, CommandError::Unknown(_));
                let refused = matches!(error, CommandError::Conflict(_) | CommandError::NotFound);
                assert!(known.unknown || !refused, "{id} at {known:?} refused a legal transition: {error}");
                Err(error)
            }
        }
    }

    /// Hands over some events of another service. A command that fails is repeated once.
    pub async fn publish_external_events(&mut self, process: &Process, rng: &SeededRng) {
        let command = random_batch(rng);
        let published = match process.publish(command.clone()).await {
            Ok(published) => Ok(published),
            Err(_) => process.publish(command).await,
        };
        self.external_events.extend(published.iter().flat_map(|published| &published.events).map(|event| event.id));
    }

    fn record(&mut self, order: &Order) {
        self.replies.push(AcknowledgedEvent::of(order.id, order.version));
        self.orders.insert(order.id, KnownOrder { version: order.version, status: order.status, unknown: false });
    }

    /// Checks the guarantees once all rows are sent: no event lost, duplicated or reordered, no gaps, and topic and orders agree.
    pub async fn assert_guarantees(&self, process: &Process) {
        let depth = process.depth().await;
        assert_eq!((depth.pending, depth.in_flight, depth.failed, depth.parked), (0, 0, 0, 0), "{depth:?}");
        self.assert_guarantees_except_parked(process).await;
        let records = process.records(TOPIC).await;
        let mut events: BTreeMap<String, u64> = BTreeMap::new();
        records.iter().for_each(|message| *events.entry(message.record.key.to_string()).or_default() += 1);
        let mut expected = BTreeMap::new();
        let mut from = PageStart::Offset(0);
        loop {
            let part = process.store.list(&OrderFilter::default(), from, 1_000).await.expect("orders can be read");
            let Some(last) = part.last() else { break };
            from = PageStart::After(last.id);
            expected.extend(part.iter().map(|order| (order.id.to_string(), order.version + 1)));
        }
        assert_eq!(events, expected, "an order and its events commit together");
        let customers = self.assert_external_events(process).await;
        let published = (records.len() + customers) as u64;
        assert_eq!(depth.sent, published, "exactly the rows in the topics are settled");
    }

    /// Checks the guarantees of the other services' topic. Returns the number of its records.
    async fn assert_external_events(&self, process: &Process) -> usize {
        let records = process.records(CUSTOMERS).await;
        check(&records, &[]).assert_exactly_once();
        let published: BTreeSet<String> = records.iter().map(|message| header(&message.record, "ce_id")).collect();
        let lost: Vec<&EventId> =
            self.external_events.iter().filter(|id| !published.contains(&id.to_string())).collect();
        assert!(lost.is_empty(), "events of another service were committed and are not in their topic: {lost:?}");
        records.len()
    }

    /// Checks that the inbox knows every record of the topic, so that each would be a duplicate now.
    pub async fn assert_all_consumed(&self, process: &Process) {
        let processed = |message: &ConsumerRecord| ProcessedEvent {
            event_id: EventId::parse(&header(&message.record, "ce_id")).expect("an event's id"),
            position: message.position.clone(),
            effects: Vec::new(),
        };
        let events: Vec<ProcessedEvent> = process.records(TOPIC).await.iter().map(processed).collect();
        let outcomes = Inbox::commit(&process.store, GROUP, events).await.expect("the inbox can be written");
        assert!(outcomes.iter().all(|outcome| *outcome == InboxOutcome::Duplicate), "something was not consumed");
    }

    /// Checks that no event is lost or reordered, after a store that was rewound: some may be in the topic twice.
    pub async fn assert_at_least_once(&self, process: &Process) {
        let depth = process.depth().await;
        assert_eq!((depth.pending, depth.in_flight, depth.failed, depth.parked), (0, 0, 0, 0), "{depth:?}");
        check(&process.records(TOPIC).await, &self.replies).assert_at_least_once();
    }

    /// Checks the guarantees of the topic only, where some rows of a key are parked on purpose.
    pub async fn assert_guarantees_except_parked(&self, process: &Process) {
        check(&process.records(TOPIC).await, &self.replies).assert_exactly_once();
    }
}
