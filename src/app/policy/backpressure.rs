//! How hard are we pressed, and what is done about it? The worst of three inputs wins; up after three samples that agree, one stage a
//! sample (limits first, retries second, rejection last); down one level after ten calm seconds.
use std::time::Duration;

/// How hard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PressureLevel {
    /// Calm.
    #[default]
    Normal,
    /// Tighten limits, lengthen retries.
    Elevated,
    /// Reject writes.
    Critical,
}

impl PressureLevel {
    /// How much of the usual is let through.
    pub fn factor(self) -> f64 {
        match self {
            PressureLevel::Normal => 1.0,
            PressureLevel::Elevated => 0.70,
            PressureLevel::Critical => 0.35,
        }
    }

    /// The name in answers and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            PressureLevel::Normal => "NORMAL",
            PressureLevel::Elevated => "ELEVATED",
            PressureLevel::Critical => "CRITICAL",
        }
    }

    /// 0, 1, 2 for the gauge.
    pub fn number(self) -> i64 {
        self as i64
    }

    fn below(self) -> PressureLevel {
        match self {
            PressureLevel::Critical => PressureLevel::Elevated,
            PressureLevel::Elevated | PressureLevel::Normal => PressureLevel::Normal,
        }
    }
}

/// What is done, one thing after the other: what costs clients least comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PressureStage {
    /// Nothing.
    #[default]
    Calm,
    /// Rate limits are tightened.
    Limits,
    /// Retries are put off, too.
    Retries,
    /// Writes are rejected, too.
    Rejection,
}

impl PressureStage {
    /// The level it belongs to.
    pub fn level(self) -> PressureLevel {
        match self {
            PressureStage::Calm => PressureLevel::Normal,
            PressureStage::Limits | PressureStage::Retries => PressureLevel::Elevated,
            PressureStage::Rejection => PressureLevel::Critical,
        }
    }

    /// How much of the usual rate limits let through.
    pub fn limit_factor(self) -> f64 {
        self.level().factor()
    }

    /// What delays of retries are divided by.
    pub fn retry_factor(self) -> f64 {
        match self {
            PressureStage::Calm | PressureStage::Limits => 1.0,
            PressureStage::Retries | PressureStage::Rejection => self.level().factor(),
        }
    }

    /// Where a level ends when it lasts.
    fn last_of(level: PressureLevel) -> Self {
        match level {
            PressureLevel::Normal => PressureStage::Calm,
            PressureLevel::Elevated => PressureStage::Retries,
            PressureLevel::Critical => PressureStage::Rejection,
        }
    }

    fn above(self) -> Self {
        match self {
            PressureStage::Calm => PressureStage::Limits,
            PressureStage::Limits => PressureStage::Retries,
            PressureStage::Retries | PressureStage::Rejection => PressureStage::Rejection,
        }
    }
}

/// What presses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PressureInputs {
    /// Age of the oldest message a consumer has not acknowledged.
    pub lag: Duration,
    /// PENDING + FAILED rows; zero while no broker is configured.
    pub backlog: u64,
    /// Part of the store's capacity in use, 0.0..=1.0.
    pub saturation: f64,
}

/// From where on it counts as ELEVATED and as CRITICAL.
#[derive(Clone, Debug, PartialEq)]
pub struct PressureThresholds {
    /// Consumer lag.
    pub lag: (Duration, Duration),
    /// Outbox backlog: some seconds of work.
    pub backlog: (u64, u64),
    /// Saturation of the store.
    pub saturation: (f64, f64),
}

impl Default for PressureThresholds {
    fn default() -> Self {
        Self {
            lag: (Duration::from_secs(120), Duration::from_secs(600)),
            backlog: (50_000, 250_000),
            saturation: (0.75, 0.90),
        }
    }
}

impl PressureThresholds {
    /// The level these inputs call for, with every threshold scaled by `share`.
    pub fn level(&self, inputs: &PressureInputs, share: f64) -> PressureLevel {
        let lag = grade(inputs.lag.as_secs_f64(), (self.lag.0.as_secs_f64(), self.lag.1.as_secs_f64()), share);
        let backlog = grade(inputs.backlog as f64, (self.backlog.0 as f64, self.backlog.1 as f64), share);
        let saturation = grade(inputs.saturation, self.saturation, share);
        lag.max(backlog).max(saturation)
    }
}

fn grade(value: f64, (elevated, critical): (f64, f64), share: f64) -> PressureLevel {
    if value >= critical * share {
        PressureLevel::Critical
    } else if value >= elevated * share {
        PressureLevel::Elevated
    } else {
        PressureLevel::Normal
    }
}

/// Samples in a row that must call for a level before anything is done: one spike is no pressure.
const SAMPLES_UP: usize = 3;
/// Calm time before the level falls by one.
const CALM: Duration = Duration::from_secs(10);
/// Calm means below this share of the level's own threshold.
const CALM_SHARE: f64 = 0.8;

/// The stage with its memory. Fed once a second; `now` is any clock that does not go back.
#[derive(Clone, Debug, Default)]
pub struct Pressure {
    stage: PressureStage,
    /// What the last samples called for, in turn.
    called_for: [PressureLevel; SAMPLES_UP],
    turn: usize,
    calm_since: Option<Duration>,
}

impl Pressure {
    /// Pressure at this stage already: its keeper was restarted and finds the gate as it left it.
    pub fn at(stage: PressureStage) -> Self {
        Self { stage, ..Self::default() }
    }

    /// The stage as of the last sample.
    pub fn stage(&self) -> PressureStage {
        self.stage
    }

    /// Takes a sample in and returns the stage it leads to: one stage up at a time, one level down.
    pub fn sample(&mut self, now: Duration, inputs: &PressureInputs, thresholds: &PressureThresholds) -> PressureStage {
        self.called_for[self.turn % SAMPLES_UP] = thresholds.level(inputs, 1.0);
        self.turn += 1;
        let steady = self.called_for.iter().copied().min().unwrap_or_default();
        if PressureStage::last_of(steady) > self.stage {
            self.calm_since = None;
            self.stage = self.stage.above();
            return self.stage;
        }
        let level = self.stage.level();
        if level == PressureLevel::Normal || thresholds.level(inputs, CALM_SHARE) >= level {
            self.calm_since = None;
            return self.stage;
        }
        let since = *self.calm_since.get_or_insert(now);
        if now.saturating_sub(since) >= CALM {
            self.stage = PressureStage::last_of(level.below());
            self.calm_since = Some(now);
        }
        self.stage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backlog(rows: u64) -> PressureInputs {
        PressureInputs { backlog: rows, ..PressureInputs::default() }
    }

    fn run(samples: impl IntoIterator<Item = u64>) -> Vec<PressureStage> {
        let mut pressure = Pressure::default();
        let sample = |(second, rows)| {
            pressure.sample(Duration::from_secs(second), &backlog(rows), &PressureThresholds::default())
        };
        (0..).zip(samples).map(sample).collect()
    }

    #[test]
    fn it_rises_after_three_samples_that_agree_and_one_spike_is_no_pressure() {
        use PressureStage::*;
        assert_eq!(run([60_000; 5]), [Calm, Calm, Limits, Retries, Retries]);
        assert_eq!(run([60_000, 60_000, 0, 60_000]), [Calm; 4]);
        assert_eq!(
            run([60_000, 60_000, 60_000, 60_000, 300_000, 60_000, 60_000])[3..],
            [Retries; 4],
            "a spike above a high level is one, too"
        );
    }

    #[test]
    fn limits_tighten_first_retries_second_and_rejection_is_last_however_hard_it_presses() {
        use PressureStage::*;
        let stages = run([300_000; 6]);

        assert_eq!(stages, [Calm, Calm, Limits, Retries, Rejection, Rejection]);
        let done: Vec<_> = stages[1..5].iter().map(|stage| (stage.limit_factor(), stage.retry_factor())).collect();
        assert_eq!(done, [(1.0, 1.0), (0.70, 1.0), (0.70, 0.70), (0.35, 0.35)]);
        assert_eq!(stages[4].level(), PressureLevel::Critical);
    }

    #[test]
    fn it_falls_one_level_after_ten_seconds_well_below_the_threshold() {
        let stages = run([300_000; 5].into_iter().chain([0; 21]));

        assert_eq!(stages[14], PressureStage::Rejection, "nine calm seconds are not enough");
        assert_eq!(stages[15], PressureStage::Retries);
        assert_eq!(stages[24], PressureStage::Retries);
        assert_eq!(stages[25], PressureStage::Calm);
    }

    #[test]
    fn hovering_below_the_threshold_is_not_calm() {
        let stages = run([60_000; 4].into_iter().chain([45_000; 40]));

        assert_eq!(stages.last(), Some(&PressureStage::Retries));
    }

    #[test]
    fn a_keeper_that_comes_back_goes_on_where_it_was() {
        let mut pressure = Pressure::at(PressureStage::Rejection);

        assert_eq!(
            pressure.sample(Duration::ZERO, &backlog(300_000), &PressureThresholds::default()),
            PressureStage::Rejection
        );
        assert_eq!(
            pressure.sample(Duration::from_secs(1), &backlog(0), &PressureThresholds::default()),
            PressureStage::Rejection
        );
        assert_eq!(
            pressure.sample(Duration::from_secs(11), &backlog(0), &PressureThresholds::default()),
            PressureStage::Retries
        );
    }

    #[test]
    fn the_worst_input_wins() {
        let thresholds = PressureThresholds::default();
        let inputs = PressureInputs { lag: Duration::from_secs(130), backlog: 0, saturation: 0.95 };
        assert_eq!(thresholds.level(&inputs, 1.0), PressureLevel::Critical);
        assert_eq!(thresholds.level(&PressureInputs { saturation: 0.1, ..inputs }, 1.0), PressureLevel::Elevated);
    }
}
