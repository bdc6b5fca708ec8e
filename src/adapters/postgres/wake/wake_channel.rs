//! The port `WakeChannel` over NOTIFY and LISTEN.
use async_trait::async_trait;
use ports::partitions::wake::{WakeChannel, WakeUp};

use crate::store::postgres::Postgres;

#[async_trait]
impl WakeChannel for Postgres {
    fn notify(&self, wake_up: WakeUp) {
        if let Some(outgoing) = &self.inner.opened.wake.outgoing {
            outgoing.add([wake_up]);
        }
    }

    async fn notified(&self) -> Vec<WakeUp> {
        self.inner.opened.wake.incoming.take().await
    }
}
