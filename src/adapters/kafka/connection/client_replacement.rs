//! Decides when a client is replaced by a new one. A broker that has just started may answer a metadata request with topics and no brokers, and
//! librdkafka then forgets every broker it knew, its bootstrap servers included, for good (librdkafka #5301, all versions since 2.10).
//! Only a new client recovers, so the adapter replaces each client whose calls keep failing.
use std::time::{Duration, Instant};

use rdkafka::error::KafkaResult;

/// How long a client's calls may fail before it is replaced: long enough that an outage costs only a few clients, short compared with the
/// 30 s within which events must flow again afterwards.
const REPLACE_AFTER: Duration = Duration::from_secs(5);

/// The time since which the calls of one client have reached no broker.
#[derive(Debug, Default)]
pub(crate) struct ClientReplacement {
    failing_since: Option<Instant>,
}

impl ClientReplacement {
    /// Records a call that began at `started` and has ended. Returns a new client when the old one is to be replaced now.
    pub(crate) fn record_call<C>(
        &mut self,
        reached: bool,
        started: Instant,
        create: impl FnOnce() -> KafkaResult<C>,
    ) -> Option<C> {
        if !self.is_due(reached, started, Instant::now()) {
            return None;
        }
        tracing::debug!(event = "broker_clients_renewed", "a Kafka client reaches no broker and is replaced");
        match create() {
            Ok(client) => Some(client),
            Err(error) => {
                tracing::warn!(event = "broker_clients_kept", error = %error, "no new Kafka client could be created");
                None
            }
        }
    }

    /// Whether the client is to be replaced now. One call that lasted long enough suffices, because a caller behind an open circuit breaker
    /// calls rarely. A replaced client starts with no failures.
    fn is_due(&mut self, reached: bool, started: Instant, now: Instant) -> bool {
        if reached {
            self.failing_since = None;
            return false;
        }
        let since = *self.failing_since.get_or_insert(started);
        let due = now.saturating_duration_since(since) >= REPLACE_AFTER;
        if due {
            self.failing_since = None;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_that_reaches_no_broker_for_long_is_replaced_once() {
        let (mut replacement, zero) = (ClientReplacement::default(), Instant::now());
        let at = |seconds| zero + Duration::from_secs(seconds);
        let mut due_at = |seconds| replacement.is_due(false, at(seconds), at(seconds));

        assert_eq!([0, 4, 5].map(&mut due_at), [false, false, true]);
        assert_eq!([6, 10, 11].map(&mut due_at), [false, false, true], "a new client gets the whole time again");
        assert!(replacement.is_due(false, at(20), at(25)), "one long call suffices");
    }

    #[test]
    fn client_that_reaches_a_broker_starts_over() {
        let (mut replacement, zero) = (ClientReplacement::default(), Instant::now());
        let at = |seconds| zero + Duration::from_secs(seconds);
        let mut is_due = |reached, seconds| replacement.is_due(reached, at(seconds), at(seconds));

        assert!(!is_due(false, 0));
        assert!(!is_due(true, 9));
        assert!(!is_due(false, 10));
    }
}
