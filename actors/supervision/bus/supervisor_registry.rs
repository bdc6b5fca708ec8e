//! The supervisors of a tree: how they restart their children, and what is left of their restart intensity.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::child::spec::SupervisorSpec;

/// One supervisor at the time of [`SupervisionBus::supervisors`](crate::SupervisionBus::supervisors).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupervisorSnapshot {
    /// Its path, or its name if it has no path: `supervisor` in the snapshots of its children.
    pub label: String,
    /// The label of the supervisor above; None for the root.
    pub parent: Option<String>,
    /// `one_for_one`, `rest_for_one` or `one_for_all`.
    pub strategy: &'static str,
    /// The most restarts within `window`; one more, and the supervisor escalates.
    pub restarts_max: usize,
    /// The sliding window of the restart intensity.
    pub window: Duration,
    /// Restarts within the window that ends now.
    pub restarts_in_window: usize,
}

/// Every supervisor that was launched, in the order of the first launch: a supervisor comes before the ones below it.
#[derive(Default)]
pub(crate) struct SupervisorRegistry(Mutex<Vec<SupervisorRecord>>);

struct SupervisorRecord {
    name: String,
    launched: bool,
    snapshot: SupervisorSnapshot,
    failures: VecDeque<Instant>,
}

impl SupervisorRegistry {
    pub(crate) fn record_launch(&self, spec: &SupervisorSpec, parent: Option<&str>) {
        let snapshot = SupervisorSnapshot {
            label: spec.label().to_owned(),
            parent: parent.map(str::to_owned),
            strategy: spec.strategy.as_str(),
            restarts_max: spec.max_restarts,
            window: spec.window,
            restarts_in_window: 0,
        };
        let record =
            SupervisorRecord { name: spec.name.clone(), launched: true, snapshot, failures: VecDeque::default() };
        let mut records = self.0.lock();
        match records.iter_mut().find(|known| known.name == spec.name) {
            Some(known) => *known = record,
            None => records.push(record),
        }
    }

    pub(crate) fn record_end(&self, name: &str) {
        self.with_record(name, |record| record.launched = false);
    }

    /// Stores the failures within the window of a supervisor.
    pub(crate) fn set_failures(&self, name: &str, failures: VecDeque<Instant>) {
        self.with_record(name, |record| record.failures = failures);
    }

    pub(crate) fn snapshot(&self, now: Instant) -> Vec<SupervisorSnapshot> {
        let records = self.0.lock();
        let snapshot = |record: &SupervisorRecord| {
            let window = record.snapshot.window;
            let recent = record.failures.iter().filter(|failure| now.duration_since(**failure) <= window);
            SupervisorSnapshot { restarts_in_window: recent.count(), ..record.snapshot.clone() }
        };
        records.iter().filter(|record| record.launched).map(snapshot).collect()
    }

    fn with_record(&self, name: &str, change: impl FnOnce(&mut SupervisorRecord)) {
        if let Some(record) = self.0.lock().iter_mut().find(|record| record.name == name) {
            change(record);
        }
    }
}
