//! Peers: wake-ups to and from the other instances that share the store. Lossy: each instance polls, too.
use std::sync::Arc;

use futures::{Stream, stream};
use ports::partitions::wake::{WakeChannel, WakeUp};

/// The wake channel, where there is one.
#[derive(Clone)]
pub struct Peers {
    channel: Option<Arc<dyn WakeChannel>>,
}

impl Peers {
    /// Peers on this channel; `None` where an instance cannot have any.
    pub fn new(channel: Option<Arc<dyn WakeChannel>>) -> Self {
        Self { channel }
    }

    /// Sends a wake-up to the other instances.
    pub fn notify(&self, wake_up: WakeUp) {
        if let Some(channel) = &self.channel {
            channel.notify(wake_up);
        }
    }

    /// The wake-ups of other instances; `None` without a channel.
    pub fn notifications(&self) -> Option<impl Stream<Item = Vec<WakeUp>> + use<>> {
        let channel = self.channel.clone()?;
        Some(stream::unfold(channel, |channel| async move { Some((channel.notified().await, channel)) }))
    }
}
