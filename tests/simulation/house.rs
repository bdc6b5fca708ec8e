//! A house to simulate in: a folder, virtual time, seeded chance, a script of faults. Its lives come and go; what it holds stays.
use std::sync::Arc;
use std::time::Duration;

use actors::{Cast, Options, Pinning, World};
use app::admission::gate::Gate;
use app::commands::{self, CommandContext};
use app::consume::handlers::Handlers;
use app::health::HealthBoard;
use app::operators::dead_letters::DeadLetters;
use embedded::{Embedded, WriterMode};
use kit::clock::{START_TIME, SeededRng, TokioClock};
use kit::faults::{FaultScript, FaultyBroker, FaultyLeases, FaultyOrders, FaultyOutbox};
use memory::Memory;
use ports::clock::Rng;
use ports::partitions::InstanceId;
use ports::probe::Probe;
use ports::source::ConsumerGroups;
use tempfile::TempDir;
use tokio::task::LocalSet;

use crate::hub::Hub;
use crate::life::{Life, TOPIC};
use crate::moody::{Moods, Moody};

/// The seed of a run: the environment's, or one of ours.
pub fn seed() -> u64 {
    number("POSTHASTE_SEED").unwrap_or(20_260_101)
}

/// The seeds of a random scenario.
pub fn seeds(usual: u64) -> Vec<u64> {
    match number("POSTHASTE_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("POSTHASTE_SEEDS").unwrap_or(usual)).collect(),
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// What outlives a process, and the hands on it.
pub struct House {
    seed: u64,
    folder: TempDir,
    clock: Arc<TokioClock>,
    /// Chance, seeded.
    pub dice: Arc<SeededRng>,
    /// What goes wrong in the ports.
    pub script: FaultScript,
    /// What the broker thinks of single records, and what it saw.
    pub moods: Moods,
    /// How the cast works.
    pub options: Options,
    /// What consuming means.
    pub handlers: Handlers,
    /// Dependencies, and whether each gates.
    pub probes: Vec<(Arc<dyn Probe>, bool)>,
    /// Whether there are consumers.
    pub consumes: bool,
    /// How its services wake each other, where they can.
    pub hub: Option<Hub>,
}

impl House {
    /// An empty house of the run's seed. Few partitions, so that keys meet.
    pub fn new() -> Self {
        Self::seeded(seed())
    }

    /// An empty house of this seed.
    pub fn seeded(seed: u64) -> Self {
        let options = Options {
            instance: InstanceId("sim".into()),
            partitions: 4,
            lanes: Pinning::Apart(4),
            shards: 2,
            promotion_interval: Duration::ZERO,
            faults: true,
            threads: false,
            ..Options::default()
        };
        Self {
            seed,
            folder: tempfile::tempdir().expect("a folder can be made"),
            clock: Arc::new(TokioClock::starting_at(START_TIME)),
            dice: Arc::new(SeededRng::new(seed)),
            script: FaultScript::seeded(seed.wrapping_add(1)),
            moods: Moods::default(),
            options,
            handlers: Handlers::default(),
            probes: Vec::new(),
            consumes: false,
            hub: None,
        }
    }

    /// A process begins on the folder.
    pub async fn start(&self) -> Life {
        let store = Embedded::open(self.store_options()).expect("nobody holds the folder and it is whole");
        let local = LocalSet::new();
        let world = self.world(&store, 0);
        let cast = local.run_until(self.cast(world.clone(), self.options.clone())).await;
        Life::new(local, cast, store, &world)
    }

    /// One more service beside the first, on the same store: another name, lanes of its own.
    pub async fn join(&self, life: &Life, name: &str) -> Cast {
        let first_lane = 1_000 * name.bytes().map(u32::from).sum::<u32>();
        let world = self.world(&life.store, first_lane);
        let options = Options { instance: InstanceId(name.into()), ..self.options.clone() };
        life.run(self.cast(world, options)).await
    }

    /// The operators' door to the dead letters, through the script's faults.
    pub fn dead_letters(&self, life: &Life) -> DeadLetters {
        let real = Arc::new(life.store.clone());
        let broker = Arc::new(FaultyBroker::around(real.clone(), self.script.clone()));
        DeadLetters::new(TOPIC, real.clone(), broker, real, self.clock.clone())
    }

    async fn cast(&self, world: World, options: Options) -> Cast {
        let dice = Arc::clone(&self.dice);
        let bus = supervision::Options { random: Arc::new(move || dice.fraction()), ..supervision::Options::default() };
        Cast::start(world, options, bus).await
    }

    fn store_options(&self) -> embedded::Options {
        let clock = Arc::clone(&self.clock);
        let mut options = embedded::Options::new(self.folder.path(), self.options.instance.clone(), clock);
        options.writing = WriterMode::Inline;
        options.partitions = self.options.partitions;
        options.topic_partitions = 3;
        options.installation = Some("sim".into());
        options
    }

    fn world(&self, store: &Embedded, first_lane: u32) -> World {
        let (real, script) = (Arc::new(store.clone()), self.script.clone());
        let memory = Arc::new(Memory::new(&memory::Options::default(), self.clock.clone()));
        let gate = Arc::new(Gate::default());
        let faulty = FaultyBroker::around(real.clone(), script.clone());
        let desk = CommandContext {
            orders: Arc::new(FaultyOrders::around(real.clone(), script.clone())),
            idempotency: memory.clone(),
            cache: memory,
            clock: self.clock.clone(),
            dice: self.dice.clone(),
            gate: gate.clone(),
            options: commands::Options { partitions: self.options.partitions, ..commands::Options::default() },
        };
        World {
            desk: Arc::new(desk),
            outbox: Arc::new(FaultyOutbox::around(real.clone(), script.clone())),
            leases: Arc::new(FaultyLeases::around(real.clone(), script)),
            broker: Some(Arc::new(Moody::around(Arc::new(faulty), self.moods.clone(), first_lane))),
            sources: self.consumes.then(|| real.clone() as Arc<dyn ConsumerGroups>),
            wakes: self.hub.as_ref().map(|hub| hub.seat()),
            inbox: real,
            handlers: self.handlers.clone(),
            probes: self.probes.clone(),
            clock: self.clock.clone(),
            dice: self.dice.clone(),
            gate,
            vitals: HealthBoard::default(),
            metrics: telemetry::Metrics::new(),
        }
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("repeat with POSTHASTE_SEED={}", self.seed);
        }
    }
}
