//! `Idempotency` on Redis: the quick first line. Each step is one script that compares and writes; it may forget at any time, because
//! the durable mark in the store decides.
//!
//! A key in use names its holder: the instance and its boot. Each process keeps a sign of life, `instance:<id>` with the boot as its
//! value, which runs out `dead_after` after the process did. A key whose holder's sign is missing or of another boot is free, so a key
//! outlives its process by seconds and not by its whole lock; a restart under the same name frees them at once. Where that is wrong (a
//! process that was stopped for so long and goes on), two may create under one key, and the mark inside the commit lets one of them win.
use std::time::Duration;

use async_trait::async_trait;
use domain::{OrderId, Subject};
use ports::Error;
use ports::idempotency::{BeginOutcome, Idempotency};

use crate::debts::End;
use crate::link::{Ask, Caller};
use crate::mark;
use crate::open::Redis;

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
        let (names, instance) = (&inner.names, &inner.options.instance);
        let mut begin = inner.scripts.key_begin.prepare_invoke();
        begin.key(names.key(subject, key)).key(names.sign(instance));
        begin.arg(mark::running(fingerprint, &inner.boot, &instance.0)).arg(millis(lock)).arg(names.signs());
        begin.arg(&inner.boot).arg(millis(inner.options.dead_after));
        let found: Option<String> = inner.ask(Caller::Idempotency, "take a key", Ask::Script(&begin)).await?;
        match found {
            None => Ok(BeginOutcome::Acquired),
            Some(text) => mark::read(&text).ok_or_else(|| Error::Broken("a key's value is in no form we know".into())),
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
        let end = End::Completed { value: mark::completed(fingerprint, order_id), keep_ms: millis(keep) };
        self.inner.end((self.inner.names.key(subject, key), end)).await
    }

    async fn abandon(&self, subject: &Subject, key: &str) -> Result<(), Error> {
        self.inner.end((self.inner.names.key(subject, key), End::Abandoned)).await
    }
}

/// Redis counts in whole milliseconds, and takes no zero.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).clamp(1, i64::MAX as u64 / 2)
}
