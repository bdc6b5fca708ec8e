//! May we write now? Region mode and pressure, published by their keepers, read by everyone with one atomic load.
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

const CRITICAL: u8 = 1;
const PASSIVE: u8 = 2;

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

/// The gate before every write, and the factor that tightens limits and lengthens retries before the gate must close.
/// Relaxed loads suffice: nothing else is ordered by them, and a reader may be one sample behind.
#[derive(Debug)]
pub struct Gate {
    shut: AtomicU8,
    throttle_percent: AtomicU32,
}

impl Default for Gate {
    fn default() -> Self {
        Self { shut: AtomicU8::new(0), throttle_percent: AtomicU32::new(100) }
    }
}

impl Gate {
    /// Whether a write may go on.
    ///
    /// # Errors
    /// Says who holds it back; a passive region is named first, because there waiting does not help.
    pub fn pass(&self) -> Result<(), Closed> {
        let shut = self.shut.load(Relaxed);
        if shut & PASSIVE != 0 {
            Err(Closed::Passive)
        } else if shut & CRITICAL != 0 {
            Err(Closed::Pressure)
        } else {
            Ok(())
        }
    }

    /// 1.0 in calm, less under pressure.
    pub fn throttle(&self) -> f64 {
        f64::from(self.throttle_percent.load(Relaxed)) / 100.0
    }

    /// The BackpressureManager's word.
    pub fn set_pressure(&self, critical: bool, throttle: f64) {
        self.set(CRITICAL, critical);
        self.throttle_percent.store((throttle * 100.0).round() as u32, Relaxed);
    }

    /// The FailoverManager's word.
    pub fn set_passive(&self, passive: bool) {
        self.set(PASSIVE, passive);
    }

    /// Whether the region is passive.
    pub fn is_passive(&self) -> bool {
        self.shut.load(Relaxed) & PASSIVE != 0
    }

    fn set(&self, bit: u8, on: bool) {
        if on {
            self.shut.fetch_or(bit, Relaxed);
        } else {
            self.shut.fetch_and(!bit, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_keeper_opens_only_what_it_shut() {
        let gate = Gate::default();
        assert_eq!(gate.pass(), Ok(()));

        gate.set_pressure(true, 0.35);
        gate.set_passive(true);
        assert_eq!(gate.pass(), Err(Closed::Passive));

        gate.set_passive(false);
        assert_eq!(gate.pass(), Err(Closed::Pressure));
        assert_eq!(gate.throttle(), 0.35);

        gate.set_pressure(false, 1.0);
        assert_eq!(gate.pass(), Ok(()));
    }
}
