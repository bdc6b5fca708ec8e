//! Telling other instances that a partition has work, or is free to take. A hint and nothing more: the poll finds what a hint missed.
use async_trait::async_trait;

use crate::partitions::{InstanceId, PartitionNo};

/// What an instance tells the others, as text: its name, and numbers of partitions.
pub fn hint(instance: &InstanceId, partitions: &[u32]) -> String {
    let numbers: Vec<String> = partitions.iter().map(u32::to_string).collect();
    format!("{instance} {}", numbers.join(","))
}

/// The partitions that somebody else's hint names. An instance's name may hold spaces; numbers and commas do not.
pub fn of_others(hint: &str, me: &InstanceId, partitions: u32) -> Vec<u32> {
    match hint.rsplit_once(' ') {
        Some((instance, numbers)) if instance != &*me.0 => {
            numbers.split(',').filter_map(|number| number.parse().ok()).filter(|number| *number < partitions).collect()
        }
        _ => Vec::new(),
    }
}

/// A way to wake the instances that share a store.
#[async_trait]
pub trait WakeChannel: Send + Sync {
    /// Tells the others that this partition has rows to send, or is free to take. Never waits and never fails; hints that come close
    /// together travel as one.
    fn notify(&self, partition: PartitionNo);

    /// Waits for what the others told; never empty. A connection lost meanwhile is made anew inside, and what was told until then is
    /// lost. Cancel-safe.
    async fn notified(&self) -> Vec<PartitionNo>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_others_tell_is_heard_and_rubbish_is_not() {
        let me = InstanceId("me".into());
        let heard = |hint: &str| of_others(hint, &me, 64);
        assert_eq!(heard("you 1,2,63"), [1, 2, 63]);
        assert_eq!(heard("my host:80 5"), [5]);
        assert_eq!(heard(&hint(&InstanceId("my host:80".into()), &[5, 7])), [5, 7]);
        for deaf in ["me 1,2", "", "1,2", "you x,99,-1"] {
            assert_eq!(heard(deaf), Vec::<u32>::new(), "{deaf}");
        }
    }
}
