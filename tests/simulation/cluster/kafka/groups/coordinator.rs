//! Coordinator: the consumer groups at the brokers. Members with sessions, an owner for each topic partition, committed offsets. A partition moves
//! only after its owner has released it or its session has ended, and a commit of a former owner changes nothing.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cluster::flaw::Flaw;
use crate::cluster::kafka::broker::TOPIC_PARTITIONS;
use crate::cluster::kafka::groups::shares::quotas;
use crate::cluster::trace::Trace;

/// Time without a heartbeat after which a member's session ends: shorter than many freezes.
pub const SESSION_TIMEOUT: Duration = Duration::from_millis(2_500);

/// A topic's name and one of its partitions.
pub type TopicPartition = (Arc<str>, u32);
/// Number of a membership. A member that joins again has another.
pub type MemberNo = u64;
/// Number of a group's composition: it grows with each change of members and owners.
pub type Generation = u64;

/// The coordinator of all groups. Clones share it.
#[derive(Clone)]
pub struct Coordinator(Arc<Shared>);

struct Shared {
    flaw: Option<Flaw>,
    trace: Trace,
    groups: Mutex<BTreeMap<String, Group>>,
}

#[derive(Default)]
struct Group {
    generation: Generation,
    joined: MemberNo,
    members: BTreeMap<MemberNo, Membership>,
    owners: BTreeMap<TopicPartition, Ownership>,
    /// The next offset to read of each partition.
    offsets: BTreeMap<TopicPartition, u64>,
}

struct Membership {
    topics: Vec<Arc<str>>,
    expires_at: Instant,
}

#[derive(Clone, Copy)]
struct Ownership {
    member: MemberNo,
    since: Generation,
}

/// The reply to a member's heartbeat.
pub struct Assignment {
    /// The generation that the member's commits name from now on.
    pub generation: Generation,
    /// The member's partitions, and the next offset of each.
    pub partitions: BTreeMap<TopicPartition, u64>,
    /// The partitions of them that the member must release.
    pub revoked: BTreeSet<TopicPartition>,
}

/// The offsets of a partition's former owner were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOwner;

/// The partitions of topics, in the order of the topics.
pub fn partitions_of<'a>(topics: impl IntoIterator<Item = &'a Arc<str>>) -> impl Iterator<Item = TopicPartition> {
    let of_one = |topic| (0..TOPIC_PARTITIONS).map(move |partition| (Arc::clone(topic), partition));
    topics.into_iter().flat_map(of_one)
}

impl Coordinator {
    /// A coordinator without groups.
    pub fn new(flaw: Option<Flaw>, trace: Trace) -> Self {
        Self(Arc::new(Shared { flaw, trace, groups: Mutex::default() }))
    }

    /// Adds a member. It has no partitions until its first heartbeat.
    pub fn join(&self, group: &str, topics: &[Arc<str>]) -> MemberNo {
        self.with_group(group, |group, now| {
            group.joined += 1;
            group.generation += 1;
            let member = Membership { topics: topics.to_vec(), expires_at: now + SESSION_TIMEOUT };
            group.members.insert(group.joined, member);
            group.joined
        })
    }

    /// Removes a member at its own request.
    pub fn leave(&self, group: &str, member: MemberNo) {
        self.with_group(group, |group, _| group.remove(member));
    }

    /// Continues a member's session. `released` are the partitions that it no longer reads. `None` if the session has ended.
    pub fn heartbeat(
        &self,
        group: &str,
        member: MemberNo,
        generation: Generation,
        released: &[TopicPartition],
    ) -> Option<Assignment> {
        self.with_group(group, |group, now| {
            group.members.get_mut(&member)?.expires_at = now + SESSION_TIMEOUT;
            for partition in released {
                if group.owns(partition, member, generation) {
                    group.owners.remove(partition);
                    group.generation += 1;
                }
            }
            let revoked = group.assign(member);
            if !revoked.is_empty() {
                self.0.trace.add("revocation", member, revoked.len() as u64);
            }
            let partitions = group.owned_by(member).map(|one| (one.clone(), group.next_offset(one))).collect();
            Some(Assignment { generation: group.generation, partitions, revoked })
        })
    }

    /// Commits the next offsets of partitions, all of them or none.
    ///
    /// # Errors
    /// The member does not own one of them in this generation.
    pub fn commit(
        &self,
        group: &str,
        member: MemberNo,
        generation: Generation,
        offsets: &BTreeMap<TopicPartition, u64>,
    ) -> Result<(), NotOwner> {
        self.with_group(group, |group, _| {
            let is_owner = offsets.keys().all(|partition| group.owns(partition, member, generation));
            if !is_owner && self.0.flaw != Some(Flaw::FormerOwnerCommits) {
                self.0.trace.add("refused commit", member, generation);
                return Err(NotOwner);
            }
            for (partition, next) in offsets {
                let before = group.offsets.insert(partition.clone(), *next).unwrap_or(0);
                let (topic, number) = partition;
                if group.owners.get(partition).is_some_and(|owner| owner.member != member) {
                    let violation =
                        format!("member {member} committed an offset of {topic}-{number}, which another owns");
                    self.0.trace.violation(violation);
                }
                if before > *next {
                    let violation = format!("the offset of {topic}-{number} went back from {before} to {next}");
                    self.0.trace.violation(violation);
                }
            }
            Ok(())
        })
    }

    /// Sets the offsets of partitions that have none.
    pub fn begin_at(&self, group: &str, ends: BTreeMap<TopicPartition, u64>) {
        self.with_group(group, |group, _| {
            for (partition, end) in ends {
                group.offsets.entry(partition).or_insert(end);
            }
        });
    }

    /// The next offset of a partition; 0 before the first commit.
    pub fn committed(&self, group: &str, partition: &TopicPartition) -> u64 {
        self.with_group(group, |group, _| group.next_offset(partition))
    }

    /// Removes the members with expired sessions, then runs on the group.
    fn with_group<T>(&self, name: &str, run: impl FnOnce(&mut Group, Instant) -> T) -> T {
        let (mut groups, now) = (self.0.groups.lock(), Instant::now());
        let group = groups.entry(name.to_owned()).or_default();
        let expired: Vec<MemberNo> =
            group.members.iter().filter(|(_, one)| one.expires_at <= now).map(|(number, _)| *number).collect();
        for member in expired {
            self.0.trace.add("session over", member, group.generation);
            self.0.trace.print(format_args!("the session of member {member} is over"));
            group.remove(member);
        }
        run(group, now)
    }
}

impl Group {
    fn remove(&mut self, member: MemberNo) {
        if self.members.remove(&member).is_some() {
            self.owners.retain(|_, owner| owner.member != member);
            self.generation += 1;
        }
    }

    /// Whether a member has owned a partition since this generation or an earlier one.
    fn owns(&self, partition: &TopicPartition, member: MemberNo, generation: Generation) -> bool {
        self.owners.get(partition).is_some_and(|owner| owner.member == member && owner.since <= generation)
    }

    /// The next offset to read of a partition; 0 before the first commit.
    fn next_offset(&self, partition: &TopicPartition) -> u64 {
        self.offsets.get(partition).copied().unwrap_or(0)
    }

    fn owned_by(&self, member: MemberNo) -> impl Iterator<Item = &TopicPartition> {
        self.owners.iter().filter(move |(_, owner)| owner.member == member).map(|(partition, _)| partition)
    }

    /// Gives a member free partitions up to its share. Returns those that it has above it.
    fn assign(&mut self, member: MemberNo) -> BTreeSet<TopicPartition> {
        let topics: BTreeSet<&Arc<str>> = self.members.values().flat_map(|one| &one.topics).collect();
        let all: Vec<TopicPartition> = partitions_of(topics).collect();
        let owned: BTreeMap<MemberNo, usize> =
            self.members.keys().map(|number| (*number, self.owned_by(*number).count())).collect();
        let quota = quotas(all.len(), &owned)[&member];
        let has = owned[&member];
        let free: Vec<TopicPartition> = all.into_iter().filter(|one| !self.owners.contains_key(one)).collect();
        for partition in free.into_iter().take(quota.saturating_sub(has)) {
            self.generation += 1;
            self.owners.insert(partition, Ownership { member, since: self.generation });
        }
        // The last ones: a member keeps the same partitions while the group does not change.
        self.owned_by(member).skip(quota).cloned().collect()
    }
}
