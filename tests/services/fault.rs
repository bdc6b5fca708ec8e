//! What goes wrong, and when: pure data from a seed. Nothing here breaks anything.
use std::time::Duration;

use kit::clock::SeededRng;
use ports::clock::Rng;

/// Processes of the service.
pub const INSTANCES: usize = 3;
/// Between two faults, on average: quick enough that they overlap, slow enough that orders still pass.
const PAUSE_MEAN: Duration = Duration::from_millis(1_200);

/// Something that goes wrong. Instances are counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// kill -9 of a process, which is started again after a while.
    Kill { instance: usize, down: Duration },
    /// SIGSTOP of a process, often past its lease, then SIGCONT.
    Freeze { instance: usize, still: Duration },
    /// Every connection of a process to PostgreSQL ends.
    CutStore { instance: usize },
    /// What a process and PostgreSQL say to each other is held back.
    MuteStore { instance: usize, silent: Duration },
    /// Every connection of a process to Redis ends.
    CutCache { instance: usize },
    /// kill -9 of PostgreSQL and all its children.
    KillStore { down: Duration },
    /// kill -9 of Kafka.
    KillBroker { down: Duration },
    /// SIGSTOP of Kafka: connected, and silent.
    FreezeBroker { still: Duration },
    /// kill -9 of Redis.
    KillCache { down: Duration },
    /// Redis forgets everything.
    FlushCache,
}

/// Who suffers. Faults of one victim come one after the other, those of different victims overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    Instance(usize),
    Network(usize),
    Store,
    Broker,
    Cache,
}

impl Fault {
    pub fn victim(self) -> Victim {
        match self {
            Fault::Kill { instance, .. } | Fault::Freeze { instance, .. } => Victim::Instance(instance),
            Fault::CutStore { instance } | Fault::MuteStore { instance, .. } | Fault::CutCache { instance } => {
                Victim::Network(instance)
            }
            Fault::KillStore { .. } => Victim::Store,
            Fault::KillBroker { .. } | Fault::FreezeBroker { .. } => Victim::Broker,
            Fault::KillCache { .. } | Fault::FlushCache => Victim::Cache,
        }
    }
}

/// A fault and its moment, counted from the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub at: Duration,
    pub fault: Fault,
}

/// Faults that are played together: every kind is among them, whatever the seed.
pub const DECK: usize = 25;

/// One deck, shuffled. The same seed gives the same.
pub fn schedule(seed: u64) -> Vec<Step> {
    let dice = SeededRng::new(seed);
    let mut deck: Vec<Fault> = (0..DECK).map(|card| draw(card, &dice)).collect();
    for last in (1..deck.len()).rev() {
        deck.swap(last, below(&dice, last as u64 + 1) as usize);
    }
    let mut at = Duration::ZERO;
    let step = |fault| {
        at += between(&dice, Duration::ZERO, 2 * PAUSE_MEAN);
        Step { at, fault }
    };
    deck.into_iter().map(step).collect()
}

fn draw(card: usize, dice: &SeededRng) -> Fault {
    let instance = below(dice, INSTANCES as u64) as usize;
    let short = between(dice, Duration::ZERO, Duration::from_secs(1));
    let long = between(dice, Duration::from_millis(500), Duration::from_secs(6));
    match card {
        0..8 => Fault::Kill { instance, down: short },
        8..12 => Fault::Freeze { instance, still: long },
        12..15 => Fault::CutStore { instance },
        15..17 => Fault::MuteStore { instance, silent: long },
        17..19 => Fault::CutCache { instance },
        19 => Fault::KillStore { down: short },
        20 => Fault::KillBroker { down: short },
        21 => Fault::FreezeBroker { still: long },
        22 => Fault::KillCache { down: short },
        _ => Fault::FlushCache,
    }
}

fn below(dice: &SeededRng, limit: u64) -> u64 {
    dice.next_u64() % limit
}

fn between(dice: &SeededRng, least: Duration, most: Duration) -> Duration {
    least + Duration::from_millis(below(dice, (most - least).as_millis() as u64))
}

#[test]
fn a_seed_repeats_its_faults_and_another_seed_has_others() {
    assert_eq!(schedule(7), schedule(7));
    assert_ne!(schedule(7), schedule(8));
}

#[test]
fn every_kind_of_fault_is_in_every_deck() {
    for seed in 0..50 {
        let kinds: std::collections::HashSet<_> =
            schedule(seed).iter().map(|step| std::mem::discriminant(&step.fault)).collect();

        assert_eq!(kinds.len(), 10, "seed {seed}");
    }
}
