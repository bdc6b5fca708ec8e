//! The names of the shared keys. Redis compares names byte by byte; two different things must never share one. Names that one script uses
//! share a hash tag, so that a cluster keeps them in one slot.
use domain::{OrderId, Subject};
use ports::orders::cache::ListScope;
use ports::partitions::InstanceId;

/// The prefix of every name.
pub(crate) struct KeyNames(pub(crate) String);

impl KeyNames {
    /// A subject's idempotency key. The subject's length comes first, so that `ann` with `b:c` differs from `ann:b` with `c`.
    pub(crate) fn idempotency_key(&self, subject: &Subject, key: &str) -> String {
        let subject = subject.as_str();
        format!("{}{{keys}}:key:{}:{subject}:{key}", self.0, subject.len())
    }

    /// The key that a process renews while it lives.
    pub(crate) fn heartbeat(&self, instance: &InstanceId) -> String {
        self.heartbeat_prefix() + &instance.0
    }

    /// The prefix of every heartbeat key.
    pub(crate) fn heartbeat_prefix(&self) -> String {
        format!("{}{{keys}}:instance:", self.0)
    }

    /// The entry of a cached order.
    pub(crate) fn order(&self, id: OrderId) -> String {
        format!("{}{{cache}}:order:{id}", self.0)
    }

    /// The cached lists of a scope.
    pub(crate) fn lists(&self, scope: &ListScope) -> String {
        match scope {
            ListScope::Owner(owner) => format!("{}{{cache}}:lists:of:{}", self.0, owner.as_str()),
            ListScope::All => format!("{}{{cache}}:lists:all", self.0),
        }
    }

    /// The epoch of the cache.
    pub(crate) fn epoch(&self) -> String {
        format!("{}{{cache}}:epoch", self.0)
    }

    /// The state of a token bucket.
    pub(crate) fn bucket(&self, bucket: &str) -> String {
        format!("{}bucket:{bucket}", self.0)
    }

    /// One window of a bucket's fallback. The number comes first, because a bucket's name may end in one.
    pub(crate) fn window(&self, bucket: &str, number: u64) -> String {
        format!("{}window:{number}:{bucket}", self.0)
    }

    /// The key that the probe of this instance writes.
    pub(crate) fn probe(&self, instance: &InstanceId) -> String {
        format!("{}probe:{instance}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_subjects_keys_and_windows_have_different_names() {
        let names = KeyNames("p:".into());
        let name = |subject: &str, key: &str| names.idempotency_key(&Subject::new(subject).expect("a subject"), key);

        assert_eq!(name("ann", "b:c"), "p:{keys}:key:3:ann:b:c");
        assert_ne!(name("ann", "b:c"), name("ann:b", "c"));
        assert_ne!(name("3:ann", "c"), name("ann", "3:c"));
        assert_ne!(names.window("a", 12), names.window("1:a", 2));
    }
}
