//! The inbox of the reference: consumed events, remote stamps and detours.
use std::time::Duration;

use async_trait::async_trait;
use domain::{OrderId, Timestamp};
use ports::Error;
use ports::inbox::{Detour, DetourChange, Effect, Inbox, InboxOutcome, ProcessedEvent, RemoteStamp};

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

    fn change_detour(&mut self, group: &str, change: DetourChange) {
        match change {
            DetourChange::Enter { key, stage, offset } => {
                let new = Detour { stage, last: offset };
                let detour = self.detours.entry((group.to_owned(), key)).or_insert(new);
                (detour.stage, detour.last) = (detour.stage.max(stage), detour.last.max(offset));
            }
            DetourChange::Leave { key, offset } => {
                let key = (group.to_owned(), key);
                if self.detours.get(&key).is_some_and(|detour| detour.last <= offset) {
                    self.detours.remove(&key);
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

    async fn remote(&self, order_id: OrderId) -> Result<Option<RemoteStamp>, Error> {
        Ok(self.state.lock().remotes.get(&order_id).cloned())
    }

    async fn detour(&self, group: &str, key: &str) -> Result<Option<Detour>, Error> {
        Ok(self.state.lock().detours.get(&(group.to_owned(), key.to_owned())).cloned())
    }

    async fn set_detours(&self, group: &str, changes: Vec<DetourChange>) -> Result<(), Error> {
        let mut state = self.state.lock();
        changes.into_iter().for_each(|change| state.change_detour(group, change));
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
