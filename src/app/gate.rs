//! May we write now? Region mode and pressure, published by their keepers, read by everyone with one atomic load.
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::policy::backpressure::Stage;

/// The bits that hold the stage of pressure.
const STAGE: u8 = 0b011;
const PASSIVE: u8 = 0b100;

/// Why writes are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Pressure is CRITICAL.
    Pressure,
    /// The region is PASSIVE.
    Passive,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Closed::Pressure => "the service is under critical pressure",
            Closed::Passive => "the region is passive",
        })
    }
}

/// The gate before every write, and what is done under pressure before it must close: one byte, so that nobody reads half a change.
/// Relaxed loads suffice: nothing else is ordered by them, and a reader may be one sample behind.
#[derive(Debug, Default)]
pub struct Gate {
    state: AtomicU8,
}

impl Gate {
    /// Whether a write may go on.
    ///
    /// # Errors
    /// Says who holds it back; a passive region is named first, because there waiting does not help.
    pub fn pass(&self) -> Result<(), Closed> {
        let state = self.state.load(Relaxed);
        if state & PASSIVE != 0 {
            Err(Closed::Passive)
        } else if stage(state) == Stage::Rejection {
            Err(Closed::Pressure)
        } else {
            Ok(())
        }
    }

    /// What is done under pressure right now.
    pub fn stage(&self) -> Stage {
        stage(self.state.load(Relaxed))
    }

    /// The BackpressureManager's word.
    pub fn set_stage(&self, stage: Stage) {
        self.change(|state| state & !STAGE | stage as u8);
    }

    /// The FailoverManager's word.
    pub fn set_passive(&self, passive: bool) {
        self.change(|state| if passive { state | PASSIVE } else { state & !PASSIVE });
    }

    /// Whether the region is passive.
    pub fn is_passive(&self) -> bool {
        self.state.load(Relaxed) & PASSIVE != 0
    }

    fn change(&self, change: impl Fn(u8) -> u8) {
        // Each keeper writes its own bits and keeps the other's; this never fails.
        let _ = self.state.fetch_update(Relaxed, Relaxed, |state| Some(change(state)));
    }
}

fn stage(state: u8) -> Stage {
    match state & STAGE {
        0 => Stage::Calm,
        1 => Stage::Limits,
        2 => Stage::Retries,
        _ => Stage::Rejection,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_keeper_opens_only_what_it_shut() {
        let gate = Gate::default();
        assert_eq!(gate.pass(), Ok(()));

        gate.set_stage(Stage::Rejection);
        gate.set_passive(true);
        assert_eq!(gate.pass(), Err(Closed::Passive));

        gate.set_passive(false);
        assert_eq!(gate.pass(), Err(Closed::Pressure));

        gate.set_passive(true);
        gate.set_stage(Stage::Calm);
        assert_eq!(gate.pass(), Err(Closed::Passive));
        gate.set_passive(false);
        assert_eq!(gate.pass(), Ok(()));
    }

    #[test]
    fn only_the_last_stage_of_pressure_shuts_it() {
        let gate = Gate::default();
        for stage in [Stage::Calm, Stage::Limits, Stage::Retries, Stage::Rejection] {
            gate.set_stage(stage);
            assert_eq!(gate.stage(), stage);
            assert_eq!(gate.pass().is_err(), stage == Stage::Rejection, "{stage:?}");
        }
    }
}
