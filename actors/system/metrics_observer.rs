//! MetricsObserver: restarts and handled messages of the supervision tree as metrics.
use std::sync::Arc;
use std::time::Duration;

use supervision::{Observer, SupervisionEvent};
use telemetry::Metrics;

/// The reasons of a worker's exit. The one that is left out, `escalated`, is a supervisor's.
const RESTART_REASONS: [&str; 8] =
    ["normal", "panic", "killed", "shutdown", "shutdown_timeout", "start_timeout", "sibling", "arbiter_lost"];

/// Counts per kind of actor.
pub struct MetricsObserver(pub Arc<Metrics>);

impl Observer for MetricsObserver {
    fn lifecycle(&self, event: &SupervisionEvent) {
        if event.child_type != "worker" {
            return;
        }
        let restarts = &self.0.actor_restarts_total;
        match event.event {
            // At zero before the first restart: Prometheus does not count the first value of a series as an increase.
            "child_started" | "child_start_failed" => {
                for reason in RESTART_REASONS {
                    restarts.with([event.kind, reason]);
                }
            }
            // An exit is not a restart: a stopped or terminated actor does not run again, and a start may fail several times before one succeeds.
            "child_restarted" => restarts.with([event.kind, event.reason.unwrap_or("unknown")]).inc(),
            _ => {}
        }
    }

    fn handled(&self, kind: &'static str, _wait: Duration, work: Duration) {
        self.0.actor_messages_total.with([kind]).inc();
        self.0.actor_message_duration_seconds.with([kind]).record(work);
    }
}

#[cfg(test)]
mod tests {
    use supervision::ExitReason;
    use tokio::time::Instant;
    use tracing::Level;

    use super::*;

    fn event(name: &'static str, reason: Option<&'static str>) -> SupervisionEvent {
        SupervisionEvent {
            seq: 1,
            at: Instant::now(),
            event: name,
            level: Level::INFO,
            supervisor: "/relay".into(),
            child: "/relay/outbox-publisher".into(),
            child_type: "worker",
            kind: "OutboxPublisher",
            generation: 1,
            reason,
            fields: Vec::new(),
        }
    }

    fn restarts_a_worker(reason: &ExitReason) -> bool {
        match reason {
            ExitReason::Escalated { .. } => false,
            ExitReason::Normal
            | ExitReason::Panic { .. }
            | ExitReason::Killed { .. }
            | ExitReason::Shutdown
            | ExitReason::ShutdownTimeout
            | ExitReason::StartTimeout
            | ExitReason::Sibling { .. }
            | ExitReason::ArbiterLost => true,
        }
    }

    #[test]
    fn each_reason_of_a_restart_has_a_series_when_an_actor_starts() {
        let text = String::new;
        let reasons = [
            ExitReason::Normal,
            ExitReason::Panic { detail: text(), location: text(), message: None },
            ExitReason::Killed { by: text() },
            ExitReason::Shutdown,
            ExitReason::ShutdownTimeout,
            ExitReason::StartTimeout,
            ExitReason::Sibling { failed: text() },
            ExitReason::Escalated { detail: text() },
            ExitReason::ArbiterLost,
        ];
        let metrics = Metrics::new();
        let observer = MetricsObserver(Arc::clone(&metrics));
        let counts = || -> Vec<(String, u64)> {
            let series = metrics.actor_restarts_total.members();
            series.into_iter().map(|([_, reason], count)| (reason, count.get())).collect()
        };

        observer.lifecycle(&event("child_started", None));
        let mut expected: Vec<(String, u64)> = reasons
            .iter()
            .filter(|reason| restarts_a_worker(reason))
            .map(|reason| (reason.as_str().to_owned(), 0))
            .collect();
        expected.sort();
        assert_eq!(counts(), expected);

        observer.lifecycle(&event("child_restarted", Some("panic")));
        assert_eq!(counts().into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>(), [("panic".to_owned(), 1)]);
    }
}
