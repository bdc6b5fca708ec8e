//! MetricsObserver: restarts and handled messages of the supervision tree as metrics.
use std::sync::Arc;
use std::time::Duration;

use supervision::{Observer, SupervisionEvent};
use telemetry::Metrics;

/// Counts per kind of actor.
pub struct MetricsObserver(pub Arc<Metrics>);

impl Observer for MetricsObserver {
    fn lifecycle(&self, event: &SupervisionEvent) {
        // An exit is not a restart: a stopped or terminated actor does not run again, and a start may fail several times before one succeeds.
        if event.event == "child_restarted" && event.child_type == "worker" {
            self.0.actor_restarts_total.with([event.kind, event.reason.unwrap_or("unknown")]).inc();
        }
    }

    fn handled(&self, kind: &'static str, _wait: Duration, work: Duration) {
        self.0.actor_messages_total.with([kind]).inc();
        self.0.actor_message_duration_seconds.with([kind]).record(work);
    }
}
