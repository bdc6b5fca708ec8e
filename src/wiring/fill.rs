//! Waiting events for the bench: real ones, written through the store's own port by many writers at once, so that commits form groups.
use std::sync::Arc;

use app::{commands, contract};
use domain::{Change, Event, EventId, Item, Items, Money, Order, OrderId, NewOrder, Status, Subject};
use memory::SystemClock;
use ports::clock::{Clock, Rng};
use ports::orders::{Commit, Committed, OrderStore};
use ports::partitions::InstanceId;
use tokio::task::JoinSet;

use super::store::{Opened, Opening};
use super::{StartError, ThreadDice};
use crate::config::Config;

/// Writers at once: enough for full groups, few enough for every store's queue.
const WRITERS: u64 = 512;
/// Bytes of a value, by the length of the product's name.
const VALUE_BYTES: usize = 500;

/// Opens the configured store under this name, once.
pub(super) async fn open(config: &Config, instance: &str) -> Result<Opened, StartError> {
    let (clock, metrics) = (Arc::new(SystemClock::new()) as Arc<dyn Clock>, telemetry::Metrics::new());
    let opening = Opening { config, instance: &InstanceId(instance.into()), clock: &clock, metrics: &metrics };
    opening.open().await.map_err(|not_open| not_open.error)
}

/// Writes so many events of 500 bytes, spread evenly over so many orders: each placed and then changed again and again, so that its
/// sequence has no gap. Nobody else may use the store.
///
/// # Errors
/// The store cannot be opened, or a commit fails.
pub async fn fill(config: &Config, events: u64, keys: u64) -> Result<(), StartError> {
    let Opened { ports, held, .. } = open(config, "bench-fill").await?;
    let press = Arc::new(Press { clock: SystemClock::new(), desk: super::options::desk(config) });
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS.min(keys) {
        let (orders, press) = (Arc::clone(&ports.orders), Arc::clone(&press));
        // How many events each of this writer's keys gets.
        let shares = (writer..keys).step_by(WRITERS as usize).map(|key| events / keys + u64::from(key < events % keys));
        writers.spawn(write(orders, press, shares.collect()));
    }
    let mut told = Ok(());
    while let Some(written) = writers.join_next().await {
        told = told.and(written.unwrap_or_else(|error| Err(StartError::Store(error.to_string()))));
    }
    held.close().await;
    told
}

/// One event of each of its orders after the other, so that the keys of a group differ.
async fn write(orders: Arc<dyn OrderStore>, press: Arc<Press>, shares: Vec<u64>) -> Result<(), StartError> {
    let mut standing: Vec<Option<Order>> = vec![None; shares.len()];
    for round in 0..shares.iter().copied().max().unwrap_or(0) {
        for (place, _) in shares.iter().enumerate().filter(|(_, share)| round < **share) {
            let expected = standing[place].as_ref().map(|order| order.version);
            let (order, event) = press.next(standing[place].take())?;
            let events = vec![press.desk.row(&event, None)];
            standing[place] = Some(order.clone());
            match orders.commit(Commit { order, expected, events, mark: None }).await {
                Ok(Committed::Done) => {}
                refused => return Err(StartError::Store(format!("a commit of the bench came to {refused:?}"))),
            }
        }
    }
    Ok(())
}

/// Makes events.
struct Press {
    clock: SystemClock,
    /// Rows are made as the service makes them.
    desk: commands::Options,
}

impl Press {
    /// The next state of an order, and what tells of it.
    fn next(&self, before: Option<Order>) -> Result<(Order, OrderEvent), StartError> {
        let illegal = |what: &dyn std::fmt::Display| StartError::Store(format!("the bench's own order: {what}"));
        let (now, event_id) = (self.clock.now(), EventId::at(self.clock.now(), ThreadDice.entropy()));
        if let Some(order) = before {
            // The life of an order has few steps, and the store does not judge them: back to its beginning before each.
            let order = Order { status: Status::Pending, ..order };
            let change = ChangeContext { event_id, region: self.desk.region.clone(), now };
            return order.change_status(Status::Processing, change).map_err(|refusal| illegal(&refusal));
        }
        let order = |name: &str| {
            let price = Money::parse("2.50").map_err(|error| illegal(&error))?;
            let item = Item::new(name, 2, price).map_err(|error| illegal(&error))?;
            Ok(Order::place(NewOrder {
                id: OrderId::at(now, ThreadDice.entropy()),
                event_id,
                owner: Subject::new("bench").ok_or_else(|| illegal(&"no owner"))?,
                items: Items::new(vec![item]).map_err(|error| illegal(&error))?,
                region: self.desk.region.clone(),
                now,
            }))
        };
        let (_, bare) = order("T")?;
        let missing = VALUE_BYTES.saturating_sub(contract::encode(&bare, self.desk.schema_version).len());
        order(&"T".repeat(missing + 1))
    }
}
