//! What a group's member hears by itself: partitions that come and go, commits that were answered, how far the fetches have got.
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::statistics::{Broker, Statistics};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, TopicPartitionList};

use crate::contact::{self, Contact};

/// A change of the member's partitions. It counts once it is answered by assigning or unassigning.
pub(crate) enum Change {
    /// These come.
    Gains(TopicPartitionList),
    /// These go.
    Loses(TopicPartitionList),
}

/// How far the fetches of a topic partition have got.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reach {
    /// The next offset to be fetched, behind markers too.
    pub(crate) next: u64,
    /// The last stable offset.
    pub(crate) stable: u64,
    /// Messages that are fetched and not yet taken from the client.
    pub(crate) queued: u64,
}

/// Pictures in a row without a broker after which a client is given up: it may be between its bootstrap servers and what they tell.
const ORPHAN_AFTER: u32 = 3;

/// The ears of one member.
pub(crate) struct Turns {
    contact: Arc<Contact>,
    changes: Mutex<VecDeque<Change>>,
    reach: Mutex<HashMap<(String, u32), Reach>>,
    closing: AtomicBool,
    /// Pictures in a row in which the client knew no broker.
    orphaned: AtomicU32,
}

impl Turns {
    pub(crate) fn new(contact: Arc<Contact>) -> Self {
        let closing = AtomicBool::new(false);
        let orphaned = AtomicU32::new(0);
        Self { contact, changes: Mutex::default(), reach: Mutex::default(), closing, orphaned }
    }

    pub(crate) fn contact(&self) -> &Contact {
        &self.contact
    }

    pub(crate) fn next_change(&self) -> Option<Change> {
        self.changes.lock().pop_front()
    }

    pub(crate) fn reach(&self, topic: &str, partition: u32) -> Option<Reach> {
        self.reach.lock().get(&(topic.to_owned(), partition)).copied()
    }

    /// Whether the client has lost its brokers for good: it fetches nothing any more, and its group hears its heartbeats all the same.
    pub(crate) fn is_orphan(&self) -> bool {
        self.orphaned.load(Ordering::Relaxed) >= ORPHAN_AFTER
    }

    /// From now on changes are answered at once: the member leaves.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }
}

/// Answers a change, whatever the group's protocol is.
pub(crate) fn accept(consumer: &BaseConsumer<Turns>, change: &Change) -> KafkaResult<()> {
    let cooperative = matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative);
    match (change, cooperative) {
        (Change::Gains(list), true) => consumer.incremental_assign(list),
        (Change::Gains(list), false) => consumer.assign(list),
        (Change::Loses(list), true) => consumer.incremental_unassign(list),
        (Change::Loses(_), false) => consumer.unassign(),
    }
}

impl ClientContext for Turns {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        contact::log(level, facility, line);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.contact.met(&error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        let known = |broker: &Broker| matches!(broker.source.as_str(), "configured" | "learned");
        if statistics.brokers.values().any(known) {
            self.orphaned.store(0, Ordering::Relaxed);
        } else {
            self.orphaned.fetch_add(1, Ordering::Relaxed);
        }
        let mut reach = self.reach.lock();
        reach.clear();
        for topic in statistics.topics.into_values() {
            for partition in topic.partitions.values().filter(|partition| partition.next_offset >= 0) {
                let told = Reach {
                    next: partition.next_offset.unsigned_abs(),
                    stable: u64::try_from(partition.ls_offset).unwrap_or(0),
                    queued: u64::try_from(partition.fetchq_cnt).unwrap_or(0),
                };
                reach.insert((topic.topic.clone(), partition.partition.unsigned_abs()), told);
            }
        }
    }
}

impl ConsumerContext for Turns {
    /// Answered by the member's thread, in its own time: what is in hand of a partition that goes gets a chance to be acknowledged.
    fn rebalance(&self, consumer: &BaseConsumer<Self>, why: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let change = match why {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => Change::Gains(list.clone()),
            _ => Change::Loses(list.clone()),
        };
        if !self.closing.load(Ordering::Relaxed) {
            return self.changes.lock().push_back(change);
        }
        if let Err(error) = accept(consumer, &change) {
            tracing::debug!(event = "rebalance_unanswered", error = %error, "a member that leaves could not answer");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(sources: &[&str]) -> Statistics {
        let broker = |source: &&str| (source.to_string(), Broker { source: source.to_string(), ..Broker::default() });
        Statistics { brokers: sources.iter().map(broker).collect(), ..Statistics::default() }
    }

    #[test]
    fn a_client_that_knows_no_broker_for_long_is_given_up_though_its_coordinator_hears_it() {
        let turns = Turns::new(Arc::default());
        let told = |sources: &[&str]| {
            turns.stats(picture(sources));
            turns.is_orphan()
        };

        assert!([["internal", "configured"], ["internal", "learned"]].iter().all(|known| !told(known)));
        assert_eq!([(); ORPHAN_AFTER as usize].map(|()| told(&["internal", "logical"])), [false, false, true]);
        assert!(!told(&["internal", "logical", "learned"]), "it found them again");
    }
}
