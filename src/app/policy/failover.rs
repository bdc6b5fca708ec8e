//! Region mode: rounds of probes move the region to PASSIVE and back. A flapping dependency does not make the mode flap.
use std::collections::BTreeMap;

/// Numbers of consecutive results that change a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverThresholds {
    /// Consecutive failures after which a dependency counts as down.
    pub dependency: u32,
    /// Consecutive unhealthy rounds after which the region becomes PASSIVE.
    pub unhealthy: u32,
    /// Consecutive healthy rounds after which it becomes ACTIVE again.
    pub healthy: u32,
}

impl Default for FailoverThresholds {
    fn default() -> Self {
        Self { dependency: 2, unhealthy: 3, healthy: 2 }
    }
}

/// Whether the region accepts writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegionMode {
    /// The region accepts writes.
    #[default]
    Active,
    /// The region rejects writes, so that load balancers choose another region.
    Passive,
}

/// The answer of one dependency in a round of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// Name of the dependency, as in `failover.gates`.
    pub name: &'static str,
    /// Whether it answered in time, without an error.
    pub responded: bool,
    /// Whether its failure makes the region PASSIVE.
    pub gates_region: bool,
}

/// Result of one round of probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeRound {
    /// Whether a gating dependency is down; such rounds lead to PASSIVE.
    pub unhealthy: bool,
    /// The new mode, if this round changed it.
    pub new_mode: Option<RegionMode>,
}

/// The region's mode with the counts that lead to a change.
#[derive(Clone, Debug, Default)]
pub struct RegionHealth {
    mode: RegionMode,
    streak: u32,
    failures: BTreeMap<&'static str, u32>,
}

impl RegionHealth {
    /// Starts in PASSIVE mode, for a manager that was restarted while the gate was passive.
    pub fn passive() -> Self {
        Self { mode: RegionMode::Passive, ..Self::default() }
    }

    /// Records that a dependency was down when the manager was restarted: it is up again once it has answered.
    pub fn mark_down(&mut self, name: &'static str, thresholds: &FailoverThresholds) {
        self.failures.insert(name, thresholds.dependency);
    }

    /// The mode after the last round.
    pub fn mode(&self) -> RegionMode {
        self.mode
    }

    /// Whether a dependency's consecutive failures are below the threshold.
    pub fn is_up(&self, name: &str, thresholds: &FailoverThresholds) -> bool {
        self.failures.get(name).copied().unwrap_or(0) < thresholds.dependency
    }

    /// Counts the answers of one round, and changes the mode when a threshold is reached.
    pub fn record_round(&mut self, answers: &[ProbeAnswer], thresholds: &FailoverThresholds) -> ProbeRound {
        for answer in answers {
            let failures = self.failures.entry(answer.name).or_default();
            *failures = if answer.responded { 0 } else { failures.saturating_add(1) };
        }
        // A failed dependency below its own threshold makes the round neither healthy nor unhealthy, so that a flapping one changes neither
        // mode.
        let unhealthy = answers.iter().any(|answer| answer.gates_region && !self.is_up(answer.name, thresholds));
        let all_responded = answers.iter().all(|answer| answer.responded || !answer.gates_region);
        let counts = match self.mode {
            RegionMode::Active => unhealthy,
            RegionMode::Passive => all_responded,
        };
        self.streak = if counts { self.streak + 1 } else { 0 };
        let needed = match self.mode {
            RegionMode::Active => thresholds.unhealthy,
            RegionMode::Passive => thresholds.healthy,
        };
        if self.streak < needed {
            return ProbeRound { unhealthy, new_mode: None };
        }
        self.streak = 0;
        self.mode = match self.mode {
            RegionMode::Active => RegionMode::Passive,
            RegionMode::Passive => RegionMode::Active,
        };
        ProbeRound { unhealthy, new_mode: Some(self.mode) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gating(name: &'static str, responded: bool) -> ProbeAnswer {
        ProbeAnswer { name, responded, gates_region: true }
    }

    fn run(rounds: &[bool]) -> Vec<RegionMode> {
        let mut region = RegionHealth::default();
        rounds
            .iter()
            .map(|responded| {
                region.record_round(&[gating("db", *responded)], &FailoverThresholds::default());
                region.mode()
            })
            .collect()
    }

    #[test]
    fn three_unhealthy_rounds_after_the_dependency_threshold_make_the_region_passive() {
        use RegionMode::*;
        assert_eq!(run(&[false, false, false, false]), [Active, Active, Active, Passive]);
        assert_eq!(run(&[false, false, true, false, false]), [Active; 5]);
    }

    #[test]
    fn two_healthy_rounds_make_the_region_active_again() {
        use RegionMode::*;
        let modes = run(&[false, false, false, false, true, false, true, true]);
        assert_eq!(modes[3..], [Passive, Passive, Passive, Passive, Active]);
    }

    #[test]
    fn flapping_dependencies_change_neither_mode() {
        let (mut active, mut passive) = (RegionHealth::default(), RegionHealth::passive());
        for round in 0..20 {
            let (db, redis) = (round % 2 == 0, round % 3 != 0);
            let probes = [gating("db", db), gating("redis", redis)];
            assert_eq!(
                active.record_round(&probes, &FailoverThresholds::default()),
                ProbeRound::default(),
                "round {round}"
            );
            assert_eq!(passive.record_round(&probes, &FailoverThresholds::default()).new_mode, None, "round {round}");
        }
        assert_eq!((active.mode(), passive.mode()), (RegionMode::Active, RegionMode::Passive));
    }

    #[test]
    fn dependency_that_does_not_gate_changes_only_its_own_state() {
        let mut region = RegionHealth::default();
        for _ in 0..10 {
            let broker = ProbeAnswer { name: "broker", responded: false, gates_region: false };
            let round = region.record_round(&[gating("db", true), broker], &FailoverThresholds::default());
            assert_eq!(round, ProbeRound::default());
        }
        assert!(!region.is_up("broker", &FailoverThresholds::default()));
        assert_eq!(region.mode(), RegionMode::Active);
    }
}
