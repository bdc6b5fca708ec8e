//! OrderAggregate: a shard of the write side. Commands of one order go one after another, different orders overlap.
use std::collections::HashMap;
use std::sync::Arc;

use actix::prelude::*;
use app::commands::change_order::{self, change_order};
use app::commands::create_order::{self, create_order};
use app::commands::{Desk, Reach};
use app::dispatch::{ChangeOrder, CreateOrder, Created};
use app::error::CommandError;
use app::vitals::Vitals;
use domain::{Order, OrderId};
use ports::orders::NewRow;
use supervision::{MailboxMessage, MailboxPermit};
use telemetry::Metrics;
use tokio::sync::Mutex;

use crate::direct::Direct;
use crate::nudge::Nudge;

/// Place an order.
#[derive(Message)]
#[rtype(result = "Result<Created, CommandError>")]
pub struct Create {
    /// What is asked.
    pub command: CreateOrder,
    /// Tells the asker whether the store was reached, should this actor die.
    pub reach: Reach,
}

/// Change an order.
#[derive(Message)]
#[rtype(result = "Result<Arc<Order>, CommandError>")]
pub struct Change {
    /// What is asked.
    pub command: ChangeOrder,
    /// As in [`Create`].
    pub reach: Reach,
}

/// One shard.
pub struct OrderAggregate {
    desk: Arc<Desk>,
    nudge: Nudge,
    direct: Option<Direct>,
    metrics: Arc<Metrics>,
    vitals: Vitals,
    turns: HashMap<OrderId, Arc<Mutex<()>>>,
}

impl OrderAggregate {
    /// A shard with nothing in hand. `direct` publishes where there is no outbox.
    pub fn new(desk: Arc<Desk>, nudge: Nudge, direct: Option<Direct>, metrics: Arc<Metrics>, vitals: Vitals) -> Self {
        Self { desk, nudge, direct, metrics, vitals, turns: HashMap::new() }
    }

    /// Readiness turns red with the first write that finds no room, and not with the next round of probes.
    fn heed<T>(&self, outcome: &Result<T, CommandError>) {
        match outcome {
            Err(CommandError::NoRoom(why)) => self.vitals.paint(|picture| picture.no_room = Some(why.clone())),
            Err(CommandError::RegionConflict(_)) => self.metrics.region_conflict_rejected_count.inc(),
            _ => {}
        }
    }

    /// After the commit: the relay hears of the rows, or they are published right away where there is no outbox.
    fn announce(&self, rows: Vec<NewRow>) {
        match &self.direct {
            Some(direct) => direct.publish(rows),
            None => {
                self.metrics.outbox_entries_written.inc_by(rows.len() as u64);
                rows.iter().for_each(|row| self.nudge.wake(row.partition));
            }
        }
    }

    fn turn(&mut self, id: OrderId) -> Arc<Mutex<()>> {
        Arc::clone(self.turns.entry(id).or_default())
    }

    fn forget_turn(&mut self, id: OrderId) {
        // Only the map holds it: nobody has a turn or waits for one.
        if self.turns.get(&id).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            self.turns.remove(&id);
        }
    }
}

impl Actor for OrderAggregate {
    type Context = Context<Self>;
}

supervision::supervised!(OrderAggregate);

impl Handler<MailboxMessage<Create>> for OrderAggregate {
    type Result = ResponseActFuture<Self, Result<Created, CommandError>>;

    fn handle(&mut self, message: MailboxMessage<Create>, ctx: &mut Self::Context) -> Self::Result {
        let (Create { command, reach }, permit) = message.begin(ctx);
        let desk = Arc::clone(&self.desk);
        let work = async move { create_order(&desk, command, &reach).await };
        Box::pin(work.into_actor(self).map(move |outcome, this, _| this.created(outcome, permit)))
    }
}

impl Handler<MailboxMessage<Change>> for OrderAggregate {
    type Result = ResponseActFuture<Self, Result<Arc<Order>, CommandError>>;

    fn handle(&mut self, message: MailboxMessage<Change>, ctx: &mut Self::Context) -> Self::Result {
        let (Change { command, reach }, permit) = message.begin(ctx);
        let (desk, id) = (Arc::clone(&self.desk), command.id);
        let turn = self.turn(id);
        let work = async move {
            // A fair queue: commands of one order run in the order in which they came.
            let _turn = turn.lock_owned().await;
            change_order(&desk, &command, &reach).await
        };
        Box::pin(work.into_actor(self).map(move |outcome, this, _| this.changed(id, outcome, permit)))
    }
}

impl OrderAggregate {
    fn created(
        &mut self,
        outcome: Result<create_order::Outcome, CommandError>,
        _permit: MailboxPermit,
    ) -> Result<Created, CommandError> {
        self.heed(&outcome);
        let create_order::Outcome { created, rows } = outcome?;
        self.announce(rows);
        Ok(created)
    }

    fn changed(
        &mut self,
        id: OrderId,
        outcome: Result<change_order::Outcome, CommandError>,
        _permit: MailboxPermit,
    ) -> Result<Arc<Order>, CommandError> {
        self.forget_turn(id);
        self.heed(&outcome);
        let change_order::Outcome { order, rows } = outcome?;
        self.announce(rows);
        Ok(order)
    }
}
