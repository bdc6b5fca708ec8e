//! Fills the outbox with waiting events: real ones, written through the store's own port by many writers, so that commits form groups.
use std::sync::Arc;

use app::{commands, contract};
use domain::{ChangeContext, EventId, Hlc, Item, Items, Money, NewOrder, Order, OrderEvent, OrderId, Status, Subject};
use ports::clock::{Clock, Rng};
use ports::orders::{Commit, CommitOutcome, OrderStore};
use tokio::task::JoinSet;

use crate::error::Error;
use crate::program::{OpenStore, ThrowawayData};

/// Concurrent writers: enough for full commit groups, few enough for every store's queue.
const WRITERS: u64 = 512;
/// Bytes of an event's value; the length of the product's name makes up the difference.
const VALUE_BYTES: usize = 500;

/// Writes this many events of 500 bytes, spread evenly over this many orders. Each order is placed and then changed again and again, so
/// that its sequence has no gap.
///
/// # Errors
/// The store cannot be opened, or a commit fails.
pub(crate) async fn fill(data: &impl ThrowawayData, events: u64, keys: u64) -> Result<(), Error> {
    let store = data.open_store("bench-fill").await?;
    let source = Arc::new(EventSource { clock: data.clock(), rng: data.rng(), rows: data.row_options() });
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS.min(keys) {
        // The number of events of each of this writer's keys.
        let event_counts =
            (writer..keys).step_by(WRITERS as usize).map(|key| events / keys + u64::from(key < events % keys));
        writers.spawn(write(store.orders(), Arc::clone(&source), event_counts.collect()));
    }
    let mut result = Ok(());
    while let Some(written) = writers.join_next().await {
        result = result.and(written.unwrap_or_else(|error| Err(Error::new(error))));
    }
    store.close().await;
    result
}

/// Writes one event of each of the writer's orders, then the next of each, so that the keys of a commit group differ.
async fn write(orders: Arc<dyn OrderStore>, source: Arc<EventSource>, event_counts: Vec<u64>) -> Result<(), Error> {
    let mut current: Vec<Option<Order>> = vec![None; event_counts.len()];
    for round in 0..event_counts.iter().copied().max().unwrap_or(0) {
        for (index, _) in event_counts.iter().enumerate().filter(|(_, count)| round < **count) {
            let expected = current[index].as_ref().map(|order| order.version);
            let (order, event) = source.next(current[index].take())?;
            let events = vec![source.rows.row(&event, None, None)];
            current[index] = Some(order.clone());
            match orders.commit(Commit { order, expected, events, idempotency_record: None }).await {
                Ok(CommitOutcome::Done) => {}
                refused => return Err(Error::new(format!("the store refused a commit of the bench: {refused:?}"))),
            }
        }
    }
    Ok(())
}

/// Makes the events of the bench's orders.
struct EventSource {
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    /// Rows are made as the service makes them.
    rows: commands::Options,
}

impl EventSource {
    /// The next state of an order, and its event.
    fn next(&self, before: Option<Order>) -> Result<(Order, OrderEvent), Error> {
        let now = self.clock.now();
        let event_id = EventId::new_v7(now, self.rng.entropy());
        if let Some(order) = before {
            // The lifecycle of an order has few steps, and the store does not check them: each event starts at the beginning again.
            let order = Order { status: Status::Pending, ..order };
            let (region, received) = (self.rows.region.clone(), Hlc::default());
            let change = ChangeContext { event_id, region, now, physical_time: now, received };
            return order.change_status(Status::Processing, change).map_err(Error::new);
        }
        let order = |name: &str| {
            let price = Money::parse("2.50").map_err(Error::new)?;
            let item = Item::new(name, 2, price).map_err(Error::new)?;
            Ok::<_, Error>(Order::place(NewOrder {
                id: OrderId::new_v7(now, self.rng.entropy()),
                event_id,
                owner: Subject::new("bench").ok_or_else(|| Error::new("the bench's order has no owner"))?,
                items: Items::new(vec![item]).map_err(Error::new)?,
                region: self.rows.region.clone(),
                now,
                physical_time: now,
                received: Hlc::default(),
            }))
        };
        let (_, bare) = order("T")?;
        let missing = VALUE_BYTES.saturating_sub(contract::encode(&bare, self.rows.schema_version).len());
        order(&"T".repeat(missing + 1))
    }
}
