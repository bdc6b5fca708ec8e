//! What clients were answered, order by order, and the laws that it is held against.
use std::collections::BTreeMap;

use app::error::CommandError;
use domain::{EventId, Order, OrderId, Status, Version};
use futures::future::join_all;
use kit::checkers::{AcknowledgedEvent, check};
use ports::inbox::{Inbox, InboxOutcome, ProcessedEvent};
use ports::orders::{OrderFilter, OrderStore, PageStart};
use ports::source::Delivery;

use crate::life::{GROUP, Life, TOPIC};
use crate::moody::header;

/// An order as its client knows it.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its last answered version.
    pub version: Version,
    /// Its last answered state.
    pub status: Status,
    /// An answer was lost since: the order may be further.
    unsure: bool,
}

/// The client's memory.
#[derive(Default)]
pub struct Ledger {
    /// Every order somebody was answered for.
    pub orders: BTreeMap<OrderId, Known>,
    answered: Vec<AcknowledgedEvent>,
}

impl Ledger {
    /// Places an order that must succeed.
    pub async fn place(&mut self, life: &Life) -> OrderId {
        self.try_place(life).await.expect("the order is placed")
    }

    /// Places so many.
    pub async fn place_many(&mut self, life: &Life, orders: usize) -> Vec<OrderId> {
        let mut ids = Vec::with_capacity(orders);
        for _ in 0..orders {
            ids.push(self.place(life).await);
        }
        ids
    }

    /// Places so many at once; what fails, fails.
    pub async fn burst(&mut self, life: &Life, orders: u64) {
        let answers = join_all((0..orders).map(|_| life.create())).await;
        answers.iter().flatten().for_each(|order| self.note(order));
    }

    /// Places an order, or not.
    pub async fn try_place(&mut self, life: &Life) -> Result<OrderId, CommandError> {
        let order = life.create().await?;
        self.note(&order);
        Ok(order.id)
    }

    /// Moves an order on, which must succeed.
    pub async fn step(&mut self, life: &Life, id: OrderId, to: Status) {
        self.try_step(life, id, to).await.expect("the move is legal");
    }

    /// Moves an order on, or not. An answer that says "nothing changed" is believed, and found out if it lied.
    pub async fn try_step(&mut self, life: &Life, id: OrderId, to: Status) -> Result<(), CommandError> {
        let known = self.orders.get_mut(&id).expect("only known orders are moved");
        match life.change(id, to).await {
            Ok(order) => {
                assert!(known.unsure || order.version == known.version + 1, "{id} skipped from {known:?} to {order:?}");
                self.note(&order);
                Ok(())
            }
            Err(error) => {
                known.unsure |= matches!(error, CommandError::Unknown(_));
                let refused = matches!(error, CommandError::Conflict(_) | CommandError::NotFound);
                assert!(known.unsure || !refused, "{id} at {known:?} refused a legal move: {error}");
                Err(error)
            }
        }
    }

    fn note(&mut self, order: &Order) {
        self.answered.push(AcknowledgedEvent::of(order.id, order.version));
        self.orders.insert(order.id, Known { version: order.version, status: order.status, unsure: false });
    }

    /// The laws, once everything has left: nothing lost, doubled or reordered, no gaps, and topic and orders tell the same story.
    pub async fn laws(&self, life: &Life) {
        let depth = life.depth().await;
        assert_eq!((depth.pending, depth.in_flight, depth.failed, depth.parked), (0, 0, 0, 0), "{depth:?}");
        self.laws_but_for_parked(life).await;
        let log = life.log(TOPIC).await;
        let mut events: BTreeMap<String, u64> = BTreeMap::new();
        log.iter().for_each(|delivery| *events.entry(delivery.record.key.to_string()).or_default() += 1);
        let orders =
            life.store.list(&OrderFilter::default(), PageStart::Offset(0), 100_000).await.expect("orders can be read");
        let expected = orders.iter().map(|order| (order.id.to_string(), order.version + 1)).collect();
        assert_eq!(events, expected, "an order and its events commit together");
        assert_eq!(depth.sent, log.len() as u64, "what stands in the topic is settled, and nothing else");
    }

    /// The law of consuming: whatever stands in the topic is remembered, so that it would be a duplicate now.
    pub async fn all_is_remembered(&self, life: &Life) {
        let mark = |delivery: &Delivery| ProcessedEvent {
            event_id: EventId::parse(&header(&delivery.record, "ce_id")).expect("an event's id"),
            position: delivery.position.clone(),
            effects: Vec::new(),
        };
        let marks: Vec<ProcessedEvent> = life.log(TOPIC).await.iter().map(mark).collect();
        let marked = Inbox::commit(&life.store, GROUP, marks).await.expect("the inbox takes marks");
        assert!(marked.iter().all(|marked| *marked == InboxOutcome::Duplicate), "something was not consumed");
    }

    /// The laws of what stands in the topic, where some rows were meant to stay behind at their key's end.
    pub async fn laws_but_for_parked(&self, life: &Life) {
        check(&life.log(TOPIC).await, &self.answered).assert_exactly_once();
    }
}
