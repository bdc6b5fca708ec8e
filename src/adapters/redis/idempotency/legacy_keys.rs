//! Keys that an earlier service wrote, as `<prefix><key>` without a subject. They are read and never completed: a create that they do not
//! answer is stored under this service's own key. A cluster may keep them in another slot, so they are read by a call of their own.
use std::time::Duration;

use domain::Subject;
use ports::Error;
use ports::orders::idempotency::BeginOutcome;

use crate::connection::call::{Caller, Request};
use crate::connection::client::RedisInner;
use crate::idempotency::pending_releases::{KeyRelease, KeyResult};
use crate::idempotency::shared_keys::ttl_ms;
use crate::idempotency::stored_value;

impl RedisInner {
    /// The outcome of a key that this process has just acquired, after the earlier service's key of the same name: if that one is in use or
    /// completed, the acquired key is released again.
    pub(crate) async fn after_legacy_key(
        &self,
        subject: &Subject,
        key: &str,
        lock: Duration,
    ) -> Result<BeginOutcome, Error> {
        let Some(prefix) = &self.options.legacy_key_prefix else { return Ok(BeginOutcome::Acquired) };
        let legacy = self.find_legacy_key(&format!("{prefix}{key}"), lock).await;
        if matches!(legacy, Ok(None)) {
            return Ok(BeginOutcome::Acquired);
        }
        let release = KeyRelease { key: self.keys.idempotency_key(subject, key), result: KeyResult::Abandoned };
        // A release that fails is deferred, or the lock expires.
        let _ = self.release_key(release).await;
        legacy.map(|legacy| legacy.unwrap_or(BeginOutcome::Acquired))
    }

    /// The state of an earlier service's key; `None` if it is absent or its value has an unknown format.
    async fn find_legacy_key(&self, name: &str, lock: Duration) -> Result<Option<BeginOutcome>, Error> {
        let mut find = self.scripts.find_legacy_key.prepare_invoke();
        find.key(name).arg(ttl_ms(lock));
        let value: Option<String> =
            self.call(Caller::Idempotency, "read a key of an earlier service", Request::Script(&find)).await?;
        let Some(value) = value else { return Ok(None) };
        let outcome = stored_value::parse_legacy(&value);
        if outcome.is_none() && self.warnings.is_first("the value of a legacy key") {
            tracing::warn!(
                event = "legacy_key_ignored",
                key = name,
                "ignored an idempotency key of an earlier service, because its value has an unknown format"
            );
        }
        Ok(outcome)
    }
}
