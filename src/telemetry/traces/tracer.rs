//! Tracer: starts spans. Decides which traces are sampled, unless their parent has decided.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::active_span::ActiveSpan;
use super::collector_call::OtlpClient;
use super::context::SpanContext;
use super::exporter::SpanExporter;
use super::options::Options;
use super::queue::SpanQueue;
use super::recorder::Recorder;
use super::span_data::{SpanData, SpanKind};
use crate::metrics::Metrics;

/// Starts spans; cheap to clone. The default is off: no span is recorded.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Recorder>>);

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() { "Tracer(on)" } else { "Tracer(off)" })
    }
}

impl Tracer {
    /// A tracer, and the thread that sends its spans to a collector. `random` returns 64 independent random bits at each call.
    ///
    /// # Errors
    /// The operating system starts no further thread.
    pub fn exporting(
        options: Options,
        client: impl OtlpClient,
        random: impl Fn() -> u64 + Send + Sync + 'static,
        metrics: &Metrics,
    ) -> std::io::Result<(Self, SpanExporter)> {
        let queue = Arc::new(SpanQueue::new(options.queue_max, metrics.spans_dropped_total.with(["queue"])));
        let exporter = SpanExporter::start(&options, client, Arc::clone(&queue), metrics)?;
        let recorder = Recorder { queue, random: Box::new(random), sample_ratio: options.sample_ratio };
        Ok((Self(Some(Arc::new(recorder))), exporter))
    }

    /// Whether spans are recorded at all. Callers ask it before work that only spans need.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Starts a span of the parent's trace if the parent is sampled, otherwise an empty one.
    pub fn child(&self, parent: Option<SpanContext>, kind: SpanKind, name: fmt::Arguments<'_>) -> ActiveSpan {
        match (&self.0, parent) {
            (Some(recorder), Some(parent)) if parent.is_sampled => {
                let context = SpanContext { span_id: recorder.span_id(), ..parent };
                start(recorder, context, Some(parent.span_id), kind, name)
            }
            _ => ActiveSpan::default(),
        }
    }

    /// Starts a span of a request: a child of the parent that the client sent, otherwise the first span of a new trace.
    pub fn root_or_child(&self, parent: Option<SpanContext>, kind: SpanKind, name: fmt::Arguments<'_>) -> ActiveSpan {
        let (Some(recorder), None) = (&self.0, parent) else { return self.child(parent, kind, name) };
        let trace_id = recorder.trace_id();
        if !recorder.is_sampled(trace_id) {
            return ActiveSpan::default();
        }
        let context = SpanContext { trace_id, span_id: recorder.span_id(), is_sampled: true };
        start(recorder, context, None, kind, name)
    }
}

fn start(
    recorder: &Arc<Recorder>,
    context: SpanContext,
    parent: Option<u64>,
    kind: SpanKind,
    name: fmt::Arguments<'_>,
) -> ActiveSpan {
    let data = SpanData {
        context,
        parent,
        kind,
        name: name.to_string(),
        started_at: SystemTime::now(),
        duration: Duration::ZERO,
        attributes: Vec::new(),
        is_error: false,
    };
    ActiveSpan::recording(data, recorder)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    /// A tracer without an exporter, whose random numbers are these and then 1, 2, 3.
    fn tracer(sample_ratio: f64, random: &'static [u64]) -> (Tracer, Arc<SpanQueue>) {
        let queue = Arc::new(SpanQueue::new(100, Metrics::new().spans_dropped_total.with(["queue"])));
        let calls = AtomicU64::new(0);
        let next = move || {
            let call = calls.fetch_add(1, Relaxed);
            random.get(call as usize).copied().unwrap_or(call + 1)
        };
        let recorder = Recorder { queue: Arc::clone(&queue), random: Box::new(next), sample_ratio };
        (Tracer(Some(Arc::new(recorder))), queue)
    }

    fn recorded(queue: &SpanQueue) -> Vec<SpanData> {
        queue.close(std::time::Instant::now());
        queue.next_batch(Duration::ZERO)
    }

    fn parent(is_sampled: bool) -> SpanContext {
        SpanContext { trace_id: 0xabc, span_id: 0xdef, is_sampled }
    }

    #[test]
    fn children_join_the_trace_of_a_sampled_parent_whatever_the_ratio_is() {
        let (tracer, queue) = tracer(0.0, &[]);
        let request = tracer.root_or_child(Some(parent(true)), SpanKind::Server, format_args!("request"));
        let command = tracer.child(request.context(), SpanKind::Internal, format_args!("command"));
        drop(command);
        drop(request);

        let spans = recorded(&queue);

        let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["command", "request"], "a span is recorded at its end");
        assert!(spans.iter().all(|span| span.context.trace_id == 0xabc && span.context.is_sampled));
        assert_eq!((spans[1].parent, spans[0].parent), (Some(0xdef), Some(spans[1].context.span_id)));
    }

    #[test]
    fn parents_that_are_not_sampled_have_no_children_and_off_records_nothing() {
        let (tracer, queue) = tracer(1.0, &[]);
        let off = Tracer::default();
        let spans = [
            tracer.root_or_child(Some(parent(false)), SpanKind::Server, format_args!("request")),
            tracer.child(Some(parent(false)), SpanKind::Internal, format_args!("command")),
            tracer.child(None, SpanKind::Internal, format_args!("command")),
            off.root_or_child(None, SpanKind::Server, format_args!("request")),
            off.root_or_child(Some(parent(true)), SpanKind::Server, format_args!("request")),
        ];

        assert!(spans.iter().all(|span| span.context().is_none()) && tracer.is_on() && !off.is_on());
        drop(spans);
        assert_eq!(recorded(&queue), []);
    }

    #[test]
    fn ratio_decides_on_new_traces_by_their_id() {
        let cases = [
            (0.0, 1, false),
            (1.0, u64::MAX, true),
            (0.5, u64::MAX / 2 - 2_048, true),
            (0.5, u64::MAX / 2 + 2_048, false),
        ];
        for (ratio, low_half, sampled) in cases {
            let random: &'static [u64] = vec![7, low_half].leak();
            let (tracer, queue) = tracer(ratio, random);

            let root = tracer.root_or_child(None, SpanKind::Server, format_args!("request"));
            assert_eq!(root.context().is_some(), sampled, "{ratio} {low_half}");
            drop(root);

            let found = recorded(&queue);
            assert!(
                found
                    .iter()
                    .all(|span| span.parent.is_none() && span.context.trace_id == (7 << 64) | u128::from(low_half))
            );
        }
    }

    #[test]
    fn attributes_and_errors_are_recorded_with_the_span() {
        let (tracer, queue) = tracer(1.0, &[]);
        let mut span = tracer.root_or_child(None, SpanKind::Client, format_args!("call {}", 1));
        span.set("count", 2_u64);
        span.set_text("id", 3);
        span.fail("timeout");
        drop(span);

        let span = recorded(&queue).remove(0);

        assert_eq!((span.name.as_str(), span.is_error), ("call 1", true));
        let expected = [("count", 2_u64.into()), ("id", "3".into()), ("error.type", "timeout".into())];
        assert_eq!(span.attributes, expected);
    }
}
