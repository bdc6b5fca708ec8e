//! Kafka's wire protocol, as far as a transactional producer needs it. The messages are those of the crate `kafka-protocol`; the record
//! batches are encoded here, because a header name may repeat and because records are not copied.
mod broker_order;
pub(crate) mod calls;
pub(crate) mod cluster;
pub(crate) mod connection;
mod mechanism;
pub(crate) mod record_batch;
pub(crate) mod response_code;
mod sasl;
mod scram;
pub(crate) mod settings;
mod stream;
pub(crate) mod tls;
