//! The port `WakeChannel` over NOTIFY and LISTEN.
use async_trait::async_trait;
use ports::partitions::PartitionNo;
use ports::partitions::wake::WakeChannel;

use crate::store::postgres::Postgres;

#[async_trait]
impl WakeChannel for Postgres {
    fn notify(&self, partition: PartitionNo) {
        if let Some(outgoing) = &self.inner.opened.wake.outgoing {
            outgoing.add([partition.0]);
        }
    }

    async fn notified(&self) -> Vec<PartitionNo> {
        self.inner.opened.wake.incoming.take().await.into_iter().map(PartitionNo).collect()
    }
}
