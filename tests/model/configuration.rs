//! The configuration of one search: events, partitions, producers, and how often each fault may happen.
use crate::invariants::BrokenRule;

/// Most events of a configuration.
pub const EVENTS_MAX: usize = 4;
/// Most outbox partitions of a configuration.
pub const PARTITIONS_MAX: usize = 2;
/// Most keys of a configuration.
pub const KEYS_MAX: usize = 3;
/// Instances of every configuration.
pub const INSTANCES: usize = 2;
/// Most transactional producers of an instance.
pub const PRODUCERS_MAX: usize = 2;
/// Deaths in trials after which a row is parked.
pub const TRIAL_DEATHS_MAX: u8 = 2;

/// How the broker is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryGuarantee {
    /// One Kafka transaction for each cycle, with watermarks.
    ExactlyOnce,
    /// Records without transactions: duplicates are permitted, loss and disorder are not.
    AtLeastOnce,
}

/// The property of an event that decides how its sends end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendBehavior {
    /// Each send succeeds, unless the session ends.
    Healthy,
    /// A send may be refused, as often as [`Faults::refusals`] permits.
    MayFail,
    /// Each send is refused, and the event is parked.
    Permanent,
    /// The process that handles it dies.
    Poison,
}

/// An event. Its number is its id in the outbox, so ids are drawn in the order of the numbers.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Outbox partition of its key.
    pub partition: usize,
    /// Key, within which the order counts.
    pub key: usize,
    /// How its sends end.
    pub send_behavior: SendBehavior,
    /// Whether its transaction has committed when the search begins. Otherwise it commits at any later moment, but within its key in the
    /// order of the ids.
    pub is_committed: bool,
}

/// How often each fault may happen on one path of the search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// A process dies; what it sent may still arrive.
    pub crashes: u8,
    /// A lease expires although its owner lives.
    pub expiries: u8,
    /// The coordinator aborts an open transaction.
    pub timeouts: u8,
    /// The reply to a commit, or to a send without transactions, does not arrive.
    pub lost_replies: u8,
    /// The reply to a statement does not arrive; the statement executes later, or never before others do.
    pub late_statements: u8,
    /// A claim waits at the store between its read and its write; the reply arrives.
    pub slow_claims: u8,
    /// The broker refuses a record, or the worker foresees it.
    pub refusals: u8,
    /// An owner drains a partition and releases it.
    pub handovers: u8,
    /// A worker panics and its process continues.
    pub panics: u8,
    /// An operator parks or retries a row.
    pub operator_calls: u8,
    /// Replication stops at some moment, and later the store fails over to the replica: every commit since is lost.
    pub rewinds: u8,
}

/// All that one search explores.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// Printed with the results.
    pub name: &'static str,
    /// At most [`EVENTS_MAX`], in id order.
    pub events: Vec<Event>,
    /// Outbox partitions in use.
    pub partitions: usize,
    /// Transactional producers of each instance, which alternate.
    pub producers: usize,
    /// Most rows of a batch.
    pub batch: usize,
    /// Exactly once, or at least once.
    pub guarantee: DeliveryGuarantee,
    /// Whether later events of a key continue behind a row that was parked.
    pub skips_parked_rows: bool,
    /// Whether deaths are counted; without, the search has fewer states.
    pub counts_deaths: bool,
    /// Deaths after which a row is a suspect. The product waits for three; fewer make shorter paths to the same decisions.
    pub suspect_deaths: u8,
    /// How often each fault may happen.
    pub faults: Faults,
    /// The rule that is switched off, if any.
    pub broken: Option<BrokenRule>,
    /// Whether a violation counts that users do not see yet. While a rule is switched off, the search usually looks for the damage behind it.
    pub counts_prevention: bool,
    /// Whether statements that can change nothing any more are left out of the states. That they change nothing is guarantee 4: one search
    /// keeps them and checks it.
    pub drops_stale_statements: bool,
}

impl Configuration {
    /// A configuration in exactly-once mode with batches of two rows and one producer.
    pub fn new(name: &'static str, partitions: usize, events: &[Event], faults: Faults) -> Self {
        Self {
            name,
            events: events.to_vec(),
            partitions,
            producers: 1,
            batch: 2,
            guarantee: DeliveryGuarantee::ExactlyOnce,
            skips_parked_rows: false,
            counts_deaths: false,
            suspect_deaths: 2,
            faults,
            broken: None,
            counts_prevention: true,
            drops_stale_statements: true,
        }
    }

    /// Whether this rule is switched off.
    pub fn breaks(&self, rule: BrokenRule) -> bool {
        self.broken == Some(rule)
    }

    /// The configuration with this rule switched off: the search looks for the damage.
    pub fn breaking(self, rule: BrokenRule) -> Self {
        Self { broken: Some(rule), counts_prevention: false, drops_stale_statements: false, ..self }
    }

    /// Numbers of the events of this outbox partition, in id order.
    pub fn events_of(&self, partition: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.events.len()).filter(move |event| self.events[*event].partition == partition)
    }

    /// Numbers of the earlier events of the same key.
    pub fn earlier_of_key(&self, event: usize) -> impl Iterator<Item = usize> + '_ {
        (0..event).filter(move |earlier| self.events[*earlier].key == self.events[event].key)
    }

    /// Whether the store may be rewound.
    pub fn rewinds(&self) -> bool {
        self.faults.rewinds > 0
    }
}
