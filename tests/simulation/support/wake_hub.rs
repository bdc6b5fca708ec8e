//! WakeHub: wake-ups between the services of a simulation. A notification of one service reaches every other one.
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::partitions::wake::{WakeChannel, WakeUp};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Connects all services of an environment.
#[derive(Clone, Default)]
pub struct WakeHub(Arc<Mutex<Vec<UnboundedSender<WakeUp>>>>);

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
    notifications: tokio::sync::Mutex<UnboundedReceiver<WakeUp>>,
}

#[async_trait]
impl WakeChannel for HubChannel {
    fn notify(&self, wake_up: WakeUp) {
        for (number, sender) in self.hub.0.lock().iter().enumerate() {
            if number != self.number {
                // A service that has died receives nothing, as on a real connection.
                let _ = sender.send(wake_up);
            }
        }
    }

    async fn notified(&self) -> Vec<WakeUp> {
        match self.notifications.lock().await.recv().await {
            Some(wake_up) => vec![wake_up],
            None => std::future::pending().await,
        }
    }
}
