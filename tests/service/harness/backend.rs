//! The embedded backend of one test: store and broker in one temporary data folder. `tests/services` and `tests/redis` have a file of the
//! same name for theirs.
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use embedded::Embedded;
use futures::FutureExt;
use memory::SystemClock;
use ports::broker::{Broker, Record};
use ports::clock::Clock;
use tempfile::TempDir;

/// Durable state of a service; outlives its process. Dropped, it is deleted.
pub struct Backend(TempDir);

impl Backend {
    /// Longest from the start of the process until it is ready. The contract says one second, which `tests/timing` measures; here other work may
    /// use the processors.
    pub const START_MAX: Duration = Duration::from_secs(15);

    /// Number of partitions of the outbox.
    pub const PARTITIONS: usize = 64;

    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn data_folder(&self) -> PathBuf {
        self.0.path().join("data")
    }

    /// Environment variables of every process that uses this backend.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        vec![("POSTHASTE__STORE__PATH", self.data_folder().display().to_string())]
    }

    /// Full name of a topic on this backend.
    pub fn topic(&self, name: &str) -> String {
        name.to_owned()
    }

    /// Gives every event in the outbox a value that breaks its contract. No service runs.
    pub fn break_event_values(&self) {
        let store = rusqlite::Connection::open(self.data_folder().join("posthaste.db")).expect("the file exists");
        store.execute("UPDATE outbox_event SET payload = x'7B7D'", []).expect("events can be updated");
    }

    /// Gives the events of a type a content type that no record may have. No service runs.
    pub fn break_content_types(&self, kind: &str) {
        let store = rusqlite::Connection::open(self.data_folder().join("posthaste.db")).expect("the file exists");
        let changed = store.execute("UPDATE outbox_event SET content_type = char(1) WHERE type = ?1", [kind]);
        assert!(changed.expect("events can be updated") > 0, "there is no event of type {kind}");
    }

    /// Appends a record as another program would.
    pub fn append_record(&self, topic: &str, key: &str, value: &str) {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let timestamp = clock.now();
        let log = Embedded::open_for_operator(&self.data_folder(), clock).expect("the data folder exists");
        let (topic, value) = (self.topic(topic).into(), value.as_bytes().into());
        let record = Record { topic, key: key.into(), headers: Default::default(), value, timestamp };
        // In a second process the embedded log writes synchronously.
        let appended = log.append(vec![record]).now_or_never().expect("the append is synchronous");
        appended.expect("the record is appended");
    }
}
