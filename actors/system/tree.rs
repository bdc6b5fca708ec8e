//! The supervision tree as one table: parents and children, restart limits, shutdown rules. No other file starts an actor.
//!
//! ```text
//! root                 one_for_one   3 / 60 s   escalates: drain, exit 70
//! ├ FailoverManager    one child     5 / 30 s   first: the gate is set before any writer starts
//! ├ BackpressureManager one child    5 / 30 s
//! ├ relay              rest_for_one  5 / 30 s
//! │  ├ RetryHandler
//! │  ├ OutboxPublisher                          dies → its workers restart too: leases are acquired anew
//! │  └ PartitionWorker × owned  one_for_one  20 / 60 s
//! ├ ConsumerActor × n  one child     5 / 30 s   of the orders' topic, then of each topic with consumers of its own
//! ├ webhooks           rest_for_one  5 / 30 s
//! │  ├ ConsumerActor × webhook  one_for_one  20 / 60 s
//! │  └ WebhookManager                           starts and ends the consumers
//! ├ EventIntake        one child     5 / 30 s   events of other services, by HTTP
//! ├ PendingPromoter    one child     5 / 60 s
//! └ OrderAggregate × shards  one_for_one  20 / 60 s
//! ```
//! Stopped in reverse: shards, promoter, intake, webhooks, consumers, workers, publisher, retry handler, managers.
mod group_consumers;
mod limits;
mod threads;
mod topic_consumers;
mod webhooks;

use std::sync::Arc;
use std::time::Duration;

use actix_rt::ArbiterHandle;
use ports::partitions::PartitionNo;
use supervision::{ChildSpec, Mailbox, Shutdown, Strategy, SupervisionBus, SupervisorSpec};

use crate::backpressure_manager::BackpressureManager;
use crate::consumer_actor::ConsumerActor;
use crate::consumer_actor::lag_series::LagSeries;
use crate::consumer_actor::order_pipeline::OrderPipeline;
use crate::event_intake::EventIntake;
use crate::failover_manager::FailoverManager;
use crate::order_aggregate::OrderAggregate;
use crate::order_aggregate::direct_publisher::DirectPublisher;
use crate::order_aggregate::order_samples::OrderSamples;
use crate::order_aggregate::wake_ups::WakeUps;
use crate::outbox_publisher::OutboxPublisher;
use crate::outbox_publisher::dirty_partitions::DirtyPartitions;
use crate::outbox_publisher::membership::Membership;
use crate::outbox_publisher::workers::{WorkerSpec, Workers, worker_id};
use crate::partition_worker::PartitionWorker;
use crate::partition_worker::context::RelayContext;
use crate::partition_worker::local_leases::LocalLeases;
use crate::partition_worker::producer_sessions::ProducerSessions;
use crate::partition_worker::relay::Relay;
use crate::pending_promoter::PendingPromoter;
use crate::retry_handler::{self, RetryHandler};
use crate::system::dependencies::Dependencies;
use crate::system::options::Options;
use crate::system::shards::Shards;
use crate::system::tree::group_consumers::group_consumers;
use crate::system::tree::limits::{
    CONSUMER_DRAIN_MAX, Intensity, MAILBOX_ONE, MAILBOX_SMALL, actor, only_child, supervisor,
};
use crate::system::tree::topic_consumers::topic_consumers;
use crate::system::tree::webhooks::webhooks;

pub use threads::Threads;

/// Name of the workers' supervisor; workers start and end at run time.
const PARTITIONS: &str = "partitions";

/// Longest drain of each later sibling in the relay after an earlier one failed, and of the other workers when one failed without end: the
/// actors must be back within a second. Ten times the duration of a batch on a healthy broker; a batch that is cut off is resolved, and no row
/// counts a death for it.
const SIBLING_DRAIN_MAX: Duration = Duration::from_millis(300);

/// The tree before its start, with the mailboxes that the rest of the service uses.
pub struct Tree {
    /// The root supervisor; start it with [`supervision::RootSupervisor::start`].
    pub spec: SupervisorSpec,
    /// Mailboxes of the OrderAggregate shards, by shard number.
    pub shards: Shards,
    /// Mailbox of the intake of other services' events.
    pub intake: Mailbox<EventIntake>,
    /// Mailbox of the publisher, for the handover at a stop.
    pub publisher: Mailbox<OutboxPublisher>,
    /// The leases that this instance holds.
    pub local_leases: Arc<LocalLeases>,
    /// Mailbox of the promoter, for promotions on request.
    pub promoter: Mailbox<PendingPromoter>,
    /// The actors' threads; they must outlive the tree.
    pub threads: Threads,
}

/// Builds the tree without starting it.
pub fn tree(dependencies: &Dependencies, options: &Arc<Options>, bus: &SupervisionBus) -> Tree {
    let threads = Threads::new(options);
    for (name, handle) in [("relay", threads.relay()), ("orders", threads.orders())] {
        if let Some(handle) = handle {
            bus.watch_arbiter(name, handle);
        }
    }
    let failover = failover_manager(dependencies, options, bus);
    let local_leases = Arc::new(LocalLeases::new(Arc::clone(&dependencies.clock), options.relay.lease));
    let (relay, publisher, wake_ups) = relay(dependencies, options, bus, &local_leases, &threads);
    let (consumers, consumer_specs) = consumers(dependencies, options, bus, &threads);
    let (shards, shards_spec) = shards(dependencies, options, bus, &wake_ups, &threads);
    let backpressure = backpressure_manager(dependencies, options, bus, consumers);
    let (intake, intake_spec) = event_intake(dependencies, options, bus, &wake_ups, &threads);
    let (promoter, promoter_spec) = pending_promoter(dependencies, options, bus, &shards);
    let mut spec = supervisor("root", Strategy::OneForOne, Intensity::ROOT)
        .supervisor(only_child("failover", Intensity::MANAGER, failover))
        .supervisor(only_child("backpressure", Intensity::MANAGER, backpressure))
        .supervisor(relay);
    for (number, consumer) in consumer_specs.into_iter().enumerate() {
        spec = spec.supervisor(only_child(&format!("consumer-{number}"), Intensity::CONSUMER, consumer));
    }
    for consumer in topic_consumers(dependencies, options, bus, &threads) {
        spec = spec.supervisor(consumer);
    }
    if let Some(webhooks) = webhooks(dependencies, options, bus, &threads) {
        spec = spec.supervisor(webhooks);
    }
    if dependencies.commands.options.outbox {
        spec = spec.supervisor(only_child("intake", Intensity::INTAKE, intake_spec));
    }
    if options.orders_enabled {
        spec = spec.supervisor(only_child("promoter", Intensity::PROMOTER, promoter_spec)).supervisor(shards_spec);
    }
    Tree { spec, shards, intake, publisher, local_leases, promoter, threads }
}

fn failover_manager(dependencies: &Dependencies, options: &Arc<Options>, bus: &SupervisionBus) -> ChildSpec {
    let (dependencies, options, actor_bus) = (dependencies.clone(), Arc::clone(options), bus.clone());
    let (_, spec) = actor(bus, "/failover-manager", MAILBOX_SMALL, move |_| {
        FailoverManager::new(dependencies.clone(), Arc::clone(&options), actor_bus.clone())
    });
    spec
}

fn backpressure_manager(
    dependencies: &Dependencies,
    options: &Arc<Options>,
    bus: &SupervisionBus,
    consumers: Vec<Mailbox<ConsumerActor>>,
) -> ChildSpec {
    let (dependencies, options, actor_bus) = (dependencies.clone(), Arc::clone(options), bus.clone());
    let (_, spec) = actor(bus, "/backpressure-manager", MAILBOX_SMALL, move |_| {
        BackpressureManager::new(dependencies.clone(), Arc::clone(&options), actor_bus.clone(), consumers.clone())
    });
    spec
}

fn relay(
    dependencies: &Dependencies,
    options: &Arc<Options>,
    bus: &SupervisionBus,
    local_leases: &Arc<LocalLeases>,
    threads: &Threads,
) -> (SupervisorSpec, Mailbox<OutboxPublisher>, WakeUps) {
    let (retry, retry_spec) = retry_handler(dependencies, options, bus);
    let workers = dependencies.broker.clone().filter(|_| options.publisher_enabled).map(|broker| {
        let context = RelayContext {
            producers: ProducerSessions::new(Arc::clone(&broker), options.producers),
            broker,
            outbox: Arc::clone(&dependencies.outbox),
            leases: Arc::clone(&dependencies.leases),
            cache: Arc::clone(&dependencies.commands.cache),
            local_leases: Arc::clone(local_leases),
            retry_handler: retry,
            poison: options.rules.poison.clone(),
            instance: options.instance.clone(),
            envelope: options.relay.envelope(),
            options: options.relay.clone(),
            metrics: Arc::clone(&dependencies.metrics),
            tracer: dependencies.tracer.clone(),
            bus: bus.clone(),
        };
        workers(bus, Relay::new(context), threads.relay())
    });
    let dirty = DirtyPartitions::new(options.partitions);
    let (publisher, publisher_spec) = {
        let (dependencies, options, actor_bus, dirty, local_leases) =
            (dependencies.clone(), Arc::clone(options), bus.clone(), dirty.clone(), Arc::clone(local_leases));
        // One wake-up for each partition, and a few other messages.
        let capacity = options.partitions as usize + MAILBOX_SMALL;
        actor(bus, "/relay/outbox-publisher", capacity, move |_| {
            let (leases, instance) = (Arc::clone(&dependencies.leases), options.instance.clone());
            let membership =
                Membership::new(leases, Arc::clone(&local_leases), instance, options.dead_after, options.partitions);
            let (dependencies, options) = (dependencies.clone(), Arc::clone(&options));
            OutboxPublisher::new(dependencies, options, actor_bus.clone(), workers.clone(), membership, dirty.clone())
        })
    };
    let partitions = supervisor(PARTITIONS, Strategy::OneForOne, Intensity::WORKERS)
        .parallel_shutdown()
        .sibling_drain_limit(SIBLING_DRAIN_MAX);
    let spec = supervisor("relay", Strategy::RestForOne, Intensity::RELAY)
        .path("/relay")
        .sibling_drain_limit(SIBLING_DRAIN_MAX)
        .child(retry_spec.arbiter(threads.relay()))
        .child(publisher_spec.arbiter(threads.relay()))
        .supervisor(partitions);
    (spec, publisher.clone(), WakeUps::new(publisher, dirty))
}

fn retry_handler(
    dependencies: &Dependencies,
    options: &Arc<Options>,
    bus: &SupervisionBus,
) -> (Mailbox<RetryHandler>, ChildSpec) {
    let (dependencies, rules, actor_bus) = (dependencies.clone(), Arc::new(options.rules.clone()), bus.clone());
    // One message for each batch in flight.
    actor(bus, &format!("/relay/{}", retry_handler::NAME), options.max_in_flight.max(MAILBOX_SMALL), move |_| {
        let Dependencies { outbox, gate, rng, metrics, .. } = dependencies.clone();
        RetryHandler::new(outbox, Arc::clone(&rules), gate, rng, metrics, actor_bus.clone())
    })
}

/// The table of workers, empty.
fn workers(bus: &SupervisionBus, relay: Relay, arbiter: Option<ArbiterHandle>) -> Workers {
    let (actor_bus, relay) = (bus.clone(), Arc::new(relay));
    let spec: WorkerSpec = Arc::new(move |partition| partition_worker(&actor_bus, &relay, partition, arbiter.clone()));
    Workers::new(bus.clone(), PARTITIONS, spec)
}

fn partition_worker(
    bus: &SupervisionBus,
    relay: &Arc<Relay>,
    partition: PartitionNo,
    arbiter: Option<ArbiterHandle>,
) -> (Mailbox<PartitionWorker>, ChildSpec) {
    let relay = Arc::clone(relay);
    let path = format!("/relay/{}", worker_id(partition));
    let (mailbox, spec) = actor(bus, &path, MAILBOX_ONE, move |incarnation| {
        PartitionWorker::new(Arc::clone(&relay), partition, &incarnation)
    });
    // Waiting for the batch in flight saves its resolution by the next owner.
    (mailbox, spec.arbiter(arbiter).shutdown(Shutdown::Timeout(Duration::from_secs(10))))
}

fn consumers(
    dependencies: &Dependencies,
    options: &Arc<Options>,
    bus: &SupervisionBus,
    threads: &Threads,
) -> (Vec<Mailbox<ConsumerActor>>, Vec<ChildSpec>) {
    let groups = group_consumers(dependencies, options, bus).filter(|_| options.orders_enabled);
    let Some(groups) = groups else { return (Vec::new(), Vec::new()) };
    let pipeline = Arc::new(OrderPipeline {
        consumer: groups(options.group.clone(), &options.topic, options.consumers),
        orders: Arc::clone(&dependencies.commands.orders),
        outbox: Arc::clone(&dependencies.outbox),
        regional_clock: Arc::clone(&dependencies.commands.regional_clock),
        handlers: dependencies.handlers.clone(),
        region: options.relay.region.clone(),
        batch: options.consumer_batch,
        tracer: dependencies.tracer.clone(),
    });
    let lag_series = Arc::new(LagSeries::new(Arc::clone(&dependencies.metrics)));
    let consumer = |number: u32| {
        let (pipeline, lag_series) = (Arc::clone(&pipeline), Arc::clone(&lag_series));
        let (mailbox, spec) = actor(bus, &format!("/consumer-{number}"), MAILBOX_SMALL, move |_| {
            ConsumerActor::new(Arc::clone(&pipeline) as _, Some(Arc::clone(&lag_series)), number)
        });
        (mailbox, spec.arbiter(threads.relay()).shutdown(Shutdown::Timeout(CONSUMER_DRAIN_MAX)))
    };
    (0..options.consumers).map(consumer).unzip()
}

fn event_intake(
    dependencies: &Dependencies,
    options: &Arc<Options>,
    bus: &SupervisionBus,
    wake_ups: &WakeUps,
    threads: &Threads,
) -> (Mailbox<EventIntake>, ChildSpec) {
    let (dependencies, wake_ups) = (dependencies.clone(), wake_ups.clone());
    let (mailbox, spec) = actor(bus, "/event-intake", options.mailbox.max(1), move |_| {
        let Dependencies { commands, events, metrics, health, tracer, .. } = dependencies.clone();
        EventIntake::new(commands, events, wake_ups.clone(), metrics, health, tracer)
    });
    (mailbox, spec.arbiter(threads.orders()))
}

fn pending_promoter(
    dependencies: &Dependencies,
    options: &Arc<Options>,
    bus: &SupervisionBus,
    shards: &Shards,
) -> (Mailbox<PendingPromoter>, ChildSpec) {
    let (commands, options, shards) = (Arc::clone(&dependencies.commands), Arc::clone(options), shards.clone());
    actor(bus, "/pending-promoter", MAILBOX_SMALL, move |_| {
        PendingPromoter::new(Arc::clone(&commands), shards.clone(), Arc::clone(&options))
    })
}

fn shards(
    dependencies: &Dependencies,
    options: &Arc<Options>,
    bus: &SupervisionBus,
    wake_ups: &WakeUps,
    threads: &Threads,
) -> (Shards, SupervisorSpec) {
    let direct = dependencies
        .broker
        .clone()
        .filter(|_| !dependencies.commands.options.outbox)
        .map(|broker| DirectPublisher::new(broker, options.relay.envelope(), Arc::clone(&dependencies.metrics)));
    let mut spec = supervisor("orders", Strategy::OneForOne, Intensity::SHARDS).parallel_shutdown();
    let mut mailboxes = Vec::new();
    let samples = OrderSamples::new(bus.clone());
    for number in 0..options.shards.max(1) {
        let (commands, wake_ups, direct) = (Arc::clone(&dependencies.commands), wake_ups.clone(), direct.clone());
        let (metrics, health, samples) =
            (Arc::clone(&dependencies.metrics), dependencies.health.clone(), samples.clone());
        let tracer = dependencies.tracer.clone();
        let (mailbox, shard) = actor(bus, &format!("/order-aggregate-{number}"), options.mailbox.max(1), move |_| {
            OrderAggregate::new(
                Arc::clone(&commands),
                wake_ups.clone(),
                direct.clone(),
                Arc::clone(&metrics),
                health.clone(),
                samples.clone(),
                tracer.clone(),
            )
        });
        spec = spec.child(shard.arbiter(threads.orders()));
        mailboxes.push(mailbox);
    }
    (Shards::new(mailboxes, Arc::clone(&dependencies.commands), options.request_timeout), spec)
}
