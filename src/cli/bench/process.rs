//! The service under load: this very program, as a process of its own.
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use posthaste::Config;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::super::Failure;
use super::super::client::Client;
use super::super::token::{Claims, DEVELOPMENT_SECRET, mint};
use super::check::{self, Checked};
use super::load::Outcome;
use super::scrape::{self, Buckets};

/// Longest to wait for events to be drained.
const DRAIN_MAX: Duration = Duration::from_secs(300);

/// A service that runs.
pub(super) struct Running {
    pub address: SocketAddr,
    child: Child,
    folder: TempDir,
    // Kept open: a service whose reader goes away would write into a closed pipe.
    _lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    pub(super) async fn start(config: &Config, environment: &[(&str, &str)]) -> Result<Self, Failure> {
        Self::start_on(config, tempfile::tempdir()?, environment).await
    }

    pub(super) async fn start_on(
        _config: &Config,
        folder: TempDir,
        environment: &[(&str, &str)],
    ) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", "--dev"])
            .env("POSTHASTE__STORE__PATH", folder.path())
            .env("POSTHASTE__HTTP__LISTEN", "127.0.0.1:0")
            .env("POSTHASTE__RATE_LIMIT__ENABLED", "false")
            .env("POSTHASTE__LOG__FORMAT", "json")
            .env("POSTHASTE__LOG__LEVEL", "warn,posthaste=info,api=warn,supervision=warn")
            .env("POSTHASTE__BACKPRESSURE__BACKLOG", "100000000,100000000")
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| Failure::new("the service has no output"))?;
        let mut lines = BufReader::new(stdout).lines();
        while let Some(text) = lines.next_line().await? {
            let event: Value = serde_json::from_str(&text).unwrap_or_default();
            if event["event"] == "listening" {
                let address = event["address"].as_str().and_then(|address| address.parse().ok());
                let address = address.ok_or_else(|| Failure::new("the service does not tell where it listens"))?;
                return Ok(Self { address, child, folder, _lines: lines });
            }
        }
        Err(Failure::new("the service ended before it listened"))
    }

    /// Memory in use, in MB.
    pub(super) fn resident_mb(&self) -> u64 {
        let pid = self.child.id().unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
    }

    async fn metrics(&self, config: &Config) -> Result<String, Failure> {
        let mut client = Client::connect(self.address).await?;
        let token = admin(config)?;
        let answer = client.send("GET", "/metrics", &token, None).await?.ok()?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// Rows that have not left.
    pub(super) async fn waiting(&self, config: &Config) -> Result<u64, Failure> {
        let metrics = self.metrics(config).await?;
        Ok(scrape::value(&metrics, "outbox_rows{status=\"PENDING\"}") as u64)
    }

    /// Waits until so many events were consumed; says how long that took.
    pub(super) async fn drained(&self, config: &Config, events: u64) -> Result<Duration, Failure> {
        let begun = Instant::now();
        loop {
            let metrics = self.metrics(config).await?;
            if scrape::value(&metrics, "kafka_consumer_processed_count_total") as u64 >= events {
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > DRAIN_MAX {
                return Err(Failure::new(format!("the events were not drained within {DRAIN_MAX:?}")));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(super) async fn histogram(&self, config: &Config, name: &str) -> Result<Buckets, Failure> {
        Ok(scrape::buckets(&self.metrics(config).await?, name))
    }

    /// Stops the service in order and leaves its data.
    pub(super) async fn stop(mut self) -> Result<TempDir, Failure> {
        let pid = self.child.id().ok_or_else(|| Failure::new("the service has ended already"))?;
        let term = Command::new("kill").args(["-TERM", &pid.to_string()]).status().await?;
        let status = self.child.wait().await?;
        if !term.success() || !status.success() {
            return Err(Failure::new(format!("the service ended with {status}")));
        }
        Ok(self.folder)
    }

    /// Stops the service and counts what its log holds.
    pub(super) async fn stop_and_check(self, config: &Config, outcome: &Outcome) -> Result<Checked, Failure> {
        let folder = self.stop().await?;
        let config = Config { store_path: folder.path().to_owned(), ..config.clone() };
        check::check(&config, outcome.answered).await
    }
}

fn admin(config: &Config) -> Result<String, Failure> {
    let ttl = Duration::from_secs(3_600);
    mint(config, DEVELOPMENT_SECRET, &Claims { sub: "bench".into(), roles: vec!["ADMIN".into()], tier: None, ttl })
}

/// Events per second that the store's statements move by themselves: claim, append and watermark, settle, inbox and offset, one thread,
/// on a copy of the data.
pub(super) async fn statements_alone(folder: &Path) -> Result<f64, Failure> {
    let copy = tempfile::tempdir()?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        std::fs::copy(entry.path(), copy.path().join(entry.file_name()))?;
    }
    posthaste::statements_alone(copy.path()).await.map_err(Failure::from)
}
