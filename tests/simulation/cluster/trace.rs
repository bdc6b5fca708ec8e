//! Trace: the events of a run in order, as a hash that shows whether two runs were the same, and with `POSTHASTE_TRACE` as text; and the
//! invariants that were broken during the run.
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Offset basis and prime of the 64-bit FNV-1a hash.
const FNV: (u64, u64) = (0xcbf2_9ce4_8422_2325, 0x0000_0100_0000_01b3);

/// Continues an FNV-1a hash with the bytes of a text.
pub fn hash_text(hash: u64, text: &str) -> u64 {
    text.bytes().fold(hash, |hash, byte| hash_number(hash, u64::from(byte)))
}

fn hash_number(hash: u64, number: u64) -> u64 {
    (hash ^ number).wrapping_mul(FNV.1)
}

/// The events of one run. Clones share them.
#[derive(Clone)]
pub struct Trace(Arc<Shared>);

struct Shared {
    started_at: Instant,
    prints: bool,
    state: Mutex<TraceState>,
}

struct TraceState {
    hash: u64,
    /// How many events of each kind there were.
    counts: EventCounts,
    violations: Vec<String>,
}

/// Number of events by their kinds.
pub type EventCounts = BTreeMap<&'static str, u64>;

impl Trace {
    /// An empty trace that begins now.
    pub fn new() -> Self {
        let prints = std::env::var_os("POSTHASTE_TRACE").is_some();
        let state = Mutex::new(TraceState { hash: FNV.0, counts: EventCounts::new(), violations: Vec::new() });
        Self(Arc::new(Shared { started_at: Instant::now(), prints, state }))
    }

    /// Adds an event: its kind and two numbers that distinguish it from others of the kind.
    pub fn add(&self, kind: &'static str, first: u64, second: u64) {
        let at = self.0.started_at.elapsed();
        let mut state = self.0.state.lock();
        *state.counts.entry(kind).or_default() += 1;
        let numbers = [at.as_nanos() as u64, first, second];
        state.hash = numbers.into_iter().fold(hash_text(state.hash, kind), hash_number);
    }

    /// Prints a line if the trace is printed.
    pub fn print(&self, line: fmt::Arguments<'_>) {
        if self.0.prints {
            // An error of the terminal must not change the run.
            let _ = writeln!(std::io::stderr(), "{:>10.3} {line}", self.0.started_at.elapsed().as_secs_f64());
        }
    }

    /// Records that an invariant was broken.
    pub fn violation(&self, violation: String) {
        self.print(format_args!("VIOLATION {violation}"));
        self.0.state.lock().violations.push(violation);
    }

    /// The broken invariants so far.
    pub fn violations(&self) -> Vec<String> {
        self.0.state.lock().violations.clone()
    }

    /// Hash of the events so far.
    pub fn fingerprint(&self) -> u64 {
        self.0.state.lock().hash
    }

    /// How many events of each kind there were so far.
    pub fn counts(&self) -> EventCounts {
        self.0.state.lock().counts.clone()
    }
}
