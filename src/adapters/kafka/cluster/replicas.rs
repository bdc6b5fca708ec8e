//! The replication factor of topics: three, or the number of brokers in a smaller cluster.

/// With this many brokers or more, topics get three replicas, two of which must acknowledge a write.
pub(crate) const REPLICAS_MAX: usize = 3;

/// The replicas that a new topic gets.
pub(crate) fn replication_factor(brokers: usize) -> usize {
    REPLICAS_MAX.min(brokers.max(1))
}

/// Replication of the installation's topics. A topic keeps the number it was created with when brokers are added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// The number of registered brokers.
    pub brokers: usize,
    /// Existing topics, each with the replicas of its least replicated partition.
    pub topics: Vec<(String, usize)>,
}

impl Replicas {
    /// Topics with fewer replicas than the adapter would give them if it created them now.
    pub fn too_few(&self) -> impl Iterator<Item = &(String, usize)> {
        self.topics.iter().filter(|(_, replicas)| *replicas < replication_factor(self.brokers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_too_few(brokers: usize, replicas: usize) -> bool {
        Replicas { brokers, topics: vec![("t".into(), replicas)] }.too_few().count() > 0
    }

    #[test]
    fn target_is_one_replica_per_broker_and_at_most_three() {
        assert!(!has_too_few(1, 1) && !has_too_few(2, 2) && !has_too_few(3, 3) && !has_too_few(9, 3));
        assert!(has_too_few(2, 1) && has_too_few(3, 1) && has_too_few(3, 2) && has_too_few(9, 2));
        assert!(!has_too_few(0, 1), "without a known broker one replica suffices");
    }
}
