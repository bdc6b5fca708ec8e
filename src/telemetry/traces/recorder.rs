//! Recorder: the state that all spans of a process share: their queue, and the source of their ids.

use std::sync::Arc;

use super::queue::SpanQueue;

/// Sixty-four independent random bits at each call.
pub(super) type RandomBits = Box<dyn Fn() -> u64 + Send + Sync>;

/// Shared by the tracer and its spans.
pub(super) struct Recorder {
    pub(super) queue: Arc<SpanQueue>,
    pub(super) random: RandomBits,
    /// Share of the traces without a parent that are sampled, from 0 to 1.
    pub(super) sample_ratio: f64,
}

impl Recorder {
    pub(super) fn span_id(&self) -> u64 {
        // Zero is not a valid id; it is as rare as every other value.
        (self.random)().max(1)
    }

    pub(super) fn trace_id(&self) -> u128 {
        (u128::from((self.random)()) << 64) | u128::from((self.random)().max(1))
    }

    /// Decides on a new trace by its id, as OpenTelemetry's TraceIdRatioBased sampler does.
    pub(super) fn is_sampled(&self, trace_id: u128) -> bool {
        let fraction = ((trace_id as u64) >> 11) as f64 / (1_u64 << 53) as f64;
        fraction < self.sample_ratio
    }
}
