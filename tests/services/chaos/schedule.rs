//! The schedule of faults: pure data drawn from a seed. `injection.rs` executes it.
use std::time::Duration;

use kit::clock::SeededRng;
use ports::clock::Rng;

use crate::chaos::actor_fault::{ACTOR_KINDS, ActorExit, ActorFault};

/// Number of processes of the service.
pub const INSTANCES: usize = 3;
/// Mean time between two faults: short enough that faults overlap, long enough that orders are still accepted.
const PAUSE_MEAN: Duration = Duration::from_millis(700);

/// A failure to inject. Instances are counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// kill -9 of a process, which starts again after a while.
    Kill { instance: usize, downtime: Duration },
    /// SIGTERM of a process, which drains and ends, and starts again after a while.
    Stop { instance: usize, downtime: Duration },
    /// SIGSTOP of a process, often past its lease, then SIGCONT.
    Freeze { instance: usize, duration: Duration },
    /// An actor of a process ends, and its supervisor starts it again.
    FailActor { instance: usize, actor: ActorFault },
    /// Every connection of a process to PostgreSQL ends.
    CutStore { instance: usize },
    /// Data between a process and PostgreSQL is held back in both directions.
    StallStore { instance: usize, duration: Duration },
    /// Every connection of a process to Redis ends.
    CutCache { instance: usize },
    /// Every connection of a process to Kafka ends.
    CutBroker { instance: usize },
    /// Data between a process and Kafka is held back in both directions; a commit may arrive after the process has lost its leases.
    StallBroker { instance: usize, duration: Duration },
    /// kill -9 of PostgreSQL and all its children.
    KillStore { downtime: Duration },
    /// kill -9 of Kafka.
    KillBroker { downtime: Duration },
    /// SIGSTOP of Kafka: connections stay open, and nothing responds.
    FreezeBroker { duration: Duration },
    /// kill -9 of Redis.
    KillCache { downtime: Duration },
    /// Redis loses all data.
    FlushCache,
}

/// The component that fails. Faults of one target follow each other, those of different targets overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Instance(usize),
    Actors(usize),
    Network(usize),
    BrokerNetwork(usize),
    Store,
    Broker,
    Cache,
}

impl Fault {
    pub fn target(self) -> Target {
        match self {
            Fault::Kill { instance, .. } | Fault::Stop { instance, .. } | Fault::Freeze { instance, .. } => {
                Target::Instance(instance)
            }
            Fault::FailActor { instance, .. } => Target::Actors(instance),
            Fault::CutBroker { instance } | Fault::StallBroker { instance, .. } => Target::BrokerNetwork(instance),
            Fault::CutStore { instance } | Fault::StallStore { instance, .. } | Fault::CutCache { instance } => {
                Target::Network(instance)
            }
            Fault::KillStore { .. } => Target::Store,
            Fault::KillBroker { .. } | Fault::FreezeBroker { .. } => Target::Broker,
            Fault::KillCache { .. } | Fault::FlushCache => Target::Cache,
        }
    }
}

/// A fault and its time, counted from the start of the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledFault {
    pub at: Duration,
    pub fault: Fault,
}

/// Number of faults of one round. A round contains every kind, and a failure of each kind of actor, for any seed.
pub const ROUND_FAULTS: usize = 32 + ACTOR_KINDS.len();

/// The faults of one round in random order. Equal seeds give equal schedules.
pub fn schedule(seed: u64) -> Vec<ScheduledFault> {
    let rng = SeededRng::new(seed);
    let mut faults: Vec<Fault> = (0..ROUND_FAULTS).map(|index| fault_at(index, &rng)).collect();
    for last in (1..faults.len()).rev() {
        faults.swap(last, random_below(&rng, last as u64 + 1) as usize);
    }
    let mut at = Duration::ZERO;
    let step = |fault| {
        at += between(&rng, Duration::ZERO, 2 * PAUSE_MEAN);
        ScheduledFault { at, fault }
    };
    faults.into_iter().map(step).collect()
}

fn fault_at(index: usize, rng: &SeededRng) -> Fault {
    let instance = random_below(rng, INSTANCES as u64) as usize;
    let short = between(rng, Duration::ZERO, Duration::from_secs(1));
    let long = between(rng, Duration::from_millis(500), Duration::from_secs(6));
    let number = random_below(rng, u64::from(u32::MAX)) as usize;
    let exit = if random_below(rng, 2) == 0 { ActorExit::Panic } else { ActorExit::Stop };
    match index {
        0..8 => Fault::Kill { instance, downtime: short },
        8..11 => Fault::Stop { instance, downtime: short },
        11..15 => Fault::Freeze { instance, duration: long },
        15..18 => Fault::CutStore { instance },
        18..20 => Fault::StallStore { instance, duration: long },
        20..22 => Fault::CutCache { instance },
        22..24 => Fault::CutBroker { instance },
        24..26 => Fault::StallBroker { instance, duration: long },
        26 => Fault::KillStore { downtime: short },
        27 => Fault::KillBroker { downtime: short },
        28 => Fault::FreezeBroker { duration: long },
        29 => Fault::KillCache { downtime: short },
        30..32 => Fault::FlushCache,
        _ => Fault::FailActor { instance, actor: ActorFault { kind: ACTOR_KINDS[index - 32], number, exit } },
    }
}

fn random_below(rng: &SeededRng, limit: u64) -> u64 {
    rng.next_u64() % limit
}

fn between(rng: &SeededRng, least: Duration, most: Duration) -> Duration {
    least + Duration::from_millis(random_below(rng, (most - least).as_millis() as u64))
}

#[test]
fn a_seed_repeats_its_faults_and_another_seed_differs() {
    assert_eq!(schedule(7), schedule(7));
    assert_ne!(schedule(7), schedule(8));
}

#[test]
fn every_round_contains_every_kind_of_fault() {
    for seed in 0..50 {
        let kinds: std::collections::HashSet<_> =
            schedule(seed).iter().map(|step| std::mem::discriminant(&step.fault)).collect();

        assert_eq!(kinds.len(), 14, "seed {seed}");
    }
}

#[test]
fn every_round_contains_a_failure_of_each_kind_of_actor() {
    for seed in 0..50 {
        let mut kinds: Vec<&str> = schedule(seed).iter().filter_map(|step| failed_kind(step.fault)).collect();
        kinds.sort_unstable();

        let mut expected = ACTOR_KINDS;
        expected.sort_unstable();
        assert_eq!(kinds, expected, "seed {seed}");
    }

    fn failed_kind(fault: Fault) -> Option<&'static str> {
        match fault {
            Fault::FailActor { actor, .. } => Some(actor.kind),
            _ => None,
        }
    }
}
