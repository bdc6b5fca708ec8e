//! When a client is replaced. The library can lose the way to its brokers for good: one that has just started may tell of topics and of no
//! brokers, and a client that hears it forgets all it knew, its bootstrap servers too (librdkafka #5301, in every version since 2.10).
//! Nothing but a new client mends that, so none of ours is trusted for longer than its calls succeed.
use std::time::{Duration, Instant};

use rdkafka::error::KafkaResult;

/// How long a client's calls may fail before a new one takes its place. Long enough that an outage costs a few clients and no more, short
/// beside the 30 s within which events flow again after it.
const RENEW_AFTER: Duration = Duration::from_secs(5);

/// Since when a client's calls have reached nobody.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    failing: Option<Instant>,
}

impl Trust {
    /// A call that began then has ended, and reached somebody or nobody; the new client, where one takes the place of the old one now.
    pub(crate) fn renewed<C>(
        &mut self,
        reached: bool,
        begun: Instant,
        make: impl FnOnce() -> KafkaResult<C>,
    ) -> Option<C> {
        if !self.is_lost(reached, begun, Instant::now()) {
            return None;
        }
        tracing::debug!(
            event = "broker_clients_renewed",
            "a client that asks the broker reaches nobody and is replaced"
        );
        match make() {
            Ok(client) => Some(client),
            Err(error) => {
                tracing::warn!(event = "broker_clients_kept", error = %error, "no new client could be made");
                None
            }
        }
    }

    /// Whether the client is to be replaced now: after one call that took so long, too, because whoever waits behind an open breaker asks
    /// seldom. A replaced one begins anew.
    fn is_lost(&mut self, reached: bool, begun: Instant, now: Instant) -> bool {
        if reached {
            self.failing = None;
            return false;
        }
        let since = *self.failing.get_or_insert(begun);
        let lost = now.saturating_duration_since(since) >= RENEW_AFTER;
        if lost {
            self.failing = None;
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_reaches_nobody_for_long_is_replaced_once() {
        let (mut trust, zero) = (Trust::default(), Instant::now());
        let at = |seconds| zero + Duration::from_secs(seconds);
        let mut lost_at = |seconds| trust.is_lost(false, at(seconds), at(seconds));

        assert_eq!([0, 4, 5].map(&mut lost_at), [false, false, true]);
        assert_eq!([6, 10, 11].map(&mut lost_at), [false, false, true], "a new one has its own time");
        assert!(trust.is_lost(false, at(20), at(25)), "one call was long enough");
    }

    #[test]
    fn whoever_is_answered_is_trusted() {
        let (mut trust, zero) = (Trust::default(), Instant::now());
        let at = |seconds| zero + Duration::from_secs(seconds);
        let mut is_lost = |reached, seconds| trust.is_lost(reached, at(seconds), at(seconds));

        assert!(!is_lost(false, 0));
        assert!(!is_lost(true, 9));
        assert!(!is_lost(false, 10));
    }
}
