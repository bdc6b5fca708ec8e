//! The service under load: the measured program as a process of its own.
use std::cell::RefCell;
use std::net::SocketAddr;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use tokio::process::{Child, Command};

use super::log_reader::LogReader;
use super::metrics_page::{self, HistogramBuckets, StatementTimes};
use super::topic_checker::{TopicReport, check_topic};
use crate::error::Error;
use crate::load::client::HttpConnection;
use crate::program::ThrowawayData;

/// Longest wait until events are drained, and until the log shows them: the thread that reads it has the processors that the load leaves.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(300);
/// Longest wait for acknowledgements in a log that has lost lines: the missing ones do not arrive.
const LOSSY_LOG_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two reads of the metrics page: each read takes some of the measured capacity.
const SCRAPE_INTERVAL: Duration = Duration::from_millis(20);

/// The log levels with which the service logs the age of each row at its acknowledgement. The lines of single events stay out: the queue of the
/// log would overflow when its thread gets no processor for a few hundred milliseconds.
pub(crate) const LOG_ACKNOWLEDGEMENTS: (&str, &str) = (
    "POSTHASTE__LOG__LEVEL",
    concat!(
        "warn,posthaste=info,api=warn,supervision=warn,",
        "actors::partition_worker::partition_acquirer=info,actors::partition_worker::batch_sender=debug"
    ),
);

/// A running service; dropping it kills the process.
pub(crate) struct ServiceProcess<'a, D> {
    pub address: SocketAddr,
    data: &'a D,
    child: Child,
    log: RefCell<LogReader>,
}

impl<'a, D: ThrowawayData> ServiceProcess<'a, D> {
    /// Starts the service and waits until it listens. Dropping it kills the process.
    pub(crate) async fn start(data: &'a D, environment: &[(&str, &str)]) -> Result<Self, Error> {
        let (log, output) = std::io::pipe()?;
        let mut command = data.service()?;
        command.envs(environment.iter().copied()).stdout(output).kill_on_drop(true);
        let child = command.spawn()?;
        // The command holds the writing end of the pipe; only the service may, so that the log ends with it.
        drop(command);
        let (log, listening) = LogReader::start(log)?;
        let address = listening.await.map_err(|_| Error::new("the service ended before it listened"))?;
        Ok(Self { address, data, child, log: RefCell::new(log) })
    }

    /// Milliseconds from commit to acknowledgement of the newest rows, sorted. Waits until the service has logged this many since the last
    /// call, and then forgets them. The service must run with [`LOG_ACKNOWLEDGEMENTS`].
    pub(crate) async fn take_acknowledged_ms(&self, rows: u64) -> Result<Vec<f64>, Error> {
        let begin = Instant::now();
        while (self.log.borrow_mut().rows() as u64) < rows {
            let (has_ended, timeout) = {
                let log = self.log.borrow();
                (log.has_ended(), if log.has_lost_lines() { LOSSY_LOG_TIMEOUT } else { DRAIN_TIMEOUT })
            };
            if has_ended || begin.elapsed() > timeout {
                let mut log = self.log.borrow_mut();
                let (seen, problems) = (log.rows(), log.take_problems().join("\n"));
                return Err(Error::new(format!("the service logged {seen} of {rows} acknowledgements\n{problems}")));
            }
            tokio::time::sleep(SCRAPE_INTERVAL).await;
        }
        Ok(self.log.borrow_mut().take_newest_ms(rows as usize))
    }

    /// Resident memory in MB.
    pub(crate) fn resident_mb(&self) -> u64 {
        let pid = self.child.id().unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
    }

    /// The metrics page; an empty one while the service starts.
    async fn metrics(&self) -> Result<String, Error> {
        let mut connection = HttpConnection::connect(self.address).await?;
        let response = connection.send("GET", "/metrics", &self.data.token("bench", "ADMIN")?, None).await?;
        Ok(if response.status == 200 { String::from_utf8_lossy(&response.body).into_owned() } else { String::new() })
    }

    /// Rows that wait for their first attempt.
    pub(crate) async fn pending_rows(&self) -> Result<u64, Error> {
        Ok(metrics_page::value(&self.metrics().await?, "outbox_rows{status=\"PENDING\"}") as u64)
    }

    /// Waits until this many events were consumed.
    pub(crate) async fn await_consumed(&self, events: u64) -> Result<(), Error> {
        self.await_value("kafka_consumer_processed_count_total", events).await.map(|_| ())
    }

    /// Waits until this many events were acknowledged by the broker and settled; returns the first moment at which they were.
    pub(crate) async fn await_settled(&self, events: u64) -> Result<Instant, Error> {
        self.await_value("outbox_entries_delivered_total", events).await.map(|(_, after)| after)
    }

    /// Waits until the relay has claimed a batch; returns the last moment at which it had not.
    pub(crate) async fn await_first_claim(&self) -> Result<Instant, Error> {
        self.await_value("outbox_batch_size_count", 1).await.map(|(before, _)| before)
    }

    /// The last moment at which a series was below a value, and the first at which it was not.
    async fn await_value(&self, series: &str, least: u64) -> Result<(Instant, Instant), Error> {
        let begin = Instant::now();
        let mut before = begin;
        loop {
            let requested = Instant::now();
            if metrics_page::value(&self.metrics().await?, series) as u64 >= least {
                return Ok((before, Instant::now()));
            }
            before = requested;
            if begin.elapsed() > DRAIN_TIMEOUT {
                return Err(Error::new(format!("{series} did not reach {least} within {DRAIN_TIMEOUT:?}")));
            }
            tokio::time::sleep(SCRAPE_INTERVAL).await;
        }
    }

    /// The time that these statements of the store have taken in all, and how often they ran.
    pub(crate) async fn statement_times(&self, names: &[&str]) -> Result<StatementTimes, Error> {
        Ok(StatementTimes::parse(&self.metrics().await?, names))
    }

    /// The buckets of one of the service's histograms.
    pub(crate) async fn histogram(&self, name: &str) -> Result<HistogramBuckets, Error> {
        Ok(metrics_page::buckets(&self.metrics().await?, name))
    }

    /// Sends a signal to the process, such as `TERM`.
    pub(crate) async fn signal(&self, signal: &str) -> Result<(), Error> {
        let pid = self.child.id().ok_or_else(|| Error::new("the service has already ended"))?;
        let sent = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().await?;
        if sent.success() { Ok(()) } else { Err(Error::new(format!("{signal} could not be sent to the service"))) }
    }

    /// Sends a signal that ends the process, and waits for its exit.
    pub(crate) async fn signal_and_wait(mut self, signal: &str) -> Result<ExitStatus, Error> {
        self.signal(signal).await?;
        Ok(self.child.wait().await?)
    }

    /// The exit status of the process; `None` while it runs.
    pub(crate) fn try_wait(&mut self) -> Result<Option<ExitStatus>, Error> {
        Ok(self.child.try_wait()?)
    }

    /// Stops the service gracefully and checks its topic.
    pub(crate) async fn stop_and_check(self, events: u64) -> Result<TopicReport, Error> {
        let data = self.data;
        let status = self.signal_and_wait("TERM").await?;
        if !status.success() {
            return Err(Error::new(format!("the service ended with {status}")));
        }
        check_topic(data, events).await
    }
}
