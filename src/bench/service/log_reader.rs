//! The log of the measured service, read by a thread of its own: the service drops lines when its output is not read, and the thread that
//! makes the load has no time for that while it saturates the processors.
use std::io::{BufRead, BufReader, PipeReader};
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;

use serde_json::Value;
use tokio::sync::oneshot;

/// Most problems that explain a missing figure.
const PROBLEMS_SHOWN: usize = 10;

/// The acknowledgements that the service has logged, and the bench has not taken yet.
pub(crate) struct LogReader {
    acknowledgements: Receiver<AcknowledgementLine>,
    problems: Receiver<String>,
    /// The ages of the rows in the lines that were parsed, in milliseconds.
    ages_ms: Vec<f64>,
    has_lost_lines: bool,
    has_ended: bool,
}

/// What a line of the log says about acknowledgements.
enum AcknowledgementLine {
    /// The text of a line with the ages of acknowledged rows.
    Acknowledged(String),
    /// The service dropped lines: acknowledgements may be missing.
    LinesLost,
}

impl LogReader {
    /// Reads until the service ends. The receiver yields the address on which the service listens, or fails if the service ends before.
    pub(crate) fn start(log: PipeReader) -> std::io::Result<(Self, oneshot::Receiver<SocketAddr>)> {
        let (listens, listening) = oneshot::channel();
        let (acknowledged, acknowledgements) = mpsc::channel();
        let (problem, problems) = mpsc::channel();
        thread::Builder::new().name("service-log".to_owned()).spawn(move || {
            let mut listens = Some(listens);
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                if line.contains("batch_acknowledged") {
                    // Fails if the bench has dropped the service.
                    let _ = acknowledged.send(AcknowledgementLine::Acknowledged(line));
                } else if is_problem(&line) {
                    if line.contains("log_lines_lost") {
                        // Fails if the bench has dropped the service.
                        let _ = acknowledged.send(AcknowledgementLine::LinesLost);
                    }
                    // Fails if the bench has dropped the service.
                    let _ = problem.send(line);
                } else if let Some(address) = listening_address(&line)
                    && let Some(listens) = listens.take()
                {
                    // Fails if the bench has stopped waiting for the service.
                    let _ = listens.send(address);
                }
            }
        })?;
        Ok((
            Self { acknowledgements, problems, ages_ms: Vec::new(), has_lost_lines: false, has_ended: false },
            listening,
        ))
    }

    /// The last warnings, errors and resolved batches that were read since the last call: they may explain a figure that is missing.
    pub(crate) fn take_problems(&mut self) -> Vec<String> {
        let mut problems: Vec<String> = self.problems.try_iter().collect();
        problems.split_off(problems.len().saturating_sub(PROBLEMS_SHOWN))
    }

    /// Number of rows whose acknowledgement was read since the last [`LogReader::take_newest_ms`].
    pub(crate) fn rows(&mut self) -> usize {
        loop {
            match self.acknowledgements.try_recv() {
                Ok(AcknowledgementLine::Acknowledged(line)) => self.ages_ms.extend(acknowledged_ages(&line)),
                Ok(AcknowledgementLine::LinesLost) => self.has_lost_lines = true,
                Err(error) => {
                    self.has_ended = error == TryRecvError::Disconnected;
                    return self.ages_ms.len();
                }
            }
        }
    }

    /// Whether the service has reported lost lines up to the last [`LogReader::rows`].
    pub(crate) fn has_lost_lines(&self) -> bool {
        self.has_lost_lines
    }

    /// Whether the last [`LogReader::rows`] reached the end of the log: the service has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The ages of the newest rows in milliseconds, sorted; forgets all rows that were read so far.
    pub(crate) fn take_newest_ms(&mut self, rows: usize) -> Vec<f64> {
        let mut ages = std::mem::take(&mut self.ages_ms);
        ages.drain(..ages.len().saturating_sub(rows));
        ages.sort_by(f64::total_cmp);
        ages
    }
}

/// A warning, an error, the notice of lines that the service has lost, or a batch that was resolved without an acknowledgement.
fn is_problem(line: &str) -> bool {
    let event: Value = serde_json::from_str(line).unwrap_or_default();
    let is_warning_or_error =
        matches!(event["level"].as_str(), Some("WARN" | "ERROR")) && event["event"] != "development_secret";
    is_warning_or_error || event["event"] == "batch_resolved"
}

fn listening_address(line: &str) -> Option<SocketAddr> {
    let event: Value = serde_json::from_str(line).ok()?;
    if event["event"] == "listening" { event["address"].as_str()?.parse().ok() } else { None }
}

/// The ages in a line about acknowledged rows, in milliseconds.
fn acknowledged_ages(line: &str) -> Vec<f64> {
    let event: Value = serde_json::from_str(line).unwrap_or_default();
    event["ages_ms"].as_str().unwrap_or_default().split(',').filter_map(|age| age.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[tokio::test]
    async fn ages_of_the_newest_rows_are_taken_once() {
        let (log, mut service) = std::io::pipe().expect("a pipe");
        let (mut reader, listening) = LogReader::start(log).expect("a thread");
        writeln!(service, r#"{{"event":"listening","address":"127.0.0.1:8080"}}"#).expect("written");
        assert_eq!(listening.await.expect("read").port(), 8080);

        writeln!(service, r#"{{"event":"batch_acknowledged","ages_ms":"9.5,3"}}"#).expect("written");
        writeln!(service, r#"{{"event":"batch_acknowledged","ages_ms":"7.25"}}"#).expect("written");
        while reader.rows() < 3 {
            tokio::task::yield_now().await;
        }
        assert_eq!(reader.take_newest_ms(2), [3.0, 7.25]);
        assert!(reader.rows() == 0 && !reader.has_ended());

        writeln!(service, r#"{{"event":"batch_acknowledged","ages_ms":"1"}}"#).expect("written");
        drop(service);
        while !reader.has_ended() {
            reader.rows();
            tokio::task::yield_now().await;
        }
        assert_eq!(reader.take_newest_ms(1), [1.0], "the last line of a service that has ended");
    }

    #[tokio::test]
    async fn log_reader_knows_that_the_service_has_lost_lines() {
        let (log, mut service) = std::io::pipe().expect("a pipe");
        let (mut reader, _listening) = LogReader::start(log).expect("a thread");
        writeln!(service, r#"{{"event":"batch_acknowledged","ages_ms":"1"}}"#).expect("written");
        while reader.rows() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(!reader.has_lost_lines());

        writeln!(service, r#"{{"level":"WARN","event":"log_lines_lost","lines":2}}"#).expect("written");
        writeln!(service, r#"{{"event":"batch_acknowledged","ages_ms":"3"}}"#).expect("written");
        while reader.rows() < 2 {
            tokio::task::yield_now().await;
        }

        assert!(reader.has_lost_lines());
        assert_eq!(reader.take_problems().len(), 1, "the error names the loss");
    }

    #[tokio::test]
    async fn log_reader_keeps_the_latest_warnings() {
        let (log, mut service) = std::io::pipe().expect("a pipe");
        let (mut reader, _listening) = LogReader::start(log).expect("a thread");
        writeln!(service, r#"{{"level":"INFO","event":"ready"}}"#).expect("written");
        writeln!(service, r#"{{"level":"INFO","event":"batch_resolved","batch":1}}"#).expect("written");
        for number in 0..PROBLEMS_SHOWN {
            writeln!(service, r#"{{"level":"WARN","number":{number}}}"#).expect("written");
        }
        writeln!(service, r#"{{"event":"batch_acknowledged","ages_ms":"1"}}"#).expect("written");
        while reader.rows() == 0 {
            tokio::task::yield_now().await;
        }

        let problems = reader.take_problems();

        assert_eq!(problems.len(), PROBLEMS_SHOWN);
        assert!(problems.iter().all(|line| line.contains("WARN")), "{problems:?}");
    }

    #[tokio::test]
    async fn service_that_ends_at_once_has_no_address() {
        let (log, service) = std::io::pipe().expect("a pipe");
        let (_reader, listening) = LogReader::start(log).expect("a thread");
        drop(service);
        assert!(listening.await.is_err());
    }
}
