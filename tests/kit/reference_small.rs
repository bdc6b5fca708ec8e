//! The reference's small ports: idempotency keys, cache, token buckets, probe.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Order, OrderId, Subject, Timestamp};
use ports::Error;
use ports::cache::OrderCache;
use ports::idempotency::{BeginOutcome, Idempotency};
use ports::probe::{Probe, ProbeReport};
use ports::rate_limit::{RateLimitDecision, RateLimitPolicy, RateLimiter};

use crate::reference::Reference;

#[derive(Default)]
pub(crate) struct Small {
    /// What is known about a key, and until when.
    keys: BTreeMap<(Subject, String), (BeginOutcome, Timestamp)>,
    cached: BTreeMap<OrderId, Arc<Order>>,
    buckets: BTreeMap<String, Bucket>,
    pub(crate) policies: BTreeMap<(String, String), RateLimitPolicy>,
    pub(crate) cut_off: bool,
}

struct Bucket {
    tokens: f64,
    seen: Timestamp,
}

#[async_trait]
impl Idempotency for Reference {
    async fn begin(
        &self,
        subject: &Subject,
        key: &str,
        _fingerprint: &[u8; 32],
        lock: Duration,
    ) -> Result<BeginOutcome, Error> {
        let now = self.now();
        let key = (subject.clone(), key.to_owned());
        let mut small = self.small.lock();
        match small.keys.get(&key) {
            Some((known, until)) if *until > now => Ok(known.clone()),
            Some(_) | None => {
                small.keys.insert(key, (BeginOutcome::InProgress, now.after(lock)));
                Ok(BeginOutcome::Acquired)
            }
        }
    }

    async fn complete(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        order_id: OrderId,
        keep: Duration,
    ) -> Result<(), Error> {
        let completed = BeginOutcome::Completed { order_id, fingerprint: Some(*fingerprint) };
        let until = self.now().after(keep);
        self.small.lock().keys.insert((subject.clone(), key.to_owned()), (completed, until));
        Ok(())
    }

    async fn abandon(&self, subject: &Subject, key: &str) -> Result<(), Error> {
        let key = (subject.clone(), key.to_owned());
        let mut small = self.small.lock();
        if small.keys.get(&key).is_some_and(|(known, _)| *known == BeginOutcome::InProgress) {
            small.keys.remove(&key);
        }
        Ok(())
    }
}

#[async_trait]
impl OrderCache for Reference {
    async fn get(&self, id: OrderId) -> Result<Option<Arc<Order>>, Error> {
        Ok(self.small.lock().cached.get(&id).cloned())
    }

    async fn put(&self, order: Arc<Order>) -> Result<(), Error> {
        let mut small = self.small.lock();
        if small.cached.get(&order.id).is_none_or(|cached| cached.version <= order.version) {
            small.cached.insert(order.id, order);
        }
        Ok(())
    }

    async fn evict(&self, id: OrderId) -> Result<(), Error> {
        self.small.lock().cached.remove(&id);
        Ok(())
    }
}

#[async_trait]
impl RateLimiter for Reference {
    async fn take(&self, bucket: &str, policy: &RateLimitPolicy, throttle: f64) -> Result<RateLimitDecision, Error> {
        let now = self.now();
        let size = f64::from(policy.capacity + policy.capacity / 4) * throttle;
        let per_second = f64::from(policy.capacity) * throttle / policy.window.as_secs_f64();
        let mut small = self.small.lock();
        let bucket = small.buckets.entry(bucket.to_owned()).or_insert(Bucket { tokens: size, seen: now });
        bucket.tokens = (bucket.tokens + now.since(bucket.seen).as_secs_f64() * per_second).min(size);
        bucket.seen = now;
        let allowed = bucket.tokens >= 1.0;
        bucket.tokens -= f64::from(u8::from(allowed));
        let missing = 1.0 - bucket.tokens.fract();
        let next_in = Duration::try_from_secs_f64(missing / per_second).unwrap_or(Duration::MAX);
        Ok(RateLimitDecision { allowed, remaining: bucket.tokens as u32, next_in })
    }

    async fn policy(&self, tier: &str, class: &str) -> Result<Option<RateLimitPolicy>, Error> {
        Ok(self.small.lock().policies.get(&(tier.to_owned(), class.to_owned())).cloned())
    }
}

#[async_trait]
impl Probe for Reference {
    fn name(&self) -> &'static str {
        "db"
    }

    async fn check(&self) -> Result<ProbeReport, Error> {
        if self.small.lock().cut_off {
            return Err(Error::Unreachable("asking the reference for its pulse".to_owned()));
        }
        Ok(ProbeReport { latency: Duration::ZERO })
    }

    fn saturation(&self) -> Option<f64> {
        Some(0.0)
    }
}
