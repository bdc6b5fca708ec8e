//! The schedule of faults, drawn from a seed.
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
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

/// A fault with its time, its target and its duration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PlannedFault {
    pub at: Instant,
    pub kind: FaultKind,
    /// Index of the affected instance.
    pub instance: usize,
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

/// The schedule of one run, drawn as it goes.
pub(super) struct FaultPlan {
    rng: StdRng,
    interval: Duration,
}

impl FaultPlan {
    pub(super) fn new(rng: StdRng, interval: Duration) -> Self {
        Self { rng, interval }
    }

    /// The next fault after half to one and a half intervals; `None` when that is after `end`. Every fault takes the same number of draws, so
    /// the state that a fault finds changes no later fault.
    pub(super) fn next(&mut self, instances: usize, end: Instant) -> Option<PlannedFault> {
        let at = Instant::now() + self.interval.mul_f64(self.rng.random_range(0.5..1.5));
        let (kind, instance) = (self.kind(), self.rng.random_range(0..instances));
        let (duration_fraction, target) = (self.rng.random(), self.rng.random());
        (at < end).then_some(PlannedFault { at, kind, instance, duration_fraction, target })
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
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_seed_draws_the_same_faults_and_every_kind_of_them() {
        let actors = ["/a", "/b", "/c"].map(str::to_owned);
        // `listed` says whether the actors of an instance can be listed at the moment of the fault, which differs between two runs.
        let draw = |listed: bool| {
            let mut plan = FaultPlan::new(StdRng::seed_from_u64(7), Duration::ZERO);
            let end = Instant::now() + Duration::from_secs(60);
            let next = |_| {
                let fault = plan.next(3, end)?;
                if listed {
                    assert!(fault.choose(&actors).is_some() && fault.choose(&[]).is_none());
                }
                Some((fault.kind, fault.instance, fault.duration_fraction.to_bits(), fault.target.to_bits()))
            };
            (0..500).filter_map(next).collect::<Vec<_>>()
        };
        let faults = draw(true);

        assert_eq!(faults, draw(false));
        assert!(KINDS.iter().all(|(kind, _)| faults.iter().any(|fault| fault.0 == *kind)));
        assert!((0..3).all(|instance| faults.iter().any(|fault| fault.1 == instance)));
    }

    #[test]
    fn target_of_a_fault_selects_the_same_actor_among_the_same_paths() {
        let fault = |target| PlannedFault {
            at: Instant::now(),
            kind: FaultKind::Panic,
            instance: 0,
            duration_fraction: 0.5,
            target,
        };
        let paths = ["/a", "/b", "/c"].map(str::to_owned);
        for (target, chosen) in [(0.0, "/a"), (0.34, "/b"), (0.99, "/c"), (1.0, "/c")] {
            assert_eq!(fault(target).choose(&paths), Some(chosen));
        }
        assert_eq!(fault(0.5).choose(&[]), None);
    }

    #[test]
    fn no_fault_begins_after_the_end() {
        let mut plan = FaultPlan::new(StdRng::seed_from_u64(7), Duration::from_secs(10));
        assert_eq!(plan.next(1, Instant::now() + Duration::from_secs(4)), None);
    }
}
