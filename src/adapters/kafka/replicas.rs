//! How often topics are kept: what goes with one broker.

/// From this many brokers on, topics are kept three times and written twice before they are acknowledged.
pub(crate) const MOST: usize = 3;

/// Each topic is kept so many times.
pub(crate) fn wanted(brokers: usize) -> usize {
    MOST.min(brokers.max(1))
}

/// How often each topic of the installation is kept. A topic keeps the number it was made with, however the cluster grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// Brokers that are there.
    pub brokers: usize,
    /// Topics that are there, with the replicas of the partition that has the fewest.
    pub topics: Vec<(String, usize)>,
}

impl Replicas {
    /// Topics kept less often than a service would make them now.
    pub fn too_few(&self) -> impl Iterator<Item = &(String, usize)> {
        self.topics.iter().filter(|(_, kept)| *kept < wanted(self.brokers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thin(brokers: usize, kept: usize) -> bool {
        Replicas { brokers, topics: vec![("t".into(), kept)] }.too_few().count() > 0
    }

    #[test]
    fn topics_are_kept_as_often_as_there_are_brokers_and_three_times_at_most() {
        assert!(!thin(1, 1) && !thin(2, 2) && !thin(3, 3) && !thin(9, 3));
        assert!(thin(2, 1) && thin(3, 1) && thin(3, 2) && thin(9, 2));
        assert!(!thin(0, 1), "who sees no broker says nothing");
    }
}
