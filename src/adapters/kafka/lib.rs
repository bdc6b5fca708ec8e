//! The broker on Apache Kafka: lanes are transactional producers, watermarks stand in a compacted topic, consumers are members of groups.
//!
//! Each client of the library lives on a thread of its own, because the library's calls block; callers wait for answers only.
#![warn(missing_docs)]

mod broker;
mod client;
mod cluster;
mod commits;
mod contact;
mod deliveries;
mod error;
mod headers;
mod keeper;
mod lane;
mod lanes;
mod look;
mod member;
mod message;
mod open;
mod open_error;
mod options;
mod parcel;
mod post;
mod probe;
mod reader;
mod renewal;
mod replicas;
mod share;
mod sizes;
mod source;
pub mod throwaway;
mod topics;
mod transaction;
mod turns;
mod watermarks;
mod waves;

pub use open::Kafka;
pub use open_error::OpenError;
pub use options::{Compression, Guarantee, Options, Sasl, Security};
pub use probe::BrokerProbe;
pub use replicas::Replicas;
