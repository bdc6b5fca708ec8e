//! Errors of opening the adapter.

/// Why [`crate::Kafka::open`] failed. An unreachable broker is not among the reasons: opening does not connect.
#[derive(Debug, thiserror::Error)]
pub enum KafkaOpenError {
    /// librdkafka refuses an option; the operator must change it.
    #[error("the Kafka client cannot be configured: {0}")]
    Options(String),
    /// The operating system started no thread; opening may be tried again.
    #[error("cannot start a thread for the Kafka client: {0}")]
    Thread(#[from] std::io::Error),
}
