//! posthaste: an order service that never loses an event, on a supervised actor system.
//!
//! The program and the tests start it with [`start`], which opens the store, starts the supervision tree, serves HTTP, and returns a
//! [`Service`] that stops everything gracefully.
pub mod config;
mod wiring;

use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actors::ActorSystem;
use app::admission::rate_limit::Admission;
pub use app::consume::chain::{HandlerChain, PoisonMessageAction};
pub use app::consume::event_handler::{ConsumedEvent, EventHandler, HandlerFault};
pub use app::consume::handlers::Handlers;
use app::health::SharedHealth;
use config::{BrokerKind, StoreKind};
pub use config::{Config, ConfigDraft, ConfigErrors, Environment};
use telemetry::traces::SpanExporter;
pub use wiring::{
    AdoptMode, DependencyCheck, HeldTransaction, Migration, NO_TOKEN_KEY, OperatorAccess, RedisInstallation,
    SchemaState, StartError, TableAdoption, ThrowawayInstallation, ThrowawayStore, WriterSession, adopt_table,
    adoption_warning, check_adopted_tables, check_dependencies, create_missing_topics, migrate, open_for_operator,
    schema_state, server_environment, server_settings,
};

/// A running service. Stop it with [`Service::stop`]; dropping it does not drain it.
pub struct Service {
    address: SocketAddr,
    actors: ActorSystem,
    http: api::RunningServer,
    handles: wiring::BackendHandles,
    health: SharedHealth,
    admission: Arc<Admission>,
    stop_deadline: Duration,
    /// Exports the queued spans when the service stops; `None` where tracing is off.
    span_exporter: Option<SpanExporter>,
}

/// The result of a stop. The next owner of each partition resolves its open batch.
#[derive(Debug)]
pub struct ShutdownReport {
    /// Time from the call until the store was closed.
    pub elapsed: Duration,
    /// Actors that were killed with unfinished messages, as (path, number of messages).
    pub unfinished_actors: Vec<(String, usize)>,
    /// Partitions whose lease could not be released.
    pub unreleased_partitions: usize,
}

impl ShutdownReport {
    /// Logs the end of the stop; a warning if work is unfinished, because the next owner of a partition may wait for its lease to expire.
    fn log(&self) {
        let (elapsed_ms, partitions_left) = (self.elapsed.as_millis() as u64, self.unreleased_partitions);
        let actors_left = self.unfinished_actors.len();
        if actors_left == 0 && partitions_left == 0 {
            tracing::info!(
                event = "stopped",
                elapsed_ms,
                actors_left,
                partitions_left,
                "stopped after {elapsed_ms} ms"
            );
        } else {
            tracing::warn!(
                event = "stopped",
                elapsed_ms,
                actors_left,
                partitions_left,
                "stopped after {elapsed_ms} ms: {actors_left} actors did not end, and {partitions_left} partitions were not handed over; \
                 the next owner of each partition resolves its open batch once the lease has expired"
            );
        }
    }
}

/// Reads the configuration as [`Config::draft`] does, and has the adapters check what only they can parse: URLs of servers, files of
/// certificates. Connects to nothing. A configuration without a key to verify tokens with is no error here.
pub fn check_config(file: Option<&Path>, environment: &Environment) -> ConfigDraft {
    let mut draft = Config::draft(file, environment);
    wiring::check_settings(&mut draft);
    draft
}

/// Starts the service on this thread, which must run an actix `System`. Not cancel-safe: after a dropped call, actors may run until the
/// `System` ends.
///
/// # Errors
/// A dependency, the configuration or an address is unusable; nothing keeps running.
pub async fn start(config: Config) -> Result<Service, StartError> {
    start_with(config, |handlers| handlers).await
}

/// As [`start`], with handlers of the caller: `register` receives the configured handlers and returns those that consume the events. Not
/// cancel-safe, as [`start`].
///
/// # Errors
/// Fails as [`start`] does; `register` is not called when the configured URLs are unusable.
pub async fn start_with(config: Config, register: impl FnOnce(Handlers) -> Handlers) -> Result<Service, StartError> {
    let started = Instant::now();
    let wired = wiring::wire(&config, register).await?;
    run(&config, wired, started).await
}

/// As [`start`], until `stop` resolves: then the result is `None`. Actors that have started are stopped as [`Service::stop`] does. Before that the
/// store may be open, and is dropped without closing it: end the process then. Not cancel-safe, as [`start`].
///
/// # Errors
/// Fails as [`start`] does.
pub async fn start_unless_stopped(
    config: Config,
    stop: impl Future<Output = ()>,
) -> Result<Option<Service>, StartError> {
    let (started, mut stop) = (Instant::now(), pin!(stop));
    let wired = tokio::select! {
        biased;
        () = &mut stop => return Ok(None),
        wired = Box::pin(wiring::wire(&config, |handlers| handlers)) => wired?,
    };
    run_unless_stopped(&config, wired, started, stop).await
}

/// As [`run`]. When `stop` resolves first, the service that has started is stopped: its actors have begun to acquire leases, which only it can
/// release.
async fn run_unless_stopped(
    config: &Config,
    wired: wiring::WiredService,
    started: Instant,
    stop: impl Future<Output = ()>,
) -> Result<Option<Service>, StartError> {
    let mut running = Box::pin(run(config, wired, started));
    tokio::select! {
        biased;
        service = &mut running => return service.map(Some),
        () = stop => {}
    }
    running.await?.stop().await;
    Ok(None)
}

/// Starts the actors and serves HTTP. Waits for no dependency for longer than a second, because a stop waits for it.
async fn run(config: &Config, wired: wiring::WiredService, started: Instant) -> Result<Service, StartError> {
    let stop_deadline = config.shutdown.deadline;
    let bus_options = wired.bus_options(config);
    let actors = ActorSystem::start(wired.dependencies, wired.actor_options, bus_options).await;
    // A running service may change its rate limits.
    let admission = Arc::clone(&wired.http.admission);
    let http = match api::serve_on(&api::HttpState::new(actors.dispatch(), wired.http), wired.listeners) {
        Ok(http) => http,
        Err(error) => {
            // The actors outlive their handle.
            let (stopping, to_close) = (Instant::now(), wiring::close_time(stop_deadline));
            actors.stop(stop_deadline.saturating_sub(to_close)).await;
            wired.handles.close_within(stop_deadline.saturating_sub(stopping.elapsed()), to_close).await;
            return Err(StartError::Listen(error));
        }
    };
    let addresses: Vec<SocketAddr> = http.bound().iter().map(|bound| bound.address).collect();
    wired.handles.announce(&addresses).await;
    // Every listener is bound, and the public one comes first.
    let address = addresses[0];
    log_ready(config, &addresses, started.elapsed());
    let (handles, health, span_exporter) = (wired.handles, wired.health, wired.span_exporter);
    Ok(Service { address, actors, http, handles, health, admission, stop_deadline, span_exporter })
}

/// Logs version, addresses, store and broker in one line, without secrets: URLs of servers may contain passwords and stay out.
fn log_ready(config: &Config, addresses: &[SocketAddr], elapsed: Duration) {
    // The address for clients comes first, the one for operators last; they may be the same.
    let (Some(public), Some(admin)) = (addresses.first(), addresses.last()) else { return };
    let (url, console) = (format!("http://{public}"), console_url(*admin));
    let (version, commit, elapsed_ms) = (telemetry::VERSION, telemetry::COMMIT, elapsed.as_millis() as u64);
    let (store, broker) = (store_name(config), broker_name(config));
    let instance = config.instance_id(public.port());
    tracing::info!(
        event = "ready",
        url,
        console,
        version,
        commit,
        store,
        broker,
        instance,
        elapsed_ms,
        "posthaste {version} is ready at {url} after {elapsed_ms} ms: console {console}, store {store}, broker {broker}, \
         instance {instance}"
    );
}

fn console_url(address: SocketAddr) -> String {
    format!("http://{address}/console")
}

fn store_name(config: &Config) -> String {
    match config.store.kind {
        StoreKind::Embedded => format!("embedded in {}", config.store.path.display()),
        StoreKind::Postgres => "postgres".to_owned(),
        StoreKind::Redis => "redis".to_owned(),
    }
}

fn broker_name(config: &Config) -> String {
    match config.broker.kind {
        BrokerKind::Embedded => "embedded".to_owned(),
        BrokerKind::Kafka => format!("kafka at {}", config.broker.bootstrap_servers),
        BrokerKind::None => "none".to_owned(),
    }
}

impl Service {
    /// The address of the public listener, with its real port.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the console, on the listener for operators.
    pub fn console_url(&self) -> String {
        // Listeners are in this order: the one for clients, the one for operators. They may be the same.
        let address = self.http.bound().last().map_or(self.address, |bound| bound.address);
        console_url(address)
    }

    /// `shutdown.deadline`: the longest time that [`Service::stop`] takes.
    pub fn stop_deadline(&self) -> Duration {
        self.stop_deadline
    }

    /// The actor system, for tests that inject faults and read its events.
    pub fn actors(&self) -> &ActorSystem {
        &self.actors
    }

    /// Applies the settings that may change while the service runs: those of `rate_limit`. All others need a restart.
    pub fn apply(&self, config: &Config) {
        self.admission.set_options(config.rate_limit.clone());
    }

    /// Resolves with the reason when the root supervisor escalates, another process has taken over the instance id, or a listener has failed.
    /// The caller stops the service at once and exits with 70: a root that escalates is draining its actors already. Cancel-safe.
    pub async fn escalated(&self) -> String {
        tokio::select! {
            // Both only wait; dropping either loses nothing.
            reason = self.actors.escalated() => format!("{reason:?}"),
            lost = self.handles.instance_id_lost() => lost,
            reason = self.http.ended() => reason,
        }
    }

    /// Stops in order: `/readyz` responds with 503, no new requests, no new claims, batches in flight finished and settled, leases released, the
    /// redrives of dead letters ended, the store closed, the last spans exported. Takes at most `shutdown.deadline`. A root that has given up hands
    /// its leases over and stops its actors by itself at the same time, within a `shutdown.deadline` of its own. Not cancel-safe: after a
    /// dropped call, actors may run and keep their leases until the `System` ends.
    pub async fn stop(self) -> ShutdownReport {
        let started = Instant::now();
        self.health.update(|snapshot| snapshot.draining = true);
        tracing::info!(event = "stopping", "stopping: finishing requests and batches in flight");
        self.http.stop(self.stop_deadline / 2).await;
        let remaining = || self.stop_deadline.saturating_sub(started.elapsed());
        let to_close = wiring::close_time(self.stop_deadline);
        let stopped = self.actors.stop(remaining().saturating_sub(to_close)).await;
        self.handles.close_within(remaining(), to_close).await;
        flush_spans(self.span_exporter, remaining()).await;
        let unfinished_actors: Vec<(String, usize)> =
            stopped.drained.unfinished.into_iter().map(|actor| (actor.path, actor.queued_or_in_flight)).collect();
        let report = ShutdownReport {
            elapsed: started.elapsed(),
            unfinished_actors,
            unreleased_partitions: stopped.partitions_left,
        };
        report.log();
        report
    }
}

/// Exports the queued spans on a blocking thread: the collector may be slow.
async fn flush_spans(exporter: Option<SpanExporter>, within: Duration) {
    if let Some(exporter) = exporter {
        // A panic of the thread loses spans only, and the panic hook has logged it.
        let _ = tokio::task::spawn_blocking(move || exporter.close(within)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;

    use super::*;

    fn embedded_config(folder: &Path) -> Config {
        let settings = [
            ("STORE__PATH", folder.to_str().expect("text")),
            ("HTTP__LISTEN", "127.0.0.1:0"),
            ("AUTH__HS256_SECRET", "a-secret-of-at-least-thirty-two-bytes"),
        ];
        let settings = settings.map(|(name, value)| (format!("POSTHASTE__{name}"), value.to_owned()));
        Config::load(None, &Environment(settings.into())).expect("no errors")
    }

    #[test]
    fn start_that_cannot_serve_keeps_nothing_running() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = embedded_config(folder.path());
        actix_rt::System::new().block_on(async {
            let mut wired = wiring::wire(&config, |handlers| handlers).await.expect("all is usable");
            let no_socket = OwnedFd::from(File::open(folder.path()).expect("it exists"));
            wired.listeners.public = TcpListener::from(no_socket);

            let failed = run(&config, wired, Instant::now()).await;

            assert!(matches!(failed, Err(StartError::Listen(_))));
            let service = start(config).await.expect("no other process holds the folder");
            assert!(service.stop().await.unfinished_actors.is_empty());
        });
    }

    #[test]
    fn start_that_ends_after_its_actors_have_started_stops_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = embedded_config(folder.path());
        actix_rt::System::new().block_on(async {
            let wired = wiring::wire(&config, |handlers| handlers).await.expect("all is usable");

            let stopped = run_unless_stopped(&config, wired, Instant::now(), std::future::ready(())).await;

            assert!(matches!(stopped, Ok(None)));
            let service = start(config).await.expect("the first start holds nothing");
            assert!(service.stop().await.unfinished_actors.is_empty());
        });
    }
}
