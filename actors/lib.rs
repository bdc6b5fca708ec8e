//! The cast: every concern an actor, every actor supervised, all started in `tree.rs`. They talk by messages; a mailbox's bound is the
//! backpressure; no actor holds the only copy of a fact.

mod backpressure_manager;
mod consumer_actor;
mod direct;
mod failover_manager;
mod front;
mod lanes;
mod lease_book;
mod nudge;
mod observer;
mod order_aggregate;
mod outbox_publisher;
mod partition_worker;
mod pending_promoter;
mod retry_handler;
mod roster;
mod shards;
mod tree;
mod world;

use std::sync::Arc;
use std::time::Duration;

use app::dispatch::Dispatch;
use supervision::{ActorState, DrainReport, ExitReason, Mailbox, RootSupervisor, SupervisionBus};

pub use lanes::Pinning;
pub use world::{Options, World};

use front::Front;
use observer::Counting;
use outbox_publisher::{OutboxPublisher, Retire};
use pending_promoter::{PendingPromoter, Promote};
use tree::Threads;

/// The running cast.
pub struct Cast {
    root: RootSupervisor,
    bus: SupervisionBus,
    front: Arc<Front>,
    publisher: Mailbox<OutboxPublisher>,
    promoter: Mailbox<PendingPromoter>,
    threads: Threads,
}

/// How the stop went.
#[derive(Debug)]
pub struct Stopped {
    /// What the tree left.
    pub drained: DrainReport,
    /// Partitions that could not be handed over.
    pub partitions_left: usize,
}

impl Cast {
    /// Starts the tree on this thread, which must be an actix `System` (or a `LocalSet`, with `Options::threads` off).
    pub async fn start(world: World, options: Options, bus_options: supervision::Options) -> Cast {
        let bus = SupervisionBus::new(bus_options, Arc::new(Counting(Arc::clone(&world.metrics))));
        world.vitals.paint(|picture| picture.broker_configured = world.broker.is_some());
        let options = Arc::new(options);
        let tree = tree::tree(&world, &options, &bus);
        let front = Arc::new(Front::new(tree.shards, bus.clone(), options.faults));
        let root = RootSupervisor::start(tree.spec, bus.clone()).await;
        Cast { root, bus, front, publisher: tree.publisher, promoter: tree.promoter, threads: tree.threads }
    }

    /// The door for HTTP.
    pub fn dispatch(&self) -> Arc<dyn Dispatch> {
        Arc::clone(&self.front) as Arc<dyn Dispatch>
    }

    /// The tree's events and faults.
    pub fn bus(&self) -> &SupervisionBus {
        &self.bus
    }

    /// Resolves when the root has given up.
    pub async fn gave_up(&self) -> ExitReason {
        self.root.done().await
    }

    /// Promotes waiting orders now; answers how many.
    pub async fn promote(&self, deadline: Duration) -> Option<u64> {
        self.promoter.ask(Promote, deadline).await.ok()
    }

    /// Stops: claim nothing new, finish and hand over, then the tree in reverse order.
    pub async fn stop(self, deadline: Duration) -> Stopped {
        let begun = tokio::time::Instant::now();
        // Whoever a drill has paused would keep the hand-over waiting for all of its time.
        for row in self.bus.snapshot().into_iter().filter(|row| row.state == ActorState::Paused) {
            // It may have ended since: then it keeps nobody waiting.
            let _ = self.bus.resume(&row.path, "shutdown");
        }
        // Half of the time for the hand-over at most: the tree needs the rest.
        let half = deadline / 2;
        let partitions_left = self.publisher.ask(Retire { deadline: half }, half).await.unwrap_or(0);
        let drained = self.root.shutdown(deadline.saturating_sub(begun.elapsed())).await;
        self.threads.stop();
        Stopped { drained, partitions_left }
    }
}
