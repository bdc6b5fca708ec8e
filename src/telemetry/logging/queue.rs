//! The log queue: a bounded, lossy queue in front of the output stream, so that a reader that stops never blocks the service.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Lines that wait for the writer thread: some 600 KB, and a tenth of a second of the request log at 20,000 requests/s.
const LINES_MAX: usize = 2_048;
/// Longest wait for the writer thread at the end of the process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The losses of the process's queue, the first that [`open`] made.
static PROCESS_LOSSES: OnceLock<Arc<LossCounter>> = OnceLock::new();

/// Log lines of this process that were dropped or could not be written; 0 while the process has no queue.
pub fn lines_lost() -> u64 {
    PROCESS_LOSSES.get().map_or(0, |losses| losses.total())
}

/// Opens the queue of the process's log in front of a stream. `notice` formats the line that reports a number of losses.
pub(crate) fn open(
    stream: impl Write + Send + 'static,
    notice: impl Fn(u64) -> String + Send + 'static,
) -> (NonBlocking, LogGuard) {
    let (queue, guard, losses) = with_limit(stream, LINES_MAX, notice);
    // Only a second `init` opens a second queue, and it fails.
    PROCESS_LOSSES.get_or_init(|| losses);
    (queue, guard)
}

fn with_limit(
    stream: impl Write + Send + 'static,
    lines_max: usize,
    notice: impl Fn(u64) -> String + Send + 'static,
) -> (NonBlocking, LogGuard, Arc<LossCounter>) {
    let losses = Arc::new(LossCounter::default());
    let writer = CountingWriter { stream, losses: Arc::clone(&losses), reported: 0, last_write_failed: false, notice };
    let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(lines_max).thread_name("log");
    let (queue, guard) = builder.finish(writer);
    losses.dropped.get_or_init(|| queue.error_counter());
    (queue, LogGuard(Some(guard)), losses)
}

/// Writes the queued lines when it is dropped, and waits at most a second for that.
#[must_use = "dropping the guard stops the log"]
#[derive(Debug)]
pub struct LogGuard(Option<WorkerGuard>);

impl Drop for LogGuard {
    fn drop(&mut self) {
        let guard = self.0.take();
        let (done, finished) = mpsc::channel::<()>();
        // On a thread of its own: when the queue is full, the library's guard prints to standard output, which blocks for
        // as long as its reader does not read.
        let flush = std::thread::Builder::new().name("log-flush".to_owned()).spawn(move || {
            drop(guard);
            drop(done);
        });
        if flush.is_ok() {
            // Either end means the same: the lines are written, or the time is over.
            let _ = finished.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

#[derive(Debug, Default)]
struct LossCounter {
    /// Lines that found the queue full; set once the queue exists.
    dropped: OnceLock<ErrorCounter>,
    /// Lines that the stream refused.
    failed: AtomicU64,
}

impl LossCounter {
    fn total(&self) -> u64 {
        self.failed.load(Relaxed) + self.dropped.get().map_or(0, |dropped| dropped.dropped_lines() as u64)
    }
}

/// The writer thread's end of the queue: counts lines that the stream refuses, and reports losses.
struct CountingWriter<W, N> {
    stream: W,
    losses: Arc<LossCounter>,
    /// Losses that a notice in the log has reported.
    reported: u64,
    /// The last write failed, perhaps in the middle of a line.
    last_write_failed: bool,
    notice: N,
}

impl<W: Write, N> CountingWriter<W, N> {
    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        let separator: &[u8] = if self.last_write_failed { b"\n" } else { b"" };
        let result = self.stream.write_all(separator).and_then(|()| self.stream.write_all(line));
        self.last_write_failed = result.is_err();
        result
    }
}

impl<W: Write, N: Fn(u64) -> String> Write for CountingWriter<W, N> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.write_all(line).map(|()| line.len())
    }

    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        self.write_line(line).inspect_err(|_| {
            self.losses.failed.fetch_add(1, Relaxed);
        })
    }

    /// The writer thread calls this whenever the queue is empty, that is, when the reader has caught up. It never fails:
    /// after an error the library's writer thread would miss the end of the process.
    fn flush(&mut self) -> io::Result<()> {
        let lost = self.losses.total();
        if lost > self.reported {
            let notice = (self.notice)(lost - self.reported);
            if self.write_line(notice.as_bytes()).is_ok() {
                self.reported = lost;
            }
        }
        // Standard output is line-buffered, so nothing is left to write after a failed line.
        let _ = self.stream.flush();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::thread;
    use std::time::Instant;

    use super::*;

    fn notice(lost: u64) -> String {
        format!("{lost} lost\n")
    }

    fn write(queue: &NonBlocking, line: &str) {
        queue.clone().write_all(line.as_bytes()).expect("a lossy queue accepts every line");
    }

    /// Writes numbered lines of this length until 100 of them were lost. Returns the others.
    fn overflow(queue: &NonBlocking, losses: &LossCounter, length: usize) -> Vec<String> {
        let mut accepted = Vec::new();
        for number in 0.. {
            let (line, lost) = (format!("{number:0length$}"), losses.total());
            write(queue, &format!("{line}\n"));
            match losses.total() {
                100 => break,
                now if now == lost => accepted.push(line),
                _ => {}
            }
        }
        accepted
    }

    #[test]
    fn stopped_reader_blocks_no_writer_and_the_log_reports_the_loss_later() {
        for length in [100, 10_000] {
            let (mut reader, writer) = io::pipe().expect("a pipe");
            let (queue, guard, losses) = with_limit(writer, 16, notice);

            let accepted = overflow(&queue, &losses, length);
            let reading = thread::spawn(move || {
                let mut text = String::new();
                reader.read_to_string(&mut text).map(|_| text)
            });
            drop((guard, queue));

            let text = reading.join().expect("no panic").expect("digits");
            let (notices, lines): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.ends_with("lost"));
            assert_eq!(lines, accepted, "accepted lines arrive whole and in order");
            let reported = notices.iter().filter_map(|notice| notice.split(' ').next()?.parse::<u64>().ok()).sum();
            assert_eq!((100, losses.total()), (reported, 100));
        }
    }

    #[test]
    fn closed_pipe_loses_lines_and_counts_them() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let (queue, guard, losses) = with_limit(writer, 16, notice);

        (0..3).for_each(|_| write(&queue, "unread\n"));
        let started = Instant::now();
        drop(guard);

        assert_eq!(losses.total(), 3);
        assert!(started.elapsed() < FLUSH_TIMEOUT, "the writer thread ends although its stream is closed");
    }

    #[test]
    fn line_longer_than_a_page_arrives_whole() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let line = format!("{}\n", "x".repeat(3 * 4_096));
        let (queue, guard, _) = with_limit(writer, 16, notice);

        write(&queue, &line);
        drop((guard, queue));

        let mut text = String::new();
        reader.read_to_string(&mut text).expect("the writer is closed");
        assert_eq!(text, line);
    }

    #[test]
    fn guard_does_not_wait_for_a_reader_that_has_stopped() {
        let (_reader, writer) = io::pipe().expect("a pipe");
        let (queue, guard, losses) = with_limit(writer, 16, notice);
        overflow(&queue, &losses, 1_000);

        let started = Instant::now();
        drop(guard);

        assert!(started.elapsed() < 10 * FLUSH_TIMEOUT);
    }

    struct SmallDisk {
        content: Vec<u8>,
        free: usize,
    }

    impl Write for SmallDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let length = bytes.len().min(self.free);
            self.free -= length;
            self.content.extend_from_slice(&bytes[..length]);
            if length < bytes.len() && length == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(length) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn incomplete_line_is_ended_before_the_next_one() {
        let stream = SmallDisk { content: Vec::new(), free: 3 };
        let mut writer =
            CountingWriter { stream, losses: Arc::default(), reported: 0, last_write_failed: false, notice };

        assert!(writer.write_all(b"first\n").is_err());
        writer.stream.free = 100;
        writer.write_all(b"second\n").expect("the disk has space again");
        writer.flush().expect("the disk has space");

        assert_eq!(String::from_utf8_lossy(&writer.stream.content), "fir\nsecond\n1 lost\n");
    }
}
