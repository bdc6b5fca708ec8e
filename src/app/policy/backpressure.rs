//! How hard are we pressed? The worst of three inputs wins; up after three samples, down one level after ten calm seconds.
use std::time::Duration;

/// How hard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Calm.
    #[default]
    Normal,
    /// Tighten limits, lengthen retries.
    Elevated,
    /// Reject writes.
    Critical,
}

impl Level {
    /// How much of the usual is let through.
    pub fn factor(self) -> f64 {
        match self {
            Level::Normal => 1.0,
            Level::Elevated => 0.70,
            Level::Critical => 0.35,
        }
    }

    /// The name in answers and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Normal => "NORMAL",
            Level::Elevated => "ELEVATED",
            Level::Critical => "CRITICAL",
        }
    }

    /// 0, 1, 2 for the gauge.
    pub fn number(self) -> i64 {
        self as i64
    }

    fn below(self) -> Level {
        match self {
            Level::Critical => Level::Elevated,
            Level::Elevated | Level::Normal => Level::Normal,
        }
    }
}

/// What presses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Inputs {
    /// Age of the oldest message a consumer has not acknowledged.
    pub lag: Duration,
    /// PENDING + FAILED rows; zero while no broker is configured.
    pub backlog: u64,
    /// Part of the store's capacity in use, 0.0..=1.0.
    pub saturation: f64,
}

/// From where on it counts as ELEVATED and as CRITICAL.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    /// Consumer lag.
    pub lag: (Duration, Duration),
    /// Outbox backlog: some seconds of work.
    pub backlog: (u64, u64),
    /// Saturation of the store.
    pub saturation: (f64, f64),
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            lag: (Duration::from_secs(120), Duration::from_secs(600)),
            backlog: (50_000, 250_000),
            saturation: (0.75, 0.90),
        }
    }
}

impl Thresholds {
    /// The level these inputs call for, with every threshold scaled by `share`.
    pub fn level(&self, inputs: &Inputs, share: f64) -> Level {
        let lag = grade(inputs.lag.as_secs_f64(), (self.lag.0.as_secs_f64(), self.lag.1.as_secs_f64()), share);
        let backlog = grade(inputs.backlog as f64, (self.backlog.0 as f64, self.backlog.1 as f64), share);
        let saturation = grade(inputs.saturation, self.saturation, share);
        lag.max(backlog).max(saturation)
    }
}

fn grade(value: f64, (elevated, critical): (f64, f64), share: f64) -> Level {
    if value >= critical * share {
        Level::Critical
    } else if value >= elevated * share {
        Level::Elevated
    } else {
        Level::Normal
    }
}

/// Samples in a row that call for more before the level rises: one spike is no pressure.
const SAMPLES_UP: u32 = 3;
/// Calm time before the level falls by one.
const CALM: Duration = Duration::from_secs(10);
/// Calm means below this share of the level's own threshold.
const CALM_SHARE: f64 = 0.8;

/// The level with its memory. Fed once a second; `now` is any clock that does not go back.
#[derive(Clone, Debug, Default)]
pub struct Pressure {
    level: Level,
    above: u32,
    calm_since: Option<Duration>,
}

impl Pressure {
    /// The level as of the last sample.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Takes a sample in and returns the level it leads to.
    pub fn sample(&mut self, now: Duration, inputs: &Inputs, thresholds: &Thresholds) -> Level {
        let called_for = thresholds.level(inputs, 1.0);
        if called_for > self.level {
            self.calm_since = None;
            self.above += 1;
            if self.above >= SAMPLES_UP {
                self.level = called_for;
                self.above = 0;
            }
            return self.level;
        }
        self.above = 0;
        if self.level == Level::Normal || thresholds.level(inputs, CALM_SHARE) >= self.level {
            self.calm_since = None;
            return self.level;
        }
        let since = *self.calm_since.get_or_insert(now);
        if now.saturating_sub(since) >= CALM {
            self.level = self.level.below();
            self.calm_since = Some(now);
        }
        self.level
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backlog(rows: u64) -> Inputs {
        Inputs { backlog: rows, ..Inputs::default() }
    }

    fn run(samples: &[(u64, u64)]) -> Vec<Level> {
        let mut pressure = Pressure::default();
        samples
            .iter()
            .map(|(second, rows)| {
                pressure.sample(Duration::from_secs(*second), &backlog(*rows), &Thresholds::default())
            })
            .collect()
    }

    #[test]
    fn it_rises_after_three_samples_and_one_spike_is_no_pressure() {
        use Level::*;
        assert_eq!(run(&[(0, 60_000), (1, 60_000), (2, 60_000)]), [Normal, Normal, Elevated]);
        assert_eq!(run(&[(0, 60_000), (1, 60_000), (2, 0), (3, 60_000)]), [Normal; 4]);
        assert_eq!(run(&[(0, 300_000), (1, 300_000), (2, 300_000)]), [Normal, Normal, Critical]);
    }

    #[test]
    fn it_falls_one_level_after_ten_seconds_well_below_the_threshold() {
        let mut samples = vec![(0, 300_000), (1, 300_000), (2, 300_000)];
        samples.extend((3..=23).map(|second| (second, 0)));
        let levels = run(&samples);

        assert_eq!(levels[12], Level::Critical, "nine calm seconds are not enough");
        assert_eq!(levels[13], Level::Elevated);
        assert_eq!(levels[23], Level::Normal);
    }

    #[test]
    fn hovering_below_the_threshold_is_not_calm() {
        let mut samples = vec![(0, 60_000), (1, 60_000), (2, 60_000)];
        samples.extend((3..40).map(|second| (second, 45_000)));

        assert_eq!(run(&samples).last(), Some(&Level::Elevated));
    }

    #[test]
    fn the_worst_input_wins() {
        let thresholds = Thresholds::default();
        let inputs = Inputs { lag: Duration::from_secs(130), backlog: 0, saturation: 0.95 };
        assert_eq!(thresholds.level(&inputs, 1.0), Level::Critical);
        assert_eq!(thresholds.level(&Inputs { saturation: 0.1, ..inputs }, 1.0), Level::Elevated);
    }
}
