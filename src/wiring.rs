//! COMPOSITION ROOT: the only file that names an adapter. One match arm per backend.
mod backends;
mod beside;
mod broker;
mod cache;
#[cfg_attr(
    not(all(feature = "postgres", feature = "kafka", feature = "redis")),
    allow(dead_code, unused_imports, reason = "each dependency brings its own questions")
)]
mod checkup;
mod opening;
mod options;
mod schema;
mod start_error;
mod store;
mod thread_rng;
mod throwaway;

use std::sync::Arc;

use actors::ProducerSlots;
use app::admission::gate::Gate;
use app::admission::rate_limit::Admission;
use app::commands::CommandContext;
use app::consume::handlers::Handlers;
use app::health::HealthBoard;
use app::operators::dead_letters::DeadLetters;
use app::operators::outbox::Operations;
use app::queries::Queries;
use memory::SystemClock;
use ports::clock::{Clock, Rng};
use ports::partitions::InstanceId;
use telemetry::Metrics;

pub(crate) use backends::Held;
use backends::{Backends, BrokerPorts};
pub use beside::{Beside, beside};
pub use checkup::{Checked, checkup};
use opening::Door;
pub use schema::{Migration, Schema, migrate, migrations, provide_topics};
pub use start_error::StartError;
use store::{Opened, Opening};
use thread_rng::ThreadRng;
pub use throwaway::{Throwaway, ThrowawayStore, server_environment, server_settings};

use crate::config::Config;

/// A service's parts, wired and not yet running.
pub(crate) struct Wired {
    pub world: actors::Dependencies,
    pub actors: actors::Options,
    pub http: HttpParts,
    pub listeners: api::Listeners,
    pub held: Held,
    pub vitals: HealthBoard,
}

/// What HTTP needs, but for the actors' door.
pub(crate) struct HttpParts {
    queries: Arc<Queries>,
    operations: Arc<Operations>,
    dead_letters: Option<Arc<DeadLetters>>,
    admission: Arc<Admission>,
    metrics: Arc<Metrics>,
    auth: api::auth::Verifier,
    options: api::Options,
}

impl HttpParts {
    pub(crate) fn with(self, dispatch: Arc<dyn app::dispatch::Dispatch>) -> api::StateParts {
        let Self { queries, operations, dead_letters, admission, metrics, auth, options } = self;
        api::StateParts { dispatch, queries, operations, dead_letters, admission, metrics, auth, options }
    }
}

pub(crate) async fn wire(config: &Config) -> Result<Wired, StartError> {
    let auth = verifier(config)?;
    // A port of our own choice names the instance, so it must be known before the store is locked under that name.
    let mut listeners = None;
    if config.http.listen.port() == 0 {
        listeners = Some(opening::listen(config)?);
    }
    let port = listeners.as_ref().map_or(Ok(config.http.listen.port()), |bound| {
        bound.public.local_addr().map(|address| address.port()).map_err(StartError::Listen)
    })?;
    let instance = InstanceId(config.instance_name(port).into());
    let metrics = Metrics::new();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let door = Door { listeners, told: false };
    let dice: Arc<dyn Rng> = Arc::new(ThreadRng);
    let opening = Opening { config, instance: &instance, clock: &clock, metrics: &metrics };
    let (opened, door) = opening::open(&opening, door).await?;
    let listeners = door.listening(config)?;
    let Opened { ports, probe, wakes, mut held } = opened;
    let broker = broker::open(config, &instance, &clock, &held).await?;
    let cache = cache::open(config, &instance, &clock, &dice, &metrics, &mut held)?;
    let backends = Backends { store: ports, store_probe: probe, broker, cache, wakes, held };
    Ok(assemble(config, backends, Common { instance, metrics, clock, dice }, auth, listeners))
}

/// What many parts share.
struct Common {
    instance: InstanceId,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    dice: Arc<dyn Rng>,
}

fn assemble(
    config: &Config,
    backends: Backends,
    common: Common,
    auth: api::auth::Verifier,
    listeners: api::Listeners,
) -> Wired {
    let Common { instance, metrics, clock, dice } = common;
    let (gate, vitals) = (Arc::new(Gate::default()), HealthBoard::default());
    let gates = |name: &str| config.failover.gates.iter().any(|gate| gate == name);
    let probes = backends.probes().into_iter().map(|probe| (Arc::clone(&probe), gates(probe.name()))).collect();
    let Backends { store, broker, cache, wakes, held, .. } = backends;
    let desk = Arc::new(CommandContext {
        orders: Arc::clone(&store.orders),
        idempotency: cache.idempotency.unwrap_or(store.idempotency),
        cache: Arc::clone(&cache.cache),
        clock: Arc::clone(&clock),
        rng: Arc::clone(&dice),
        gate: Arc::clone(&gate),
        options: options::desk(config),
    });
    let dead_letters = broker.as_ref().map(|BrokerPorts { topics, broker, .. }| {
        let (topics, broker) = (Arc::clone(topics), Arc::clone(broker));
        Arc::new(DeadLetters::new(&config.topic(), topics, broker, store.redrives, Arc::clone(&clock)))
    });
    let lanes = broker.as_ref().map_or(ProducerSlots::Spread(1), |broker| broker.lanes);
    let world = actors::Dependencies {
        commands: desk,
        outbox: Arc::clone(&store.outbox),
        leases: Arc::clone(&store.leases),
        broker: broker.as_ref().map(|broker| Arc::clone(&broker.broker)),
        consumer_groups: broker.map(|broker| broker.sources),
        wake_channel: wakes,
        inbox: store.inbox,
        handlers: Handlers::default(),
        probes,
        clock: Arc::clone(&clock),
        rng: dice,
        gate: Arc::clone(&gate),
        health: vitals.clone(),
        metrics: Arc::clone(&metrics),
    };
    let queries = Queries::new(store.orders, cache.cache, Arc::clone(&clock), config.orders.list_max_rows);
    let operations = Operations::new(store.outbox, store.operators, store.leases, Arc::clone(&clock), vitals.clone());
    let http = HttpParts {
        queries: Arc::new(queries),
        operations: Arc::new(operations),
        dead_letters,
        admission: Arc::new(Admission::new(cache.limits, gate, clock, config.rate_limit.clone())),
        metrics,
        auth,
        options: options::http(config, &instance),
    };
    Wired { world, actors: options::actors(config, instance, lanes), http, listeners, held, vitals }
}

fn verifier(config: &Config) -> Result<api::auth::Verifier, StartError> {
    let Some(source) = config.auth.source() else {
        return Err(StartError::Config(
            "no key to verify tokens with: set auth.hs256_secret, auth.public_key_file or auth.jwks_url, for example\n  \
             POSTHASTE__AUTH__HS256_SECRET=$(openssl rand -hex 32) posthaste serve\n\
             or try it with the development secret: posthaste serve --dev"
                .into(),
        ));
    };
    let options = api::auth::Options {
        source,
        issuer: config.auth.issuer.clone(),
        audience: config.auth.audience.clone(),
        leeway: config.auth.leeway,
    };
    api::auth::Verifier::new(options).map_err(|error| StartError::Config(format!("auth: {error}")))
}
