//! The supervised actors of the service: relay, consumers, webhooks, commands, fail-over and backpressure. `system/tree.rs` starts all of them. A
//! bounded mailbox is the backpressure on its senders, and no actor holds the only copy of a fact.

mod backpressure_manager;
mod consumer_actor;
mod event_intake;
mod failover_manager;
mod order_aggregate;
mod outbox_publisher;
mod partition_worker;
mod pending_promoter;
mod retry_handler;
mod webhook_manager;
mod system {
    pub mod dependencies;
    pub mod dispatcher;
    pub mod live_feed;
    pub mod mailbox_metrics;
    pub mod metrics_observer;
    pub mod options;
    pub mod partition_handover;
    pub mod shards;
    pub mod tree;
}

pub mod membership {
    //! The parts that decide which partitions an instance holds, for simulations of more instances than actors could run.
    pub use crate::outbox_publisher::membership::Membership;
    pub use crate::partition_worker::local_leases::LocalLeases;
}

use std::sync::Arc;
use std::time::Duration;

use app::dispatch::Dispatch;
use supervision::{DrainReport, ExitReason, Mailbox, RootSupervisor, SupervisionBus};

pub use consumer_actor::topic_pipeline::TopicConsumers;
pub use partition_worker::producer_sessions::ProducerSlots;
pub use system::dependencies::{Dependencies, MonitoredProbe};
pub use system::options::{Options, WebhookOptions};

use outbox_publisher::peers::Peers;
use pending_promoter::{PendingPromoter, Promote};
use system::dispatcher::Dispatcher;
use system::metrics_observer::MetricsObserver;
use system::partition_handover::PartitionHandover;
use system::tree::{self, Threads};

/// The running actor tree and handles to its parts. Stop it with [`ActorSystem::stop`].
pub struct ActorSystem {
    root: RootSupervisor,
    bus: SupervisionBus,
    dispatcher: Arc<Dispatcher>,
    handover: Arc<PartitionHandover>,
    promoter: Mailbox<PendingPromoter>,
    threads: Threads,
}

/// The actors and partitions that had not ended at the deadline of a stop.
#[derive(Debug)]
pub struct StopReport {
    /// The end of the tree, with the actors that did not finish in time.
    pub drained: DrainReport,
    /// Number of partitions that could not be handed over in time: their leases expire, or the next start resolves them.
    pub partitions_left: usize,
}

impl ActorSystem {
    /// Starts the tree on this thread, which must be an actix `System` (or a `LocalSet`, with `Options::threads` off). Not cancel-safe: actors
    /// outlive a dropped call.
    pub async fn start(
        dependencies: Dependencies,
        options: Options,
        supervision_options: supervision::Options,
    ) -> ActorSystem {
        let bus =
            SupervisionBus::new(supervision_options, Arc::new(MetricsObserver(Arc::clone(&dependencies.metrics))));
        dependencies.health.update(|snapshot| snapshot.broker_configured = dependencies.broker.is_some());
        let options = Arc::new(options);
        let tree = tree::tree(&dependencies, &options, &bus);
        let dispatcher = Arc::new(Dispatcher::new(tree.shards, tree.intake, bus.clone(), Arc::clone(&options)));
        let (publisher, local_leases) = (tree.publisher, tree.local_leases);
        let (leases, instance) = (Arc::clone(&dependencies.leases), options.instance.clone());
        let peers = Peers::new(dependencies.wake_channel.clone());
        let handover = PartitionHandover { bus: bus.clone(), publisher, local_leases, leases, instance, peers };
        let handover = Arc::new(handover);
        let handover_at_escalation = Arc::clone(&handover);
        // The partitions that could not be handed over are counted when the system is stopped.
        let spec = tree.spec.before_escalation(move |limit| async move {
            handover_at_escalation.run(limit).await;
        });
        let root = RootSupervisor::start(spec, bus.clone()).await;
        ActorSystem { root, bus, dispatcher, handover, promoter: tree.promoter, threads: tree.threads }
    }

    /// The interface for the HTTP API; cheap to clone.
    pub fn dispatch(&self) -> Arc<dyn Dispatch> {
        Arc::clone(&self.dispatcher) as Arc<dyn Dispatch>
    }

    /// Events and faults of the supervision tree.
    pub fn bus(&self) -> &SupervisionBus {
        &self.bus
    }

    /// Resolves when the root supervisor escalates: it hands the partitions over and drains its children from then on. Stop the system then.
    /// Cancel-safe: a dropped call only stops waiting.
    pub async fn escalated(&self) -> ExitReason {
        self.root.escalated().await
    }

    /// Promotes pending orders now. Returns how many, 0 while another promotion runs, or `None` without a reply within the deadline.
    /// Cancel-safe: a promotion that has begun continues without its caller, and after the deadline; one that is still queued is skipped.
    pub async fn promote(&self, deadline: Duration) -> Option<u64> {
        self.promoter.ask(Promote, deadline).await.ok()
    }

    /// Stops: claims nothing new, finishes and hands partitions over, then stops the tree in reverse order. Takes at most `deadline`,
    /// and `kill_timeout` of the supervision's options more where a blocked thread does not report its end. Not cancel-safe: actors outlive a
    /// dropped call.
    pub async fn stop(self, deadline: Duration) -> StopReport {
        let started = tokio::time::Instant::now();
        // At most half of the time for the handover: the tree needs the rest.
        let partitions_left = self.handover.run(deadline / 2).await;
        let drained = self.root.shutdown(deadline.saturating_sub(started.elapsed())).await;
        if !self.threads.stop(deadline.saturating_sub(started.elapsed())).await {
            tracing::warn!(
                event = "thread_left_behind",
                "a thread of the actors does not end; it ends with the process"
            );
        }
        StopReport { drained, partitions_left }
    }
}
