//! Backpressure: the worst of three inputs sets the level. Three samples that agree raise it, one stage per sample (rate limits, then
//! retries, then rejection of writes); ten calm seconds lower it by one level.
use serde::Deserialize;
use std::time::Duration;

/// Level of pressure on the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PressureLevel {
    /// No measures are needed.
    #[default]
    Normal,
    /// Rate limits are tightened and retries delayed.
    Elevated,
    /// Writes are rejected, in addition.
    Critical,
}

impl PressureLevel {
    /// Share of the usual load that is admitted.
    pub fn factor(self) -> f64 {
        match self {
            PressureLevel::Normal => 1.0,
            PressureLevel::Elevated => 0.70,
            PressureLevel::Critical => 0.35,
        }
    }

    /// The name in responses and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            PressureLevel::Normal => "NORMAL",
            PressureLevel::Elevated => "ELEVATED",
            PressureLevel::Critical => "CRITICAL",
        }
    }

    /// Gauge value: 0 normal, 1 elevated, 2 critical.
    pub fn number(self) -> i64 {
        self as i64
    }

    fn next_lower(self) -> PressureLevel {
        match self {
            PressureLevel::Critical => PressureLevel::Elevated,
            PressureLevel::Elevated | PressureLevel::Normal => PressureLevel::Normal,
        }
    }
}

/// Measures against pressure. Each stage adds one; those that affect clients least come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PressureStage {
    /// No measures are taken.
    #[default]
    Calm,
    /// Rate limits are tightened.
    Limits,
    /// Retries are delayed as well.
    Retries,
    /// Writes are rejected as well.
    Rejection,
}

impl PressureStage {
    /// The pressure level of this stage.
    pub fn level(self) -> PressureLevel {
        match self {
            PressureStage::Calm => PressureLevel::Normal,
            PressureStage::Limits | PressureStage::Retries => PressureLevel::Elevated,
            PressureStage::Rejection => PressureLevel::Critical,
        }
    }

    /// Factor by which rate limits are multiplied.
    pub fn limit_factor(self) -> f64 {
        self.level().factor()
    }

    /// Factor by which retry delays are divided.
    pub fn retry_factor(self) -> f64 {
        match self {
            PressureStage::Calm | PressureStage::Limits => 1.0,
            PressureStage::Retries | PressureStage::Rejection => self.level().factor(),
        }
    }

    /// The highest stage of a level.
    fn highest_of(level: PressureLevel) -> Self {
        match level {
            PressureLevel::Normal => PressureStage::Calm,
            PressureLevel::Elevated => PressureStage::Retries,
            PressureLevel::Critical => PressureStage::Rejection,
        }
    }

    fn next_higher(self) -> Self {
        match self {
            PressureStage::Calm => PressureStage::Limits,
            PressureStage::Limits => PressureStage::Retries,
            PressureStage::Retries | PressureStage::Rejection => PressureStage::Rejection,
        }
    }
}

/// Measurements from which the level is derived.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PressureInputs {
    /// Age of the oldest message a consumer has not acknowledged, retry topics excepted.
    pub lag: Duration,
    /// PENDING + FAILED rows; zero while no broker is configured.
    pub backlog: u64,
    /// Share of the store's capacity in use, 0.0..=1.0.
    pub saturation: f64,
}

/// The values of one input from which it raises the level. The configuration has them as a list of two.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(from = "(T, T)")]
pub struct LevelThresholds<T> {
    /// The input is ELEVATED from this value on.
    pub elevated: T,
    /// The input is CRITICAL from this value on.
    pub critical: T,
}

impl<T> From<(T, T)> for LevelThresholds<T> {
    fn from((elevated, critical): (T, T)) -> Self {
        Self { elevated, critical }
    }
}

impl<T: Copy> LevelThresholds<T> {
    /// The level of a value, with both thresholds multiplied by `share`.
    fn level(&self, value: T, share: f64, to_f64: impl Fn(T) -> f64) -> PressureLevel {
        if to_f64(value) >= to_f64(self.critical) * share {
            PressureLevel::Critical
        } else if to_f64(value) >= to_f64(self.elevated) * share {
            PressureLevel::Elevated
        } else {
            PressureLevel::Normal
        }
    }
}

/// For each input, the values from which it is ELEVATED and CRITICAL.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PressureThresholds {
    /// Thresholds of the consumer lag.
    pub lag: LevelThresholds<Duration>,
    /// Thresholds of the outbox backlog, in rows.
    pub backlog: LevelThresholds<u64>,
    /// Thresholds of the store's saturation.
    pub saturation: LevelThresholds<f64>,
}

impl Default for PressureThresholds {
    fn default() -> Self {
        Self {
            lag: LevelThresholds { elevated: Duration::from_secs(120), critical: Duration::from_secs(600) },
            backlog: LevelThresholds { elevated: 50_000, critical: 250_000 },
            saturation: LevelThresholds { elevated: 0.75, critical: 0.90 },
        }
    }
}

impl PressureThresholds {
    /// The level of these inputs, with every threshold multiplied by `share`.
    pub fn level(&self, inputs: &PressureInputs, share: f64) -> PressureLevel {
        let [lag, backlog, saturation] = self.levels(inputs, share);
        lag.max(backlog).max(saturation)
    }

    /// The levels of lag, backlog and saturation, each by itself, with every threshold multiplied by `share`.
    pub fn levels(&self, inputs: &PressureInputs, share: f64) -> [PressureLevel; 3] {
        [
            self.lag.level(inputs.lag, share, |lag| lag.as_secs_f64()),
            self.backlog.level(inputs.backlog, share, |rows| rows as f64),
            self.saturation.level(inputs.saturation, share, |saturation| saturation),
        ]
    }
}

/// Consecutive samples at a level that raise the stage, so that a single spike does not.
const SAMPLES_UP: usize = 3;
/// Time below the threshold after which the level falls by one.
const CALM: Duration = Duration::from_secs(10);
/// The inputs are calm below this share of the level's threshold.
const CALM_SHARE: f64 = 0.8;

/// The pressure stage with its recent samples. Sampled once a second; `now` is any clock that does not go back.
#[derive(Clone, Debug, Default)]
pub struct Pressure {
    stage: PressureStage,
    /// Levels of the last samples, as a ring buffer.
    recent: [PressureLevel; SAMPLES_UP],
    samples: usize,
    calm_since: Option<Duration>,
}

impl Pressure {
    /// Starts at the stage of the gate, for a manager that was restarted.
    pub fn with_stage(stage: PressureStage) -> Self {
        Self { stage, ..Self::default() }
    }

    /// The stage after the last sample.
    pub fn stage(&self) -> PressureStage {
        self.stage
    }

    /// Adds a sample and returns the new stage: at most one stage up or one level down.
    pub fn sample(&mut self, now: Duration, inputs: &PressureInputs, thresholds: &PressureThresholds) -> PressureStage {
        self.recent[self.samples % SAMPLES_UP] = thresholds.level(inputs, 1.0);
        self.samples += 1;
        let steady = self.recent.iter().copied().min().unwrap_or_default();
        if PressureStage::highest_of(steady) > self.stage {
            self.calm_since = None;
            self.stage = self.stage.next_higher();
            return self.stage;
        }
        let level = self.stage.level();
        if level == PressureLevel::Normal || thresholds.level(inputs, CALM_SHARE) >= level {
            self.calm_since = None;
            return self.stage;
        }
        let since = *self.calm_since.get_or_insert(now);
        if now.saturating_sub(since) >= CALM {
            self.stage = PressureStage::highest_of(level.next_lower());
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
    fn stage_rises_after_three_samples_that_agree_and_not_after_one_spike() {
        use PressureStage::*;
        assert_eq!(run([60_000; 5]), [Calm, Calm, Limits, Retries, Retries]);
        assert_eq!(run([60_000, 60_000, 0, 60_000]), [Calm; 4]);
        assert_eq!(
            run([60_000, 60_000, 60_000, 60_000, 300_000, 60_000, 60_000])[3..],
            [Retries; 4],
            "a spike at a high level does not raise the stage either"
        );
    }

    #[test]
    fn limits_tighten_before_retries_are_delayed_and_writes_rejected() {
        use PressureStage::*;
        let stages = run([300_000; 6]);

        assert_eq!(stages, [Calm, Calm, Limits, Retries, Rejection, Rejection]);
        let factors: Vec<_> = stages[1..5].iter().map(|stage| (stage.limit_factor(), stage.retry_factor())).collect();
        assert_eq!(factors, [(1.0, 1.0), (0.70, 1.0), (0.70, 0.70), (0.35, 0.35)]);
        assert_eq!(stages[4].level(), PressureLevel::Critical);
    }

    #[test]
    fn level_falls_by_one_after_ten_seconds_well_below_the_threshold() {
        let stages = run([300_000; 5].into_iter().chain([0; 21]));

        assert_eq!(stages[14], PressureStage::Rejection, "nine calm seconds are not enough");
        assert_eq!(stages[15], PressureStage::Retries);
        assert_eq!(stages[24], PressureStage::Retries);
        assert_eq!(stages[25], PressureStage::Calm);
    }

    #[test]
    fn level_stays_while_the_input_is_just_below_its_threshold() {
        let stages = run([60_000; 4].into_iter().chain([45_000; 40]));

        assert_eq!(stages.last(), Some(&PressureStage::Retries));
    }

    #[test]
    fn restarted_manager_continues_at_the_stage_of_the_gate() {
        let mut pressure = Pressure::with_stage(PressureStage::Rejection);

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
    fn pressure_level_is_that_of_its_worst_input() {
        let thresholds = PressureThresholds::default();
        let inputs = PressureInputs { lag: Duration::from_secs(130), backlog: 0, saturation: 0.95 };
        assert_eq!(thresholds.level(&inputs, 1.0), PressureLevel::Critical);
        assert_eq!(thresholds.level(&PressureInputs { saturation: 0.1, ..inputs }, 1.0), PressureLevel::Elevated);
    }
}
