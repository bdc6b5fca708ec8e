//! COMPOSITION ROOT: the only file that names an adapter. One match arm per backend.
mod alone;
mod opening;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use app::admission::Admission;
use app::commands::{self, Desk};
use app::gate::Gate;
use app::handlers::Handlers;
use app::operate::Operations;
use app::queries::Queries;
use app::vitals::Vitals;
use domain::RegionId;
use embedded::{BrokerProbe, Embedded, OpenError, StoreProbe, SystemClock};
use ports::broker::Broker;
use ports::clock::{Clock, Dice};
use ports::operators::OutboxOperators;
use ports::partitions::InstanceId;
use ports::probe::Probe;
use ports::topics::Topics;
use telemetry::Metrics;

pub use alone::statements_alone;
use opening::Door;

use crate::config::{BrokerKind, Config};

/// Why a start cannot succeed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong; exit 78.
    #[error("{0}")]
    Config(String),
    /// The store cannot be opened, or was not there within `startup.deadline`.
    #[error("the store cannot be opened: {0}")]
    Store(String),
    /// The address cannot be listened on.
    #[error("cannot listen: {0}")]
    Listen(#[source] std::io::Error),
}

impl StartError {
    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            StartError::Config(_) => 78,
            StartError::Store(_) | StartError::Listen(_) => 1,
        }
    }
}

/// A service's parts, wired and not yet running.
pub(crate) struct Wired {
    pub world: actors::World,
    pub actors: actors::Options,
    pub http: HttpParts,
    pub listeners: api::Listeners,
    pub store: Store,
    pub vitals: Vitals,
}

/// What HTTP needs, but for the actors' door.
pub(crate) struct HttpParts {
    queries: Arc<Queries>,
    operations: Arc<Operations>,
    admission: Arc<Admission>,
    metrics: Arc<Metrics>,
    auth: api::auth::Verifier,
    options: api::Options,
}

impl HttpParts {
    pub(crate) fn with(self, dispatch: Arc<dyn app::dispatch::Dispatch>) -> api::Parts {
        let Self { queries, operations, admission, metrics, auth, options } = self;
        api::Parts { dispatch, queries, operations, admission, metrics, auth, options }
    }
}

/// The opened store, to be told and closed.
pub(crate) struct Store(Embedded);

impl Store {
    pub(crate) fn announce(&self, addresses: &[SocketAddr]) {
        let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        if let Err(error) = self.0.announce(&addresses.join(" ")) {
            tracing::warn!(event = "announce_failed", error = %error, "the lock file does not tell where we listen");
        }
    }

    pub(crate) async fn close(&self) {
        if let Err(error) = self.0.close().await {
            tracing::warn!(event = "close_failed", error = %error, "the store was not closed in order; the next start repairs it");
        }
    }
}

/// Random bits of the operating system.
struct ThreadDice;

impl Dice for ThreadDice {
    fn roll(&self) -> u64 {
        rand::random()
    }
}

pub(crate) async fn wire(config: &Config) -> Result<Wired, StartError> {
    let auth = verifier(config)?;
    let proxies = api::Proxies::parse(&config.http_trusted_proxies)
        .map_err(|error| StartError::Config(format!("http.trusted_proxies: {error}")))?;
    // A port of our own choice names the instance, so it must be known before the store is locked under that name.
    let mut listeners = None;
    if config.http_listen.port() == 0 {
        listeners = Some(opening::listen(config)?);
    }
    let port = listeners.as_ref().map_or(Ok(config.http_listen.port()), |bound| {
        bound.public.local_addr().map(|address| address.port()).map_err(StartError::Listen)
    })?;
    let instance = InstanceId(config.instance(port).into());
    let metrics = Metrics::new();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let door = Door { listeners, told: false };
    let (store, door) = opening::open(config, &instance, &clock, &metrics, door).await?;
    let listeners = door.listening(config)?;
    Ok(assemble(config, instance, metrics, clock, store, auth, proxies, listeners))
}

#[expect(clippy::too_many_arguments, reason = "the one place where all parts meet")]
fn assemble(
    config: &Config,
    instance: InstanceId,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    store: Embedded,
    auth: api::auth::Verifier,
    proxies: api::Proxies,
    listeners: api::Listeners,
) -> Wired {
    let gate = Arc::new(Gate::default());
    let vitals = Vitals::default();
    let dice: Arc<dyn Dice> = Arc::new(ThreadDice);
    let ports = Arc::new(store.clone());
    let desk = Arc::new(Desk {
        orders: ports.clone(),
        idempotency: ports.clone(),
        cache: ports.clone(),
        clock: Arc::clone(&clock),
        dice: Arc::clone(&dice),
        gate: Arc::clone(&gate),
        options: desk_options(config),
    });
    let has_broker = config.broker_kind == BrokerKind::Embedded;
    let world = actors::World {
        desk,
        outbox: ports.clone(),
        leases: ports.clone(),
        broker: has_broker.then(|| ports.clone() as Arc<dyn Broker>),
        sources: has_broker.then(|| ports.clone() as Arc<dyn ports::source::Sources>),
        inbox: ports.clone(),
        handlers: Handlers::default(),
        probes: probes(config, &store, has_broker),
        clock: Arc::clone(&clock),
        dice,
        gate: Arc::clone(&gate),
        vitals: vitals.clone(),
        metrics: Arc::clone(&metrics),
    };
    let http = HttpParts {
        queries: Arc::new(Queries::new(ports.clone(), ports.clone(), config.orders_list_max_rows)),
        operations: Arc::new(Operations::new(ports.clone(), ports.clone(), ports, Arc::clone(&clock), vitals.clone())),
        admission: Arc::new(Admission::new(Arc::new(store.clone()), gate, clock, config.rate_limit.clone())),
        metrics,
        auth,
        options: http_options(config, &instance, proxies),
    };
    Wired { world, actors: actor_options(config, instance), http, listeners, store: Store(store), vitals }
}

fn verifier(config: &Config) -> Result<api::auth::Verifier, StartError> {
    let Some(key) = &config.auth_key else {
        return Err(StartError::Config(
            "no key to verify tokens with: set auth.hs256_secret, auth.public_key_file or auth.jwks_url, for example\n  \
             POSTHASTE__AUTH__HS256_SECRET=$(openssl rand -hex 32) posthaste serve\n\
             or try it with the development secret: posthaste serve --dev"
                .into(),
        ));
    };
    let options = api::auth::Options {
        source: key.source(),
        issuer: config.auth_issuer.clone(),
        audience: config.auth_audience.clone(),
        leeway: config.auth_leeway,
    };
    api::auth::Verifier::new(options).map_err(|error| StartError::Config(format!("auth: {error}")))
}

fn store_options(
    config: &Config,
    instance: &InstanceId,
    clock: &Arc<dyn Clock>,
    metrics: &Arc<Metrics>,
) -> embedded::Options {
    let mut options = embedded::Options::new(&config.store_path, instance.clone(), Arc::clone(clock));
    options.address = config.http_listen.to_string();
    options.partitions = config.outbox_partitions;
    options.topic_partitions = config.broker_topic_partitions;
    options.log_retention = config.broker_retention;
    options.metrics = Some(Arc::clone(metrics));
    options
}

fn desk_options(config: &Config) -> commands::Options {
    commands::Options {
        region: RegionId::new(&config.region_id),
        partitions: config.outbox_partitions,
        topic: config.topic().into(),
        schema_version: config.events_schema_version,
        outbox: config.outbox_enabled,
        ..commands::Options::default()
    }
}

fn probes(config: &Config, store: &Embedded, has_broker: bool) -> Vec<(Arc<dyn Probe>, bool)> {
    let gates = |name: &str| config.failover_gates.iter().any(|gate| gate == name);
    let mut probes: Vec<(Arc<dyn Probe>, bool)> = vec![(Arc::new(StoreProbe(store.clone())), gates("db"))];
    if has_broker {
        probes.push((Arc::new(BrokerProbe(store.clone())), gates("broker")));
    }
    probes
}

fn http_options(config: &Config, instance: &InstanceId, proxies: api::Proxies) -> api::Options {
    api::Options {
        request_timeout: config.http_request_timeout,
        header_timeout: config.http_header_timeout,
        body_timeout: config.http_body_timeout,
        body_max: config.http_body_max,
        max_connections: config.http_max_connections,
        trusted_proxies: proxies,
        region: config.region_id.clone(),
        instance: instance.to_string(),
        unsent_age_max: config.health_unsent_age_max.unwrap_or_default(),
        ..api::Options::default()
    }
}

fn actor_options(config: &Config, instance: InstanceId) -> actors::Options {
    let relay = app::relay::Options {
        region: RegionId::new(&config.region_id),
        batch: config.outbox_batch,
        lease: config.outbox_lease,
        // A batch is not handed over with less left than a broker may need to take it, nor with less than a tenth of the lease.
        margin: (config.outbox_lease / 10).min(Duration::from_secs(1)),
    };
    actors::Options {
        instance,
        relay,
        rules: app::chain::Rules {
            retry: config.outbox_retry.clone(),
            poison: config.outbox_poison.clone(),
            fallback: config.outbox_fallback.clone(),
        },
        breaker: config.broker_breaker.clone(),
        pressure: config.backpressure.clone(),
        partitions: config.outbox_partitions,
        // The embedded broker's lanes cost nothing: one a partition, so that fencing one disturbs no other.
        lanes: config.outbox_partitions,
        max_in_flight: config.outbox_max_in_flight,
        poll_interval: config.outbox_poll_interval,
        // A lease must be renewed well before it runs out, whatever the heartbeat says.
        heartbeat: config.partitions_heartbeat.min(config.outbox_lease / 3),
        dead_after: config.partitions_dead_after,
        retention: config.outbox_retention,
        inbox_retention: config.inbox_retention,
        topic: config.topic(),
        consumers: config.consumer_count,
        probe_interval: config.failover_probe_interval,
        probe_timeout: config.failover_probe_timeout,
        promotion_interval: config.promotion_interval,
        promotion_batch: config.promotion_batch,
        shards: config.orders_shards,
        mailbox: config.orders_mailbox,
        request_timeout: config.http_request_timeout,
        faults: config.fault_injection_enabled,
        ..actors::Options::default()
    }
}

/// A store opened beside a running service, for operators at the command line.
pub struct Beside {
    /// Rows, why, partitions, retry, park.
    pub operations: Operations,
    /// Topics.
    pub topics: Arc<dyn Topics>,
}

/// Opens the configured store for looking and for operators' statements.
///
/// # Errors
/// It is not there, or cannot be read.
pub fn beside(config: &Config) -> Result<Beside, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let told = |error: OpenError| StartError::Store(error.to_string());
    let store = Arc::new(Embedded::open_beside(&config.store_path, Arc::clone(&clock)).map_err(told)?);
    let operators: Arc<dyn OutboxOperators> = store.clone();
    let operations = Operations::new(store.clone(), operators, store.clone(), clock, Vitals::default());
    Ok(Beside { operations, topics: store })
}
