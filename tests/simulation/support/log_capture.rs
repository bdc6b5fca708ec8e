//! The log events of one test with their fields as text; spans are not captured. The actors of a simulation run in the test's thread.
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Metadata, Subscriber};

type Lines = Arc<Mutex<Vec<BTreeMap<&'static str, String>>>>;

/// Captures every event of the calling thread until it is dropped.
pub struct LogCapture {
    lines: Lines,
    _guard: DefaultGuard,
}

impl LogCapture {
    pub fn start() -> Self {
        let lines = Lines::default();
        Self { _guard: set_default(Collector(Arc::clone(&lines))), lines }
    }

    /// These fields of each event of this name; a missing field is empty.
    pub fn fields<const N: usize>(&self, event: &str, names: [&str; N]) -> Vec<[String; N]> {
        let lines = self.lines.lock();
        let of_event = lines.iter().filter(|line| line.get("event").is_some_and(|name| name == event));
        of_event.map(|line| names.map(|name| line.get(name).cloned().unwrap_or_default())).collect()
    }
}

struct Collector(Lines);

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.lock().push(fields.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}
