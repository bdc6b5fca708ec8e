//! EventIntake: takes the events that other services hand over by HTTP, and commits each batch. The bound of its mailbox is the backpressure.
use std::sync::Arc;

use actix::prelude::*;
use app::commands::publish_events::{PublishEventsOutcome, publish_events};
use app::commands::{CommandContext, CommitProgress};
use app::dispatch::{EventsPublished, PublishEvents};
use app::error::CommandError;
use app::health::SharedHealth;
use ports::outbox::events::EventStore;
use supervision::MailboxMessage;
use telemetry::Metrics;
use telemetry::traces::Tracer;
use tracing::Instrument;

use crate::order_aggregate::command_span::CommandSpan;
use crate::order_aggregate::wake_ups::WakeUps;

/// Asks the intake to publish events.
#[derive(Message)]
#[rtype(result = "Result<EventsPublished, CommandError>")]
pub struct Publish {
    /// The client's validated command.
    pub command: PublishEvents,
    /// Shows the caller whether the store was reached, in case this actor dies.
    pub progress: CommitProgress,
}

/// The actor of the events of other services. Batches overlap; the store orders those of one key.
pub struct EventIntake {
    context: Arc<CommandContext>,
    events: Arc<dyn EventStore>,
    wake_ups: WakeUps,
    metrics: Arc<Metrics>,
    health: SharedHealth,
    tracer: Tracer,
}

impl EventIntake {
    /// An intake without a batch.
    pub fn new(
        context: Arc<CommandContext>,
        events: Arc<dyn EventStore>,
        wake_ups: WakeUps,
        metrics: Arc<Metrics>,
        health: SharedHealth,
        tracer: Tracer,
    ) -> Self {
        Self { context, events, wake_ups, metrics, health, tracer }
    }

    fn record_commit(&self, outcome: &PublishEventsOutcome) {
        let new = outcome.partitions.len() as u64;
        let known = outcome.published.events.len() as u64 - new;
        self.metrics.outbox_entries_written.inc_by(new);
        self.metrics.events_accepted.with(["new"]).inc_by(new);
        self.metrics.events_accepted.with(["duplicate"]).inc_by(known);
        outcome.partitions.iter().for_each(|partition| self.wake_ups.wake(*partition));
        tracing::debug!(event = "events_accepted", new, duplicates = known, "events of another service were committed");
    }
}

impl Actor for EventIntake {
    type Context = Context<Self>;
}

supervision::supervised!(EventIntake);

impl Handler<MailboxMessage<Publish>> for EventIntake {
    type Result = ResponseActFuture<Self, Result<EventsPublished, CommandError>>;

    fn handle(&mut self, message: MailboxMessage<Publish>, ctx: &mut Self::Context) -> Self::Result {
        let (Publish { command, progress }, permit) = message.begin(ctx);
        let (context, events) = (Arc::clone(&self.context), Arc::clone(&self.events));
        let (mut command_span, progress) =
            CommandSpan::begin(&self.tracer, command.span, "EventIntake publish", &permit, progress);
        command_span.set_event_count(command.events.len());
        let span = permit.span().clone();
        let (count, request_id) = (command.events.len(), command.request_id.clone());
        let in_progress = supervision::in_progress(move || {
            let request_id = request_id.as_deref().unwrap_or("without an id");
            format!("{count} events of another service (request {request_id})")
        });
        let publish = async move {
            let _in_progress = in_progress;
            publish_events(&context, &*events, command, &progress).await
        };
        Box::pin(publish.instrument(span.clone()).into_actor(self).map(move |result, this, _| {
            let (_permit, _entered) = (permit, span.enter());
            if let Err(CommandError::StorageFull(detail)) = &result {
                this.health.record_full_store(detail);
            }
            command_span.end(&result);
            let outcome = result?;
            this.record_commit(&outcome);
            Ok(outcome.published)
        }))
    }
}
