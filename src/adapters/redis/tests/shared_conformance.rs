//! The conformance suites of keys, cache, rate limits and probe on the shared server. Time passes by shifting stored times into the past.
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis as client;
use kit::{Backend, conformance_suite};
use ports::orders::cache::OrderCache;
use ports::orders::idempotency::Idempotency;
use ports::probe::Probe;
use ports::rate_limit::RateLimiter;
use redis::Redis;

use crate::support::{connection, opened, options, prefix, url};

struct SharedBackend {
    redis: Redis,
    prefix: String,
}

/// Makes every key of this prefix `by` older, except heartbeats, which their process renews.
const SHIFT: &str = "
local cursor = '0'
repeat
  local page = redis.call('SCAN', cursor, 'MATCH', ARGV[1] .. '*', 'COUNT', 1000)
  cursor = page[1]
  for _, key in ipairs(page[2]) do
    if not string.find(key, '{keys}:instance:', 1, true) then
      local by = tonumber(ARGV[2])
      if redis.call('TYPE', key).ok == 'hash' and redis.call('HEXISTS', key, 'a') == 1 then
        redis.call('HINCRBYFLOAT', key, 'a', -by)
      end
      local left = redis.call('PTTL', key)
      if left >= 0 and left <= by then
        redis.call('DEL', key)
      elseif left > by then
        redis.call('PEXPIRE', key, left - by)
      end
    end
  end
until cursor == '0'";

#[async_trait::async_trait]
impl Backend for SharedBackend {
    async fn fresh() -> Self {
        let prefix = prefix();
        Self { redis: opened(options(&url(), &prefix, "kit")).await, prefix }
    }
    async fn advance(&self, by: Duration) {
        let shift = client::Script::new(SHIFT);
        let mut shift = shift.arg(&self.prefix);
        let () = shift.arg(by.as_millis() as u64).invoke_async(&mut connection(&url()).await).await.unwrap();
    }
    fn idempotency(&self) -> Arc<dyn Idempotency> {
        Arc::new(self.redis.clone())
    }
    fn cache(&self) -> Arc<dyn OrderCache> {
        Arc::new(self.redis.clone())
    }
    fn rate_limit(&self) -> Arc<dyn RateLimiter> {
        Arc::new(self.redis.clone())
    }
    fn probes(&self) -> Vec<Arc<dyn Probe>> {
        vec![Arc::new(self.redis.clone())]
    }
    async fn disconnect(&self) {
        self.redis.close().await;
    }
}

conformance_suite!(idempotency, SharedBackend);
conformance_suite!(cache, SharedBackend);
conformance_suite!(rate_limit, SharedBackend);
conformance_suite!(probe, SharedBackend);
