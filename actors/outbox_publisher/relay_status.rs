//! RelayStatus: reports the state of the relay to operators. Logs when it begins to fail and when it recovers, not every failed batch, and how
//! many partitions the instance owns, not each of them. The live stream has the same events.
use supervision::SupervisionBus;

use crate::partition_worker::report::BatchReport;
use crate::system::dependencies::Dependencies;

/// The state of the relay that was logged last.
pub struct RelayStatus {
    bus: SupervisionBus,
    /// The last reports were failures.
    failing: bool,
    /// Partitions that the instance owned when they were counted last.
    owned: usize,
}

impl RelayStatus {
    /// The state of a relay that has not failed and owns no partition. `bus` has the live stream, which shows each change too.
    pub fn new(bus: SupervisionBus) -> Self {
        Self { bus, failing: false, owned: 0 }
    }

    /// Logs a warning when the instance relays nothing: it has no broker, or its publisher is switched off.
    pub fn warn_if_inactive(&self, has_workers: bool, has_broker: bool) {
        match (has_workers, has_broker) {
            (true, _) => {}
            (false, true) => tracing::warn!(
                event = "publisher_disabled",
                "outbox.publisher.enabled is false: this instance relays no events"
            ),
            (false, false) => tracing::warn!(
                event = "broker_absent",
                "no broker is configured: events stay PENDING until broker.kind is set"
            ),
        }
    }

    /// Logs if the relay begins to fail or recovers with this report. Only sent rows end a failure: an empty batch proves nothing.
    pub fn record(&mut self, report: &BatchReport) {
        match &report.error {
            Some(error) if !self.failing => {
                self.failing = true;
                tracing::warn!(event = "relay_failing", error = %error, "events cannot be published at the moment: {error}");
                self.bus.publish_external("relay_failing", vec![("error", error.to_string())]);
            }
            None if self.failing && report.sent > 0 => {
                self.failing = false;
                tracing::info!(event = "relay_recovered", "events are published again");
                self.bus.publish_external("relay_recovered", Vec::new());
            }
            _ => {}
        }
    }

    /// Shows in metrics, health and the live stream how many partitions this instance owns, and logs a change.
    pub fn publish_ownership(&mut self, owned: usize, dependencies: &Dependencies) {
        let before = std::mem::replace(&mut self.owned, owned);
        if before != owned {
            tracing::info!(
                event = "partitions_owned",
                owned,
                before,
                "this instance owns {owned} partitions of the outbox; it owned {before} before"
            );
            let fields = vec![("owned", owned.to_string()), ("before", before.to_string())];
            self.bus.publish_external("partitions_owned", fields);
        }
        dependencies.metrics.outbox_partitions_owned.set(i64::try_from(owned).unwrap_or(i64::MAX));
        dependencies.health.update(|snapshot| {
            snapshot.partitions_owned = owned;
            snapshot.started = true;
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ports::Error;
    use supervision::{Observer, SupervisionEvent};

    use super::*;

    struct Unobserved;

    impl Observer for Unobserved {
        fn lifecycle(&self, _: &SupervisionEvent) {}
        fn handled(&self, _: &'static str, _: Duration, _: Duration) {}
    }

    #[test]
    fn a_failure_lasts_until_rows_are_sent() {
        let bus = SupervisionBus::new(supervision::Options::default(), Arc::new(Unobserved));
        let mut status = RelayStatus::new(bus.clone());
        let error = Some(Error::Unreachable("down".into()));

        status.record(&BatchReport { error, ..BatchReport::default() });
        status.record(&BatchReport::default());
        assert!(status.failing, "a batch without rows is not a recovery");
        status.record(&BatchReport { sent: 1, ..BatchReport::default() });

        assert!(!status.failing);
        let (backlog, _) = bus.subscribe_after(Some(0));
        let events: Vec<_> = backlog.iter().map(|event| (event.event, event.text("error"))).collect();
        assert!(matches!(events[..], [("relay_failing", Some(_)), ("relay_recovered", None)]), "{events:?}");
    }
}
