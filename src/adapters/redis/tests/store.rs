//! The store on Redis: every suite of a store, and what becomes of names, settings and installations.
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis as client;
use kit::{Backend, SeededRng, conformance_suite};
use ports::idempotency::Idempotency;
use ports::inbox::Inbox;
use ports::operators::{Audit, OutboxOperators};
use ports::orders::OrderStore;
use ports::outbox::{OutboxStore, RowId};
use ports::partitions::{InstanceId, PartitionLeases, PartitionNo};
use ports::probe::Probe;
use ports::redrives::RedriveLedger;
use ports::wake::WakeChannel;
use redis::{Durability, RedisStore, StoreOpenError, StoreOptions, StoreProbe};

use crate::server::Server;
use crate::support::{LIMIT, beside, prefix, say, until, url};

const PARTITIONS: u32 = 4;

fn options(url: &str, prefix: &str, instance: &str) -> StoreOptions {
    // Two lives of one name must not draw the same boot.
    let dice = Arc::new(SeededRng::new(rand_seed()));
    let mut options = StoreOptions::new(url, InstanceId(instance.into()), dice);
    (options.prefix, options.partitions, options.answer_within) = (prefix.into(), PARTITIONS, LIMIT);
    options
}

fn rand_seed() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let begun = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    begun.wrapping_add(NEXT.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

struct Home {
    store: RedisStore,
    prefix: String,
}

/// Everything of this prefix is `by` older than it was; signs of life apart, which their process renews.
const SHIFT: &str = "
local by, cursor = tonumber(ARGV[2]), '0'
local function whole(number) return string.format('%.0f', number) end
local function back(key, field)
  local known = redis.call('HGET', key, field)
  if known then redis.call('HSET', key, field, whole(tonumber(known) - by)) end
end
repeat
  local page = redis.call('SCAN', cursor, 'MATCH', ARGV[1] .. '*', 'COUNT', 1000)
  cursor = page[1]
  for _, key in ipairs(page[2]) do
    local name = string.match(key, '{store}:(.*)$') or ''
    if string.find(name, '^row:') then for _, field in ipairs({ 'c', 'due', 'sent' }) do back(key, field) end end
    if string.find(name, '^lease:') then back(key, 'expires') end
    if string.find(name, '^holder:') then back(key, 'seen') end
    if name == 'members' then
      for _, member in ipairs(redis.call('HKEYS', key)) do
        local seen, limit = string.match(redis.call('HGET', key, member), '^(%S+) (%S+)$')
        redis.call('HSET', key, member, whole(tonumber(seen) - by) .. ' ' .. limit)
      end
    end
    if name == 'letters' then
      for _, letter in ipairs(redis.call('HKEYS', key)) do
        local known = cjson.decode(redis.call('HGET', key, letter))
        known.at = whole(tonumber(known.at) - by)
        redis.call('HSET', key, letter, cjson.encode(known))
      end
    end
    if name == 'sent' or name == 'marks:age' or string.find(name, '^processed:age:') then
      for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -by, member) end
    end
    local left = redis.call('PTTL', key)
    if left >= 0 and not string.find(key, '{keys}:instance:', 1, true) then
      if left <= by then redis.call('DEL', key) else redis.call('PEXPIRE', key, left - by) end
    end
  end
until cursor == '0'";

#[async_trait::async_trait]
impl Backend for Home {
    async fn fresh() -> Self {
        let prefix = prefix();
        let store = RedisStore::open(options(&url(), &prefix, "kit")).await.unwrap();
        Self { store, prefix }
    }
    async fn advance(&self, by: Duration) {
        let shift = client::Script::new(SHIFT);
        let mut shift = shift.arg(&self.prefix);
        let () = shift.arg(by.as_millis() as u64).invoke_async(&mut beside(&url()).await).await.unwrap();
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
    fn operators(&self) -> Arc<dyn OutboxOperators> {
        Arc::new(self.store.clone())
    }
    fn redrives(&self) -> Arc<dyn RedriveLedger> {
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
        vec![Arc::new(StoreProbe(self.store.clone()))]
    }
    async fn audits(&self) -> Option<Vec<Audit>> {
        let list = format!("{}{{store}}:audit", self.prefix);
        let lines: Vec<String> = say(&url(), &["LRANGE", &list, "0", "-1"]).await;
        let text = |line: &serde_json::Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let audit = |line: &String| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            Audit { operator: text(&line, "who"), reason: text(&line, "why") }
        };
        Some(lines.iter().map(audit).collect())
    }
    async fn lose_payload(&self, row: RowId) -> bool {
        let key = format!("{}{{store}}:row:{row}", self.prefix);
        let lost: u32 = say(&url(), &["HDEL", &key, "y"]).await;
        lost == 1
    }
    async fn cut_off(&self) -> bool {
        self.store.close().await.is_ok()
    }
}

mod home {
    use super::*;
    conformance_suite!(orders, Home);
    conformance_suite!(outbox, Home);
    conformance_suite!(operators, Home);
    conformance_suite!(redrives, Home);
    conformance_suite!(partitions, Home);
    conformance_suite!(inbox, Home);
    conformance_suite!(idempotency, Home);
    conformance_suite!(probe, Home);
}

async fn refused(options: StoreOptions) -> StoreOpenError {
    RedisStore::open(options).await.err().unwrap()
}

#[tokio::test]
async fn what_was_installed_stays_and_another_number_of_partitions_is_refused() {
    let prefix = prefix();
    let absent = RedisStore::open_beside(options(&url(), &prefix, "looker")).await.err().unwrap();
    assert!(matches!(absent, StoreOpenError::Absent) && !absent.may_pass(), "{absent}");

    let first = RedisStore::open(options(&url(), &prefix, "a")).await.unwrap();
    let second = RedisStore::open(options(&url(), &prefix, "b")).await.unwrap();
    let beside = RedisStore::open_beside(options(&url(), &prefix, "looker")).await.unwrap();

    assert_eq!((first.installation().len(), first.installation()), (36, second.installation()));
    assert_eq!((beside.installation(), beside.partitions()), (first.installation(), PARTITIONS));
    let other = refused(StoreOptions { partitions: 5, ..options(&url(), &prefix, "c") }).await;
    assert!(matches!(other, StoreOpenError::Partitions { configured: 5, installed: PARTITIONS }) && other.is_config());
}

#[tokio::test]
async fn a_name_is_held_as_long_as_its_process_lives() {
    let prefix = prefix();
    let first = RedisStore::open(options(&url(), &prefix, "one")).await.unwrap();
    first.announce("127.0.0.1:8080").await.unwrap();

    let told = refused(options(&url(), &prefix, "one")).await.to_string();
    assert!(told.contains("127.0.0.1:8080") && told.contains(&std::process::id().to_string()), "{told}");

    first.close().await.unwrap();
    RedisStore::open(options(&url(), &prefix, "one")).await.unwrap();
}

#[tokio::test]
async fn whoever_lost_its_name_is_told_with_the_next_heartbeat_and_renews_nothing() {
    let prefix = prefix();
    let store = RedisStore::open(options(&url(), &prefix, "one")).await.unwrap();
    let (name, dead_after) = (InstanceId("one".into()), Duration::from_secs(15));
    store.heartbeat(&name, dead_after).await.unwrap();

    let holder = format!("{prefix}{{store}}:holder:one");
    let _: u32 = say(&url(), &["HSET", &holder, "boot", "another"]).await;

    store.heartbeat(&name, dead_after).await.unwrap_err();
    assert_eq!(tokio::time::timeout(LIMIT, store.lost()).await.unwrap().instance, "one");
}

#[tokio::test]
async fn a_redis_that_may_forget_is_refused_unless_somebody_says_so() {
    let server = Server::start().await;

    let told = refused(options(&server.url(), "p:", "one")).await;
    assert!(matches!(&told, StoreOpenError::MayLose(said) if said.contains("appendonly")) && !told.may_pass());

    let warned = StoreOptions { durability: Durability::Warn, ..options(&server.url(), "p:", "one") };
    let store = RedisStore::open(warned).await.unwrap();
    assert!(store.may_lose().await.unwrap().is_some());
}

#[tokio::test]
async fn a_redis_that_is_not_there_may_come() {
    let away = refused(options("redis://127.0.0.1:1", "p:", "one")).await;
    assert!(matches!(away, StoreOpenError::Away(_)) && away.may_pass(), "{away}");
    let nonsense = refused(options("nonsense", "p:", "one")).await;
    assert!(nonsense.is_config() && !nonsense.may_pass(), "{nonsense}");
}

/// Tells until somebody else heard of it: whoever has just begun to listen may have missed the first hint.
async fn heard(by: &RedisStore, from: &RedisStore, partition: u32) {
    until("it is heard", async || {
        from.notify(PartitionNo(partition));
        let told = tokio::time::timeout(Duration::from_millis(100), by.notified()).await;
        told.is_ok_and(|told| told.contains(&PartitionNo(partition))).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_one_instance_tells_the_others_hear_and_another_installations_do_not() {
    let prefix = prefix();
    let a = RedisStore::open(options(&url(), &prefix, "a")).await.unwrap();
    let b = RedisStore::open(options(&url(), &prefix, "b")).await.unwrap();
    let other = RedisStore::open(options(&url(), &crate::support::prefix(), "c")).await.unwrap();

    heard(&b, &a, 1).await;
    heard(&a, &b, 3).await;

    assert!(tokio::time::timeout(Duration::from_millis(100), other.notified()).await.is_err());
}

#[tokio::test]
async fn a_listener_that_was_cut_off_listens_again() {
    let server = Server::start().await;
    let open = async |name: &str| {
        let options = StoreOptions { durability: Durability::Warn, ..options(&server.url(), "p:", name) };
        RedisStore::open(options).await.unwrap()
    };
    let (a, b) = (open("a").await, open("b").await);
    heard(&b, &a, 2).await;

    let cut: i64 = say(&server.url(), &["CLIENT", "KILL", "TYPE", "pubsub"]).await;

    assert_eq!(cut, 2, "both listened");
    heard(&b, &a, 2).await;
}
