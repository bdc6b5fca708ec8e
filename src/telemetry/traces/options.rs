//! Options of the traces, with defaults that run.

use std::time::Duration;

/// Sampling of traces, and limits of their export.
#[derive(Clone, Debug)]
pub struct Options {
    /// Share of the traces without a parent that are recorded, from 0 to 1.
    pub sample_ratio: f64,
    /// Most queued spans; later ones are dropped.
    pub queue_max: usize,
    /// Longest time of one call of the collector.
    pub timeout: Duration,
    /// Attributes of the process, such as `service.name`.
    pub resource: Vec<(&'static str, String)>,
}

impl Default for Options {
    /// All traces, 4096 spans (some 4 MiB), 5 s.
    fn default() -> Self {
        Self { sample_ratio: 1.0, queue_max: 4_096, timeout: Duration::from_secs(5), resource: Vec::new() }
    }
}
