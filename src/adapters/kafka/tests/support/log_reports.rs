//! The log events about groups that the adapter writes, of all tests of this process.
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Once;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// An event of the log: its fields as text.
pub type Report = BTreeMap<&'static str, String>;

static REPORTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());

struct ReportCollector;

impl Subscriber for ReportCollector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.fields().field("group").is_some()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = FieldTexts::default();
        event.record(&mut fields);
        REPORTS.lock().push(fields.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct FieldTexts(Report);

impl Visit for FieldTexts {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

/// Collects the events from now on.
pub fn collect() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(ReportCollector).expect("no other test installs one"));
}

/// The collected events with this name whose field has this value.
pub fn reports(event: &str, field: &str, value: &str) -> Vec<Report> {
    let is_wanted = |report: &&Report| {
        report.get("event").is_some_and(|name| name == event) && report.get(field).is_some_and(|text| text == value)
    };
    REPORTS.lock().iter().filter(is_wanted).cloned().collect()
}
