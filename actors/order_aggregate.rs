//! OrderAggregate: a shard of the write side. Commands of one order run one after another, those of different orders overlap.
pub mod command_span;
pub mod direct_publisher;
pub mod order_samples;
pub mod wake_ups;

use std::collections::HashMap;
use std::sync::Arc;

use actix::prelude::*;
use app::commands::change_order::{self, change_order};
use app::commands::create_order::{self, create_order};
use app::commands::{CommandContext, CommitProgress, IdempotencyGuard};
use app::dispatch::{ChangeOrder, CreateOrder, CreatedOrder};
use app::error::CommandError;
use app::health::SharedHealth;
use domain::{Order, OrderId};
use ports::orders::NewRow;
use supervision::MailboxMessage;
use telemetry::Metrics;
use telemetry::traces::Tracer;
use tokio::sync::Mutex;
use tracing::Instrument;

use command_span::CommandSpan;
use direct_publisher::DirectPublisher;
use order_samples::OrderSamples;
use wake_ups::WakeUps;

/// Asks the shard to create an order.
#[derive(Message)]
#[rtype(result = "Result<CreatedOrder, CommandError>")]
pub struct Create {
    /// The client's validated create command.
    pub command: CreateOrder,
    /// Guard of the command's idempotency key, shared with the caller.
    pub key: Option<IdempotencyGuard>,
    /// Shows the caller whether the store was reached, in case this actor dies.
    pub progress: CommitProgress,
}

/// Asks the shard to change an order.
#[derive(Message)]
#[rtype(result = "Result<Arc<Order>, CommandError>")]
pub struct Change {
    /// The client's validated change command.
    pub command: ChangeOrder,
    /// Shows the caller whether the store was reached, as in [`Create`].
    pub progress: CommitProgress,
}

/// The actor of one shard of orders: commands of one order run one after another.
pub struct OrderAggregate {
    context: Arc<CommandContext>,
    wake_ups: WakeUps,
    direct: Option<DirectPublisher>,
    metrics: Arc<Metrics>,
    health: SharedHealth,
    samples: OrderSamples,
    tracer: Tracer,
    /// One lock for each order with a running or waiting command.
    locks: HashMap<OrderId, Arc<Mutex<()>>>,
}

impl OrderAggregate {
    /// A shard without commands. `direct` publishes the events where there is no outbox.
    pub fn new(
        context: Arc<CommandContext>,
        wake_ups: WakeUps,
        direct: Option<DirectPublisher>,
        metrics: Arc<Metrics>,
        health: SharedHealth,
        samples: OrderSamples,
        tracer: Tracer,
    ) -> Self {
        Self { context, wake_ups, direct, metrics, health, samples, tracer, locks: HashMap::new() }
    }

    /// Records an error that readiness or a metric shows.
    fn record_error<T>(&self, result: &Result<T, CommandError>) {
        match result {
            Err(CommandError::StorageFull(detail)) => self.health.record_full_store(detail),
            Err(CommandError::RegionConflict(_)) => self.metrics.region_conflict_rejected_count.inc(),
            _ => {}
        }
    }

    /// After the commit: wakes the publisher, or publishes at once where there is no outbox.
    fn record_commit(&self, order: &Order, rows: Vec<NewRow>) {
        for row in &rows {
            let (event_id, r#type, version) = (row.event_id, &*row.event_type, order.version);
            tracing::debug!(event = "order_committed", order_id = %order.id, %event_id, r#type, version, "a change of an order was committed");
        }
        if let Some(row) = rows.first() {
            self.samples.record(order, &row.event_type);
            self.check_stamp(order);
        }
        match &self.direct {
            Some(direct) => direct.publish(rows),
            None => {
                self.metrics.outbox_entries_written.inc_by(rows.len() as u64);
                rows.iter().for_each(|row| self.wake_ups.wake(row.partition));
            }
        }
    }

    /// Warns of a change that other regions reject, because it follows one that was stamped while the clock was ahead. Once a minute, because many
    /// orders may have been changed meanwhile, and the region may be the only one.
    fn check_stamp(&self, order: &Order) {
        let (now, wall) = (self.context.clock.now(), self.context.clock.wall());
        if self.context.regional_clock.report_is_due(order.hlc, now, wall) {
            let ahead_ms = order.hlc.millis.saturating_sub(wall.millis());
            tracing::warn!(
                event = "change_stamped_too_far_ahead",
                order_id = %order.id,
                ahead_ms,
                "the stamp of this change of order {} is {ahead_ms} ms ahead of the clock, because it follows one that was stamped while a clock was ahead; other regions reject its event",
                order.id
            );
        }
    }

    fn lock_of(&mut self, id: OrderId) -> Arc<Mutex<()>> {
        Arc::clone(self.locks.entry(id).or_default())
    }

    fn drop_unused_lock(&mut self, id: OrderId) {
        // Only the map holds it: no command runs or waits.
        if self.locks.get(&id).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            self.locks.remove(&id);
        }
    }
}

/// Names a command, for the case that the actor dies with it.
fn named(
    command: impl std::fmt::Display + Send + 'static,
    request_id: Option<&Arc<str>>,
) -> supervision::WorkInProgress {
    let request_id = request_id.cloned();
    supervision::in_progress(move || match &request_id {
        Some(request_id) => format!("{command} (request {request_id})"),
        None => command.to_string(),
    })
}

impl Actor for OrderAggregate {
    type Context = Context<Self>;
}

supervision::supervised!(OrderAggregate);

impl Handler<MailboxMessage<Create>> for OrderAggregate {
    type Result = ResponseActFuture<Self, Result<CreatedOrder, CommandError>>;

    fn handle(&mut self, message: MailboxMessage<Create>, ctx: &mut Self::Context) -> Self::Result {
        let (Create { command, key, progress }, permit) = message.begin(ctx);
        let context = Arc::clone(&self.context);
        let (mut command_span, progress) =
            CommandSpan::begin(&self.tracer, command.span, "OrderAggregate create", &permit, progress);
        let span = permit.span().clone();
        let work_in_progress = named("the creation of an order", command.request_id.as_ref());
        let create = async move {
            let _in_progress = work_in_progress;
            create_order(&context, command, key, &progress).await
        }
        .instrument(span.clone());
        Box::pin(create.into_actor(self).map(move |result, this, _| {
            let (_permit, _entered) = (permit, span.enter());
            this.record_error(&result);
            if let Ok(outcome) = &result {
                command_span.set_order(outcome.created.order.id);
            }
            command_span.end(&result);
            let create_order::CreateOutcome { created, rows } = result?;
            span.record("order_id", tracing::field::display(created.order.id));
            this.record_commit(&created.order, rows);
            Ok(created)
        }))
    }
}

impl Handler<MailboxMessage<Change>> for OrderAggregate {
    type Result = ResponseActFuture<Self, Result<Arc<Order>, CommandError>>;

    fn handle(&mut self, message: MailboxMessage<Change>, ctx: &mut Self::Context) -> Self::Result {
        let (Change { command, progress }, permit) = message.begin(ctx);
        let (context, id) = (Arc::clone(&self.context), command.id);
        let (mut command_span, progress) =
            CommandSpan::begin(&self.tracer, command.span, "OrderAggregate change", &permit, progress);
        command_span.set_order(id);
        let lock = self.lock_of(id);
        let work_in_progress = named(format!("a change of order {id}"), command.request_id.as_ref());
        let change = async move {
            let _in_progress = work_in_progress;
            // The mutex is fair: commands of one order run in the order of their arrival.
            let _guard = lock.lock_owned().await;
            change_order(&context, &command, &progress).await
        };
        let span = permit.span().clone();
        Box::pin(change.instrument(span.clone()).into_actor(self).map(move |result, this, _| {
            let (_permit, _entered) = (permit, span.enter());
            this.drop_unused_lock(id);
            this.record_error(&result);
            command_span.end(&result);
            let change_order::ChangeOutcome { order, rows } = result?;
            this.record_commit(&order, rows);
            Ok(order)
        }))
    }
}
