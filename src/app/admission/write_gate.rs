//! The write gate: region mode and pressure stage, set by their actors and read by commands with one atomic load.
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::policy::backpressure::PressureStage;

/// Bits that hold the pressure stage.
const STAGE_MASK: u8 = 0b011;
const PASSIVE: u8 = 0b100;

/// Why writes are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteGateClosed {
    /// The pressure level is CRITICAL.
    Pressure,
    /// The region is PASSIVE.
    Passive,
}

impl fmt::Display for WriteGateClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WriteGateClosed::Pressure => "the service is under critical pressure",
            WriteGateClosed::Passive => "the region is passive",
        })
    }
}

/// Gate before every write, with the pressure stage. One byte, so that a reader never sees a partial change.
/// Relaxed loads suffice: they order no other memory, and a reader may be one sample behind.
#[derive(Debug, Default)]
pub struct WriteGate {
    state: AtomicU8,
}

impl WriteGate {
    /// Checks whether writes are allowed.
    ///
    /// # Errors
    /// Why writes are held back. A passive region is reported before pressure, because there a retry does not help.
    pub fn check(&self) -> Result<(), WriteGateClosed> {
        let state = self.state.load(Relaxed);
        if state & PASSIVE != 0 {
            Err(WriteGateClosed::Passive)
        } else if stage(state) == PressureStage::Rejection {
            Err(WriteGateClosed::Pressure)
        } else {
            Ok(())
        }
    }

    /// The present pressure stage.
    pub fn stage(&self) -> PressureStage {
        stage(self.state.load(Relaxed))
    }

    /// Sets the pressure stage. Only the BackpressureManager calls it.
    pub fn set_stage(&self, stage: PressureStage) {
        self.change(|state| state & !STAGE_MASK | stage as u8);
    }

    /// Sets the region mode. Only the FailoverManager calls it.
    pub fn set_passive(&self, passive: bool) {
        self.change(|state| if passive { state | PASSIVE } else { state & !PASSIVE });
    }

    /// Whether the region is passive.
    pub fn is_passive(&self) -> bool {
        self.state.load(Relaxed) & PASSIVE != 0
    }

    fn change(&self, change: impl Fn(u8) -> u8) {
        // The closure always returns Some, so the update cannot fail. It keeps the bits of the other writer.
        let _ = self.state.fetch_update(Relaxed, Relaxed, |state| Some(change(state)));
    }
}

fn stage(state: u8) -> PressureStage {
    match state & STAGE_MASK {
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
    fn each_writer_changes_only_its_own_condition() {
        let gate = WriteGate::default();
        assert_eq!(gate.check(), Ok(()));

        gate.set_stage(PressureStage::Rejection);
        gate.set_passive(true);
        assert_eq!(gate.check(), Err(WriteGateClosed::Passive));

        gate.set_passive(false);
        assert_eq!(gate.check(), Err(WriteGateClosed::Pressure));

        gate.set_passive(true);
        gate.set_stage(PressureStage::Calm);
        assert_eq!(gate.check(), Err(WriteGateClosed::Passive));
        gate.set_passive(false);
        assert_eq!(gate.check(), Ok(()));
    }

    #[test]
    fn only_the_last_pressure_stage_rejects_writes() {
        let gate = WriteGate::default();
        for stage in [PressureStage::Calm, PressureStage::Limits, PressureStage::Retries, PressureStage::Rejection] {
            gate.set_stage(stage);
            assert_eq!(gate.stage(), stage);
            assert_eq!(gate.check().is_err(), stage == PressureStage::Rejection, "{stage:?}");
        }
    }
}
