//! The inbox of the simulated store: its statements over an instance's connections, and the events that they applied.
use std::time::Duration;

use async_trait::async_trait;
use domain::{EventId, OrderId};
use ports::Error;
use ports::inbox::{Inbox, InboxOutcome, ProcessedEvent, RemoteStamp, RetryRoute, RetryRouteChange};

use crate::cluster::flaw::Flaw;
use crate::cluster::postgres::client::PostgresClient;
use crate::cluster::postgres::server::SimulatedPostgres;

/// An event whose effects an inbox transaction has committed.
#[derive(Clone, Copy, Debug)]
pub struct AppliedEvent {
    pub event_id: EventId,
    /// How often the primary had failed before: a later standby may lack the transaction.
    pub timeline: u32,
}

impl SimulatedPostgres {
    /// Records consumed events. Returns which of them are new.
    async fn consume(&self, group: &str, events: Vec<ProcessedEvent>) -> Result<Vec<InboxOutcome>, Error> {
        let ids: Vec<EventId> = events.iter().map(|event| event.event_id).collect();
        let mut outcomes = self.durable_data().commit(group, events).await?;
        if self.flaw() == Some(Flaw::InboxAppliesDuplicates) {
            outcomes.fill(InboxOutcome::New);
        }
        for (event_id, outcome) in ids.into_iter().zip(&outcomes) {
            self.print(format_args!("event {event_id} is {outcome:?}"));
            self.record_consumption(event_id, *outcome);
        }
        Ok(outcomes)
    }

    async fn update_retry_routes(&self, group: &str, changes: Vec<RetryRouteChange>) -> Result<(), Error> {
        self.print(format_args!("detours: {changes:?}"));
        self.durable_data().update_retry_routes(group, changes).await
    }
}

#[async_trait]
impl Inbox for PostgresClient {
    async fn commit(&self, group: &str, events: Vec<ProcessedEvent>) -> Result<Vec<InboxOutcome>, Error> {
        let group = group.to_owned();
        self.execute("inbox_commit", move |server| async move { server.consume(&group, events).await }).await
    }
    async fn remote_stamp(&self, order_id: OrderId) -> Result<Option<RemoteStamp>, Error> {
        self.execute("inbox_remote", move |server| async move { server.data().remote_stamp(order_id).await }).await
    }
    async fn retry_route(&self, group: &str, key: &str) -> Result<Option<RetryRoute>, Error> {
        let (group, key) = (group.to_owned(), key.to_owned());
        let read = move |server: SimulatedPostgres| async move {
            match server.flaw() {
                Some(Flaw::RetryRoutesNotFound) => Ok(None),
                _ => server.data().retry_route(&group, &key).await,
            }
        };
        self.execute("detour", read).await
    }
    async fn update_retry_routes(&self, group: &str, changes: Vec<RetryRouteChange>) -> Result<(), Error> {
        let group = group.to_owned();
        let set = move |server: SimulatedPostgres| async move { server.update_retry_routes(&group, changes).await };
        self.execute("detour_set", set).await
    }
    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let sweep =
            move |server: SimulatedPostgres| async move { Inbox::sweep(server.durable_data(), keep, limit).await };
        self.execute("inbox_sweep", sweep).await
    }
}
