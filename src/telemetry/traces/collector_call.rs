//! A call of the collector: the client that makes it, and the consequence of its reply for the batch.

use std::time::Duration;

use super::otlp;

/// Sends requests to a collector. The exporter calls it on a thread of its own, so it may block.
pub trait OtlpClient: Send + 'static {
    /// Posts an OTLP request in JSON and waits for the response.
    ///
    /// # Errors
    /// No response arrived within the time; the text says why, without anything secret.
    fn post(&self, body: &[u8], timeout: Duration) -> Result<CollectorReply, String>;
}

/// The response of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorReply {
    /// Status of the response.
    pub status: u16,
    /// The body of the response, as far as the client's limit.
    pub body: Vec<u8>,
}

/// Consequence of a call of the collector for its batch.
pub(super) enum CallOutcome {
    /// The collector took the batch, except this number of its spans.
    Accepted { rejected: u64 },
    /// A later call may succeed.
    Unavailable(String),
    /// No call will succeed with this batch.
    Refused(String),
}

/// Failed connections and the statuses that OTLP defines as retryable are temporary. Every other status refuses this batch.
pub(super) fn outcome(reply: Result<CollectorReply, String>) -> CallOutcome {
    match reply {
        Ok(CollectorReply { status: 200..=299, body }) => {
            CallOutcome::Accepted { rejected: otlp::rejected_spans(&body) }
        }
        Ok(CollectorReply { status: status @ (429 | 502 | 503 | 504), .. }) => {
            CallOutcome::Unavailable(format!("the collector answered with status {status}"))
        }
        Ok(CollectorReply { status, .. }) => {
            CallOutcome::Refused(format!("the collector answered with status {status}"))
        }
        Err(error) => CallOutcome::Unavailable(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_decides_between_accepted_repeated_and_refused() {
        let cases = [
            (200, "accepted"),
            (202, "accepted"),
            (429, "unavailable"),
            (503, "unavailable"),
            (500, "refused"),
            (401, "refused"),
        ];
        for (status, expected) in cases {
            let found = match outcome(Ok(CollectorReply { status, body: Vec::new() })) {
                CallOutcome::Accepted { rejected: 0 } => "accepted",
                CallOutcome::Accepted { .. } => "rejected",
                CallOutcome::Unavailable(_) => "unavailable",
                CallOutcome::Refused(_) => "refused",
            };
            assert_eq!(found, expected, "{status}");
        }
        assert!(matches!(outcome(Err("no connection".to_owned())), CallOutcome::Unavailable(_)));
    }
}
