//! Whether brokers answer. All clients report here, so that an outage logs one warning and its end one line.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use ports::Error;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::sync::Notify;

use crate::error::map_err;

/// librdkafka's log facility for failed connections.
const FAIL: &str = "FAIL";

/// The state of the brokers as seen by all clients of one adapter.
#[derive(Debug, Default)]
pub(crate) struct BrokerContact {
    unreachable: AtomicBool,
    last: Mutex<LastContact>,
    /// Notified at the end of each outage.
    outage_ended: Notify,
    /// How often each topic, by its full name, was found deleted.
    deletions: Mutex<BTreeMap<String, u64>>,
}

#[derive(Debug, Default)]
struct LastContact {
    /// librdkafka's log line about the last connection that failed since the last response. A call's error says only that no broker is
    /// reachable; a refused password or certificate appears nowhere else.
    failed_connection: Option<String>,
    response_at: Option<Instant>,
}

impl BrokerContact {
    /// Whether the last report of a client is that all brokers are unreachable.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.unreachable.load(Ordering::Relaxed)
    }

    /// Whether all brokers are unreachable because connections fail, as refused ones do. Otherwise a broker may only answer slowly. Connections that
    /// are closed do not count: librdkafka logs them at debug level.
    pub(crate) fn connections_fail(&self) -> bool {
        self.is_unreachable() && self.last.lock().failed_connection.is_some()
    }

    /// The port's error, with the reason of the last failed connection, which the error of a call lacks: it may be a wrong password.
    pub(crate) fn map_err(&self, error: &KafkaError, action: &str) -> Error {
        match &self.last.lock().failed_connection {
            Some(reason) => map_err(error, &format!("{action} ({reason})")),
            None => map_err(error, action),
        }
    }

    /// Whether a broker has answered any client since `moment`.
    pub(crate) fn responded_since(&self, moment: Instant) -> bool {
        self.last.lock().response_at.is_some_and(|response_at| response_at > moment)
    }

    /// Records that a broker answered; ends an outage.
    pub(crate) fn record_response(&self) {
        *self.last.lock() = LastContact { failed_connection: None, response_at: Some(Instant::now()) };
        if self.unreachable.load(Ordering::Relaxed) && self.unreachable.swap(false, Ordering::Relaxed) {
            tracing::info!(event = "broker_recovered", "the broker answers again");
            self.outage_ended.notify_one();
        }
    }

    /// Waits for the end of an outage; one that ended since the last call counts. For one caller at a time. Cancel-safe.
    pub(crate) async fn recovered(&self) {
        self.outage_ended.notified().await;
    }

    /// How often these topics were found deleted. Positions that a client read before may be those of a deleted topic.
    pub(crate) fn deletions(&self, topics: &[String]) -> u64 {
        let deletions = self.deletions.lock();
        topics.iter().filter_map(|topic| deletions.get(topic)).sum()
    }

    pub(crate) fn record_deletion(&self, topic: &str) {
        *self.deletions.lock().entry(topic.to_owned()).or_default() += 1;
    }

    /// Records that no broker is reachable; begins an outage.
    pub(crate) fn record_outage(&self, reason: &str) {
        if !self.unreachable.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                event = "broker_unreachable",
                error = reason,
                "no broker can be reached; events wait in the outbox: {reason}"
            );
        }
    }

    /// Records an error that a client reports outside any call.
    pub(crate) fn record_client_error(&self, error: &KafkaError, reason: &str) {
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) {
            self.record_outage(reason);
        } else {
            tracing::debug!(event = "broker_client_error", error = %error, reason, "a Kafka client reported an error");
        }
    }
}

/// Writes a log line of librdkafka at debug level: each reconnection makes several.
pub(crate) fn log(level: RDKafkaLogLevel, facility: &str, line: &str) {
    tracing::debug!(event = "broker_client", level = ?level, facility, line, "librdkafka logged a line");
}

/// The context of clients that neither produce nor join a group.
#[derive(Clone)]
pub(crate) struct ContactContext(pub(crate) Arc<BrokerContact>);

impl ClientContext for ContactContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        if facility == FAIL {
            self.0.last.lock().failed_connection = Some(line.to_owned());
        }
        log(level, facility, line);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.record_client_error(&error, reason);
    }
}

impl rdkafka::consumer::ConsumerContext for ContactContext {}
