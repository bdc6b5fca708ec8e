//! THE supervision tree, as one table: who lives under whom, how often each may die, how each is stopped. Nobody else starts an actor.
//!
//! ```text
//! root                 one_for_one   3 / 60 s   gives up = drain, exit 70
//! ├ FailoverManager    alone         5 / 30 s   first: the gate has a keeper before a writer
//! ├ BackpressureManager alone        5 / 30 s
//! ├ relay              rest_for_one  5 / 30 s
//! │  ├ RetryHandler
//! │  ├ OutboxPublisher                          dies → its workers go too: leases are re-acquired, not guessed
//! │  └ PartitionWorker × owned  one_for_one  20 / 60 s
//! ├ ConsumerActor × n  alone         5 / 30 s
//! ├ PendingPromoter    alone         5 / 60 s
//! └ OrderAggregate × shards  one_for_one  20 / 60 s
//! ```
//! Stopped in reverse: shards, promoter, consumers, workers, publisher, retry handler, managers.
use std::sync::Arc;
use std::time::Duration;

use actix_rt::{Arbiter, ArbiterHandle};
use ports::partitions::PartitionNo;
use supervision::{ChildSpec, Mailbox, Shutdown, Strategy, SupervisionBus, SupervisorSpec, actor};

use crate::backpressure_manager::BackpressureManager;
use crate::consumer_actor::{ConsumerActor, Intake};
use crate::direct::Direct;
use crate::failover_manager::FailoverManager;
use crate::lanes::Lanes;
use crate::lease_book::LeaseBook;
use crate::nudge::{self, Nudge};
use crate::order_aggregate::OrderAggregate;
use crate::outbox_publisher::{Membership, OutboxPublisher};
use crate::partition_worker::{PartitionWorker, Relay};
use crate::pending_promoter::PendingPromoter;
use crate::retry_handler::{self, RetryHandler};
use crate::roster::Roster;
use crate::shards::Shards;
use crate::world::{Options, World};

/// Name of the workers' supervisor, under which they come and go.
pub const PARTITIONS: &str = "partitions";

/// Mailboxes of the actors that hold little: nudges, questions.
const SMALL: usize = 64;
/// One batch: a second message waits outside, which is the backpressure.
const ONE: usize = 1;

/// Longest that the relay's later siblings may drain when an earlier one died, each: that one is promised back within a second. Ten
/// times what a batch takes on a broker that is well; what is cut is resolved, and blames no row.
const GRACE: Duration = Duration::from_millis(300);

/// A restart budget: so many in this window.
type Budget = (usize, u64);

const ROOT: Budget = (3, 60);
const MANAGER: Budget = (5, 30);
const RELAY: Budget = (5, 30);
const WORKERS: Budget = (20, 60);
const CONSUMER: Budget = (5, 30);
const PROMOTER: Budget = (5, 60);
const SHARDS: Budget = (20, 60);

/// The tree before it runs, with the ways in.
pub struct Tree {
    /// Start it with [`supervision::RootSupervisor::start`].
    pub spec: SupervisorSpec,
    /// To the write side.
    pub shards: Shards,
    /// To the relay.
    pub publisher: Mailbox<OutboxPublisher>,
    /// To the promoter.
    pub promoter: Mailbox<PendingPromoter>,
    /// Kept alive as long as the tree: the threads the actors live on.
    pub threads: Threads,
}

/// The threads. Commands and relay apart, so that a burst of either never starves the other's timers; managers stay with the supervisors.
#[derive(Default)]
pub struct Threads {
    relay: Option<Arbiter>,
    orders: Option<Arbiter>,
}

impl Threads {
    fn new(options: &Options) -> Self {
        if options.threads {
            Self { relay: Some(Arbiter::new()), orders: Some(Arbiter::new()) }
        } else {
            Self::default()
        }
    }

    fn relay(&self) -> Option<ArbiterHandle> {
        self.relay.as_ref().map(Arbiter::handle)
    }

    fn orders(&self) -> Option<ArbiterHandle> {
        self.orders.as_ref().map(Arbiter::handle)
    }

    /// Ends the threads; the tree has ended before.
    pub fn stop(self) {
        for arbiter in [self.relay, self.orders].into_iter().flatten() {
            arbiter.stop();
            // A thread that panicked has told so already.
            let _ = arbiter.join();
        }
    }
}

/// Plants the tree.
pub fn tree(world: &World, options: &Arc<Options>, bus: &SupervisionBus) -> Tree {
    let threads = Threads::new(options);
    for (name, handle) in [("relay", threads.relay()), ("orders", threads.orders())] {
        if let Some(handle) = handle {
            bus.watch_arbiter(name, handle);
        }
    }
    let failover = failover_manager(world, options, bus);
    let (relay, publisher, nudge) = relay(world, options, bus, &threads);
    let (consumers, consumer_specs) = consumers(world, options, bus, &threads);
    let (shards, shards_spec) = shards(world, options, bus, &nudge, &threads);
    let backpressure = backpressure_manager(world, options, bus, consumers);
    let (promoter, promoter_spec) = pending_promoter(world, options, bus, &shards);
    let mut spec = supervisor("root", Strategy::OneForOne, ROOT)
        .supervisor(alone("failover", MANAGER, failover))
        .supervisor(alone("backpressure", MANAGER, backpressure))
        .supervisor(relay);
    for (number, consumer) in consumer_specs.into_iter().enumerate() {
        spec = spec.supervisor(alone(&format!("consumer-{number}"), CONSUMER, consumer));
    }
    let spec = spec.supervisor(alone("promoter", PROMOTER, promoter_spec)).supervisor(shards_spec);
    Tree { spec, shards, publisher, promoter, threads }
}

fn supervisor(name: &str, strategy: Strategy, (restarts, seconds): Budget) -> SupervisorSpec {
    SupervisorSpec::new(name, strategy, restarts, Duration::from_secs(seconds))
}

/// A supervisor that holds only this child, so that the child has a budget of its own.
fn alone(name: &str, budget: Budget, child: ChildSpec) -> SupervisorSpec {
    supervisor(name, Strategy::OneForOne, budget).child(child)
}

fn failover_manager(world: &World, options: &Arc<Options>, bus: &SupervisionBus) -> ChildSpec {
    let (world, options, notes) = (world.clone(), Arc::clone(options), bus.clone());
    let (_, spec) = actor(bus, "/failover-manager", SMALL, move |_| {
        FailoverManager::new(world.clone(), Arc::clone(&options), notes.clone())
    });
    spec
}

fn backpressure_manager(
    world: &World,
    options: &Arc<Options>,
    bus: &SupervisionBus,
    consumers: Vec<Mailbox<ConsumerActor>>,
) -> ChildSpec {
    let (world, options, notes) = (world.clone(), Arc::clone(options), bus.clone());
    let (_, spec) = actor(bus, "/backpressure-manager", SMALL, move |_| {
        BackpressureManager::new(world.clone(), Arc::clone(&options), notes.clone(), consumers.clone())
    });
    spec
}

fn relay(
    world: &World,
    options: &Arc<Options>,
    bus: &SupervisionBus,
    threads: &Threads,
) -> (SupervisorSpec, Mailbox<OutboxPublisher>, Nudge) {
    let (retry, retry_spec) = retry_handler(world, options, bus);
    let book = Arc::new(LeaseBook::new(Arc::clone(&world.clock), options.relay.lease));
    let roster = world.broker.clone().map(|broker| {
        let relay = Relay {
            lanes: Lanes::new(Arc::clone(&broker), options.lanes),
            broker,
            outbox: Arc::clone(&world.outbox),
            leases: Arc::clone(&world.leases),
            book: Arc::clone(&book),
            retry,
            instance: options.instance.clone(),
            envelope: options.relay.envelope(),
            options: options.relay.clone(),
            clock: Arc::clone(&world.clock),
            metrics: Arc::clone(&world.metrics),
        };
        Roster::new(bus.clone(), Arc::new(relay), threads.relay())
    });
    let woken = nudge::flags(options.partitions);
    let (publisher, publisher_spec) = {
        let (world, options, notes, woken) = (world.clone(), Arc::clone(options), bus.clone(), Arc::clone(&woken));
        // A wake-up of each partition, and the questions of operators.
        let capacity = options.partitions as usize + SMALL;
        actor(bus, "/relay/outbox-publisher", capacity, move |_| {
            let membership = Membership::new(Arc::clone(&book), options.instance.clone());
            let (world, options) = (world.clone(), Arc::clone(&options));
            OutboxPublisher::new(world, options, notes.clone(), roster.clone(), membership, Arc::clone(&woken))
        })
    };
    let spec = supervisor("relay", Strategy::RestForOne, RELAY)
        .path("/relay")
        .sibling_drain_limit(GRACE)
        .child(retry_spec.arbiter(threads.relay()))
        .child(publisher_spec.arbiter(threads.relay()))
        .supervisor(supervisor(PARTITIONS, Strategy::OneForOne, WORKERS).parallel_shutdown());
    (spec, publisher.clone(), Nudge::new(publisher, woken))
}

fn retry_handler(world: &World, options: &Arc<Options>, bus: &SupervisionBus) -> (Mailbox<RetryHandler>, ChildSpec) {
    let (world, rules) = (world.clone(), Arc::new(options.rules.clone()));
    // One question of each batch in flight.
    actor(bus, &format!("/relay/{}", retry_handler::NAME), options.max_in_flight.max(SMALL), move |_| {
        let World { outbox, gate, dice, metrics, .. } = world.clone();
        RetryHandler::new(outbox, Arc::clone(&rules), gate, dice, metrics)
    })
}

/// A worker's name among its siblings.
pub fn worker_id(partition: PartitionNo) -> String {
    format!("partition-worker-{partition}")
}

/// The worker of one partition.
pub fn partition_worker(
    bus: &SupervisionBus,
    relay: &Arc<Relay>,
    partition: PartitionNo,
    arbiter: Option<ArbiterHandle>,
) -> (Mailbox<PartitionWorker>, ChildSpec) {
    let relay = Arc::clone(relay);
    let path = format!("/relay/{}", worker_id(partition));
    let (inbox, spec) =
        actor(bus, &path, ONE, move |incarnation| PartitionWorker::new(Arc::clone(&relay), partition, &incarnation));
    // A batch in flight is worth waiting for: its outcome is then known and nothing has to be resolved.
    (inbox, spec.arbiter(arbiter).shutdown(Shutdown::Timeout(Duration::from_secs(10))))
}

fn consumers(
    world: &World,
    options: &Arc<Options>,
    bus: &SupervisionBus,
    threads: &Threads,
) -> (Vec<Mailbox<ConsumerActor>>, Vec<ChildSpec>) {
    let (Some(sources), Some(broker)) = (world.sources.clone(), world.broker.clone()) else {
        return (Vec::new(), Vec::new());
    };
    let intake = Arc::new(Intake {
        sources,
        broker,
        inbox: Arc::clone(&world.inbox),
        handlers: world.handlers.clone(),
        region: options.relay.region.clone(),
        group: options.group.clone(),
        topics: app::intake::topics_of(&options.topic),
        members: options.consumers,
        batch: options.consumer_batch,
        clock: Arc::clone(&world.clock),
        metrics: Arc::clone(&world.metrics),
    });
    let consumer = |number: u32| {
        let intake = Arc::clone(&intake);
        let (inbox, spec) =
            actor(bus, &format!("/consumer-{number}"), SMALL, move |_| ConsumerActor::new(Arc::clone(&intake), number));
        (inbox, spec.arbiter(threads.relay()))
    };
    (0..options.consumers).map(consumer).unzip()
}

fn pending_promoter(
    world: &World,
    options: &Arc<Options>,
    bus: &SupervisionBus,
    shards: &Shards,
) -> (Mailbox<PendingPromoter>, ChildSpec) {
    let (desk, options, shards) = (Arc::clone(&world.desk), Arc::clone(options), shards.clone());
    actor(bus, "/pending-promoter", SMALL, move |_| {
        PendingPromoter::new(Arc::clone(&desk), shards.clone(), Arc::clone(&options))
    })
}

fn shards(
    world: &World,
    options: &Arc<Options>,
    bus: &SupervisionBus,
    nudge: &Nudge,
    threads: &Threads,
) -> (Shards, SupervisorSpec) {
    let direct = world
        .broker
        .clone()
        .filter(|_| !world.desk.options.outbox)
        .map(|broker| Direct::new(broker, options.relay.envelope(), Arc::clone(&world.metrics)));
    let mut spec = supervisor("orders", Strategy::OneForOne, SHARDS).parallel_shutdown();
    let mut inboxes = Vec::new();
    for number in 0..options.shards.max(1) {
        let (desk, nudge, direct) = (Arc::clone(&world.desk), nudge.clone(), direct.clone());
        let (metrics, vitals) = (Arc::clone(&world.metrics), world.vitals.clone());
        let (inbox, shard) = actor(bus, &format!("/order-aggregate-{number}"), options.mailbox.max(1), move |_| {
            OrderAggregate::new(Arc::clone(&desk), nudge.clone(), direct.clone(), Arc::clone(&metrics), vitals.clone())
        });
        spec = spec.child(shard.arbiter(threads.orders()));
        inboxes.push(inbox);
    }
    (Shards::new(inboxes, Arc::clone(&world.desk.idempotency), options.request_timeout), spec)
}
