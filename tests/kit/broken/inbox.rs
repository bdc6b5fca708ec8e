//! An inbox with a flaw.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::OrderId;
use ports::Error;
use ports::inbox::{Inbox, InboxOutcome, ProcessedEvent, RemoteStamp, RetryRoute, RetryRouteChange};

use crate::broken::flaw::Flaw;

pub(crate) struct BrokenInbox {
    pub(crate) inner: Arc<dyn Inbox>,
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
        let outcomes = self.inner.commit(self.group(group), events).await?;
        if self.flaw == Flaw::ReportsDuplicatesAsNew {
            return Ok(vec![InboxOutcome::New; outcomes.len()]);
        }
        Ok(outcomes)
    }
    async fn remote_stamp(&self, order_id: OrderId) -> Result<Option<RemoteStamp>, Error> {
        self.inner.remote_stamp(order_id).await
    }
    async fn retry_route(&self, group: &str, key: &str) -> Result<Option<RetryRoute>, Error> {
        self.inner.retry_route(self.group(group), key).await
    }
    async fn update_retry_routes(&self, group: &str, mut changes: Vec<RetryRouteChange>) -> Result<(), Error> {
        if self.flaw == Flaw::NeverEndsRetryRoutes {
            changes.retain(|change| matches!(change, RetryRouteChange::Enter { .. }));
        }
        if self.flaw == Flaw::EndsRetryRoutesEarly {
            for change in &mut changes {
                if let RetryRouteChange::Leave { offset, .. } = change {
                    *offset = u64::MAX;
                }
            }
        }
        self.inner.update_retry_routes(self.group(group), changes).await
    }
    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let limit = if self.flaw == Flaw::InboxSweepIgnoresLimit { 1_000 } else { limit };
        let keep = if self.flaw == Flaw::SweepsRecentEvents { keep / 1_000 } else { keep };
        self.inner.sweep(keep, limit).await
    }
}
