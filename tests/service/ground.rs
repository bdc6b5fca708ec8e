//! What a service of these stories stands on: everything in one, in a throwaway data folder. `tests/services` has the same stories on
//! ground of its own.
use std::path::PathBuf;
use std::time::Duration;

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

    /// Every record of `order.events`, read from the data folder by the program itself.
    pub fn events(&self) -> Vec<Value> {
        let (code, stdout, stderr) = run(self, &["topic", "tail", "order.events", "--from-beginning", "--json"]);
        assert_eq!(code, 0, "{stderr}");
        stdout.lines().map(|line| serde_json::from_str(line).expect("a record a line")).collect()
    }
}
