//! `posthaste bench` and `posthaste chaos`: load, fill, measurement, and faults under load. The crate uses ports and use cases, no adapter and
//! no configuration: the program under measurement creates its data and starts the service ([`Program`]).
mod chaos;
mod error;
mod load;
mod plan;
mod program;
mod report;
mod run;
mod scenarios;
mod service;
mod store;

pub use chaos::{ChaosPlan, chaos};
pub use error::Error;
pub use plan::{Plan, Scenario};
pub use program::{BrokerUse, OpenStore, Program, SqlSession, StoreAndBroker, ThrowawayData, TransactionKind};
pub use report::ReportFormat;
pub use run::run;
