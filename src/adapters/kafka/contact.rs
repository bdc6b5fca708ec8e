//! Whether the brokers can be heard. Every client tells here what it meets, so that an outage is one warning and its end one line.
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// The library's facility for connections that failed.
const FAIL: &str = "FAIL";

/// What all clients of one adapter know together.
#[derive(Debug, Default)]
pub(crate) struct Contact {
    away: AtomicBool,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    /// Why the last connection failed, in the library's words. Calls only tell that nobody could be reached; that a password or a
    /// certificate was refused stands nowhere else.
    failed: Option<String>,
    heard: Option<Instant>,
}

impl Contact {
    /// No broker can be reached, as far as we know.
    pub(crate) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    /// Why no broker can be reached, if a connection failed since one answered.
    pub(crate) fn why(&self) -> Option<String> {
        self.last.lock().failed.clone()
    }

    /// Whether a broker answered any client since then.
    pub(crate) fn heard_since(&self, moment: Instant) -> bool {
        self.last.lock().heard.is_some_and(|heard| heard > moment)
    }

    /// A broker answered.
    pub(crate) fn heard(&self) {
        *self.last.lock() = Last { failed: None, heard: Some(Instant::now()) };
        if self.away.load(Ordering::Relaxed) && self.away.swap(false, Ordering::Relaxed) {
            tracing::info!(event = "broker_back", "the broker answers again");
        }
    }

    /// No broker answers.
    pub(crate) fn lost(&self, why: &str) {
        if !self.away.swap(true, Ordering::Relaxed) {
            tracing::warn!(event = "broker_away", error = why, "no broker can be reached; events wait in the outbox");
        }
    }

    /// What a client met by itself, outside any call of ours.
    pub(crate) fn met(&self, error: &KafkaError, reason: &str) {
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) {
            self.lost(reason);
        } else {
            tracing::debug!(event = "broker_client_error", error = %error, reason, "a client met an error");
        }
    }
}

/// The client library's own lines: each reconnection is one, so they are for whoever asks for them.
pub(crate) fn log(level: RDKafkaLogLevel, facility: &str, line: &str) {
    tracing::debug!(event = "broker_client", level = ?level, facility, line, "the client library said something");
}

/// A client that only asks.
#[derive(Clone)]
pub(crate) struct Ears(pub(crate) std::sync::Arc<Contact>);

impl ClientContext for Ears {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        if facility == FAIL {
            self.0.last.lock().failed = Some(line.to_owned());
        }
        log(level, facility, line);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.met(&error, reason);
    }
}

impl rdkafka::consumer::ConsumerContext for Ears {}
