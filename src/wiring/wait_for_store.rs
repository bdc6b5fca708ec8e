//! Opens the store at the start. Retries with back-off while the store is unavailable, and meanwhile answers probes over HTTP.
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Listeners, StartupContext, StartupServer};
use domain::Timestamp;
use memory::SystemClock;
use ports::clock::Clock;
use telemetry::Metrics;

use super::start_error::StartError;
use super::store::{OpenFailure, OpenFailureKind, StoreOpener, WiredStore};
use crate::config::{Config, StoreKind};

/// Longest wait for an instance id or folder that another process holds: the system frees those of a killed process only when it has ended.
const HELD_TIMEOUT: Duration = Duration::from_secs(2);
/// First pause between two attempts; each next one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause between two attempts to open the store.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Time after which probes are answered although an attempt has not ended. An ordinary start, migrations included, is shorter: if the address is
/// bound already, as with port 0, requests of clients then wait for the service instead of being refused.
const SLOW_ATTEMPT: Duration = Duration::from_secs(2);

/// The service's listeners, bound at the first need. Their addresses are logged once.
pub(super) struct StartupListeners {
    pub bound: Option<Listeners>,
    pub logged: bool,
}

impl StartupListeners {
    /// The bound listeners, after their addresses were logged.
    ///
    /// # Errors
    /// An address cannot be bound.
    pub(super) fn into_bound(mut self, config: &Config) -> Result<Listeners, StartError> {
        self.bind(config)?;
        self.bound.take().ok_or_else(|| StartError::Listen(std::io::ErrorKind::NotConnected.into()))
    }

    fn bind(&mut self, config: &Config) -> Result<&Listeners, StartError> {
        let bound = match self.bound.take() {
            Some(bound) => bound,
            None => bind(config)?,
        };
        if !self.logged {
            for address in bound.addresses().map_err(StartError::Listen)? {
                tracing::info!(event = "listening", address = %address, "listening on {address}");
            }
            self.logged = true;
        }
        Ok(self.bound.insert(bound))
    }
}

/// Opens the configured store, and waits at most `startup.deadline` while it is unavailable.
///
/// # Errors
/// The failure of the last attempt, or an address that cannot be bound.
pub(super) async fn open(
    opener: &StoreOpener<'_>,
    listeners: StartupListeners,
) -> Result<(WiredStore, StartupListeners), StartError> {
    let config = opener.config;
    let mut wait =
        StoreWait { started: Instant::now(), held_since: None, held_was_logged: false, outage_was_logged: false };
    let (mut pause, mut last_error) = (PAUSE_MIN, None);
    let mut probes = StartupProbes { listeners, server: None };
    loop {
        let mut attempt = std::pin::pin!(opener.open());
        // A host that drops packets ends no attempt for seconds. An embedded store opens at once, or its holder may have the port.
        let is_shared = config.store.kind != StoreKind::Embedded;
        let result = match tokio::time::timeout(SLOW_ATTEMPT, &mut attempt).await {
            Ok(result) => result,
            Err(_) if is_shared && !config.store.migrate => {
                probes.serve(opener)?;
                // A server that accepts the connection and stays silent would end no attempt before its own time-outs. (A migration may take longer.)
                let remaining = config.startup.deadline.saturating_sub(wait.started.elapsed());
                tokio::time::timeout(remaining, attempt)
                    .await
                    .unwrap_or_else(|_| Err(no_reply(config.startup.deadline, last_error.as_ref())))
            }
            Err(_) => {
                if is_shared {
                    probes.serve(opener)?;
                }
                attempt.await
            }
        };
        let OpenFailure { error, kind } = match result {
            Ok(store) => return Ok((store, probes.stop().await)),
            Err(failure) => failure,
        };
        let remaining = wait.remaining(kind, config.startup.deadline, Instant::now());
        if remaining.is_zero() {
            return Err(if kind == OpenFailureKind::Held { with_remedy(error, config.store.kind) } else { error });
        }
        if kind == OpenFailureKind::Held && !wait.held_was_logged {
            wait.held_was_logged = true;
            let (remedy, wait_ms) = (remedy(config.store.kind), remaining.as_millis() as u64);
            tracing::warn!(event = "instance_held", error = %error, wait_ms, "{error}; waiting {wait_ms} ms for it to end. To run both: {remedy}");
        }
        // A process that holds the data folder may also hold the port, so the startup server runs only while the store is unavailable.
        if kind == OpenFailureKind::Unavailable {
            if !wait.outage_was_logged {
                wait.outage_was_logged = true;
                tracing::warn!(event = "store_unreachable", error = %error, "the store is not available yet; waiting for it: {error}");
            }
            probes.serve(opener)?;
        }
        tokio::time::sleep(pause.min(remaining)).await;
        pause = (pause * 2).min(PAUSE_MAX);
        last_error = Some(error);
    }
}

/// The failure of an attempt that the deadline of the start has cut short, with the error of the attempt before it.
fn no_reply(deadline: Duration, last_error: Option<&StartError>) -> OpenFailure {
    let cause = match last_error {
        Some(StartError::Store(text)) => format!("; the previous attempt failed: {text}"),
        Some(other) => format!("; the previous attempt failed: {other}"),
        None => String::new(),
    };
    let text = format!("it did not reply within startup.deadline ({} s){cause}", deadline.as_secs_f64());
    OpenFailure { error: StartError::Store(text), kind: OpenFailureKind::Unavailable }
}

/// Decides how much longer the start waits for the store.
struct StoreWait {
    started: Instant,
    /// Since when every attempt has found the instance id or folder held; `None` if the last one did not.
    held_since: Option<Instant>,
    /// Whether the holder was logged.
    held_was_logged: bool,
    /// Whether the outage was logged.
    outage_was_logged: bool,
}

/// Answers probes until the store is open.
struct StartupProbes {
    listeners: StartupListeners,
    server: Option<StartupServer>,
}

impl StartupProbes {
    /// Binds the listeners and answers probes on them. Does nothing if they are answered.
    fn serve(&mut self, opener: &StoreOpener<'_>) -> Result<(), StartError> {
        if self.server.is_none() {
            let context = startup_context(opener.config, opener.metrics);
            let bound = self.listeners.bind(opener.config)?;
            self.server = Some(api::serve_startup(bound, &context).map_err(StartError::Listen)?);
        }
        Ok(())
    }

    /// Stops answering, and returns the listeners to the service.
    async fn stop(self) -> StartupListeners {
        if let Some(server) = self.server {
            server.stop().await;
        }
        self.listeners
    }
}

/// How two processes can run on one machine.
fn remedy(store: StoreKind) -> &'static str {
    match store {
        StoreKind::Embedded => {
            "give this one a folder and a port of its own, POSTHASTE__STORE__PATH=FOLDER POSTHASTE__HTTP__LISTEN=127.0.0.1:0"
        }
        StoreKind::Postgres | StoreKind::Redis => {
            "give this one an instance.id of its own, POSTHASTE__INSTANCE__ID=NAME"
        }
    }
}

fn with_remedy(error: StartError, store: StoreKind) -> StartError {
    match error {
        StartError::Store(text) => StartError::Store(format!("{text}\nstop that process, or {}", remedy(store))),
        other => other,
    }
}

impl StoreWait {
    /// Time until the start gives up; zero means now. An instance id that is held after an outage often belongs to this process's own last
    /// attempt, whose lost connection the store has not noticed. That wait therefore begins when the id is first found held.
    fn remaining(&mut self, kind: OpenFailureKind, deadline: Duration, now: Instant) -> Duration {
        let (limit, since) = match kind {
            OpenFailureKind::Held => (HELD_TIMEOUT.min(deadline), *self.held_since.get_or_insert(now)),
            OpenFailureKind::Unavailable => (deadline, self.started),
            OpenFailureKind::Permanent => (Duration::ZERO, self.started),
        };
        if kind != OpenFailureKind::Held {
            self.held_since = None;
        }
        limit.saturating_sub(now.duration_since(since))
    }
}

fn startup_context(config: &Config, metrics: &Arc<Metrics>) -> StartupContext {
    let now = || -> Timestamp { SystemClock::new().now() };
    StartupContext {
        region: config.region.id.clone(),
        metrics: Arc::clone(metrics),
        now,
        header_timeout: config.http.header_timeout,
        body_timeout: config.http.body_timeout,
        max_connections: config.http.max_connections,
    }
}

/// Binds the configured addresses, the admin address too if there is one.
///
/// # Errors
/// An address cannot be bound.
pub(super) fn bind(config: &Config) -> Result<Listeners, StartError> {
    let bound = |key, address: SocketAddr| {
        api::bind_listener(&address.to_string()).map_err(|error| StartError::Listen(with_free_port(key, error)))
    };
    let public = bound("http.listen", config.http.listen)?;
    let admin = config.http.admin_listen.map(|address| bound("http.admin_listen", address)).transpose()?;
    Ok(Listeners { public, admin })
}

/// Adds advice to the error of an address that another process uses.
fn with_free_port(key: &str, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::AddrInUse {
        return error;
    }
    let variable = format!("POSTHASTE__{}", key.replace('.', "__").to_uppercase());
    let text = format!(
        "{error}; stop the process that uses it, or choose another address ({key}): {variable}=127.0.0.1:0 takes a free port"
    );
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_store_comes_with_a_remedy() {
        let held = with_remedy(StartError::Store("./data is held by a".into()), StoreKind::Embedded).to_string();

        assert!(
            held.contains("is held by a\nstop that process, or ") && held.contains("POSTHASTE__STORE__PATH="),
            "{held}"
        );
    }

    #[tokio::test]
    async fn a_used_address_comes_with_the_key_that_names_it() {
        let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let used = other.local_addr().expect("bound");
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let cases = [(used, None, "POSTHASTE__HTTP__LISTEN="), (free, Some(used), "POSTHASTE__HTTP__ADMIN_LISTEN=")];

        for (listen, admin, variable) in cases {
            let mut config = Config::defaults();
            (config.http.listen, config.http.admin_listen) = (listen, admin);
            let error = bind(&config).expect_err("the port is in use").to_string();
            assert!(error.contains(&format!("{variable}127.0.0.1:0")) && error.contains(&used.to_string()), "{error}");
        }
    }

    #[test]
    fn an_id_that_is_held_after_an_outage_gets_its_own_wait() {
        let started = Instant::now();
        let at = |seconds| started + Duration::from_secs(seconds);
        let deadline = Duration::from_secs(60);
        let mut wait = StoreWait { started, held_since: None, held_was_logged: false, outage_was_logged: false };

        assert_eq!(wait.remaining(OpenFailureKind::Unavailable, deadline, at(20)), Duration::from_secs(40));
        assert_eq!(wait.remaining(OpenFailureKind::Held, deadline, at(20)), HELD_TIMEOUT);
        assert_eq!(wait.remaining(OpenFailureKind::Held, deadline, at(21)), HELD_TIMEOUT - Duration::from_secs(1));
        assert_eq!(wait.remaining(OpenFailureKind::Unavailable, deadline, at(22)), Duration::from_secs(38));
        assert_eq!(wait.remaining(OpenFailureKind::Held, deadline, at(30)), HELD_TIMEOUT, "it was free between");
        assert_eq!(wait.remaining(OpenFailureKind::Held, deadline, at(32)), Duration::ZERO);
        assert_eq!(wait.remaining(OpenFailureKind::Unavailable, deadline, at(60)), Duration::ZERO);
        assert_eq!(wait.remaining(OpenFailureKind::Permanent, deadline, at(1)), Duration::ZERO);
    }
}
