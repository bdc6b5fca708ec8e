//! MetricsObserver: restarts and handled messages of the supervision tree as metrics.
use std::sync::Arc;
use std::time::Duration;

use supervision::{Observer, SupervisionEvent};
use telemetry::Metrics;

/// Counts per kind of actor.
pub struct MetricsObserver(pub Arc<Metrics>);

impl Observer for MetricsObserver {
    fn lifecycle(&self, event: &SupervisionEvent) {
        if event.event == "child_exited" && event.child_type == "worker" {
            let reason = event.reason.unwrap_or("unknown");
            if reason != "shutdown" {
                self.0.actor_restarts_total.with([event.kind, reason]).inc();
            }
        }
    }

    fn handled(&self, kind: &'static str, _wait: Duration, work: Duration) {
        self.0.actor_messages_total.with([kind]).inc();
        self.0.actor_message_duration_seconds.with([kind]).record(work);
    }
}
