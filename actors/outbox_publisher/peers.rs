//! Peers: wake-ups to and from the other instances that share the store. Lossy: each instance polls, too.
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, stream};
use ports::partitions::wake::{WakeChannel, WakeUp};

/// Least time between two lease scans that no heartbeat makes: 300 ms, so that many moves become one scan.
const SCAN_SPACING: Duration = Duration::from_millis(300);
/// Most instances that scan in one such interval: 16, so that a move in a large group costs its store 53 scans a second instead of one for
/// each instance.
const SCANS_AT_ONCE: u32 = 16;

/// When the instance of this rank scans because partitions moved. `None`: its next heartbeat comes first.
pub fn scan_delay(rank: u32, heartbeat: Duration) -> Option<Duration> {
    let delay = SCAN_SPACING * (1 + rank / SCANS_AT_ONCE);
    (delay < heartbeat || rank < SCANS_AT_ONCE).then_some(delay)
}

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

    /// Requests a scan. Returns true if none is due yet, so that the caller must set a timer of [`scan_delay`].
    pub fn request_scan(&mut self) -> bool {
        !std::mem::replace(&mut self.scan_is_due, true)
    }

    /// Records that the requested scan has started: the next request sets a timer again.
    pub fn scan_started(&mut self) {
        self.scan_is_due = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_for_moved_partitions_are_spread_by_rank_and_end_at_the_heartbeat() {
        let heartbeat = Duration::from_secs(3);
        let delays = [0, 15, 16, 143, 144].map(|rank| scan_delay(rank, heartbeat).map(|delay| delay.as_millis()));

        assert_eq!(delays, [Some(300), Some(300), Some(600), Some(2_700), None]);
        assert_eq!(
            scan_delay(3, SCAN_SPACING / 3),
            Some(SCAN_SPACING),
            "a small group does not rely on its heartbeats"
        );
    }
}
