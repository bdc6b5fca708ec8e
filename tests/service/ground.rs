//! What a service of these stories stands on: everything in one, in a throwaway data folder. `tests/services` has the same stories on
//! ground of its own.
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use embedded::Embedded;
use futures::FutureExt;
use memory::SystemClock;
use ports::broker::{Broker, Record};
use ports::clock::Clock;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::run;

/// Where a service keeps what it must not forget; outlives the process.
pub struct Ground(TempDir);

impl Ground {
    /// Longest from the start of the process until it is ready. A second is promised; other work may have the machine's cores.
    pub const START_MAX: Duration = Duration::from_secs(5);

    /// Partitions of the outbox.
    pub const PARTITIONS: usize = 64;

    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    /// The environment of every process on this ground.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        vec![("POSTHASTE__STORE__PATH", self.data().display().to_string())]
    }

    /// A topic's name here.
    pub fn topic(&self, name: &str) -> String {
        name.to_owned()
    }

    /// Appends a record, as somebody else's program does.
    pub fn put(&self, topic: &str, key: &str, value: &str) {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let timestamp = clock.now();
        let log = Embedded::open_beside(&self.data(), clock).expect("the folder is there");
        let (topic, value) = (self.topic(topic).into(), value.as_bytes().into());
        let record = Record { topic, key: key.into(), headers: Vec::new(), value, timestamp };
        // Beside a service the file is written on the spot.
        let appended = log.append(vec![record]).now_or_never().expect("nobody waits here");
        appended.expect("appended");
    }

    /// Every record of `order.events`, read from the data folder by the program itself.
    pub fn events(&self) -> Vec<Value> {
        let (code, stdout, stderr) = run(self, &["topic", "tail", "order.events", "--from-beginning", "--json"]);
        assert_eq!(code, 0, "{stderr}");
        stdout.lines().map(|line| serde_json::from_str(line).expect("a record a line")).collect()
    }
}
