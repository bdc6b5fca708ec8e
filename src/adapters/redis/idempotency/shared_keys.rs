//! `Idempotency` on Redis: the fast check before the durable record. Each step is one script that compares and writes. Redis may lose keys at
//! any time, because the durable record in the store decides.
//!
//! A key in use names its holder: the instance and its boot id. Each process renews a heartbeat, `instance:<id>` with the boot id as its
//! value, which expires `dead_after` after the process died. A key is free if its holder's heartbeat is missing or has another boot id. So
//! a key outlives its process by seconds and not by its whole lock, and a restart of the same instance frees its keys at once. Where that
//! judgement is wrong (a process that was suspended for that long and continues), two processes may create under one key, and the record inside
//! the commit rejects one of them.
use std::time::Duration;

use async_trait::async_trait;
use domain::{OrderId, Subject};
use ports::Error;
use ports::orders::idempotency::{BeginOutcome, Idempotency};

use crate::connection::call::{Caller, Request};
use crate::connection::client::Redis;
use crate::idempotency::pending_releases::{KeyRelease, KeyResult};
use crate::idempotency::stored_value;

#[async_trait]
impl Idempotency for Redis {
    async fn begin(
        &self,
        subject: &Subject,
        key: &str,
        fingerprint: &[u8; 32],
        lock: Duration,
    ) -> Result<BeginOutcome, Error> {
        let inner = &self.inner;
        let (keys, instance) = (&inner.keys, &inner.options.instance);
        let mut begin = inner.scripts.begin_key.prepare_invoke();
        begin.key(keys.idempotency_key(subject, key)).key(keys.heartbeat(instance));
        begin.arg(stored_value::in_progress(fingerprint, &inner.boot_id, &instance.0)).arg(ttl_ms(lock));
        begin.arg(keys.heartbeat_prefix()).arg(&inner.boot_id).arg(ttl_ms(inner.options.dead_after));
        let value: Option<String> = inner.call(Caller::Idempotency, "begin a key", Request::Script(&begin)).await?;
        match value {
            None => inner.after_legacy_key(subject, key, lock).await,
            Some(text) => stored_value::parse(&text)
                .ok_or_else(|| Error::Broken("an idempotency key's value has an unknown format".into())),
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
        let result =
            KeyResult::Completed { value: stored_value::completed(fingerprint, order_id), ttl_ms: ttl_ms(keep) };
        self.inner.release_key(KeyRelease { key: self.inner.keys.idempotency_key(subject, key), result }).await
    }

    async fn abandon(&self, subject: &Subject, key: &str) -> Result<(), Error> {
        let key = self.inner.keys.idempotency_key(subject, key);
        self.inner.release_key(KeyRelease { key, result: KeyResult::Abandoned }).await
    }
}

/// A time to live in milliseconds, at least 1 because Redis accepts no zero.
pub(crate) fn ttl_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).clamp(1, i64::MAX as u64 / 2)
}
