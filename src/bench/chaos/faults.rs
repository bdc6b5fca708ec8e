//! The schedule of faults, drawn from a seed.
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FaultKind {
    /// A panic at once, without waiting for a message.
    Panic,
    /// An actor exits normally.
    Stop,
    /// An actor handles no messages for a while.
    Pause,
    /// kill -9, and a new process after a while.
    Kill,
    /// SIGTERM, and a new process after the graceful stop.
    Restart,
    /// SIGSTOP, and SIGCONT after a while that may be longer than a lease.
    Freeze,
}

/// All kinds, each with its weight in the draw.
const KINDS: [(FaultKind, u32); 6] = [
    (FaultKind::Panic, 5),
    (FaultKind::Stop, 2),
    (FaultKind::Pause, 1),
    (FaultKind::Kill, 2),
    (FaultKind::Restart, 1),
    (FaultKind::Freeze, 2),
];

impl FaultKind {
    /// Its name in reports; that of an actor's fault is also its action in `/admin/actors`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Panic => "panic",
            Self::Stop => "stop",
            Self::Pause => "pause",
            Self::Kill => "kill",
            Self::Restart => "restart",
            Self::Freeze => "freeze",
        }
    }
}

/// A fault of one instance with its time, its target and its duration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PlannedFault {
    pub at: Instant,
    pub kind: FaultKind,
    /// From 0 to 1: the duration as a fraction of the longest one of its kind.
    pub duration_fraction: f64,
    /// From 0 to 1: the position of the affected actor among those that run at that time.
    pub target: f64,
}

impl PlannedFault {
    /// The path of the affected actor: the same one among the same paths. `None` if there are none.
    pub(super) fn choose<'a>(&self, paths: &'a [String]) -> Option<&'a str> {
        let index = (self.target * paths.len() as f64) as usize;
        paths.get(index.min(paths.len().saturating_sub(1))).map(String::as_str)
    }
}

/// The schedule of one instance, drawn as it goes: those of several instances do not wait for each other, so that their faults overlap.
pub(super) struct FaultPlan {
    rng: StdRng,
    interval: Duration,
}

impl FaultPlan {
    /// The plans of all instances, which together begin a fault once per interval.
    pub(super) fn of_instances(seed: u64, interval: Duration, instances: usize) -> Vec<Self> {
        let rng = |instance: usize| StdRng::seed_from_u64(seed.wrapping_add(instance as u64));
        (0..instances).map(|instance| Self { rng: rng(instance), interval: interval * instances as u32 }).collect()
    }

    /// The next fault after half to one and a half intervals; `None` when that is after `end`. Every fault takes the same number of draws, so
    /// the state that a fault finds changes no later fault.
    pub(super) fn next(&mut self, end: Instant) -> Option<PlannedFault> {
        let at = Instant::now() + self.interval.mul_f64(self.rng.random_range(0.5..1.5));
        let kind = self.kind();
        let (duration_fraction, target) = (self.rng.random(), self.rng.random());
        (at < end).then_some(PlannedFault { at, kind, duration_fraction, target })
    }

    fn kind(&mut self) -> FaultKind {
        let mut drawn = self.rng.random_range(0..KINDS.iter().map(|(_, weight)| weight).sum());
        for (kind, weight) in KINDS {
            if drawn < weight {
                return kind;
            }
            drawn -= weight;
        }
        FaultKind::Panic
    }
}

/// The number of injected faults of each kind, and of those whose actor or process was already down.
#[derive(Default)]
pub(super) struct FaultCounts {
    hit: BTreeMap<FaultKind, u64>,
    missed: u64,
}

impl FaultCounts {
    pub(super) fn add(&mut self, kind: FaultKind, hit: bool) {
        if hit {
            *self.hit.entry(kind).or_default() += 1;
        } else {
            self.missed += 1;
        }
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        for (kind, hit) in &other.hit {
            *self.hit.entry(*kind).or_default() += hit;
        }
        self.missed += other.missed;
    }

    pub(super) fn json(&self) -> Value {
        let mut counts = json!({"missed": self.missed});
        for (kind, _) in KINDS {
            counts[kind.name()] = self.hit.get(&kind).copied().unwrap_or(0).into();
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_faults_and_every_kind_of_them_for_each_instance() {
        let actors = ["/a", "/b", "/c"].map(str::to_owned);
        // `listed` says whether the actors of an instance can be listed at the moment of the fault, which differs between two runs.
        let draw = |listed: bool| {
            let end = Instant::now() + Duration::from_secs(60);
            let next = |plan: &mut FaultPlan| {
                let fault = plan.next(end)?;
                if listed {
                    assert!(fault.choose(&actors).is_some() && fault.choose(&[]).is_none());
                }
                Some((fault.kind, fault.duration_fraction.to_bits(), fault.target.to_bits()))
            };
            let faults = |mut plan: FaultPlan| (0..200).filter_map(|_| next(&mut plan)).collect::<Vec<_>>();
            FaultPlan::of_instances(7, Duration::ZERO, 3).into_iter().map(faults).collect::<Vec<_>>()
        };
        let faults = draw(true);

        assert_eq!(faults, draw(false));
        assert!(faults.iter().all(|drawn| KINDS.iter().all(|(kind, _)| drawn.iter().any(|fault| fault.0 == *kind))));
        assert_ne!(faults[0], faults[1]);
    }

    #[test]
    fn target_of_a_fault_selects_the_same_actor_among_the_same_paths() {
        let fault =
            |target| PlannedFault { at: Instant::now(), kind: FaultKind::Panic, duration_fraction: 0.5, target };
        let paths = ["/a", "/b", "/c"].map(str::to_owned);
        for (target, chosen) in [(0.0, "/a"), (0.34, "/b"), (0.99, "/c"), (1.0, "/c")] {
            assert_eq!(fault(target).choose(&paths), Some(chosen));
        }
        assert_eq!(fault(0.5).choose(&[]), None);
    }

    #[test]
    fn no_fault_begins_after_the_end() {
        let mut plan = FaultPlan::of_instances(7, Duration::from_secs(10), 1).remove(0);
        assert_eq!(plan.next(Instant::now() + Duration::from_secs(4)), None);
    }
}
