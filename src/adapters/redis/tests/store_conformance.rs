//! The conformance suites of a store. Time passes by shifting stored times into the past.
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis as client;
use kit::{Backend, conformance_suite};
use ports::endpoint::webhooks::WebhookStore;
use ports::inbox::Inbox;
use ports::operators::redrives::RedriveLedger;
use ports::operators::{Audit, OutboxOperators};
use ports::orders::OrderStore;
use ports::orders::idempotency::Idempotency;
use ports::outbox::events::EventStore;
use ports::outbox::{OutboxStore, RowId};
use ports::partitions::PartitionLeases;
use ports::probe::Probe;
use redis::{RedisStore, RedisStoreProbe};

use crate::support::{PARTITIONS, command, connection, prefix, store_options, url};

struct StoreBackend {
    store: RedisStore,
    prefix: String,
}

/// Makes every time of this prefix `by` older, except the expiries of heartbeats, which their process renews.
const SHIFT: &str = "
local by, cursor = tonumber(ARGV[2]), '0'
local function integer(number) return string.format('%.0f', number) end
local function shift(key, field)
  local known = redis.call('HGET', key, field)
  if known and known ~= '' then redis.call('HSET', key, field, integer(tonumber(known) - by)) end
end
repeat
  local page = redis.call('SCAN', cursor, 'MATCH', ARGV[1] .. '*', 'COUNT', 1000)
  cursor = page[1]
  for _, key in ipairs(page[2]) do
    local name = string.match(key, '{store}:(.*)$') or ''
    if string.find(name, '^row:') then for _, field in ipairs({ 'c', 'due', 'sent', 'la', 'lab' }) do shift(key, field) end end
    if string.find(name, '^lease:') then shift(key, 'expires') end
    if string.find(name, '^holder:') then shift(key, 'seen') end
    if name == 'members' then
      for _, member in ipairs(redis.call('HKEYS', key)) do
        local seen, limit = string.match(redis.call('HGET', key, member), '^(%S+) (%S+)$')
        redis.call('HSET', key, member, integer(tonumber(seen) - by) .. ' ' .. limit)
      end
    end
    if name == 'letters' then
      for _, id in ipairs(redis.call('HKEYS', key)) do
        local record = cjson.decode(redis.call('HGET', key, id))
        record.at = integer(tonumber(record.at) - by)
        redis.call('HSET', key, id, cjson.encode(record))
      end
    end
    if name == 'sent' or name == 'marks:age' or string.find(name, '^processed:age:') then
      for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -by, member) end
    end
    if string.find(name, '^due:') then
      -- Scores below every time are ids.
      for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, 1e12, '+inf')) do redis.call('ZINCRBY', key, -by, member) end
    end
    local left = redis.call('PTTL', key)
    if left >= 0 and not string.find(key, '{keys}:instance:', 1, true) then
      if left <= by then redis.call('DEL', key) else redis.call('PEXPIRE', key, left - by) end
    end
  end
until cursor == '0'";

#[async_trait::async_trait]
impl Backend for StoreBackend {
    async fn fresh() -> Self {
        let prefix = prefix();
        let store = RedisStore::open(store_options(&url(), &prefix, "kit")).await.unwrap();
        Self { store, prefix }
    }
    async fn advance(&self, by: Duration) {
        let shift = client::Script::new(SHIFT);
        let mut shift = shift.arg(&self.prefix);
        let () = shift.arg(by.as_millis() as u64).invoke_async(&mut connection(&url()).await).await.unwrap();
    }
    fn partitions(&self) -> u32 {
        PARTITIONS
    }
    fn orders(&self) -> Arc<dyn OrderStore> {
        Arc::new(self.store.clone())
    }
    fn outbox(&self) -> Arc<dyn OutboxStore> {
        Arc::new(self.store.clone())
    }
    fn events(&self) -> Arc<dyn EventStore> {
        Arc::new(self.store.clone())
    }
    fn operators(&self) -> Arc<dyn OutboxOperators> {
        Arc::new(self.store.clone())
    }
    fn redrives(&self) -> Arc<dyn RedriveLedger> {
        Arc::new(self.store.clone())
    }
    fn webhooks(&self) -> Arc<dyn WebhookStore> {
        Arc::new(self.store.clone())
    }
    fn leases(&self) -> Arc<dyn PartitionLeases> {
        Arc::new(self.store.clone())
    }
    fn inbox(&self) -> Arc<dyn Inbox> {
        Arc::new(self.store.clone())
    }
    fn idempotency(&self) -> Arc<dyn Idempotency> {
        Arc::new(self.store.clone())
    }
    fn probes(&self) -> Vec<Arc<dyn Probe>> {
        vec![Arc::new(RedisStoreProbe(self.store.clone()))]
    }
    async fn audits(&self) -> Vec<Audit> {
        let list = format!("{}{{store}}:audit", self.prefix);
        let lines: Vec<String> = command(&url(), &["LRANGE", &list, "0", "-1"]).await;
        let text = |line: &serde_json::Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let audit = |line: &String| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            Audit { operator: text(&line, "who"), reason: text(&line, "why") }
        };
        lines.iter().map(audit).collect()
    }
    async fn delete_payload(&self, row: RowId) {
        let key = format!("{}{{store}}:row:{row}", self.prefix);
        let lost: u32 = command(&url(), &["HDEL", &key, "y"]).await;
        assert_eq!(lost, 1);
    }
    async fn disconnect(&self) {
        self.store.close().await.expect("the store closes");
    }
}

conformance_suite!(orders, StoreBackend);
conformance_suite!(outbox, StoreBackend);
conformance_suite!(events, StoreBackend);
conformance_suite!(operators, StoreBackend);
conformance_suite!(redrives, StoreBackend);
conformance_suite!(webhooks, StoreBackend);
conformance_suite!(partitions, StoreBackend);
conformance_suite!(inbox, StoreBackend);
conformance_suite!(idempotency, StoreBackend);
conformance_suite!(probe, StoreBackend);
