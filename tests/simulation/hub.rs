//! How the services of a simulated house wake each other: what one tells, every other one is told.
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::partitions::PartitionNo;
use ports::wake::WakeChannel;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The room in which all seats hear each other.
#[derive(Clone, Default)]
pub struct Hub(Arc<Mutex<Vec<UnboundedSender<PartitionNo>>>>);

impl Hub {
    /// A place for one service.
    pub fn seat(&self) -> Arc<dyn WakeChannel> {
        let (sender, heard) = unbounded_channel();
        let mut seats = self.0.lock();
        seats.push(sender);
        Arc::new(Seat { hub: self.clone(), number: seats.len() - 1, heard: tokio::sync::Mutex::new(heard) })
    }
}

struct Seat {
    hub: Hub,
    number: usize,
    heard: tokio::sync::Mutex<UnboundedReceiver<PartitionNo>>,
}

#[async_trait]
impl WakeChannel for Seat {
    fn notify(&self, partition: PartitionNo) {
        for (number, seat) in self.hub.0.lock().iter().enumerate() {
            if number != self.number {
                // Whoever has died hears nothing, as on a real wire.
                let _ = seat.send(partition);
            }
        }
    }

    async fn notified(&self) -> Vec<PartitionNo> {
        match self.heard.lock().await.recv().await {
            Some(partition) => vec![partition],
            None => std::future::pending().await,
        }
    }
}
