//! Peers: wake-ups to and from the other instances that share the store. Lossy: each instance polls, too.
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, stream};
use ports::partitions::PartitionNo;
use ports::partitions::wake::WakeChannel;

/// Least time between two lease scans that only peers' wake-ups cause: a busy peer must not become this instance's load.
pub const SCAN_SPACING: Duration = Duration::from_millis(300);

/// The wake channel, where there is one.
#[derive(Clone)]
pub struct Peers {
    channel: Option<Arc<dyn WakeChannel>>,
    scan_is_due: bool,
}

impl Peers {
    /// Peers on this channel; `None` where an instance cannot have any.
    pub fn new(channel: Option<Arc<dyn WakeChannel>>) -> Self {
        Self { channel, scan_is_due: false }
    }

    /// Notifies the other instances that this partition has new rows or is free.
    pub fn notify(&self, partition: PartitionNo) {
        if let Some(channel) = &self.channel {
            channel.notify(partition);
        }
    }

    /// The partitions that other instances notify of; `None` without a channel.
    pub fn notifications(&self) -> Option<impl Stream<Item = Vec<PartitionNo>> + use<>> {
        let channel = self.channel.clone()?;
        Some(stream::unfold(channel, |channel| async move { Some((channel.notified().await, channel)) }))
    }

    /// Requests a scan. Returns true if none is due yet, so that the caller must set a timer of [`SCAN_SPACING`].
    pub fn request_scan(&mut self) -> bool {
        !std::mem::replace(&mut self.scan_is_due, true)
    }

    /// The requested scan begins.
    pub fn scan_began(&mut self) {
        self.scan_is_due = false;
    }
}
