//! The log events of one test with their fields as text; spans are not captured. The actors of a simulation run in the test's thread.
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, set_global_default};
use tracing::{Event, Metadata, Subscriber};

type Line = BTreeMap<&'static str, String>;

thread_local! {
    /// The lines of this thread's capture, while it has one.
    static LINES: RefCell<Option<Vec<Line>>> = const { RefCell::new(None) };
}

/// Installs the collector of all threads. An environment does it before anything in it can log: tracing caches for each call site whether
/// a subscriber is interested, and a subscriber of one thread is not asked when another thread is the first to reach a call site.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| set_global_default(Collector).expect("no other test of this binary installs a subscriber"));
}

/// Captures every event of the calling thread until it is dropped.
pub struct LogCapture(());

impl LogCapture {
    pub fn start() -> Self {
        install();
        LINES.set(Some(Vec::new()));
        Self(())
    }

    /// These fields of each event of this name; a missing field is empty.
    pub fn fields<const N: usize>(&self, event: &str, names: [&str; N]) -> Vec<[String; N]> {
        let fields = |line: &Line| names.map(|name| line.get(name).cloned().unwrap_or_default());
        LINES.with_borrow(|lines| {
            let of_event = lines.iter().flatten().filter(|line| line.get("event").is_some_and(|name| name == event));
            of_event.map(fields).collect()
        })
    }
}

impl Drop for LogCapture {
    fn drop(&mut self) {
        LINES.set(None);
    }
}

struct Collector;

impl Subscriber for Collector {
    fn register_callsite(&self, _: &Metadata<'_>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        LINES.with_borrow(Option::is_some)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        LINES.with_borrow_mut(|lines| lines.as_mut().map(|lines| lines.push(fields.0)));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Fields(Line);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

#[test]
fn event_is_captured_after_another_thread_reached_its_call_site_first() {
    fn log_event() {
        tracing::info!(event = "shared_call_site", "an event of two threads");
    }
    let logs = LogCapture::start();

    std::thread::spawn(log_event).join().expect("the thread has no capture");
    assert_eq!(logs.fields("shared_call_site", ["event"]), [[""; 1]; 0]);
    log_event();

    assert_eq!(logs.fields("shared_call_site", ["event"]), [["shared_call_site"]]);
}
