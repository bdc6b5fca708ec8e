//! Is this region fit for writes? Rounds of probes move it to PASSIVE and back; one flapping dependency does not make it flap.
use std::collections::BTreeMap;

/// How patient we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverThresholds {
    /// Failures in a row after which a dependency counts as down.
    pub dependency: u32,
    /// Unhealthy rounds in a row after which the region goes PASSIVE.
    pub unhealthy: u32,
    /// Healthy rounds in a row after which it is ACTIVE again.
    pub healthy: u32,
}

impl Default for FailoverThresholds {
    fn default() -> Self {
        Self { dependency: 2, unhealthy: 3, healthy: 2 }
    }
}

/// Takes writes, or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegionMode {
    /// Takes writes.
    #[default]
    Active,
    /// Takes none, so that load balancers go elsewhere.
    Passive,
}

/// What a round came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeRound {
    /// A dependency that gates has reached its threshold: one of the rounds that lead to PASSIVE.
    pub unhealthy: bool,
    /// The new mode, where it changed.
    pub new_mode: Option<RegionMode>,
}

/// The region's mode with its memory.
#[derive(Clone, Debug, Default)]
pub struct RegionHealth {
    mode: RegionMode,
    streak: u32,
    failures: BTreeMap<&'static str, u32>,
}

impl RegionHealth {
    /// A region that is passive already: its keeper was restarted and finds the gate shut.
    pub fn passive() -> Self {
        Self { mode: RegionMode::Passive, ..Self::default() }
    }

    /// The mode as of the last round.
    pub fn mode(&self) -> RegionMode {
        self.mode
    }

    /// Whether a dependency's failures have not reached the threshold.
    pub fn is_up(&self, name: &str, thresholds: &FailoverThresholds) -> bool {
        self.failures.get(name).copied().unwrap_or(0) < thresholds.dependency
    }

    /// Takes a round of probes in (name, whether it answered, whether it gates).
    pub fn round(&mut self, probes: &[(&'static str, bool, bool)], thresholds: &FailoverThresholds) -> ProbeRound {
        for (name, answered, _) in probes {
            let failures = self.failures.entry(name).or_default();
            *failures = if *answered { 0 } else { failures.saturating_add(1) };
        }
        // A dependency that is still below its own threshold makes the round neither healthy nor unhealthy, so that one that flaps moves
        // nothing in either mode.
        let unhealthy = probes.iter().any(|(name, _, gates)| *gates && !self.is_up(name, thresholds));
        let all_answered = probes.iter().all(|(_, answered, gates)| *answered || !gates);
        let towards = match self.mode {
            RegionMode::Active => unhealthy,
            RegionMode::Passive => all_answered,
        };
        self.streak = if towards { self.streak + 1 } else { 0 };
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

    fn run(rounds: &[bool]) -> Vec<RegionMode> {
        let mut region = RegionHealth::default();
        rounds
            .iter()
            .map(|answered| {
                region.round(&[("db", *answered, true)], &FailoverThresholds::default());
                region.mode()
            })
            .collect()
    }

    #[test]
    fn three_unhealthy_rounds_after_the_dependencys_own_patience_make_it_passive() {
        use RegionMode::*;
        assert_eq!(run(&[false, false, false, false]), [Active, Active, Active, Passive]);
        assert_eq!(run(&[false, false, true, false, false]), [Active; 5]);
    }

    #[test]
    fn two_healthy_rounds_make_it_active_again() {
        use RegionMode::*;
        let modes = run(&[false, false, false, false, true, false, true, true]);
        assert_eq!(modes[3..], [Passive, Passive, Passive, Passive, Active]);
    }

    #[test]
    fn dependencies_that_flap_make_no_round_unhealthy_and_open_no_passive_region() {
        let (mut active, mut passive) = (RegionHealth::default(), RegionHealth::passive());
        for round in 0..20 {
            let (db, redis) = (round % 2 == 0, round % 3 != 0);
            let probes = [("db", db, true), ("redis", redis, true)];
            assert_eq!(active.round(&probes, &FailoverThresholds::default()), ProbeRound::default(), "round {round}");
            assert_eq!(passive.round(&probes, &FailoverThresholds::default()).new_mode, None, "round {round}");
        }
        assert_eq!((active.mode(), passive.mode()), (RegionMode::Active, RegionMode::Passive));
    }

    #[test]
    fn a_dependency_that_does_not_gate_changes_nothing_but_its_own_state() {
        let mut region = RegionHealth::default();
        for _ in 0..10 {
            let round = region.round(&[("db", true, true), ("broker", false, false)], &FailoverThresholds::default());
            assert_eq!(round, ProbeRound::default());
        }
        assert!(!region.is_up("broker", &FailoverThresholds::default()));
        assert_eq!(region.mode(), RegionMode::Active);
    }
}
