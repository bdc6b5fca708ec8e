//! May we write now? Region mode and pressure, published by their keepers, read by everyone with one atomic load.
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::policy::backpressure::PressureStage;

/// The bits that hold the stage of pressure.
const STAGE: u8 = 0b011;
const PASSIVE: u8 = 0b100;

/// Why writes are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateClosed {
    /// Pressure is CRITICAL.
    Pressure,
    /// The region is PASSIVE.
    Passive,
}

impl fmt::Display for GateClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GateClosed::Pressure => "the service is under critical pressure",
            GateClosed::Passive => "the region is passive",
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
    pub fn pass(&self) -> Result<(), GateClosed> {
        let state = self.state.load(Relaxed);
        if state & PASSIVE != 0 {
            Err(GateClosed::Passive)
        } else if stage(state) == PressureStage::Rejection {
            Err(GateClosed::Pressure)
        } else {
            Ok(())
        }
    }

    /// What is done under pressure right now.
    pub fn stage(&self) -> PressureStage {
        stage(self.state.load(Relaxed))
    }

    /// The BackpressureManager's word.
    pub fn set_stage(&self, stage: PressureStage) {
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

fn stage(state: u8) -> PressureStage {
    match state & STAGE {
        0 => PressureStage::Calm,
        1 => PressureStage::Limits,
        2 => PressureStage::Retries,
        _ => PressureStage::Rejection,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_keeper_opens_only_what_it_shut() {
        let gate = Gate::default();
        assert_eq!(gate.pass(), Ok(()));

        gate.set_stage(PressureStage::Rejection);
        gate.set_passive(true);
        assert_eq!(gate.pass(), Err(GateClosed::Passive));

        gate.set_passive(false);
        assert_eq!(gate.pass(), Err(GateClosed::Pressure));

        gate.set_passive(true);
        gate.set_stage(PressureStage::Calm);
        assert_eq!(gate.pass(), Err(GateClosed::Passive));
        gate.set_passive(false);
        assert_eq!(gate.pass(), Ok(()));
    }

    #[test]
    fn only_the_last_stage_of_pressure_shuts_it() {
        let gate = Gate::default();
        for stage in [PressureStage::Calm, PressureStage::Limits, PressureStage::Retries, PressureStage::Rejection] {
            gate.set_stage(stage);
            assert_eq!(gate.stage(), stage);
            assert_eq!(gate.pass().is_err(), stage == PressureStage::Rejection, "{stage:?}");
        }
    }
}
