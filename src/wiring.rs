//! The composition root: opens the configured backends and builds a service from them. Only this module and its files open an adapter;
//! config uses endpoints for the form of URLs.
mod adopt;
mod backends;
mod broker;
mod cache;
#[cfg_attr(
    not(all(feature = "postgres", feature = "kafka", feature = "redis")),
    allow(dead_code, unused_imports, reason = "each backend feature adds its own checks")
)]
mod dependency_checks;
mod handlers;
mod held_transaction;
mod operator_access;
mod options;
mod schema;
mod start_error;
mod store;
mod thread_rng;
mod throwaway;
mod wait_for_store;

use std::sync::Arc;

use actors::{MonitoredProbe, ProducerSlots};
use app::admission::rate_limit::Admission;
use app::admission::write_gate::WriteGate;
use app::commands::CommandContext;
use app::consume::handlers::Handlers;
use app::consume::topic_reads::TopicReads;
use app::health::SharedHealth;
use app::operators::outbox::OutboxOperations;
use app::policy::regional_clock::RegionalClock;
use app::queries::Queries;
use memory::SystemClock;
use ports::clock::{Clock, Rng};
use ports::partitions::InstanceId;
use ports::probe::Probe;
use telemetry::Metrics;
use telemetry::traces::{SpanExporter, Tracer};

pub use adopt::{AdoptMode, TableAdoption, adopt_table, adoption_warning};
pub(crate) use backends::{BackendHandles, close_time};
use backends::{Backends, BrokerPorts, span_export};
pub use dependency_checks::{DependencyCheck, check_adopted_tables, check_dependencies};
pub use held_transaction::{HeldTransaction, WriterSession};
pub use operator_access::{OperatorAccess, open_for_operator};
pub use schema::{Migration, RedisInstallation, SchemaState, create_missing_topics, migrate, schema_state};
pub use start_error::StartError;
use store::{StoreOpener, WiredStore};
use thread_rng::ThreadRng;
pub use throwaway::{ThrowawayInstallation, ThrowawayStore, server_environment, server_settings};
use wait_for_store::StartupListeners;

use crate::config::{Config, ConfigDraft};

/// Error of a service without a key to verify tokens with.
pub const NO_TOKEN_KEY: &str = "no key to verify tokens with: set auth.hs256_secret, auth.public_key_file or auth.jwks_url, for example\n  \
     POSTHASTE__AUTH__HS256_SECRET=$(openssl rand -hex 32) posthaste serve\n\
     or try it with the development secret: posthaste serve --dev";

/// The parts of a service that is ready to start.
pub(crate) struct WiredService {
    pub dependencies: actors::Dependencies,
    pub actor_options: actors::Options,
    pub http: api::StateParts,
    pub listeners: api::Listeners,
    pub handles: BackendHandles,
    pub health: SharedHealth,
    pub span_exporter: Option<SpanExporter>,
}

impl WiredService {
    /// The options of the actors' bus for a process that starts now.
    pub(crate) fn bus_options(&self, config: &Config) -> supervision::Options {
        options::supervision(config, self.dependencies.clock.now())
    }
}

/// Opens the backends and builds the parts of a service. Waits for a store that is unavailable. `register` may replace configured handlers.
///
/// # Errors
/// The configuration, an address or the store is unusable; nothing stays open.
pub(crate) async fn wire(
    config: &Config,
    register: impl FnOnce(Handlers) -> Handlers,
) -> Result<WiredService, StartError> {
    let auth = verifier(config)?;
    let handlers = register(handlers::open(config)?);
    // The default instance id contains the port. With port 0 the system chooses it, so the address is bound before the store is opened.
    let mut bound = None;
    if config.http.listen.port() == 0 {
        bound = Some(wait_for_store::bind(config)?);
    }
    let port = bound.as_ref().map_or(Ok(config.http.listen.port()), |listeners| {
        listeners.public.local_addr().map(|address| address.port()).map_err(StartError::Listen)
    })?;
    let instance = InstanceId(config.instance_id(port).into());
    let metrics = Metrics::new();
    metrics.posthaste_build_info.with([telemetry::VERSION, telemetry::COMMIT]).set(1);
    metrics.outbox_partitions.set(i64::from(config.outbox.partitions));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let rng: Arc<dyn Rng> = Arc::new(ThreadRng);
    let (tracer, span_exporter) = span_export::start(config, &instance, &rng, &metrics)?;
    let opener = StoreOpener { config, instance: &instance, clock: &clock, metrics: &metrics };
    let (store, listeners) = wait_for_store::open(&opener, StartupListeners { bound, logged: false }).await?;
    let listeners = listeners.into_bound(config)?;
    let WiredStore { ports, probe, wake_channel, mut handles } = store;
    let broker = broker::open(config, &instance, &clock, &handles).await?;
    let cache = cache::open(config, &instance, &clock, &rng, &metrics, &mut handles)?;
    let backends = Backends { store: ports, store_probe: probe, broker, cache, wake_channel, handles };
    let shared = SharedParts { instance, metrics, tracer, clock, rng, handlers };
    let wired = assemble(config, backends, shared, auth, listeners)?;
    Ok(WiredService { span_exporter, ..wired })
}

/// The parts that several components use.
struct SharedParts {
    instance: InstanceId,
    metrics: Arc<Metrics>,
    tracer: Tracer,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    handlers: Handlers,
}

fn monitored(probe: Arc<dyn Probe>, config: &Config) -> MonitoredProbe {
    let gates_region = config.failover.gates.iter().any(|gate| gate == probe.name());
    MonitoredProbe { probe, gates_region }
}

fn assemble(
    config: &Config,
    backends: Backends,
    shared: SharedParts,
    auth: api::auth::Verifier,
    listeners: api::Listeners,
) -> Result<WiredService, StartError> {
    let SharedParts { instance, metrics, tracer, clock, rng, handlers } = shared;
    let (gate, health) = (Arc::new(WriteGate::default()), SharedHealth::default());
    let probes = backends.probes().into_iter().map(|probe| monitored(probe, config)).collect();
    let Backends { store, broker, cache, wake_channel, handles, .. } = backends;
    let (webhook_client, topic_consumers) = (handlers::webhooks::client(config)?, handlers::topics::consumers(config)?);
    let spawn = handles.tasks.spawner();
    let webhooks = handlers::webhooks::open(config, broker.as_ref(), &store, (&clock, &rng), &spawn)?;
    let commands = Arc::new(CommandContext {
        orders: Arc::clone(&store.orders),
        idempotency: cache.idempotency.unwrap_or(store.idempotency),
        cache: Arc::clone(&cache.cache),
        clock: Arc::clone(&clock),
        rng: Arc::clone(&rng),
        inbox: Arc::clone(&store.inbox),
        regional_clock: Arc::new(RegionalClock::new(config.region.drift_max)),
        gate: Arc::clone(&gate),
        options: options::commands(config),
    });
    let dead_letters = broker.as_ref().map(|BrokerPorts { topics, broker, .. }| {
        Arc::new(handlers::topics::dead_letters(config, (topics, broker), (&store.redrives, &spawn), &clock))
    });
    let topic_reads = broker.as_ref().and_then(topic_reads);
    let producer_slots = broker.as_ref().map_or(ProducerSlots::Spread(1), |broker| broker.producer_slots);
    let dependencies = actors::Dependencies {
        commands,
        outbox: Arc::clone(&store.outbox),
        events: Arc::clone(&store.events),
        leases: Arc::clone(&store.leases),
        broker: broker.as_ref().map(|broker| Arc::clone(&broker.broker)),
        consumer_groups: broker.map(|broker| broker.consumer_groups),
        wake_channel,
        inbox: store.inbox,
        webhooks: store.webhooks,
        webhook_client,
        handlers,
        topic_consumers,
        probes,
        clock: Arc::clone(&clock),
        rng,
        gate: Arc::clone(&gate),
        health: health.clone(),
        metrics: Arc::clone(&metrics),
        tracer: tracer.clone(),
    };
    let (breaker, list_max_rows) = (config.cache.breaker.clone(), config.orders.list_max_rows);
    let queries = Queries::new(store.orders, cache.cache, Arc::clone(&clock), breaker, list_max_rows);
    let operations =
        OutboxOperations::new(store.outbox, store.operators, store.leases, Arc::clone(&clock), health.clone());
    let http = api::StateParts {
        queries: Arc::new(queries),
        operations: Arc::new(operations),
        dead_letters,
        topic_reads,
        webhooks,
        admission: Arc::new(Admission::new(cache.rate_limiter, gate, clock, config.rate_limit.clone())),
        metrics,
        tracer,
        auth,
        options: options::http(config, &instance),
    };
    let actor_options = options::actors(config, instance, producer_slots);
    Ok(WiredService { dependencies, actor_options, http, listeners, handles, health, span_exporter: None })
}

fn topic_reads(broker: &BrokerPorts) -> Option<Arc<TopicReads>> {
    let log = broker.log.clone()?;
    Some(Arc::new(TopicReads::new(log, &actors::Options::default().group)))
}

/// Adds what the adapters' own parsers refuse. Connects to nothing.
pub(crate) fn check_settings(draft: &mut ConfigDraft) {
    let config = &draft.config;
    let checks = [
        ("store.url", store::check(config)),
        ("broker.", broker::check(config)),
        ("redis.url", cache::check(config)),
        ("consumer.post.ca_file", handlers::check(config)),
        ("webhooks.ca_file", handlers::webhooks::client(config).map(drop)),
        ("tracing.ca_file", backends::span_export::check(config)),
    ];
    for (key, refused) in checks.into_iter().filter_map(|(key, checked)| Some((key, checked.err()?))) {
        draft.add_error(key, refused);
    }
}

fn verifier(config: &Config) -> Result<api::auth::Verifier, StartError> {
    let source = config.auth.source().ok_or_else(|| StartError::Config(NO_TOKEN_KEY.into()))?;
    let options = api::auth::Options {
        source,
        issuer: config.auth.issuer.clone(),
        audience: config.auth.audience.clone(),
        leeway: config.auth.leeway,
    };
    api::auth::Verifier::new(options).map_err(|error| StartError::Config(format!("auth: {error}")))
}
