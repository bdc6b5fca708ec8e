//! Dispatcher: what the HTTP API may ask of the actors. Commands, the tree as rows, injected faults, the live event stream.
use std::sync::Arc;

use app::commands::CommitProgress;
use app::dispatch::{
    ActorView, ChangeOrder, CreateOrder, Created, Dispatch, EventsPublished, InjectError, InjectedFault, LiveEvent,
    LiveFeed, PublishEvents, SupervisorView,
};
use app::error::CommandError;
use async_trait::async_trait;
use domain::Order;
use futures::StreamExt;
use supervision::{FieldValue, Mailbox, SupervisionBus, SupervisionEvent, SupervisorSnapshot};

use super::options::Options;
use super::shards::{Shards, error_without_reply};
use crate::event_intake::{EventIntake, Publish};

/// Implements the API's [`Dispatch`] on the running tree.
pub struct Dispatcher {
    shards: Shards,
    intake: Mailbox<EventIntake>,
    bus: SupervisionBus,
    options: Arc<Options>,
}

impl Dispatcher {
    /// Commands go to these shards, and events of other services to this intake. Faults are refused unless the options allow them.
    pub fn new(shards: Shards, intake: Mailbox<EventIntake>, bus: SupervisionBus, options: Arc<Options>) -> Self {
        Self { shards, intake, bus, options }
    }
}

#[async_trait]
impl Dispatch for Dispatcher {
    async fn create(&self, command: CreateOrder) -> Result<Created, CommandError> {
        self.shards.create(command).await
    }

    async fn change(&self, command: ChangeOrder) -> Result<Arc<Order>, CommandError> {
        self.shards.change(command).await
    }

    async fn publish(&self, command: PublishEvents) -> Result<EventsPublished, CommandError> {
        let progress = CommitProgress::default();
        let publish = Publish { command, progress: progress.clone() };
        let reply = self.intake.try_ask(publish, self.options.request_timeout).await;
        reply.unwrap_or_else(|error| Err(error_without_reply(error, &progress)))
    }

    fn actors(&self) -> Vec<ActorView> {
        let rows = self.bus.snapshot().into_iter();
        rows.map(|row| ActorView {
            path: row.path,
            actor: row.actor.to_owned(),
            state: row.state.as_str(),
            generation: row.generation,
            restarts: row.restarts,
            mailbox_depth: row.mailbox_depth,
            mailbox_capacity: row.mailbox_capacity,
            last_exit: row.last_exit,
            supervisor: row.supervisor,
            parent: row.parent,
        })
        .collect()
    }

    fn supervisors(&self) -> Vec<SupervisorView> {
        let view = |row: SupervisorSnapshot| SupervisorView {
            label: row.label,
            parent: row.parent,
            strategy: row.strategy,
            restarts_max: row.restarts_max,
            window: row.window,
            restarts_in_window: row.restarts_in_window,
        };
        self.bus.supervisors().into_iter().map(view).collect()
    }

    fn announce(&self, event: &'static str, fields: Vec<(&'static str, String)>) {
        self.bus.publish_external(event, fields);
    }

    fn inject(&self, path: &str, fault: InjectedFault, by: &str) -> Result<(), InjectError> {
        if !self.options.faults {
            return Err(InjectError::Disabled);
        }
        let result = match fault {
            InjectedFault::Panic => self.bus.panic(path, by),
            InjectedFault::Stop => self.bus.stop(path, by),
            InjectedFault::Pause => self.bus.pause(path, by),
            InjectedFault::Resume => self.bus.resume(path, by),
        };
        result.map_err(|_| InjectError::NoSuchActor)
    }

    fn faults_enabled(&self) -> bool {
        self.options.faults
    }

    fn live(&self, after: Option<u64>) -> LiveFeed {
        let (backlog, receiver) = self.bus.subscribe_after(after);
        let next = futures::stream::unfold(receiver, |mut receiver| async move {
            // The stream of a reader that is too slow ends: it reconnects with the last number it saw and receives all that the ring still has.
            let event = receiver.recv().await.ok()?;
            Some((live_event(&event), receiver))
        });
        LiveFeed { backlog: backlog.iter().map(live_event).collect(), next: next.boxed() }
    }
}

fn live_event(event: &SupervisionEvent) -> LiveEvent {
    let mut fields = serde_json::Map::new();
    let mut put = |name: &str, text: &str| {
        if !text.is_empty() {
            fields.insert(name.to_owned(), text.into());
        }
    };
    put("child", &event.child);
    put("supervisor", &event.supervisor);
    put("actor", event.kind);
    put("reason", event.reason.unwrap_or_default());
    if !event.child.is_empty() {
        fields.insert("generation".to_owned(), event.generation.into());
    }
    for (name, value) in &event.fields {
        fields.insert((*name).to_owned(), json(value));
    }
    let data = serde_json::Value::Object(fields).to_string();
    LiveEvent { seq: event.seq, event: event.event.to_owned(), data, age: event.at.elapsed() }
}

fn json(value: &FieldValue) -> serde_json::Value {
    match value {
        FieldValue::Text(text) => text.clone().into(),
        FieldValue::Number(number) => (*number).into(),
    }
}
