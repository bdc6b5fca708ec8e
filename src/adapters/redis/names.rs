//! What things are called in Redis. Names are binary-safe there; what must not happen is that two things share one. Names that one script
//! touches share a hash tag, so that a cluster keeps them together.
use domain::{OrderId, Subject};
use ports::partitions::InstanceId;

/// The prefix, and what stands behind it.
pub(crate) struct Names(pub String);

impl Names {
    /// A subject's idempotency key. The subject's length stands first: `ann` with `b:c` is not `ann:b` with `c`.
    pub(crate) fn key(&self, subject: &Subject, key: &str) -> String {
        let subject = subject.as_str();
        format!("{}{{keys}}:key:{}:{subject}:{key}", self.0, subject.len())
    }

    /// A process's sign of life.
    pub(crate) fn sign(&self, instance: &InstanceId) -> String {
        self.signs() + &instance.0
    }

    /// The front of every sign's name.
    pub(crate) fn signs(&self) -> String {
        format!("{}{{keys}}:instance:", self.0)
    }

    /// A cached order.
    pub(crate) fn order(&self, id: OrderId) -> String {
        format!("{}{{cache}}:order:{id}", self.0)
    }

    /// The cache's epoch.
    pub(crate) fn epoch(&self) -> String {
        format!("{}{{cache}}:epoch", self.0)
    }

    /// A token bucket.
    pub(crate) fn bucket(&self, bucket: &str) -> String {
        format!("{}bucket:{bucket}", self.0)
    }

    /// One window of a bucket's fallback. The number stands first, because a bucket's name may end in one.
    pub(crate) fn window(&self, bucket: &str, number: u64) -> String {
        format!("{}window:{number}:{bucket}", self.0)
    }

    /// What the probe writes.
    pub(crate) fn probe(&self, instance: &InstanceId) -> String {
        format!("{}probe:{instance}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_keys_share_a_name() {
        let names = Names("p:".into());
        let name = |subject: &str, key: &str| names.key(&Subject::new(subject).expect("a name"), key);

        assert_eq!(name("ann", "b:c"), "p:{keys}:key:3:ann:b:c");
        assert_ne!(name("ann", "b:c"), name("ann:b", "c"));
        assert_ne!(name("3:ann", "c"), name("ann", "3:c"));
        assert_ne!(names.window("a", 12), names.window("1:a", 2));
    }
}
