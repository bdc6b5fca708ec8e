//! The log of one test, as the JSON lines the service would print.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tracing::subscriber::{DefaultGuard, set_default};
use tracing_subscriber::prelude::*;

use crate::json_line::json_line;
use crate::layer::LineLayer;

/// Collects every event of the calling thread, at every level, until it is dropped. Other threads are not heard; a
/// single-threaded runtime is.
pub fn capture() -> Capture {
    let text = Arc::new(Mutex::new(String::new()));
    let sink = Arc::clone(&text);
    let write = move |line: &str| {
        sink.lock().unwrap_or_else(PoisonError::into_inner).push_str(line);
        Ok(())
    };
    let subscriber = tracing_subscriber::registry().with(LineLayer { format: json_line, write });
    Capture { text, _guard: set_default(subscriber) }
}

/// What [`capture`] collected so far. For tests: it grows without a bound.
pub struct Capture {
    text: Arc<Mutex<String>>,
    _guard: DefaultGuard,
}

impl Capture {
    /// The lines as they would be printed.
    pub fn text(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The lines, read.
    pub fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).expect("each line is one JSON object")).collect()
    }

    /// The lines of this event.
    pub fn events(&self, event: &str) -> Vec<Value> {
        self.lines().into_iter().filter(|line| line["event"] == event).collect()
    }
}
