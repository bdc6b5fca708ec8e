//! Wake-ups between instances: a partition has due rows, or has no owner. Wake-ups may be lost; polling finds the same work later.
use async_trait::async_trait;

use crate::partitions::{InstanceId, PartitionNo};

/// Formats a wake-up: the sender's name, a space, and partition numbers.
pub fn format_hint(instance: &InstanceId, partitions: &[u32]) -> String {
    let numbers: Vec<String> = partitions.iter().map(u32::to_string).collect();
    format!("{instance} {}", numbers.join(","))
}

/// Parses a wake-up of another instance; malformed texts and those of this instance give no partitions. The sender's name may hold spaces.
pub fn parse_hint(hint: &str, this: &InstanceId, partitions: u32) -> Vec<u32> {
    match hint.rsplit_once(' ') {
        Some((sender, numbers)) if sender != &*this.0 => {
            numbers.split(',').filter_map(|number| number.parse().ok()).filter(|number| *number < partitions).collect()
        }
        _ => Vec::new(),
    }
}

/// Sends wake-ups to the other instances of a store and receives theirs.
#[async_trait]
pub trait WakeChannel: Send + Sync {
    /// Wakes the other instances for a partition that has due rows or no owner. Never waits and never fails; wake-ups in quick succession
    /// are sent as one message.
    fn notify(&self, partition: PartitionNo);

    /// Waits for wake-ups of other instances and returns at least one partition. The channel reconnects by itself; wake-ups sent while it
    /// is disconnected are lost. Cancel-safe.
    async fn notified(&self) -> Vec<PartitionNo>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_wake_ups_of_other_instances_are_parsed() {
        let this = InstanceId("me".into());
        let parsed = |hint: &str| parse_hint(hint, &this, 64);
        assert_eq!(parsed("you 1,2,63"), [1, 2, 63]);
        assert_eq!(parsed("my host:80 5"), [5]);
        assert_eq!(parsed(&format_hint(&InstanceId("my host:80".into()), &[5, 7])), [5, 7]);
        for ignored in ["me 1,2", "", "1,2", "you x,99,-1"] {
            assert_eq!(parsed(ignored), Vec::<u32>::new(), "{ignored}");
        }
    }
}
