//! An inbox with a flaw.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::OrderId;
use ports::Error;
use ports::inbox::{Detour, DetourChange, Inbox, InboxOutcome, ProcessedEvent, RemoteStamp};

use crate::broken::flaw::Flaw;

pub(crate) struct BrokenInbox {
    pub(crate) real: Arc<dyn Inbox>,
    pub(crate) flaw: Flaw,
}

impl BrokenInbox {
    fn group<'g>(&self, group: &'g str) -> &'g str {
        if self.flaw == Flaw::SharesInboxBetweenGroups { "shared" } else { group }
    }
}

#[async_trait]
impl Inbox for BrokenInbox {
    async fn commit(&self, group: &str, mut events: Vec<ProcessedEvent>) -> Result<Vec<InboxOutcome>, Error> {
        if self.flaw == Flaw::DropsEffects {
            events.iter_mut().for_each(|event| event.effects.clear());
        }
        let outcomes = self.real.commit(self.group(group), events).await?;
        if self.flaw == Flaw::ReportsDuplicatesAsNew {
            return Ok(vec![InboxOutcome::New; outcomes.len()]);
        }
        Ok(outcomes)
    }
    async fn remote(&self, order_id: OrderId) -> Result<Option<RemoteStamp>, Error> {
        self.real.remote(order_id).await
    }
    async fn detour(&self, group: &str, key: &str) -> Result<Option<Detour>, Error> {
        self.real.detour(self.group(group), key).await
    }
    async fn set_detours(&self, group: &str, mut changes: Vec<DetourChange>) -> Result<(), Error> {
        if self.flaw == Flaw::NeverEndsDetours {
            changes.retain(|change| matches!(change, DetourChange::Enter { .. }));
        }
        if self.flaw == Flaw::EndsDetoursEarly {
            for change in &mut changes {
                if let DetourChange::Leave { offset, .. } = change {
                    *offset = u64::MAX;
                }
            }
        }
        self.real.set_detours(self.group(group), changes).await
    }
    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let limit = if self.flaw == Flaw::InboxSweepIgnoresLimit { 1_000 } else { limit };
        let keep = if self.flaw == Flaw::SweepsRecentEvents { keep / 1_000 } else { keep };
        self.real.sweep(keep, limit).await
    }
}
