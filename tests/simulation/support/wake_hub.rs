//! WakeHub: wake-ups between the services of a simulation. A notification of one service reaches every other one.
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::partitions::PartitionNo;
use ports::partitions::wake::WakeChannel;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Connects all services of an environment.
#[derive(Clone, Default)]
pub struct WakeHub(Arc<Mutex<Vec<UnboundedSender<PartitionNo>>>>);

impl WakeHub {
    /// The wake channel of one more service.
    pub fn connect(&self) -> Arc<dyn WakeChannel> {
        let (sender, notifications) = unbounded_channel();
        let mut senders = self.0.lock();
        senders.push(sender);
        let notifications = tokio::sync::Mutex::new(notifications);
        Arc::new(HubChannel { hub: self.clone(), number: senders.len() - 1, notifications })
    }
}

struct HubChannel {
    hub: WakeHub,
    number: usize,
    notifications: tokio::sync::Mutex<UnboundedReceiver<PartitionNo>>,
}

#[async_trait]
impl WakeChannel for HubChannel {
    fn notify(&self, partition: PartitionNo) {
        for (number, sender) in self.hub.0.lock().iter().enumerate() {
            if number != self.number {
                // A service that has died receives nothing, as on a real connection.
                let _ = sender.send(partition);
            }
        }
    }

    async fn notified(&self) -> Vec<PartitionNo> {
        match self.notifications.lock().await.recv().await {
            Some(partition) => vec![partition],
            None => std::future::pending().await,
        }
    }
}
