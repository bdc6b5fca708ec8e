//! What the broker's adapter may be told, with defaults that run. Every bound has its reason.
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ports::clock::Clock;
use ports::partitions::InstanceId;
use secrecy::SecretString;

/// What a consumer sees when a process is killed at the wrong moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// Each event once, for whoever reads `read_committed`: transactions, with a watermark in each.
    ExactlyOnce,
    /// Each event, and after a crash some of them twice: for clusters that allow no transactions.
    AtLeastOnce,
}

/// How values are packed on the wire and on the broker's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As they are.
    None,
    /// Fewer bytes on the wire and on the broker's disk, for some of our processor.
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

/// A name and a password for the broker.
#[derive(Clone, Debug)]
pub struct Sasl {
    /// `PLAIN` always works; `SCRAM-SHA-256` and `SCRAM-SHA-512` need the feature `tls`.
    pub mechanism: String,
    /// Who we are.
    pub username: String,
    /// Never shown by debug output.
    pub password: SecretString,
}

/// How we speak to the brokers.
#[derive(Clone, Debug, Default)]
pub struct Security {
    /// Encrypted; needs the feature `tls`.
    pub tls: bool,
    /// Certificates to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Who we say we are; nobody where it is not set.
    pub sasl: Option<Sasl>,
}

/// How the broker is reached and used.
#[derive(Clone)]
pub struct Options {
    /// `host:port`, with commas between them.
    pub bootstrap_servers: String,
    /// Names the installation: a watermark of another one says nothing about ours.
    pub installation: Arc<str>,
    /// The stable name of this service.
    pub instance: InstanceId,
    /// Wall time, for ages and nothing else.
    pub clock: Arc<dyn Clock>,
    /// Stands before every topic's name as it is.
    pub topic_prefix: String,
    /// The events' topic, without the prefix.
    pub events: String,
    /// Partitions of the events' topic and of those that belong to it.
    pub topic_partitions: u32,
    /// How many retry topics belong to it.
    pub retry_topics: u32,
    /// Partitions of the outbox, and so of the watermarks' topic.
    pub partitions: u32,
    /// Exactly once, or at least once.
    pub guarantee: Guarantee,
    /// Whether missing topics are made.
    pub create_topics: bool,
    /// How long topics that we make keep a record; `None` leaves it to the broker.
    pub retention: Option<Duration>,
    /// When the broker aborts a transaction by itself. Not longer than the lease: a dead instance's open transaction holds every
    /// `read_committed` consumer back.
    pub transaction_timeout: Duration,
    /// How we speak to the brokers.
    pub security: Security,
    /// How values are packed. Measured in turn (`benches/publish.rs`), neither is faster beyond the noise: lz4 is for those who pay for
    /// the wire or the disk.
    pub compression: Compression,
    /// Largest value of a record in bytes: the broker's default for a message is 1 MiB and 12 bytes, and key, headers and framing need
    /// room beside the value.
    pub record_bytes_max: usize,
    /// Batches that may wait for a lane. An instance has 16 in flight; past this something else is wrong.
    pub queue: usize,
    /// Most records of one transaction: eight batches of a thousand; beyond this a longer one only adds latency (measured).
    pub transaction_records: usize,
    /// Most bytes of values in one transaction; a record that is larger goes alone.
    pub transaction_bytes: usize,
    /// How long records may be on their way before they are given up. A broker that replicates slowly answers within seconds.
    pub deliver_within: Duration,
    /// How long a call to a broker that is not there may wait: the relay's own clocks are seconds.
    pub connect_within: Duration,
    /// How long an instance may fall silent before its partitions of a group are given to others: well within `dead_after`.
    pub session_timeout: Duration,
    /// How long messages in hand may hold back a partition that the group takes from us.
    pub hand_over_within: Duration,
    /// Messages of one topic partition that are kept ready, ahead of what was asked for.
    pub ready_max: usize,
}

impl Options {
    /// The defaults, for a service of this name on these brokers.
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
            events: "order.events".into(),
            topic_partitions: 12,
            retry_topics: 4,
            partitions: 64,
            guarantee: Guarantee::ExactlyOnce,
            create_topics: true,
            retention: None,
            transaction_timeout: Duration::from_secs(30),
            security: Security::default(),
            compression: Compression::None,
            record_bytes_max: 960 * 1024,
            queue: 1024,
            transaction_records: 8_192,
            transaction_bytes: 16 * 1024 * 1024,
            deliver_within: Duration::from_secs(10),
            connect_within: Duration::from_secs(5),
            session_timeout: Duration::from_secs(10),
            hand_over_within: Duration::from_secs(5),
            ready_max: 512,
        }
    }

    /// A topic's full name.
    pub fn topic(&self, name: &str) -> String {
        format!("{}{name}", self.topic_prefix)
    }

    /// The watermarks' topic.
    pub fn watermarks(&self) -> String {
        self.topic("relay-watermarks")
    }

    /// The events' topic and those that belong to it.
    pub fn event_topics(&self) -> Vec<String> {
        let events = self.topic(&self.events);
        let retries = (0..self.retry_topics).map(|stage| format!("{events}-retry-{stage}"));
        let dead = format!("{events}-dlt");
        std::iter::once(events.clone()).chain(retries).chain([dead]).collect()
    }

    /// What all transactional ids of this instance begin with.
    pub(crate) fn lane_base(&self) -> String {
        let front = if self.topic_prefix.is_empty() { "posthaste" } else { &self.topic_prefix };
        format!("{front}-{}-{}", self.installation, self.instance)
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
