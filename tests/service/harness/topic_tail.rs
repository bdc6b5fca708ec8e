//! The event log of an embedded installation, read by the program's own `topic tail`.
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::process::run;

impl Backend {
    /// Every record of `order.events`, in the order of the topic.
    pub fn events(&self) -> Vec<Value> {
        let (code, stdout, stderr) = run(self, &["topic", "tail", "order.events", "--from-beginning", "--json"]);
        assert_eq!(code, 0, "{stderr}");
        stdout.lines().map(|line| serde_json::from_str(line).expect("a record a line")).collect()
    }
}
