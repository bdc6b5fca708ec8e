//! The inbox of the reference: consumed events, remote stamps and retry routes.
use std::time::Duration;

use async_trait::async_trait;
use domain::{OrderId, Timestamp};
use ports::Error;
use ports::inbox::{Effect, Inbox, InboxOutcome, ProcessedEvent, RemoteStamp, RetryRoute, RetryRouteChange};

use crate::reference::state::{Reference, State};

impl State {
    fn consume(&mut self, group: &str, event: ProcessedEvent, now: Timestamp) -> InboxOutcome {
        let key = (group.to_owned(), event.event_id);
        if self.consumed.contains_key(&key) {
            return InboxOutcome::Duplicate;
        }
        self.consumed.insert(key, now);
        for Effect::StoreRemoteStamp { order_id, region, hlc } in event.effects {
            self.remotes.insert(order_id, RemoteStamp { region, hlc });
        }
        InboxOutcome::New
    }

    fn update_retry_route(&mut self, group: &str, change: RetryRouteChange) {
        match change {
            RetryRouteChange::Enter { key, stage, offset } => {
                let new = RetryRoute { stage, last: offset };
                let retry_route = self.retry_routes.entry((group.to_owned(), key)).or_insert(new);
                (retry_route.stage, retry_route.last) = (retry_route.stage.max(stage), retry_route.last.max(offset));
            }
            RetryRouteChange::Leave { key, offset } => {
                let key = (group.to_owned(), key);
                if self.retry_routes.get(&key).is_some_and(|retry_route| retry_route.last <= offset) {
                    self.retry_routes.remove(&key);
                }
            }
        }
    }
}

#[async_trait]
impl Inbox for Reference {
    async fn commit(&self, group: &str, events: Vec<ProcessedEvent>) -> Result<Vec<InboxOutcome>, Error> {
        let now = self.now();
        let mut state = self.state.lock();
        Ok(events.into_iter().map(|event| state.consume(group, event, now)).collect())
    }

    async fn remote_stamp(&self, order_id: OrderId) -> Result<Option<RemoteStamp>, Error> {
        Ok(self.state.lock().remotes.get(&order_id).cloned())
    }

    async fn retry_route(&self, group: &str, key: &str) -> Result<Option<RetryRoute>, Error> {
        Ok(self.state.lock().retry_routes.get(&(group.to_owned(), key.to_owned())).cloned())
    }

    async fn update_retry_routes(&self, group: &str, changes: Vec<RetryRouteChange>) -> Result<(), Error> {
        let mut state = self.state.lock();
        changes.into_iter().for_each(|change| state.update_retry_route(group, change));
        Ok(())
    }

    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let now = self.now();
        let mut state = self.state.lock();
        let old = state.consumed.iter().filter(|(_, consumed_at)| now.since(**consumed_at) > keep);
        let old: Vec<_> = old.map(|(key, _)| key.clone()).take(limit as usize).collect();
        for key in &old {
            state.consumed.remove(key);
        }
        Ok(old.len() as u64)
    }
}
