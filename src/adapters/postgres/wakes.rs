//! `WakeChannel`: NOTIFY for the others, LISTEN for what they tell. A notifying commit takes a lock of the whole server, so hints are
//! gathered: the first goes at once, what comes within a few milliseconds goes as one.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::partitions::PartitionNo;
use ports::wake::{WakeChannel, format_hint, parse_hint};
use tokio::sync::Notify;
use tokio_postgres::types::Type;

use crate::dial::{Dial, Tasks};
use crate::store::{Core, Postgres};
use crate::value::Value;

/// Most partitions in one notification; the server takes less than 8,000 bytes.
const PARTITIONS_MAX: usize = 1_000;

/// First and longest pause between two tries to listen again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Rung for the others, and heard from them.
#[derive(Clone, Default)]
pub(crate) struct Bell {
    ours: Arc<Gathered>,
    theirs: Arc<Gathered>,
    hung: bool,
}

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

impl Bell {
    /// A bell that rings, or one that is never heard.
    pub(crate) fn hang(dial: &Dial, core: &Arc<Core>, hung: bool, tasks: &Tasks) -> Self {
        let bell = Self { hung, ..Self::default() };
        if hung {
            tasks.add(tokio::spawn(ring(Arc::clone(core), Arc::clone(&bell.ours))));
            tasks.add(tokio::spawn(listen(dial.clone(), Arc::clone(core), Arc::clone(&bell.theirs))));
        }
        bell
    }
}

#[async_trait]
impl WakeChannel for Postgres {
    fn notify(&self, partition: PartitionNo) {
        if self.inner.bell.hung {
            self.inner.bell.ours.add([partition.0]);
        }
    }

    async fn notified(&self) -> Vec<PartitionNo> {
        self.inner.bell.theirs.take().await.into_iter().map(PartitionNo).collect()
    }
}

/// Two installations may share a database.
fn channel(core: &Core) -> String {
    format!("posthaste_{}", core.installation.replace('-', "_"))
}

async fn ring(core: Arc<Core>, ours: Arc<Gathered>) {
    let channel = channel(&core);
    loop {
        let partitions: Vec<u32> = ours.take().await.into_iter().collect();
        for part in partitions.chunks(PARTITIONS_MAX) {
            let text = format_hint(&core.options.instance, part);
            let values: [Value<'_>; 2] = [(&channel, Type::TEXT), (&text, Type::TEXT)];
            let told = async { core.relay().await?.once("SELECT pg_notify($1, $2)", &values).await };
            // A hint and nothing more: the others' polls find what it would have told.
            let _ = told.await;
        }
        tokio::time::sleep(core.options.wake_every).await;
    }
}

async fn listen(dial: Dial, core: Arc<Core>, theirs: Arc<Gathered>) {
    let command = format!("LISTEN {}", channel(&core));
    let mut pause = PAUSES.0;
    loop {
        let (heard, me, partitions) = (Arc::clone(&theirs), core.options.instance.clone(), core.partitions);
        let hear = move |told: tokio_postgres::Notification| heard.add(parse_hint(told.payload(), &me, partitions));
        if let Ok(mut line) = dial.listening("wakes", hear).await
            && line.client.batch_execute(&command).await.is_ok()
        {
            pause = PAUSES.0;
            // What was told while nobody listened is lost; the polls find it.
            let _ = (&mut line.driver).await;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}
