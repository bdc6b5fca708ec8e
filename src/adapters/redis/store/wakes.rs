//! `WakeChannel`: instances tell each other over a channel of their Redis. Hints are gathered: the first goes at once, what comes within a few
//! milliseconds goes as one.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use deadpool_redis::redis::{Client, RedisResult, cmd};
use futures::StreamExt;
use parking_lot::Mutex;
use ports::partitions::{InstanceId, PartitionNo};
use ports::wake::{WakeChannel, format_hint, parse_hint};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::{Inner, RedisStore};

/// Between two tellings.
const TELL_EVERY: Duration = Duration::from_millis(5);
/// First and longest pause between two tries to listen again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Partitions gathered until somebody takes them. Their number is bounded by the installation's.
#[derive(Default)]
struct Gathered {
    partitions: Mutex<BTreeSet<u32>>,
    some: Notify,
}

impl Gathered {
    fn add(&self, partitions: impl IntoIterator<Item = u32>) {
        self.partitions.lock().extend(partitions);
        self.some.notify_one();
    }

    /// Waits until there are some. What is not returned stays.
    async fn take(&self) -> BTreeSet<u32> {
        loop {
            let taken = std::mem::take(&mut *self.partitions.lock());
            if !taken.is_empty() {
                return taken;
            }
            self.some.notified().await;
        }
    }
}

/// Rung for the others, and heard from them. One that was not hung is silent and deaf.
#[derive(Default)]
pub(super) struct Bell {
    ours: Arc<Gathered>,
    theirs: Arc<Gathered>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.tasks.get_mut().iter().for_each(JoinHandle::abort);
    }
}

impl RedisStore {
    /// Begins to tell the others, and to listen to them.
    pub(super) fn hang_bell(&self, url: &str, instance: &InstanceId) -> RedisResult<()> {
        let client = Client::open(url)?;
        let (inner, bell) = (Arc::downgrade(&self.inner), &self.inner.bell);
        let (ours, me) = (Arc::clone(&bell.ours), instance.clone());
        let ring = tokio::spawn(async move {
            loop {
                let partitions: Vec<u32> = ours.take().await.into_iter().collect();
                let Some(inner) = inner.upgrade() else { return };
                inner.tell(&me, &partitions).await;
                drop(inner);
                tokio::time::sleep(TELL_EVERY).await;
            }
        });
        let (theirs, me) = (Arc::clone(&bell.theirs), instance.clone());
        let (channel, partitions) = (self.inner.channel(), self.inner.partitions);
        let listen = tokio::spawn(async move {
            let mut pause = PAUSES.0;
            loop {
                if listen(&client, &channel, |told| theirs.add(parse_hint(told, &me, partitions))).await.is_ok() {
                    pause = PAUSES.0;
                }
                // What was told while nobody listened is lost; the polls find it.
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        });
        bell.tasks.lock().extend([ring, listen]);
        Ok(())
    }
}

impl Inner {
    fn channel(&self) -> String {
        format!("{}wakes", self.front)
    }

    async fn tell(&self, me: &InstanceId, partitions: &[u32]) {
        let mut publish = cmd("PUBLISH");
        publish.arg(self.channel()).arg(format_hint(me, partitions));
        // A hint and nothing more: the others' polls find what it would have told.
        let _: Result<u64, _> = self.redis.inner.ask_one("wake", publish).await;
    }
}

/// Hears until the connection ends.
async fn listen(client: &Client, channel: &str, hear: impl Fn(&str)) -> RedisResult<()> {
    let mut line = client.get_async_pubsub().await?;
    line.subscribe(channel).await?;
    let mut told = line.on_message();
    while let Some(message) = told.next().await {
        hear(&message.get_payload::<String>().unwrap_or_default());
    }
    Ok(())
}

#[async_trait]
impl WakeChannel for RedisStore {
    fn notify(&self, partition: PartitionNo) {
        self.inner.bell.ours.add([partition.0]);
    }

    async fn notified(&self) -> Vec<PartitionNo> {
        self.inner.bell.theirs.take().await.into_iter().map(PartitionNo).collect()
    }
}
