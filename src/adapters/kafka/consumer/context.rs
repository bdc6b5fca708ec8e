//! The context of a group member's consumer: receives partition assignments, statistics, logs and errors.
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::statistics::{Broker, Statistics};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, TopicPartitionList};

use crate::connection::broker_contact::{self, BrokerContact};

/// A change of the member's partitions. It takes effect when the member assigns or unassigns them.
pub(crate) enum AssignmentChange {
    /// The group assigns these partitions to the member.
    Assigned(TopicPartitionList),
    /// The group takes these partitions from the member.
    Revoked(TopicPartitionList),
}

/// The fetch position of a topic partition, from the client's statistics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FetchPosition {
    /// The next offset that the client fetches; control records count.
    pub(crate) next: u64,
    /// The last stable offset.
    pub(crate) stable: u64,
    /// Messages that the client has fetched and the member has not polled yet.
    pub(crate) queued: u64,
    /// The first offset of the broker's log; `None` before the first fetch.
    pub(crate) log_start: Option<u64>,
    /// Whether the client has fetched up to the last stable offset since it began to fetch the partition. It begins again with each assignment.
    pub(crate) has_reached_end: bool,
}

/// librdkafka's name for the state of a partition that the client fetches.
const FETCHING: &str = "active";
/// Statistics in a row without a broker after which the client has lost its brokers. A single one may fall between the bootstrap servers and the
/// first metadata.
const WITHOUT_BROKERS_MAX: u32 = 3;

/// The context of one member's consumer.
pub(crate) struct MemberContext {
    contact: Arc<BrokerContact>,
    /// The topics that the client reads, by their full names.
    topics: Vec<String>,
    /// How often they had been deleted before the member joined.
    deletions: u64,
    changes: Mutex<VecDeque<AssignmentChange>>,
    positions: Mutex<HashMap<(String, u32), FetchPosition>>,
    is_closing: AtomicBool,
    /// Statistics in a row in which the client knew no broker.
    without_brokers: AtomicU32,
    /// How many statistics the client has sent.
    statistics: AtomicU64,
}

impl MemberContext {
    pub(crate) fn new(contact: Arc<BrokerContact>, topics: Vec<String>) -> Self {
        Self {
            deletions: contact.deletions(&topics),
            topics,
            contact,
            changes: Mutex::default(),
            positions: Mutex::default(),
            is_closing: AtomicBool::new(false),
            without_brokers: AtomicU32::new(0),
            statistics: AtomicU64::new(0),
        }
    }

    pub(crate) fn contact(&self) -> &BrokerContact {
        &self.contact
    }

    pub(crate) fn next_change(&self) -> Option<AssignmentChange> {
        self.changes.lock().pop_front()
    }

    pub(crate) fn fetch_position(&self, topic: &str, partition: u32) -> Option<FetchPosition> {
        self.positions.lock().get(&(topic.to_owned(), partition)).copied()
    }

    /// How many statistics the client has sent. Their positions are known once they are counted.
    pub(crate) fn statistics(&self) -> u64 {
        self.statistics.load(Ordering::Acquire)
    }

    /// Whether the client has permanently lost its brokers (see `client_replacement`): it fetches nothing any more, although its coordinator
    /// still receives its heartbeats.
    pub(crate) fn has_lost_brokers(&self) -> bool {
        self.without_brokers.load(Ordering::Relaxed) >= WITHOUT_BROKERS_MAX
    }

    /// Whether a topic of the client was deleted since the member joined. Once it is created again, by any instance, the client would continue at
    /// the offsets of the deleted one, and skip the first new messages.
    pub(crate) fn has_outdated_positions(&self) -> bool {
        self.contact.deletions(&self.topics) != self.deletions
    }

    /// Makes each later assignment change take effect at once, because the member is leaving the group.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }
}

/// Applies an assignment change by the group's rebalance protocol: incremental for cooperative, complete for eager.
pub(crate) fn apply(consumer: &BaseConsumer<MemberContext>, change: &AssignmentChange) -> KafkaResult<()> {
    let is_cooperative = matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative);
    match (change, is_cooperative) {
        (AssignmentChange::Assigned(list), true) => consumer.incremental_assign(list),
        (AssignmentChange::Assigned(list), false) => consumer.assign(list),
        (AssignmentChange::Revoked(list), true) => consumer.incremental_unassign(list),
        (AssignmentChange::Revoked(_), false) => consumer.unassign(),
    }
}

impl ClientContext for MemberContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        broker_contact::log(level, facility, line);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.contact.record_client_error(&error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        let is_known = |broker: &Broker| matches!(broker.source.as_str(), "configured" | "learned");
        if statistics.brokers.values().any(is_known) {
            self.without_brokers.store(0, Ordering::Relaxed);
        } else {
            self.without_brokers.fetch_add(1, Ordering::Relaxed);
        }
        let mut positions = self.positions.lock();
        positions.clear();
        for topic in statistics.topics.into_values() {
            for partition in topic.partitions.values().filter(|partition| partition.next_offset >= 0) {
                let position = FetchPosition {
                    next: partition.next_offset.unsigned_abs(),
                    stable: u64::try_from(partition.ls_offset).unwrap_or(0),
                    queued: u64::try_from(partition.fetchq_cnt).unwrap_or(0),
                    log_start: u64::try_from(partition.lo_offset).ok(),
                    has_reached_end: partition.fetch_state == FETCHING && partition.eof_offset == partition.next_offset,
                };
                positions.insert((topic.topic.clone(), partition.partition.unsigned_abs()), position);
            }
        }
        self.statistics.fetch_add(1, Ordering::Release);
    }
}

impl ConsumerContext for MemberContext {
    /// Queues the change for the member's thread, which applies it later: until then in-flight messages of a revoked partition can still be
    /// acknowledged.
    fn rebalance(&self, consumer: &BaseConsumer<Self>, event: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let change = match event {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => AssignmentChange::Assigned(list.clone()),
            _ => AssignmentChange::Revoked(list.clone()),
        };
        if !self.is_closing.load(Ordering::Relaxed) {
            return self.changes.lock().push_back(change);
        }
        if let Err(error) = apply(consumer, &change) {
            tracing::debug!(event = "rebalance_unanswered", error = %error, "a leaving group member could not answer a rebalance");
        }
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::statistics::{Partition, Topic};

    use super::*;

    fn statistics(sources: &[&str]) -> Statistics {
        let broker = |source: &&str| (source.to_string(), Broker { source: source.to_string(), ..Broker::default() });
        Statistics { brokers: sources.iter().map(broker).collect(), ..Statistics::default() }
    }

    #[test]
    fn client_that_knows_only_its_coordinator_for_long_has_lost_its_brokers() {
        let context = MemberContext::new(Arc::default(), Vec::new());
        let has_lost_brokers_after = |sources: &[&str]| {
            context.stats(statistics(sources));
            context.has_lost_brokers()
        };

        assert!(
            [["internal", "configured"], ["internal", "learned"]].iter().all(|known| !has_lost_brokers_after(known))
        );
        let results = [(); WITHOUT_BROKERS_MAX as usize].map(|()| has_lost_brokers_after(&["internal", "logical"]));
        assert_eq!(results, [false, false, true]);
        assert!(!has_lost_brokers_after(&["internal", "logical", "learned"]), "it found its brokers again");
    }

    #[test]
    fn end_that_the_client_reached_in_an_earlier_assignment_is_not_reached() {
        let context = MemberContext::new(Arc::default(), Vec::new());
        let has_reached_end = |fetch_state: &str, eof_offset| {
            let partition =
                Partition { fetch_state: fetch_state.into(), next_offset: 7, eof_offset, ..Partition::default() };
            let topic = Topic { topic: "t".into(), partitions: HashMap::from([(0, partition)]), ..Topic::default() };
            context.stats(Statistics { topics: HashMap::from([("t".into(), topic)]), ..Statistics::default() });
            context.fetch_position("t", 0).expect("a position").has_reached_end
        };

        assert!(has_reached_end("active", 7));
        assert!(!has_reached_end("stopped", 7), "it fetches nothing");
        assert!(![-1001, 6].iter().any(|eof_offset| has_reached_end("active", *eof_offset)));
    }
}
