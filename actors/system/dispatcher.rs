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
        let actors = self.bus.snapshot().into_iter();
        actors
            .map(|actor| ActorView {
                in_progress: (actor.mailbox_depth > 0).then(|| self.bus.in_progress(&actor.path)).flatten(),
                path: actor.path,
                actor: actor.kind.to_owned(),
                state: actor.state.as_str(),
                generation: actor.generation,
                restarts: actor.restarts,
                uptime: actor.uptime,
                mailbox_depth: actor.mailbox_depth,
                mailbox_capacity: actor.mailbox_capacity,
                last_exit: actor.last_exit,
                supervisor: actor.supervisor,
                parent: actor.parent,
            })
            .collect()
    }

    fn supervisors(&self) -> Vec<SupervisorView> {
        let view = |supervisor: SupervisorSnapshot| SupervisorView {
            label: supervisor.label,
            parent: supervisor.parent,
            strategy: supervisor.strategy,
            restarts_max: supervisor.restarts_max,
            window: supervisor.window,
            restarts_in_window: supervisor.restarts_in_window,
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
