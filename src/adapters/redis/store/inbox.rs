//! `Inbox`: what was consumed, and what became true with it.
use std::time::Duration;

use async_trait::async_trait;
use deadpool_redis::redis::cmd;
use domain::{Hlc, OrderId, RegionId};
use ports::Error;
use ports::inbox::{Detour, DetourChange, Effect, Inbox, InboxOutcome, ProcessedEvent, RemoteStamp};

use super::words::{Reply, Words, broken};
use super::{RedisStore, millis};

#[async_trait]
impl Inbox for RedisStore {
    async fn commit(&self, group: &str, marks: Vec<ProcessedEvent>) -> Result<Vec<InboxOutcome>, Error> {
        if marks.is_empty() {
            return Ok(Vec::new());
        }
        let mut words = Words::new().text(group);
        for ProcessedEvent { event_id, position: at, effects } in &marks {
            let place = format!("{}/{}/{}", at.topic, at.partition, at.offset);
            words = words.text(event_id.to_string()).text(place).number(effects.len());
            for Effect::RememberRemote { order_id, region, hlc } in effects {
                words = words.text(order_id.to_string()).text(region.as_str()).number(hlc.millis).number(hlc.counter);
            }
        }
        let mut told = self.parts("inbox_commit", &self.inner.scripts.inbox, words).await?;
        let marked = |new| if new { InboxOutcome::New } else { InboxOutcome::Duplicate };
        (0..told.len()).map(|at| told.flag(at).map(marked)).collect()
    }

    async fn remote(&self, order_id: OrderId) -> Result<Option<RemoteStamp>, Error> {
        let Some(text) = self.field("inbox_remote", "remotes", &order_id.to_string()).await? else { return Ok(None) };
        let mut parts = text.splitn(3, ' ');
        let stamp =
            parts.next().and_then(|text| text.parse().ok()).zip(parts.next().and_then(|text| text.parse().ok()));
        let (millis, counter) = stamp.ok_or_else(|| broken("a stamp in no form we know"))?;
        Ok(Some(RemoteStamp { region: RegionId::new(parts.next().unwrap_or_default()), hlc: Hlc { millis, counter } }))
    }

    async fn detour(&self, group: &str, key: &str) -> Result<Option<Detour>, Error> {
        let Some(text) = self.field("detour", &format!("detours:{group}"), key).await? else { return Ok(None) };
        let numbers = text.split_once(' ').and_then(|(stage, left)| stage.parse().ok().zip(left.parse().ok()));
        let (stage, outstanding) = numbers.ok_or_else(|| broken("a detour in no form we know"))?;
        Ok(Some(Detour { stage, outstanding }))
    }

    async fn set_detours(&self, group: &str, changes: Vec<DetourChange>) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let change = |words: Words, change: &DetourChange| match change {
            DetourChange::Enter { key, stage } => words.text(key).number(stage),
            DetourChange::Leave { key } => words.text(key).text(""),
        };
        let words = changes.iter().fold(Words::new().text(group), change);
        self.change("detour_set", &self.inner.scripts.detours, words).await.map(drop)
    }

    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        let words = Words::new().number(millis(keep)).number(limit);
        let told = self.change("inbox_sweep", &self.inner.scripts.forget, words).await?;
        Reply::one(told).number(0)
    }
}

impl RedisStore {
    /// One field of a hash.
    async fn field(&self, doing: &'static str, hash: &str, field: &str) -> Result<Option<String>, Error> {
        let mut get = cmd("HGET");
        get.arg(format!("{}{hash}", self.inner.front)).arg(field);
        self.look_at(doing, get).await
    }
}
