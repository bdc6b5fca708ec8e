//! Instance: one process of the service on the simulated servers. Dropping it is a kill: every task ends at once, and what it has sent goes on
//! at the servers. A frozen instance is not polled.
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use actors::{ActorSystem, Dependencies, Options};
use app::admission::write_gate::WriteGate;
use app::commands::{self, CommandContext};
use app::dispatch::Dispatch;
use app::health::SharedHealth;
use futures::FutureExt;
use kit::clock::{START_TIME, SeededRng, TokioClock};
use memory::Memory;
use ports::clock::Rng;
use ports::partitions::InstanceId;
use supervision::SupervisionBus;
use telemetry::Metrics;
use telemetry::traces::Tracer;
use tokio::task::LocalSet;

use crate::cluster::consumers::handler::SimulatedHandler;
use crate::cluster::kafka::broker::SimulatedKafka;
use crate::cluster::kafka::client::KafkaClient;
use crate::cluster::kafka::delivery_guarantee::DeliveryGuarantee;
use crate::cluster::kafka::groups::client::GroupClient;
use crate::cluster::network::{Network, Server};
use crate::cluster::postgres::client::PostgresClient;
use crate::cluster::postgres::server::SimulatedPostgres;
use crate::support::wake_hub::WakeHub;

/// Time until an instance reads orders of others anew.
const CACHE_TTL: Duration = Duration::from_secs(2);

/// The environment that all instances of a run share.
#[derive(Clone)]
pub struct ClusterContext {
    pub postgres: SimulatedPostgres,
    pub kafka: SimulatedKafka,
    pub network: Network,
    pub rng: Arc<SeededRng>,
    pub clock: Arc<TokioClock>,
    pub options: Options,
    pub mode: DeliveryGuarantee,
    /// The handler of consumed events.
    pub handler: Arc<SimulatedHandler>,
    /// Wake-ups between the instances, where they have a channel.
    pub wake_hub: Option<WakeHub>,
    /// Probability of a transaction that commits late.
    pub late_commit_probability: f64,
}

/// A running process of the service.
pub struct Instance {
    local: LocalSet,
    actors: ActorSystem,
}

impl Instance {
    /// Starts a process under the id of this number.
    pub async fn start(number: usize, cluster_context: &ClusterContext) -> Self {
        let local = LocalSet::new();
        let name = format!("instance-{number}");
        let dependencies = dependencies(number, &name, cluster_context);
        let options = Options { instance: InstanceId(name.into()), ..cluster_context.options.clone() };
        let rng = Arc::clone(&cluster_context.rng);
        let bus = supervision::Options {
            random: Arc::new(move || rng.fraction()),
            inspection_interval: Duration::from_secs(1),
            ..supervision::Options::default()
        };
        let actors = local.run_until(ActorSystem::start(dependencies, options, bus)).await;
        Self { local, actors }
    }

    /// Polls all tasks of the process until none is ready.
    pub fn poll(&mut self, context: &mut Context<'_>) {
        // It ends only with its last task, and the actors' tasks do not end.
        let _ = Pin::new(&mut self.local).poll(context);
    }

    /// The interface through which the API of the process reaches its actors.
    pub fn dispatch(&self) -> Arc<dyn Dispatch> {
        self.actors.dispatch()
    }

    /// Faults and events of the supervision tree.
    pub fn bus(&self) -> &SupervisionBus {
        self.actors.bus()
    }

    /// Whether the root supervisor has given up, which ends a real process.
    pub fn escalated(&self) -> bool {
        self.actors.escalated().now_or_never().is_some()
    }

    /// Hands all partitions over and stops the tree, for at most `deadline`.
    pub async fn stop(self, deadline: Duration) {
        let Self { local, actors } = self;
        local.run_until(actors.stop(deadline)).await;
    }
}

fn dependencies(number: usize, name: &str, cluster_context: &ClusterContext) -> Dependencies {
    let ClusterContext {
        postgres,
        kafka,
        network,
        rng,
        clock,
        options,
        mode,
        handler,
        wake_hub,
        late_commit_probability,
    } = cluster_context.clone();
    let groups = GroupClient::new(kafka.clone(), network.link(number, Server::Kafka), clock.clone());
    let store = Arc::new(PostgresClient::new(
        postgres.clone(),
        network.link(number, Server::Postgres),
        late_commit_probability,
    ));
    let broker = KafkaClient::new(kafka, network.link(number, Server::Kafka), mode, name);
    let gate = Arc::new(WriteGate::default());
    let cache = memory::Options { order_ttl: CACHE_TTL, ..memory::Options::default() };
    let memory = Arc::new(Memory::new(&cache, clock.clone()));
    let commands = CommandContext {
        orders: store.clone(),
        idempotency: memory.clone(),
        cache: memory,
        clock: clock.clone(),
        rng: rng.clone(),
        inbox: Arc::new(postgres.data().clone()),
        regional_clock: Arc::default(),
        gate: gate.clone(),
        options: commands::Options { partitions: options.partitions, ..commands::Options::default() },
    };
    Dependencies {
        commands: Arc::new(commands),
        outbox: store.clone(),
        events: store.clone(),
        leases: store.clone(),
        broker: Some(Arc::new(broker)),
        consumer_groups: Some(Arc::new(groups)),
        webhooks: Arc::new(postgres.data().clone()),
        webhook_client: None,
        wake_channel: wake_hub.map(|hub| hub.connect()),
        inbox: store,
        handlers: handler.for_all_types(),
        topic_consumers: Vec::new(),
        probes: Vec::new(),
        clock,
        rng,
        gate,
        health: SharedHealth::default(),
        metrics: Metrics::new(),
        tracer: Tracer::default(),
    }
}

/// The clock of the instances.
pub fn clock() -> Arc<TokioClock> {
    Arc::new(TokioClock::starting_at(START_TIME))
}
