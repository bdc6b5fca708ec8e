//! The adapter's options, with defaults that run; every limit has its reason.
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outbox::limits::BATCH_BYTES_MAX;
use outbox::topics::{self, WATERMARK_TOPIC};
use ports::clock::Clock;
use ports::partitions::InstanceId;
use secrecy::SecretString;

/// Delivery guarantee of published events, also when a process is killed at the worst moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryGuarantee {
    /// `read_committed` consumers see each event once: every batch is a transaction that includes its watermark.
    ExactlyOnce,
    /// Consumers see each event, and some of them twice after a crash: for clusters that allow no transactions.
    AtLeastOnce,
}

/// Compression of records on the wire and on the broker's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Records are sent without compression.
    None,
    /// Fewer bytes on the wire and on the broker's disk, for some CPU time of the service.
    Lz4,
}

impl Compression {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
        }
    }
}

/// Credentials for the broker.
#[derive(Clone, Debug)]
pub struct Sasl {
    /// `PLAIN` always works; `SCRAM-SHA-256` and `SCRAM-SHA-512` need the feature `tls`.
    pub mechanism: String,
    /// The principal that the broker's ACLs name.
    pub username: String,
    /// The secret; `Debug` does not print it.
    pub password: SecretString,
}

/// Encryption and authentication of the connections.
#[derive(Clone, Debug, Default)]
pub struct Security {
    /// Encrypts connections; needs the feature `tls`.
    pub tls: bool,
    /// PEM file with the trusted certificates, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Credentials; `None` connects without authentication.
    pub sasl: Option<Sasl>,
}

/// Addresses, credentials, names and limits with which the adapter uses the broker.
#[derive(Clone)]
pub struct Options {
    /// `host:port` of one or more brokers, separated by commas.
    pub bootstrap_servers: String,
    /// Names the installation. The adapter ignores watermarks of other installations.
    pub installation: Arc<str>,
    /// The stable name of this service instance; part of its transactional ids.
    pub instance: InstanceId,
    /// Wall clock; only the age of a consumer's lag uses it.
    pub clock: Arc<dyn Clock>,
    /// Prefix of every topic's name, without a separator of its own.
    pub topic_prefix: String,
    /// The event topic, without the prefix; `None` where the installation has none and publishes to the additional topics only.
    pub event_topic: Option<String>,
    /// Full names of additional topics to which events are published.
    pub additional_topics: Vec<String>,
    /// Partitions of the event topic, its retry topics and its dead-letter topic.
    pub topic_partitions: u32,
    /// Partitions of the topics that have a number of their own, by full name.
    pub partitions_by_topic: HashMap<String, u32>,
    /// Partitions of the outbox, and therefore of the watermark topic.
    pub partitions: u32,
    /// Whether batches are published exactly once or at least once.
    pub guarantee: DeliveryGuarantee,
    /// Whether the adapter creates missing topics.
    pub create_topics: bool,
    /// Retention of the topics that the adapter creates; `None` leaves it to the broker.
    pub retention: Option<Duration>,
    /// When the broker aborts an open transaction. At most the lease: until then a dead instance's open transaction blocks every
    /// `read_committed` consumer.
    pub transaction_timeout: Duration,
    /// Encryption and authentication of the connections.
    pub security: Security,
    /// Compression of records. Measured alternately (`benches/publish.rs`), neither choice is faster beyond the noise: lz4 saves network
    /// traffic and disk space.
    pub compression: Compression,
    /// Largest value of a record in bytes. The broker's default limit for a message is 1 MiB and 12 bytes, and key, headers and framing
    /// count as well.
    pub record_bytes_max: usize,
    /// Batches that may wait for one session. An instance has `outbox.publisher.max_in_flight` (64) in flight; a longer
    /// queue means that something else fails.
    pub session_queue_max: usize,
    /// Most records of one transaction: eight batches of a thousand. More only adds latency (measured).
    pub transaction_records_max: usize,
    /// Most bytes of values in one transaction: those of the largest batch. A record that is larger gets a transaction of its own.
    pub transaction_bytes_max: usize,
    /// Longest time for the delivery of records. A broker with slow replication answers within seconds.
    pub delivery_timeout: Duration,
    /// Longest wait of a call for an unreachable broker; the relay's own timeouts are a few seconds too.
    pub connect_timeout: Duration,
    /// How long a group member may miss heartbeats before the group gives its partitions to other members. Well below `dead_after`.
    pub session_timeout: Duration,
    /// How long unacknowledged messages may delay the revocation of their partition.
    pub handover_timeout: Duration,
    /// Messages of one topic partition that a group member prefetches.
    pub prefetch_max: usize,
}

impl Options {
    /// The defaults, for one installation and instance on these brokers.
    pub fn new(
        bootstrap_servers: impl Into<String>,
        installation: impl Into<Arc<str>>,
        instance: InstanceId,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            bootstrap_servers: bootstrap_servers.into(),
            installation: installation.into(),
            instance,
            clock,
            topic_prefix: String::new(),
            event_topic: Some("order.events".into()),
            additional_topics: Vec::new(),
            topic_partitions: 12,
            partitions_by_topic: HashMap::new(),
            partitions: 64,
            guarantee: DeliveryGuarantee::ExactlyOnce,
            create_topics: true,
            retention: None,
            transaction_timeout: Duration::from_secs(30),
            security: Security::default(),
            compression: Compression::None,
            record_bytes_max: outbox::event_rules::PAYLOAD_BYTES_MAX,
            session_queue_max: 1024,
            transaction_records_max: 8_192,
            transaction_bytes_max: BATCH_BYTES_MAX,
            delivery_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            session_timeout: Duration::from_secs(10),
            handover_timeout: Duration::from_secs(5),
            prefetch_max: 512,
        }
    }

    /// The full name of a topic: the prefix and `name`.
    pub fn topic(&self, name: &str) -> String {
        format!("{}{name}", self.topic_prefix)
    }

    /// The full name of the watermark topic.
    pub fn watermark_topic(&self) -> String {
        self.topic(WATERMARK_TOPIC)
    }

    /// The number of partitions that a topic is created with.
    pub(crate) fn partitions_of(&self, topic: &str) -> u32 {
        if topic == self.watermark_topic() {
            return self.partitions;
        }
        self.partitions_by_topic.get(topic).copied().unwrap_or(self.topic_partitions)
    }

    /// The full names of the event topic, its retry topics and its dead-letter topic, and of the additional topics.
    pub fn event_topics(&self) -> Vec<String> {
        self.event_topic_and_its_retries().chain(self.additional_topics.iter().cloned()).collect()
    }

    /// The full names of the topics without which the relay cannot work.
    pub(crate) fn own_topics(&self) -> Vec<String> {
        self.event_topic_and_its_retries().chain([self.watermark_topic()]).collect()
    }

    /// The full names of the event topic, its retry topics and its dead-letter topic.
    fn event_topic_and_its_retries(&self) -> impl Iterator<Item = String> {
        self.event_topic.iter().flat_map(|name| topics::all_topics(&self.topic(name)))
    }

    /// The full names of the topics of which a probe requires leaders: the event topic, if there is one, and the watermark topic.
    pub(crate) fn led_topics(&self) -> Vec<String> {
        self.event_topic.iter().map(|name| self.topic(name)).chain([self.watermark_topic()]).collect()
    }

    /// The full name of a topic of which clients read metadata first.
    pub(crate) fn first_topic(&self) -> String {
        self.event_topic.as_ref().map_or_else(|| self.watermark_topic(), |name| self.topic(name))
    }

    /// The full names of all topics of the installation.
    pub fn all_topics(&self) -> Vec<String> {
        self.event_topics().into_iter().chain([self.watermark_topic()]).collect()
    }

    /// The transactional id of a slot of an instance of the installation.
    pub(crate) fn transactional_id(&self, instance: &InstanceId, slot: &str) -> String {
        format!("{}{}{instance}-{slot}", self.transactional_id_prefix(), self.installation_in_ids())
    }

    /// The topic prefix with which the installation opened a transactional id, where it is not the present one. The watermarks of the id's
    /// sessions are then in the watermark topic of that prefix.
    pub(crate) fn other_topic_prefix<'a>(&self, transactional_id: &'a str) -> Option<&'a str> {
        let (prefix, _) = transactional_id.split_once(&self.installation_in_ids())?;
        (prefix != self.transactional_id_prefix()).then_some(prefix)
    }

    /// What transactional ids begin with.
    fn transactional_id_prefix(&self) -> &str {
        if self.topic_prefix.is_empty() { "posthaste" } else { &self.topic_prefix }
    }

    /// What transactional ids have between the prefix and the instance.
    fn installation_in_ids(&self) -> String {
        format!("-{}-", self.installation)
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("bootstrap_servers", &self.bootstrap_servers)
            .field("installation", &self.installation)
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}
