//! Dispatcher: the HTTP API's access to the actors: commands, snapshots of the tree, injected faults, the live event stream.
use std::sync::Arc;
use std::time::Duration;

use app::commands::CommitProgress;
use app::dispatch::{
    ActorView, ChangeOrder, CreateOrder, CreatedOrder, Dispatch, EventsPublished, InjectError, InjectedFault, LiveFeed,
    PublishEvents, SupervisorView,
};
use app::error::CommandError;
use async_trait::async_trait;
use domain::Order;
use supervision::{Mailbox, SupervisionBus, SupervisorSnapshot};

use super::live_feed::live_feed;
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
    async fn create(&self, command: CreateOrder, time_limit: Duration) -> Result<CreatedOrder, CommandError> {
        self.shards.create(command, time_limit).await
    }

    async fn change(&self, command: ChangeOrder, time_limit: Duration) -> Result<Arc<Order>, CommandError> {
        self.shards.change(command, time_limit).await
    }

    async fn publish(&self, command: PublishEvents, time_limit: Duration) -> Result<EventsPublished, CommandError> {
        let progress = CommitProgress::default();
        let publish = Publish { command, progress: progress.clone() };
        let reply = self.intake.try_ask(publish, time_limit.min(self.options.request_timeout)).await;
        reply.unwrap_or_else(|error| Err(error_without_reply(error, &progress)))
    }

    fn actors(&self) -> Vec<ActorView> {
        let rows = self.bus.snapshot().into_iter();
        rows.map(|row| ActorView {
            in_progress: (row.mailbox_depth > 0).then(|| self.bus.in_progress(&row.path)).flatten(),
            path: row.path,
            actor: row.kind.to_owned(),
            state: row.state.as_str(),
            generation: row.generation,
            restarts: row.restarts,
            uptime: row.uptime,
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
        live_feed(&self.bus, after)
    }
}
