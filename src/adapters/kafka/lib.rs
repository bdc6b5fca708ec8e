//! The broker port on Apache Kafka: transactional producers, watermarks in a compacted topic, members of consumer groups.
//!
//! Calls of librdkafka block, so each client runs on a thread of its own; async callers only wait for that thread's reply.
#![warn(missing_docs)]

mod adapter;
mod broker;
mod cluster;
mod connection;
mod consumer;
mod error;
mod options;
mod producer;
mod protocol;
pub mod throwaway;
mod topics;

pub use adapter::Kafka;
pub use cluster::probe::KafkaProbe;
pub use cluster::replicas::Replicas;
pub use connection::open_error::KafkaOpenError;
pub use options::{Compression, DeliveryGuarantee, Options, Sasl, Security};
