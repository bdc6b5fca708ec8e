//! SpanExporter: one thread that sends recorded spans to a collector in batches. A collector that fails causes the loss of spans, and nothing else.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use prometheus::IntCounter;

use super::collector_call::{CallOutcome, OtlpClient, outcome};
use super::options::Options;
use super::otlp;
use super::queue::SpanQueue;
use super::span_data::SpanData;
use crate::metrics::Metrics;

/// Longest time for which a span waits for a full batch.
const LINGER: Duration = Duration::from_secs(1);
/// Calls for one batch. A collector that restarts is back after them; a longer outage must not keep the latest spans from the queue.
const ATTEMPTS_MAX: u32 = 3;
/// Wait after the first failed call of a batch; it doubles with each further one.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(500);

/// The running export. [`SpanExporter::close`] sends the queued spans; dropping it discards them.
pub struct SpanExporter {
    queue: Arc<SpanQueue>,
    timeout: Duration,
    ended: Receiver<()>,
}

impl SpanExporter {
    pub(super) fn start(
        options: &Options,
        client: impl OtlpClient,
        queue: Arc<SpanQueue>,
        metrics: &Metrics,
    ) -> io::Result<Self> {
        let (end, ended) = channel();
        let worker = ExportWorker {
            client,
            queue: Arc::clone(&queue),
            timeout: options.timeout,
            resource: options.resource.clone(),
            exported: metrics.spans_exported_total.clone(),
            refused: metrics.spans_dropped_total.with(["collector"]),
            overflowed: metrics.spans_dropped_total.with(["queue"]),
            lost_at_failure: None,
            _end: end,
        };
        std::thread::Builder::new().name("span-export".to_owned()).spawn(move || worker.run())?;
        Ok(Self { queue, timeout: options.timeout, ended })
    }

    /// Sends the queued spans, and returns when they are sent or the time is over. It takes no longer than one call of the collector may.
    pub fn close(self, within: Duration) {
        let within = within.min(self.timeout);
        self.queue.close(Instant::now() + within);
        // Either end means the same: the spans are sent, or the time is over.
        let _ = self.ended.recv_timeout(within);
    }
}

impl Drop for SpanExporter {
    fn drop(&mut self) {
        self.queue.close(Instant::now());
    }
}

/// The state of the thread that exports.
struct ExportWorker<C> {
    client: C,
    queue: Arc<SpanQueue>,
    timeout: Duration,
    resource: Vec<(&'static str, String)>,
    exported: IntCounter,
    /// Spans that the collector did not take.
    refused: IntCounter,
    /// Spans that the queue did not take.
    overflowed: IntCounter,
    /// Lost spans when the export began to fail; `None` while it works.
    lost_at_failure: Option<u64>,
    /// Dropped at the end of the thread, which [`SpanExporter::close`] waits for.
    _end: Sender<()>,
}

impl<C: OtlpClient> ExportWorker<C> {
    fn run(mut self) {
        loop {
            let batch = self.queue.next_batch(LINGER);
            if batch.is_empty() {
                return;
            }
            self.export(&batch);
        }
    }

    /// Sends a batch, or drops and counts it.
    fn export(&mut self, batch: &[SpanData]) {
        let (body, count) = (otlp::request(&self.resource, batch), batch.len() as u64);
        let mut pause = RETRY_PAUSE_MIN;
        for _ in 0..ATTEMPTS_MAX {
            let timeout = self.queue.time_left().map_or(self.timeout, |left| left.min(self.timeout));
            if timeout.is_zero() {
                break;
            }
            match outcome(self.client.post(&body, timeout)) {
                CallOutcome::Accepted { rejected } => {
                    let rejected = rejected.min(count);
                    self.exported.inc_by(count - rejected);
                    self.refused.inc_by(rejected);
                    return self.log_recovery();
                }
                CallOutcome::Refused(error) => {
                    self.log_failure(&error);
                    break;
                }
                CallOutcome::Unavailable(error) => {
                    self.log_failure(&error);
                    self.queue.pause(pause);
                    pause *= 2;
                }
            }
        }
        self.refused.inc_by(count);
    }

    fn lost(&self) -> u64 {
        self.refused.get() + self.overflowed.get()
    }

    fn log_failure(&mut self, error: &str) {
        if self.lost_at_failure.is_none() {
            self.lost_at_failure = Some(self.lost());
            tracing::warn!(
                event = "span_export_failed",
                error,
                "spans cannot be exported; they are dropped and counted until the collector takes them: {error}"
            );
        }
    }

    fn log_recovery(&mut self) {
        if let Some(before) = self.lost_at_failure.take() {
            let dropped = self.lost() - before;
            tracing::info!(
                event = "span_export_recovered",
                dropped,
                "spans are exported again; {dropped} were dropped meanwhile"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{SyncSender, sync_channel};
    use std::time::SystemTime;

    use super::*;
    use crate::traces::collector_call::CollectorReply;
    use crate::traces::context::SpanContext;
    use crate::traces::span_data::SpanKind;

    /// Longest wait for the exporter's thread.
    const WAIT_MAX: Duration = Duration::from_secs(20);

    /// Passes each call on, and waits for its reply.
    struct ScriptedClient {
        calls: SyncSender<usize>,
        replies: Receiver<Result<CollectorReply, String>>,
    }

    impl OtlpClient for ScriptedClient {
        fn post(&self, body: &[u8], timeout: Duration) -> Result<CollectorReply, String> {
            let spans = String::from_utf8_lossy(body).matches("spanId").count();
            self.calls.send(spans).map_err(|_| "the test has ended".to_owned())?;
            self.replies.recv_timeout(timeout).unwrap_or_else(|_| Err("no reply".to_owned()))
        }
    }

    struct Fixture {
        queue: Arc<SpanQueue>,
        exporter: SpanExporter,
        calls: Receiver<usize>,
        replies: SyncSender<Result<CollectorReply, String>>,
        metrics: Arc<Metrics>,
    }

    fn start(queue_max: usize, timeout: Duration) -> Fixture {
        let ((calls, seen), (replies, script)) = (sync_channel(100), sync_channel(100));
        let (metrics, client) = (Metrics::new(), ScriptedClient { calls, replies: script });
        let queue = Arc::new(SpanQueue::new(queue_max, metrics.spans_dropped_total.with(["queue"])));
        let options = Options { timeout, ..Options::default() };
        let exporter = SpanExporter::start(&options, client, Arc::clone(&queue), &metrics).unwrap();
        Fixture { queue, exporter, calls: seen, replies, metrics }
    }

    fn span(number: u64) -> SpanData {
        SpanData {
            context: SpanContext { trace_id: 1, span_id: number, is_sampled: true },
            parent: None,
            kind: SpanKind::Internal,
            name: "work".to_owned(),
            started_at: SystemTime::UNIX_EPOCH,
            duration: Duration::ZERO,
            attributes: Vec::new(),
            is_error: false,
        }
    }

    fn reply(status: u16, body: &str) -> Result<CollectorReply, String> {
        Ok(CollectorReply { status, body: body.into() })
    }

    fn dropped(metrics: &Metrics) -> [u64; 2] {
        ["queue", "collector"].map(|reason| metrics.spans_dropped_total.with([reason]).get())
    }

    #[test]
    fn batch_is_repeated_while_the_collector_is_unavailable_and_then_dropped() {
        let Fixture { queue, exporter, calls, replies, metrics } = start(10, WAIT_MAX);
        for script in [reply(503, ""), reply(200, ""), reply(429, ""), Err("no connection".to_owned()), reply(502, "")]
        {
            replies.send(script).unwrap();
        }

        queue.push(span(1));
        assert_eq!([calls.recv_timeout(WAIT_MAX), calls.recv_timeout(WAIT_MAX)], [Ok(1), Ok(1)], "one repetition");
        queue.push(span(2));
        (0..ATTEMPTS_MAX).for_each(|_| assert_eq!(calls.recv_timeout(WAIT_MAX), Ok(1)));
        exporter.close(WAIT_MAX);

        assert_eq!((metrics.spans_exported_total.get(), dropped(&metrics)), (1, [0, 1]));
    }

    #[test]
    fn refused_batch_and_rejected_spans_are_dropped_without_a_repetition() {
        let Fixture { queue, exporter, calls, replies, metrics } = start(10, WAIT_MAX);
        replies.send(reply(400, "")).unwrap();
        replies.send(reply(200, r#"{"partialSuccess":{"rejectedSpans":"1"}}"#)).unwrap();

        queue.push(span(1));
        assert_eq!(calls.recv_timeout(WAIT_MAX), Ok(1));
        (2..4).for_each(|number| queue.push(span(number)));
        exporter.close(WAIT_MAX);

        assert_eq!(calls.try_iter().sum::<usize>(), 2);
        assert_eq!((metrics.spans_exported_total.get(), dropped(&metrics)), (1, [0, 2]));
    }

    #[test]
    fn full_or_closed_queue_drops_and_counts_at_once() {
        let Fixture { queue, exporter, calls, replies, metrics } = start(2, WAIT_MAX);
        queue.push(span(1));
        assert_eq!(calls.recv_timeout(WAIT_MAX), Ok(1), "the collector has the first span and does not reply");

        (2..7).for_each(|number| queue.push(span(number)));
        assert_eq!(dropped(&metrics), [3, 0]);
        (0..2).for_each(|_| replies.send(reply(200, "")).unwrap());
        exporter.close(WAIT_MAX);
        queue.push(span(7));

        assert_eq!((metrics.spans_exported_total.get(), dropped(&metrics)), (3, [4, 0]));
    }

    #[test]
    fn close_waits_no_longer_than_one_call_of_a_silent_collector() {
        let Fixture { queue, exporter, calls, replies, .. } = start(10, Duration::from_millis(50));
        queue.push(span(1));
        assert_eq!(calls.recv_timeout(WAIT_MAX), Ok(1));

        let started = Instant::now();
        exporter.close(WAIT_MAX);

        assert!(started.elapsed() < WAIT_MAX, "{:?}", started.elapsed());
        drop(replies);
    }
}
