//! The real actors in virtual time: the embedded store, its broker and every actor on one thread, under seeded faults. Each scenario ends
//! with the guarantees: no event lost or duplicated, each key in order and without gaps, no row left unsent. `cluster` runs several instances
//! on a simulated PostgreSQL and a simulated Kafka instead.
//!
//! A failure prints its seed: `POSTHASTE_SEED=n` repeats it, `POSTHASTE_SEEDS=n` sets the number of random seeds (0: without end), and
//! `POSTHASTE_FIRST_SEED=n` where they begin.
mod chaos;
mod cluster {
    mod conformance;
    pub mod consumers {
        pub mod failure_plan;
        pub mod handler;
        pub mod invariants;
    }
    pub mod external_writers;
    pub mod faults;
    pub mod flaw;
    pub mod instance;
    pub mod invariants;
    pub mod kafka {
        pub mod at_least_once;
        pub mod broker;
        pub mod client;
        pub mod groups {
            pub mod buffer;
            pub mod client;
            pub mod coordinator;
            pub mod member;
            pub mod session;
            pub mod shares;
        }
        pub mod delivery_guarantee;
        pub mod log;
        pub mod reading;
        pub mod refusals;
        pub mod session;
    }
    pub mod network;
    pub mod postgres {
        pub mod client;
        pub mod events;
        pub mod inbox;
        pub mod rounds;
        pub mod scan_start;
        pub mod server;
    }
    pub mod instances;
    pub mod run;
    mod seeds;
    pub mod trace;
    pub mod writers;
}
mod commands;
mod consumer;
mod dead_letters;
mod membership {
    pub mod counted_leases;
    pub mod group;
    pub mod member;
    pub mod ownership;
    mod schedules;
    pub mod step_queue;
}
mod promotion;
mod regions;
mod relay {
    mod crashes;
    mod handover;
    mod lease_events;
    mod log_lines;
    mod metrics;
    mod outages;
    mod partly_sent;
    mod poison_rows;
    mod promptness;
    mod retries;
    mod rewound_store;
    mod root_escalation;
    mod slow_broker;
    mod slow_leases;
    mod unknown_outcomes;
}
mod retry_routes;
mod support {
    pub mod consumption;
    pub mod environment;
    pub mod external_events;
    pub mod kept_offsets;
    pub mod late_partitions;
    pub mod ledger;
    pub mod log_capture;
    pub mod process;
    pub mod record_faults;
    pub mod recording_handler;
    pub mod scripted_endpoint;
    pub mod skewed_clock;
    pub mod wake_hub;
}
mod sweeps;
mod webhooks;
mod write_gate;
