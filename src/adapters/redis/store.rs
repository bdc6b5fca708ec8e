//! A store whose only home is Redis: orders, outbox, leases and inbox in one slot. Every change is one script, so it happens as a whole or
//! not at all; each statement of the relay names owner, epoch and counter or token, as in every other store.
//!
//! The lock of one poller, which such stores usually have, is the lease of a partition here: taken with a token, renewed and given back
//! by comparison, lost when it runs out. What Redis may forget is refused at the start: see [`Durability`].
mod idempotency;
mod inbox;
mod keeping;
mod leases;
mod open;
mod operators;
mod options;
mod orders;
mod outbox;
mod redrives;
mod row;
mod scripts;
mod seat;
mod wakes;
mod words;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use deadpool_redis::redis::{Cmd, FromRedisValue, Script, Value};
use ports::Error;
use ports::probe::{Probe, ProbeReport};
use tokio::sync::watch;

use crate::link::{Ask, Caller};
use crate::open::Redis;
use scripts::Scripts;
use wakes::Bell;
use words::{Reply, Words};

pub use options::{Durability, StoreOpenError, StoreOptions};
pub use seat::Lost;

/// The store. Cheap to clone; all clones are one process in the eyes of the others.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    redis: Redis,
    scripts: Scripts,
    /// Stands before every name, with the hash tag that keeps all of them in one slot.
    front: String,
    installation: Arc<str>,
    partitions: u32,
    /// The name that this process holds; none beside a service.
    held: Option<String>,
    lost: watch::Sender<Option<Lost>>,
    bell: Bell,
}

impl RedisStore {
    /// The installation's own name, drawn when the database was first used.
    pub fn installation(&self) -> &str {
        &self.inner.installation
    }

    /// The number of partitions the database was installed with.
    pub fn partitions(&self) -> u32 {
        self.inner.partitions
    }

    /// Runs a script that may change something.
    async fn change(&self, doing: &'static str, script: &Script, words: Words) -> Result<Value, Error> {
        let mut call = script.prepare_invoke();
        call.key(&self.inner.front).arg(&words.0);
        let begun = Instant::now();
        let told = self.inner.redis.inner.ask(Caller::Store, doing, Ask::Script(&call)).await;
        if let Some(metrics) = &self.inner.redis.inner.options.metrics {
            metrics.db_query_duration.with([doing]).record(begun.elapsed());
        }
        told
    }

    /// Runs a script that only looks.
    async fn look(&self, doing: &'static str, script: &Script, words: Words) -> Result<Value, Error> {
        self.change(doing, script, words).await.map_err(only_looked)
    }

    /// One command that only looks.
    async fn look_at<T: FromRedisValue>(&self, doing: &'static str, command: Cmd) -> Result<T, Error> {
        self.inner.redis.inner.ask_one(doing, command).await.map_err(only_looked)
    }

    async fn parts(&self, doing: &'static str, script: &Script, words: Words) -> Result<Reply, Error> {
        Reply::of(self.change(doing, script, words).await?)
    }

    async fn seen(&self, doing: &'static str, script: &Script, words: Words) -> Result<Reply, Error> {
        Reply::of(self.look(doing, script, words).await?)
    }
}

/// An answer that is lost changed nothing.
fn only_looked(error: Error) -> Error {
    match error {
        Error::Unknown(said) => Error::Unreachable(said),
        other => other,
    }
}

/// Whole milliseconds.
fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

/// The store's pulse: its Redis takes a write.
pub struct StoreProbe(pub RedisStore);

#[async_trait]
impl Probe for StoreProbe {
    fn name(&self) -> &'static str {
        "db"
    }

    async fn check(&self) -> Result<ProbeReport, Error> {
        self.0.inner.redis.check().await
    }

    fn saturation(&self) -> Option<f64> {
        self.0.inner.redis.saturation()
    }
}
