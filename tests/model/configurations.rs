//! The configurations that the tests explore, without faults: each test adds the faults that it needs.
use crate::configuration::{Configuration, DeliveryGuarantee, Event, Faults, SendBehavior};

/// No fault at all.
pub const NO_FAULTS: Faults = Faults {
    crashes: 0,
    expiries: 0,
    timeouts: 0,
    lost_replies: 0,
    late_statements: 0,
    slow_claims: 0,
    refusals: 0,
    handovers: 0,
    panics: 0,
    operator_calls: 0,
    rewinds: 0,
};

const fn event(partition: usize, key: usize, send_behavior: SendBehavior) -> Event {
    Event { partition, key, send_behavior, is_committed: true }
}

const fn late(partition: usize, key: usize) -> Event {
    Event { partition, key, send_behavior: SendBehavior::Healthy, is_committed: false }
}

/// One partition, two owners, three events on two keys; event 1 drew its id before event 2, and may commit after it.
pub fn one_partition(faults: Faults) -> Configuration {
    let events = [event(0, 0, SendBehavior::MayFail), late(0, 1), event(0, 0, SendBehavior::Healthy)];
    Configuration::new("one partition", 1, &events, faults)
}

/// As [`one_partition`], with a second transactional producer for each instance.
pub fn two_producers(faults: Faults) -> Configuration {
    Configuration { name: "one partition, two producers in turn", producers: 2, ..one_partition(faults) }
}

/// Four events on two keys in one partition, two of which may commit late.
pub fn late_committers(faults: Faults) -> Configuration {
    let events = [event(0, 0, SendBehavior::MayFail), late(0, 1), event(0, 0, SendBehavior::Healthy), late(0, 1)];
    Configuration::new("late committers", 1, &events, faults)
}

/// Two partitions that share each cycle, with two producers that alternate.
pub fn two_partitions(faults: Faults) -> Configuration {
    let events =
        [event(0, 0, SendBehavior::MayFail), event(1, 1, SendBehavior::Healthy), event(0, 0, SendBehavior::Healthy)];
    Configuration { producers: 2, ..Configuration::new("two partitions in one cycle", 2, &events, faults) }
}

/// As [`two_partitions`], with one producer.
pub fn shared_producer(faults: Faults) -> Configuration {
    Configuration { name: "two partitions, one producer", producers: 1, ..two_partitions(faults) }
}

/// One partition with records outside of transactions.
pub fn at_least_once(faults: Faults) -> Configuration {
    Configuration { name: "at least once", guarantee: DeliveryGuarantee::AtLeastOnce, ..one_partition(faults) }
}

/// A head that is parked, and blocks its key.
pub fn parked_head(faults: Faults) -> Configuration {
    let events = [event(0, 0, SendBehavior::Permanent), event(0, 0, SendBehavior::Healthy), late(0, 1)];
    Configuration::new("parked head", 1, &events, faults)
}

/// A head that is parked, and does not block its key.
pub fn skipped_head(faults: Faults) -> Configuration {
    Configuration { name: "parked head that is skipped", skips_parked_rows: true, ..parked_head(faults) }
}

/// A poison event and a healthy one in the same partition.
pub fn poison(faults: Faults) -> Configuration {
    let events = [event(0, 0, SendBehavior::Poison), event(0, 1, SendBehavior::Healthy)];
    Configuration { counts_deaths: true, ..Configuration::new("poison", 1, &events, faults) }
}

/// A poison event, and a healthy one in another partition; one death makes a suspect.
pub fn poison_elsewhere(faults: Faults) -> Configuration {
    let events = [event(0, 0, SendBehavior::Poison), event(1, 1, SendBehavior::Healthy)];
    let config = Configuration::new("poison in another partition", 2, &events, faults);
    Configuration { counts_deaths: true, suspect_deaths: 1, ..config }
}

/// One healthy event whose deaths are counted.
pub fn one_event(faults: Faults) -> Configuration {
    Configuration {
        counts_deaths: true,
        ..Configuration::new("one event", 1, &[event(0, 0, SendBehavior::Healthy)], faults)
    }
}
