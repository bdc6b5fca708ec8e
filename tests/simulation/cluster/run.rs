//! A run: a seed decides the size of the installation, its faults and the writers. Then all faults end, and the invariants are checked.
use std::sync::Arc;
use std::time::Duration;

use actors::{Options, ProducerSlots};
use app::policy::breaker;
use kit::clock::SeededRng;
use outbox::RetryPolicy;
use ports::clock::Rng;
use tokio::runtime::Builder;
use tokio::time::Instant;

use crate::cluster::consumers::failure_plan::FailureRates;
use crate::cluster::consumers::handler::SimulatedHandler;
use crate::cluster::consumers::invariants::ConsumerInvariants;
use crate::cluster::external_writers::{self, ExternalWriterContext};
use crate::cluster::faults::Faults;
use crate::cluster::flaw::Flaw;
use crate::cluster::instance::{self, ClusterContext};
use crate::cluster::instances::SimulatedInstances;
use crate::cluster::invariants::{Invariants, QUIESCENCE_LIMIT, Violation};
use crate::cluster::kafka::broker::SimulatedKafka;
use crate::cluster::kafka::delivery_guarantee::DeliveryGuarantee;
use crate::cluster::kafka::refusals::Refusals;
use crate::cluster::network::Network;
use crate::cluster::postgres::server::SimulatedPostgres;
use crate::cluster::trace::{EventCounts, Trace};
use crate::cluster::writers::{Replies, Writers};
use crate::support::wake_hub::WakeHub;

/// How long faults are injected.
const FAULTY_TIME: Duration = Duration::from_secs(6);
/// Time between two checks for unfinished work.
const QUIESCENCE_PAUSE: Duration = Duration::from_millis(250);

/// The result of a run.
#[derive(Debug)]
pub struct RunReport {
    /// Hash of the events of its trace.
    pub fingerprint: u64,
    /// How many events of each kind the trace has.
    pub counts: EventCounts,
    /// The broken invariant, if there is one.
    pub result: Result<(), Violation>,
}

/// Runs a seed on a runtime of its own, with this flaw in the simulated servers.
pub fn run(seed: u64, mode: DeliveryGuarantee, flaw: Option<Flaw>) -> RunReport {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime can be built").block_on(run_in(seed, mode, flaw))
}

/// The parameters that a seed decides before the run begins.
struct RunParameters {
    instances: usize,
    fault_probability: f64,
    late_commit_probability: f64,
    refusals: (f64, f64),
    fail_overs: u32,
    has_wake_channel: bool,
    writers: u64,
    pause_max: Duration,
    failure_rates: FailureRates,
    needs_order: bool,
    options: Options,
    /// Clients and writers with SQL of other services.
    external_writers: (u64, u64),
}

fn pick<T: Copy>(rng: &SeededRng, from: &[T]) -> T {
    from[(rng.next_u64() % from.len() as u64) as usize]
}

impl RunParameters {
    fn draw(rng: &SeededRng) -> Self {
        let fail_overs = pick(rng, &[0, 0, 0, 1, 2]);
        let refusals = pick(rng, &[(0.0, 0.0), (0.05, 0.0), (0.1, 0.02)]);
        Self {
            instances: pick(rng, &[2, 2, 3]),
            fault_probability: pick(rng, &[0.0, 0.005, 0.01, 0.02]),
            late_commit_probability: pick(rng, &[0.0, 0.1, 0.3]),
            refusals,
            fail_overs,
            has_wake_channel: pick(rng, &[true, false]),
            writers: pick(rng, &[3, 6]),
            pause_max: Duration::from_millis(pick(rng, &[100, 400, 900])),
            failure_rates: FailureRates {
                transient: pick(rng, &[0.0, 0.1, 0.3]),
                permanent: pick(rng, &[0.0, 0.0, 0.05]),
                slow: pick(rng, &[0.0, 0.0, 0.1]),
            },
            needs_order: pick(rng, &[true, true, false]),
            options: options(rng),
            external_writers: pick(rng, &[(0, 0), (2, 2), (1, 4)]),
        }
    }
}

/// The defaults of the service, with times that fit a run of some seconds.
fn options(rng: &SeededRng) -> Options {
    let defaults = Options::default();
    let mut rules = defaults.rules.clone();
    rules.retry = RetryPolicy {
        attempts_max: 1_000,
        base: Duration::from_millis(200),
        max: Duration::from_secs(2),
        ..RetryPolicy::default()
    };
    let slots = pick(rng, &[2, 2, 3]);
    let mut relay = defaults.relay.clone();
    (relay.batch, relay.lease, relay.margin) =
        (pick(rng, &[1, 3, 20]), Duration::from_secs(5), Duration::from_millis(500));
    Options {
        relay,
        rules,
        breaker: breaker::Options { failures: 5, open: Duration::from_secs(2) },
        partitions: pick(rng, &[2, 3, 4]),
        producers: pick(
            rng,
            &[ProducerSlots::Shared(slots), ProducerSlots::Shared(slots), ProducerSlots::Spread(slots)],
        ),
        heartbeat: Duration::from_secs(1),
        dead_after: pick(rng, &[Duration::from_secs(2), Duration::from_secs(4)]),
        sweep_interval: Duration::from_secs(3_600),
        promotion_interval: Duration::ZERO,
        request_timeout: Duration::from_secs(3),
        consumer_batch: pick(rng, &[3, 20, 100]),
        retry_delays: [100, 150, 200, 300].map(Duration::from_millis),
        shards: 1,
        faults: true,
        threads: false,
        ..defaults
    }
}

async fn run_in(seed: u64, mode: DeliveryGuarantee, flaw: Option<Flaw>) -> RunReport {
    let rng = SeededRng::new(seed);
    let mut parameters = RunParameters::draw(&rng);
    parameters.options.relay.defers_settlement = mode == DeliveryGuarantee::ExactlyOnce;
    let (trace, replies) = (Trace::new(), Replies::default());
    let network = Network::new(rng.next_u64(), trace.clone());
    let refusals = Refusals::new(rng.next_u64());
    let kafka = SimulatedKafka::new(network.clone(), flaw, refusals.clone());
    let postgres =
        SimulatedPostgres::new(parameters.options.partitions, kafka.clone(), network.clone(), flaw, trace.clone());
    let cluster_context = ClusterContext {
        postgres: postgres.clone(),
        kafka,
        network: network.clone(),
        rng: Arc::new(SeededRng::new(rng.next_u64())),
        clock: instance::clock(),
        options: parameters.options,
        mode,
        handler: SimulatedHandler::new(rng.next_u64(), parameters.failure_rates, parameters.needs_order, trace.clone()),
        wake_hub: parameters.has_wake_channel.then(WakeHub::default),
        late_commit_probability: parameters.late_commit_probability,
    };
    let mut instances = SimulatedInstances::new(parameters.instances, cluster_context.clone(), trace.clone());
    let mut faults = Faults::new(rng.next_u64(), cluster_context.clone(), parameters.fail_overs);
    for number in 0..parameters.instances {
        instances.start(number).await;
    }
    network.set_fault_probability(parameters.fault_probability);
    refusals.set(parameters.refusals.0, parameters.refusals.1);
    let mut writers =
        Writers::start(parameters.writers, 2, parameters.pause_max, rng.next_u64(), &instances.registry(), &replies);
    let writer_context = ExternalWriterContext {
        pause_max: parameters.pause_max,
        registry: instances.registry(),
        postgres,
        replies: replies.clone(),
        trace: trace.clone(),
    };
    external_writers::start(&mut writers, parameters.external_writers, rng.next_u64(), &writer_context);

    faults.inject(&mut instances, FAULTY_TIME).await;
    faults.end(&mut instances).await;
    refusals.clear();
    instances.run(writers.finished()).await;

    let invariants = Invariants { cluster_context: &cluster_context, refusals: &refusals };
    let result = end(&mut instances, &invariants, &replies, &trace).await;
    RunReport { fingerprint: trace.fingerprint(), counts: trace.counts(), result }
}

/// Waits until all work is finished, and checks the invariants.
async fn end(
    instances: &mut SimulatedInstances,
    invariants: &Invariants<'_>,
    replies: &Replies,
    trace: &Trace,
) -> Result<(), Violation> {
    let (started, consumers) = (Instant::now(), ConsumerInvariants(invariants.cluster_context));
    while !is_quiescent(invariants, &consumers).await {
        invariants.retry_parked().await?;
        instances.restart_escalated().await;
        if started.elapsed() > QUIESCENCE_LIMIT {
            let remaining = format!("{}\n{}", invariants.remaining_work().await, consumers.remaining_work());
            return Err(first_violation(trace).unwrap_or(remaining));
        }
        instances.advance(QUIESCENCE_PAUSE).await;
    }
    if let Some(violation) = first_violation(trace) {
        return Err(violation);
    }
    for event in 0..invariants.duplicates() {
        trace.add("duplicate", event, 0);
    }
    invariants.check_topics(replies).await?;
    consumers.check().await
}

/// Whether every event is published and consumed. A late request may create work again, so all conditions are checked together.
async fn is_quiescent(invariants: &Invariants<'_>, consumers: &ConsumerInvariants<'_>) -> bool {
    let ClusterContext { network, kafka, .. } = invariants.cluster_context;
    // A transaction of a killed instance hides later records until the coordinator aborts it.
    !network.has_late_requests()
        && invariants.is_quiescent().await
        && kafka.is_decided()
        && consumers.remaining().is_empty()
}

/// The first invariant that was broken during the run.
fn first_violation(trace: &Trace) -> Option<Violation> {
    trace.violations().into_iter().next()
}
