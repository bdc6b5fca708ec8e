//! The service under load: this very program, as a process of its own.
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use posthaste::config::StoreKind;
use posthaste::{Config, Throwaway};
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::super::commands::token::{DEVELOPMENT_SECRET, TokenClaims, mint};
use super::super::failure::Failure;
use super::Bench;
use super::check::{self, Checked};
use super::client::Client;
use super::scrape::{self, Buckets};

/// Longest to wait for events to be drained.
const DRAIN_MAX: Duration = Duration::from_secs(300);
/// Between two looks at the metrics: each costs the service a little of what is measured.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A service that runs.
pub(super) struct Running {
    pub address: SocketAddr,
    config: Config,
    child: Child,
}

impl Running {
    pub(super) async fn start(
        bench: &Bench<'_>,
        ground: &Throwaway,
        environment: &[(&str, &str)],
    ) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        if let Some(file) = bench.file {
            command.arg("--config").arg(file);
        }
        command.args(["serve", "--dev"]).stdout(Stdio::piped()).kill_on_drop(true);
        set(&mut command, &ground.config);
        let mut child = command.envs(environment.iter().copied()).spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| Failure::new("the service has no output"))?;
        let mut lines = BufReader::new(stdout).lines();
        while let Some(text) = lines.next_line().await? {
            let event: Value = serde_json::from_str(&text).unwrap_or_default();
            if event["event"] == "listening" {
                let address = event["address"].as_str().and_then(|address| address.parse().ok());
                let address = address.ok_or_else(|| Failure::new("the service does not tell where it listens"))?;
                // Read to the end: a service whose log nobody reads would lose lines, and one whose reader goes away writes into a closed pipe.
                actix_rt::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
                return Ok(Self { address, config: ground.config.clone(), child });
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

    /// A page of metrics; an empty one while the service starts.
    async fn metrics(&self) -> Result<String, Failure> {
        let mut client = Client::connect(self.address).await?;
        let answer = client.send("GET", "/metrics", &admin(&self.config)?, None).await?;
        Ok(if answer.status == 200 { String::from_utf8_lossy(&answer.body).into_owned() } else { String::new() })
    }

    /// Rows that have not left.
    pub(super) async fn waiting(&self) -> Result<u64, Failure> {
        Ok(scrape::value(&self.metrics().await?, "outbox_rows{status=\"PENDING\"}") as u64)
    }

    /// Waits until so many events were consumed; says how long that took.
    pub(super) async fn drained(&self, events: u64) -> Result<Duration, Failure> {
        let begun = Instant::now();
        self.until("kafka_consumer_processed_count_total", events).await?;
        Ok(begun.elapsed())
    }

    /// Waits until so many events were acknowledged by the broker and settled; says when.
    pub(super) async fn delivered(&self, events: u64) -> Result<Instant, Failure> {
        self.until("outbox_entries_delivered_total", events).await.map(|(_, now)| now)
    }

    /// Waits until the relay has claimed something; says when it had not yet.
    pub(super) async fn claimed(&self) -> Result<Instant, Failure> {
        self.until("outbox_batch_size_count", 1).await.map(|(before, _)| before)
    }

    /// The last moment at which a series was below a value, and the first at which it was not.
    async fn until(&self, series: &str, least: u64) -> Result<(Instant, Instant), Failure> {
        let begun = Instant::now();
        let mut before = begun;
        loop {
            let asked = Instant::now();
            if scrape::value(&self.metrics().await?, series) as u64 >= least {
                return Ok((before, Instant::now()));
            }
            before = asked;
            if begun.elapsed() > DRAIN_MAX {
                return Err(Failure::new(format!("{series} did not come to {least} within {DRAIN_MAX:?}")));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    pub(super) async fn histogram(&self, name: &str) -> Result<Buckets, Failure> {
        Ok(scrape::buckets(&self.metrics().await?, name))
    }

    /// Stops the service in order and counts what its topic holds.
    pub(super) async fn stop_and_check(mut self, events: u64) -> Result<Checked, Failure> {
        let pid = self.child.id().ok_or_else(|| Failure::new("the service has ended already"))?;
        let term = Command::new("kill").args(["-TERM", &pid.to_string()]).status().await?;
        let status = self.child.wait().await?;
        if !term.success() || !status.success() {
            return Err(Failure::new(format!("the service ended with {status}")));
        }
        check::check(&self.config, events).await
    }
}

/// What a service needs to run on this data, laid over the environment and the file that the bench was given. Its tokens are signed with
/// the development secret, however the configured service verifies them.
fn set(command: &mut Command, config: &Config) {
    command
        .env("POSTHASTE__STORE__PATH", &config.store.path)
        .env("POSTHASTE__BROKER__TOPIC_PREFIX", &config.broker.topic_prefix)
        .env("POSTHASTE__BROKER__CREATE_TOPICS", "true")
        .env("POSTHASTE__HTTP__LISTEN", "127.0.0.1:0")
        .env("POSTHASTE__HTTP__ADMIN_LISTEN", "")
        .env("POSTHASTE__RATE_LIMIT__ENABLED", "false")
        .env("POSTHASTE__LOG__FORMAT", "json")
        .env("POSTHASTE__LOG__LEVEL", "warn,posthaste=info,api=warn,supervision=warn")
        .env("POSTHASTE__BACKPRESSURE__BACKLOG", "100000000,100000000")
        .env("POSTHASTE__AUTH__HS256_SECRET", DEVELOPMENT_SECRET)
        .env_remove("POSTHASTE__AUTH__HS256_SECRET_FILE");
    for key in ["PUBLIC_KEY_FILE", "JWKS_URL", "ISSUER", "AUDIENCE"] {
        command.env(format!("POSTHASTE__AUTH__{key}"), "");
    }
    if config.store.kind != StoreKind::Embedded {
        command.env("POSTHASTE__STORE__URL", config.store.url.expose_secret()).env_remove("POSTHASTE__STORE__URL_FILE");
    }
}

fn admin(config: &Config) -> Result<String, Failure> {
    let ttl = Duration::from_secs(3_600);
    mint(config, DEVELOPMENT_SECRET, &TokenClaims { sub: "bench".into(), roles: vec!["ADMIN".into()], tier: None, ttl })
}
