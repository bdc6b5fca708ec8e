//! What a group's member hears by itself: partitions that come and go, commits that were answered, how far the fetches have got.
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::statistics::Statistics;
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

/// The ears of one member.
pub(crate) struct Turns {
    contact: Arc<Contact>,
    changes: Mutex<VecDeque<Change>>,
    reach: Mutex<HashMap<(String, u32), Reach>>,
    closing: AtomicBool,
}

impl Turns {
    pub(crate) fn new(contact: Arc<Contact>) -> Self {
        let closing = AtomicBool::new(false);
        Self { contact, changes: Mutex::default(), reach: Mutex::default(), closing }
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
