//! `posthaste bench`: load, fill and measurement. The crate knows ports and use cases, no adapter and no configuration: the program under
//! measurement gives it data of its own and starts the service for it ([`Program`]).
mod error;
mod load;
mod program;
mod report;
mod run;
mod scenarios;
mod service;
mod store;

pub use error::Error;
pub use program::{BrokerUse, OpenStore, Program, StoreAndBroker, ThrowawayData};
pub use run::{Plan, Scenario, run};
