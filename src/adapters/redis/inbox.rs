//! `Inbox`: the events that each group has processed, with their effects and retry routes.
use std::time::Duration;

use async_trait::async_trait;
use domain::{Hlc, OrderId, RegionId};
use ports::Error;
use ports::inbox::{Effect, Inbox, InboxOutcome, ProcessedEvent, RemoteStamp, RetryRoute, RetryRouteChange};

use crate::store::arguments::ScriptArguments;
use crate::store::call::millis;
use crate::store::client::RedisStore;
use crate::store::reply::{Reply, broken};

#[async_trait]
impl Inbox for RedisStore {
    async fn commit(&self, group: &str, events: Vec<ProcessedEvent>) -> Result<Vec<InboxOutcome>, Error> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let mut arguments = ScriptArguments::new().text(group);
        for ProcessedEvent { event_id, position, effects } in &events {
            let position = format!("{}/{}/{}", position.topic, position.partition, position.offset);
            arguments = arguments.text(event_id.to_string()).text(position).number(effects.len());
            for Effect::StoreRemoteStamp { order_id, region, hlc } in effects {
                arguments =
                    arguments.text(order_id.to_string()).text(region.as_str()).number(hlc.millis).number(hlc.counter);
            }
        }
        let mut reply = self.write_list("inbox_commit", &self.inner.scripts.commit_inbox, arguments).await?;
        let outcome = |is_new| if is_new { InboxOutcome::New } else { InboxOutcome::Duplicate };
        (0..reply.len()).map(|index| reply.flag(index).map(outcome)).collect()
    }

    async fn remote_stamp(&self, order_id: OrderId) -> Result<Option<RemoteStamp>, Error> {
        let Some(text) = self.hash_field("inbox_remote", "remotes", &order_id.to_string()).await? else {
            return Ok(None);
        };
        let mut parts = text.splitn(3, ' ');
        let stamp =
            parts.next().and_then(|text| text.parse().ok()).zip(parts.next().and_then(|text| text.parse().ok()));
        let (millis, counter) = stamp.ok_or_else(|| broken("a stamp of an unknown format"))?;
        Ok(Some(RemoteStamp { region: RegionId::new(parts.next().unwrap_or_default()), hlc: Hlc { millis, counter } }))
    }

    async fn retry_route(&self, group: &str, key: &str) -> Result<Option<RetryRoute>, Error> {
        let Some(text) = self.hash_field("retry_route_find", &format!("detours:{group}"), key).await? else {
            return Ok(None);
        };
        let numbers = text.split_once(' ').and_then(|(stage, last)| stage.parse().ok().zip(last.parse().ok()));
        let (stage, last) = numbers.ok_or_else(|| broken("a retry route of an unknown format"))?;
        Ok(Some(RetryRoute { stage, last }))
    }

    async fn update_retry_routes(&self, group: &str, changes: Vec<RetryRouteChange>) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let change = |arguments: ScriptArguments, change: &RetryRouteChange| match change {
            RetryRouteChange::Enter { key, stage, offset } => arguments.text(key).number(offset).number(stage),
            RetryRouteChange::Leave { key, offset } => arguments.text(key).number(offset).text(""),
        };
        let arguments = changes.iter().fold(ScriptArguments::new().text(group), change);
        self.write("retry_routes_update", &self.inner.scripts.update_retry_routes, arguments).await.map(drop)
    }

    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let arguments = ScriptArguments::new().number(millis(keep)).number(limit);
        let reply = self.write("inbox_sweep", &self.inner.scripts.sweep_inbox, arguments).await?;
        Reply::single(reply).number(0)
    }
}
