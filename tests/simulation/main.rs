//! The real actors in virtual time: the embedded store, its broker and every actor on one thread, under seeded faults. Each scenario ends
//! with the guarantees: no event lost or doubled, each key in order and without gaps, no row left unsent.
//!
//! A failure prints its seed: `POSTHASTE_SEED=n` repeats it, `POSTHASTE_SEEDS=n` sets the number of random seeds.
mod chaos;
mod consumer;
mod dead_letters;
mod membership {
    pub mod agenda;
    pub mod counted_leases;
    pub mod group;
    pub mod member;
    pub mod ownership;
    mod schedules;
}
mod promotion;
mod regions;
mod relay {
    mod crashes;
    mod handover;
    mod outages;
    mod poison_rows;
    mod retries;
    mod rewound_store;
    mod slow_broker;
    mod unknown_outcomes;
}
mod support {
    pub mod environment;
    pub mod ledger;
    pub mod process;
    pub mod record_faults;
    pub mod recording_handler;
    pub mod wake_hub;
}
mod sweeps;
mod write_gate;
