//! The session of a group member: heartbeats, and the partitions that they assign and revoke.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kit::clock::TokioClock;
use parking_lot::{Mutex, MutexGuard};
use ports::broker::consumer_groups::ConsumerRecord;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::cluster::kafka::broker::SimulatedKafka;
use crate::cluster::kafka::groups::buffer::Buffer;
use crate::cluster::kafka::groups::coordinator::{Assignment, Generation, MemberNo, SESSION_TIMEOUT, TopicPartition};
use crate::cluster::kafka::reading::Fetched;
use crate::cluster::network::Link;

/// Time between two heartbeats.
const HEARTBEAT: Duration = Duration::from_millis(1_000);
/// How long messages in flight may delay the revocation of their partition.
const HANDOVER_TIMEOUT: Duration = Duration::from_millis(1_000);
/// Messages of one partition that a member prefetches.
const PREFETCH_MAX: usize = 8;

/// The state that the handle of a member and its tasks share.
pub struct MemberShared {
    pub kafka: SimulatedKafka,
    pub link: Link,
    pub clock: Arc<TokioClock>,
    pub group: String,
    topics: Vec<Arc<str>>,
    membership: Mutex<Membership>,
    /// Messages may have become ready.
    pub arrived: Notify,
    /// More partitions can be fetched than before.
    pub fetchable: Notify,
    /// A heartbeat is due at once.
    due: Notify,
}

/// The membership as the member sees it.
pub struct Membership {
    /// Number of the session; `None` before the group has accepted the member.
    pub number: Option<MemberNo>,
    pub generation: Generation,
    pub buffers: BTreeMap<TopicPartition, Buffer>,
    /// The handle was dropped.
    pub is_closed: bool,
    continued_at: Instant,
    /// Which partition a poll serves first; it rotates.
    next_first: usize,
}

impl MemberShared {
    /// A member that has not joined yet.
    pub fn new(kafka: SimulatedKafka, link: Link, clock: Arc<TokioClock>, group: &str, topics: Vec<Arc<str>>) -> Self {
        let membership = Membership {
            number: None,
            generation: 0,
            buffers: BTreeMap::new(),
            is_closed: false,
            continued_at: Instant::now(),
            next_first: 0,
        };
        let (arrived, fetchable, due) = (Notify::new(), Notify::new(), Notify::new());
        let (group, membership) = (group.to_owned(), Mutex::new(membership));
        Self { kafka, link, clock, group, topics, membership, arrived, fetchable, due }
    }

    /// The membership, locked: not across an await.
    pub fn membership(&self) -> MutexGuard<'_, Membership> {
        self.membership.lock()
    }

    /// Makes the member leave its group.
    pub fn close(&self) {
        self.membership().is_closed = true;
        self.due.notify_one();
        self.fetchable.notify_one();
    }

    /// Takes at most `limit` messages. Returns when the first pause ends, too.
    pub fn take(&self, limit: usize, now: Instant) -> (Vec<ConsumerRecord>, Option<Instant>) {
        let mut membership = self.membership();
        let before = membership.fetchable().count();
        let taken = membership.take(limit, now);
        if membership.fetchable().count() > before {
            self.fetchable.notify_one();
        }
        (taken, membership.next_resumption(now))
    }

    /// Adds what a fetch from these offsets has returned.
    pub fn add(&self, from: &BTreeMap<TopicPartition, u64>, fetched: Fetched) {
        let mut membership = self.membership();
        for (partition, (messages, next)) in fetched {
            if let Some(buffer) = membership.buffers.get_mut(&partition) {
                buffer.push(from[&partition], messages, next);
            }
        }
        self.arrived.notify_one();
    }

    /// These offsets are committed.
    pub fn acknowledged(&self, offsets: BTreeMap<TopicPartition, u64>) {
        let mut membership = self.membership();
        for (partition, next) in offsets {
            if let Some(buffer) = membership.buffers.get_mut(&partition) {
                buffer.acknowledge(next);
            }
        }
        if membership.buffers.values().any(|buffer| buffer.revocation_deadline.is_some()) {
            self.due.notify_one();
        }
    }

    /// Joins, and sends heartbeats until the handle is dropped; then leaves.
    pub async fn keep_session(self: Arc<Self>) {
        while !self.membership().is_closed {
            let number = self.membership().number;
            let is_settled = match number {
                Some(number) => self.send_heartbeat(number).await,
                None => self.join().await,
            };
            if is_settled {
                // Cancellation: the timer has no effect when it is dropped, and the notification stays for the next turn.
                tokio::select! {
                    () = self.due.notified() => {}
                    () = sleep(HEARTBEAT) => {}
                }
            }
        }
        let number = self.membership().number;
        if let Some(number) = number {
            let (kafka, group) = (self.kafka.clone(), self.group.clone());
            // Without a reply the session ends by its time-out.
            let _ = self.link.call("leave_group", async move { kafka.coordinator().leave(&group, number) }).await;
        }
    }

    /// Returns whether the next heartbeat may wait for its interval.
    async fn join(&self) -> bool {
        let (kafka, group, topics) = (self.kafka.clone(), self.group.clone(), self.topics.clone());
        let number = self.link.call("join_group", async move { kafka.coordinator().join(&group, &topics) }).await;
        let mut membership = self.membership();
        membership.number = number.ok();
        membership.continued_at = Instant::now();
        membership.number.is_none()
    }

    /// Sends a heartbeat. Returns whether the next one may wait for its interval.
    async fn send_heartbeat(&self, number: MemberNo) -> bool {
        let (released, generation, sent_at) = {
            let mut membership = self.membership();
            (membership.remove_revoked(Instant::now()), membership.generation, Instant::now())
        };
        let (kafka, group) = (self.kafka.clone(), self.group.clone());
        let heartbeat = async move { kafka.coordinator().heartbeat(&group, number, generation, &released) };
        let result = self.link.call("group_heartbeat", heartbeat).await;
        let mut membership = self.membership();
        match result {
            Ok(Some(assignment)) => {
                membership.continued_at = sent_at;
                if assignment.generation != generation {
                    self.fetchable.notify_one();
                }
                membership.adopt(assignment, Instant::now())
            }
            Err(_) if membership.continued_at.elapsed() < SESSION_TIMEOUT => true,
            // The session is over, by the coordinator's reply or by the member's own clock: its partitions have other owners.
            Ok(None) | Err(_) => {
                membership.buffers.clear();
                membership.number = None;
                false
            }
        }
    }
}

impl Membership {
    /// Takes at most `limit` messages.
    pub fn take(&mut self, limit: usize, now: Instant) -> Vec<ConsumerRecord> {
        let mut ready: Vec<&mut Buffer> = self.buffers.values_mut().filter(|buffer| buffer.ready(now) > 0).collect();
        if ready.is_empty() {
            return Vec::new();
        }
        let first = self.next_first % ready.len();
        ready.rotate_left(first);
        self.next_first = self.next_first.wrapping_add(1);
        let mut taken = Vec::new();
        for buffer in ready {
            taken.append(&mut buffer.take(limit - taken.len(), now));
        }
        taken
    }

    /// When the first pause ends.
    pub fn next_resumption(&self, now: Instant) -> Option<Instant> {
        self.buffers.values().filter_map(|buffer| buffer.paused_until).filter(|until| *until > now).min()
    }

    /// The next offset to fetch of each partition that may prefetch more messages.
    pub fn fetch_positions(&self) -> BTreeMap<TopicPartition, u64> {
        self.fetchable().map(|(partition, buffer)| (partition.clone(), buffer.fetched)).collect()
    }

    fn fetchable(&self) -> impl Iterator<Item = (&TopicPartition, &Buffer)> {
        self.buffers
            .iter()
            .filter(|(_, buffer)| buffer.revocation_deadline.is_none() && buffer.waiting() < PREFETCH_MAX)
    }

    /// Removes the revoked partitions without messages that delay their release, and returns them.
    fn remove_revoked(&mut self, now: Instant) -> Vec<TopicPartition> {
        let released = self.buffers.iter().filter(|(_, buffer)| buffer.can_be_revoked(now));
        let released: Vec<TopicPartition> = released.map(|(partition, _)| partition.clone()).collect();
        for partition in &released {
            self.buffers.remove(partition);
        }
        released
    }

    /// Takes over an assignment. Returns whether no revoked partition can be released at once.
    fn adopt(&mut self, assignment: Assignment, now: Instant) -> bool {
        self.generation = assignment.generation;
        self.buffers.retain(|partition, _| assignment.partitions.contains_key(partition));
        for (partition, next) in assignment.partitions {
            let is_revoked = assignment.revoked.contains(&partition);
            let buffer = self.buffers.entry(partition).or_insert_with(|| Buffer::new(next));
            if is_revoked && buffer.revocation_deadline.is_none() {
                buffer.revocation_deadline = Some(now + HANDOVER_TIMEOUT);
            }
        }
        !self.buffers.values().any(|buffer| buffer.can_be_revoked(now))
    }
}
