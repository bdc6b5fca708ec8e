//! The real actors in virtual time: the embedded store, its broker and every actor on one thread, under seeded faults. Each scenario
//! ends with the laws: nothing lost, nothing doubled, each key in order and gapless, nothing left behind.
//!
//! A failure prints its seed: `POSTHASTE_SEED=n` repeats it, `POSTHASTE_SEEDS=n` runs so many of the random ones.
mod chaos;
mod consumer;
mod crashes;
mod gates;
mod handover;
mod house;
mod hub;
mod ledger;
mod life;
mod moody;
mod outage;
mod poison;
mod promotion;
mod redrives;
mod regions;
mod retries;
mod scribe;
mod slow;
mod sweeps;
mod unknown;
