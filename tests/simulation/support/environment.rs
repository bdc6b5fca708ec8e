//! The environment of a simulation: a folder, virtual time, seeded randomness, scripted faults. It outlives the processes that run in it.
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use actors::{ActorSystem, Dependencies, MonitoredProbe, Options, ProducerSlots, TopicConsumers};
use app::admission::write_gate::WriteGate;
use app::commands::{self, CommandContext};
use app::consume::handlers::Handlers;
use app::health::SharedHealth;
use app::operators::dead_letters::DeadLetters;
use domain::{OrderId, Status};
use embedded::{Embedded, WriterMode};
use kit::clock::{START_TIME, SeededRng};
use kit::faults::{
    FaultScript, FaultyBroker, FaultyCache, FaultyEvents, FaultyIdempotency, FaultyInbox, FaultyLeases, FaultyOrders,
    FaultyOutbox, FaultyWebhooks,
};
use memory::Memory;
use parking_lot::Mutex;
use ports::broker::consumer_groups::ConsumerGroups;
use ports::clock::{Clock, Rng};
use ports::endpoint::WebhookClient;
use ports::partitions::InstanceId;
use telemetry::traces::Tracer;
use tempfile::TempDir;
use tokio::task::LocalSet;

use crate::support::kept_offsets::KeptOffsets;
use crate::support::late_partitions::LatePartitions;
use crate::support::ledger::Ledger;
use crate::support::log_capture;
use crate::support::process::{Process, TIMEOUT, TOPIC};
use crate::support::record_faults::{FaultyRecordBroker, RecordFaults};
use crate::support::skewed_clock::SkewedClock;
use crate::support::wake_hub::WakeHub;

/// The seed of a run: `POSTHASTE_SEED`, or a fixed one.
pub fn seed() -> u64 {
    number("POSTHASTE_SEED").unwrap_or(20_260_101)
}

/// The seeds of a random scenario: `POSTHASTE_SEED` alone, or `POSTHASTE_SEEDS` many (`default` unless it is set, 0 without end) from
/// `POSTHASTE_FIRST_SEED` on.
pub fn seeds(default: u64) -> impl Iterator<Item = u64> + Send {
    let (first, count) = match number("POSTHASTE_SEED") {
        Some(seed) => (seed, 1),
        None => (number("POSTHASTE_FIRST_SEED").unwrap_or(1), number("POSTHASTE_SEEDS").unwrap_or(default)),
    };
    (first..).take(if count == 0 { usize::MAX } else { count as usize })
}

/// The number in an environment variable, if it is set.
pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// Everything that outlives a process, and the faults that a test switches on.
pub struct Environment {
    seed: u64,
    folder: TempDir,
    /// Time of the processes.
    pub clock: Arc<SkewedClock>,
    /// The clock of the instances; the store's clock unless a test sets it.
    pub instance_clock: Arc<dyn Clock>,
    /// Seeded randomness of actors and tests.
    pub rng: Arc<SeededRng>,
    /// Faults of whole calls to the ports.
    pub script: FaultScript,
    /// Faults of single records at the broker, and the attempts to send them.
    pub record_faults: RecordFaults,
    /// Options of the actors in each new process.
    pub options: Options,
    /// Handlers of consumed events.
    pub handlers: Handlers,
    /// Consumers of other services' topics. They need `consumes`.
    pub topic_consumers: Vec<TopicConsumers>,
    /// Probes, and whether each one's failure makes the region passive.
    pub probes: Vec<MonitoredProbe>,
    /// Whether the processes run consumers.
    pub consumes: bool,
    /// Calls the endpoints of webhooks; without it no webhook is delivered. Needs `consumes`.
    pub webhook_client: Option<Arc<dyn WebhookClient>>,
    /// Polls of a new group member before it has partitions.
    pub empty_polls: u32,
    /// Whether consumer groups refuse new members.
    pub refuses_members: Arc<AtomicBool>,
    /// Whether consumer groups give the partitions of a member that fails to others.
    pub reassigns_partitions: bool,
    /// The groups without members whose offsets were kept.
    pub kept_offsets: Arc<Mutex<Vec<String>>>,
    /// Wake-ups between services; none unless a test sets it.
    pub wake_hub: Option<WakeHub>,
}

impl Environment {
    /// An empty environment with the run's seed. It has few partitions, so that keys share them.
    pub fn new() -> Self {
        Self::seeded(seed())
    }

    /// An empty environment with this seed.
    pub fn seeded(seed: u64) -> Self {
        log_capture::install();
        let options = Options {
            instance: InstanceId("sim".into()),
            partitions: 4,
            producers: ProducerSlots::Spread(4),
            shards: 2,
            promotion_interval: Duration::ZERO,
            faults: true,
            threads: false,
            ..Options::default()
        };
        let clock = Arc::new(SkewedClock::starting_at(START_TIME));
        Self {
            seed,
            folder: tempfile::tempdir().expect("a folder can be made"),
            instance_clock: clock.clone(),
            clock,
            rng: Arc::new(SeededRng::new(seed)),
            script: FaultScript::seeded(seed.wrapping_add(1)),
            record_faults: RecordFaults::default(),
            options,
            handlers: Handlers::default(),
            topic_consumers: Vec::new(),
            probes: Vec::new(),
            consumes: false,
            webhook_client: None,
            empty_polls: 0,
            refuses_members: Arc::default(),
            reassigns_partitions: false,
            kept_offsets: Arc::default(),
            wake_hub: None,
        }
    }

    /// The store's file, which a test may damage.
    pub fn database(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.folder.path().join("posthaste.db")).expect("a process has opened it")
    }

    /// Starts a process on the folder.
    pub async fn start(&self) -> Process {
        let store =
            Embedded::open(self.store_options()).expect("the folder is intact and no other process has locked it");
        let local = LocalSet::new();
        let dependencies = self.dependencies(&store, 0);
        let actors = local.run_until(self.start_actors(dependencies.clone(), self.options.clone())).await;
        Process::new(local, actors, store, &dependencies)
    }

    /// Publishes two events of one order before the consumer starts: one poll receives both.
    pub async fn start_with_two_in_one_poll(&mut self, ledger: &mut Ledger) -> (Process, OrderId) {
        self.consumes = false;
        let process = self.start().await;
        let id = ledger.create_order(&process).await;
        ledger.change_status(&process, id, Status::Processing).await;
        process.wait_until_drained(TIMEOUT).await;
        drop(process);

        self.consumes = true;
        (self.start().await, id)
    }

    /// Starts one more service in the same process, on the same store, with its own name and producers.
    pub async fn join(&self, process: &Process, name: &str) -> ActorSystem {
        let first_producer = 1_000 * name.bytes().map(u32::from).sum::<u32>();
        self.join_with(process, name, self.dependencies(&process.store, first_producer)).await
    }

    /// Starts one more service as [`Environment::join`] does, with `broker.kind` `none`.
    pub async fn join_without_broker(&self, process: &Process, name: &str) -> ActorSystem {
        self.join_with(process, name, Dependencies { broker: None, ..self.dependencies(&process.store, 0) }).await
    }

    async fn join_with(&self, process: &Process, name: &str, dependencies: Dependencies) -> ActorSystem {
        let options = Options { instance: InstanceId(name.into()), ..self.options.clone() };
        process.run(self.start_actors(dependencies, options)).await
    }

    /// The operators' view of the dead letters; its broker calls meet the scripted faults and those of records.
    pub fn dead_letters(&self, process: &Process) -> DeadLetters {
        let shared_store = Arc::new(process.store.clone());
        let broker = Arc::new(FaultyBroker::wrap(shared_store.clone(), self.script.clone()));
        let broker = Arc::new(FaultyRecordBroker::wrap(broker, self.record_faults.clone(), 0));
        let spawn = Arc::new(|task| drop(tokio::spawn(task)));
        DeadLetters::new(TOPIC, shared_store.clone(), broker, shared_store, self.clock.clone(), spawn)
    }

    async fn start_actors(&self, dependencies: Dependencies, options: Options) -> ActorSystem {
        let rng = Arc::clone(&self.rng);
        let bus = supervision::Options { random: Arc::new(move || rng.fraction()), ..supervision::Options::default() };
        ActorSystem::start(dependencies, options, bus).await
    }

    fn store_options(&self) -> embedded::Options {
        let clock = Arc::clone(&self.clock);
        let mut options = embedded::Options::new(self.folder.path(), self.options.instance.clone(), clock);
        options.writer_mode = WriterMode::Inline;
        options.partitions = self.options.partitions;
        options.topic_partitions = 3;
        options.installation = Some("sim".into());
        options
    }

    fn dependencies(&self, store: &Embedded, first_producer: u32) -> Dependencies {
        let (shared_store, script) = (Arc::new(store.clone()), self.script.clone());
        let gate = Arc::new(WriteGate::default());
        let faulty = FaultyBroker::wrap(shared_store.clone(), script.clone());
        let memory = Arc::new(Memory::new(&memory::Options::default(), self.clock.clone()));
        let commands = CommandContext {
            orders: Arc::new(FaultyOrders::wrap(shared_store.clone(), script.clone())),
            idempotency: Arc::new(FaultyIdempotency::wrap(memory.clone(), script.clone())),
            cache: Arc::new(FaultyCache::wrap(memory, script.clone())),
            clock: self.instance_clock.clone(),
            rng: self.rng.clone(),
            inbox: shared_store.clone(),
            regional_clock: Arc::default(),
            gate: gate.clone(),
            options: commands::Options { partitions: self.options.partitions, ..commands::Options::default() },
        };
        Dependencies {
            commands: Arc::new(commands),
            outbox: Arc::new(FaultyOutbox::wrap(shared_store.clone(), script.clone())),
            events: Arc::new(FaultyEvents::wrap(shared_store.clone(), script.clone())),
            leases: Arc::new(FaultyLeases::wrap(shared_store.clone(), script.clone())),
            broker: Some(Arc::new(FaultyRecordBroker::wrap(
                Arc::new(faulty),
                self.record_faults.clone(),
                first_producer,
            ))),
            consumer_groups: self.consumes.then(|| {
                let groups =
                    Arc::new(KeptOffsets { inner: shared_store.clone(), kept: Arc::clone(&self.kept_offsets) });
                Arc::new(LatePartitions {
                    inner: groups,
                    empty_polls: self.empty_polls,
                    refuses_members: Arc::clone(&self.refuses_members),
                    reassigns_partitions: self.reassigns_partitions,
                }) as Arc<dyn ConsumerGroups>
            }),
            webhooks: Arc::new(FaultyWebhooks::wrap(shared_store.clone(), script.clone())),
            webhook_client: self.webhook_client.clone(),
            wake_channel: self.wake_hub.as_ref().map(|hub| hub.connect()),
            inbox: Arc::new(FaultyInbox::wrap(shared_store, script)),
            handlers: self.handlers.clone(),
            topic_consumers: self.topic_consumers.clone(),
            probes: self.probes.clone(),
            clock: self.instance_clock.clone(),
            rng: self.rng.clone(),
            gate,
            health: SharedHealth::default(),
            metrics: telemetry::Metrics::new(),
            tracer: Tracer::default(),
        }
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("repeat with POSTHASTE_SEED={}", self.seed);
        }
    }
}
