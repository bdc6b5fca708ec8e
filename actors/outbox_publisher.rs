//! OutboxPublisher: decides which partition runs when, and which partitions this instance owns. It routes messages between the parts that
//! decide; the workers move the rows.
mod breaker_guard;
pub mod dirty_partitions;
mod hand_over;
pub mod membership;
mod pacing;
pub mod peers;
mod relay_status;
mod schedule;
mod sweeper;
pub mod workers;

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use app::policy::breaker::BreakerPermit;
use app::policy::partition::Balance;
use futures::StreamExt;
use ports::Error;
use ports::outbox::ClaimKind;
use ports::partitions::PartitionNo;
use ports::partitions::wake::WakeUp;
use supervision::{AskError, MailboxMessage, SupervisionBus};
use tokio::time::Instant;

use crate::partition_worker::RunBatch;
use crate::partition_worker::report::{BatchReport, BrokerSignal};
use crate::system::dependencies::Dependencies;
use crate::system::options::Options;
use breaker_guard::BreakerGuard;
use dirty_partitions::DirtyPartitions;
use hand_over::{hand_over, hand_over_all};
use membership::{LeaseScan, Membership};
use pacing::Pacing;
use peers::{Peers, scan_delay};
use relay_status::RelayStatus;
use schedule::Schedule;
use sweeper::Sweeper;
use workers::Workers;

/// A partition has new rows. May be lost: the poll finds the rows, too.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Wake {
    /// The partition of the rows.
    pub partition: PartitionNo,
}

/// Other instances notify of new rows, or of partitions without an owner.
#[derive(Message)]
#[rtype(result = "()")]
struct PeersNotified(Vec<WakeUp>);

/// Before the tree stops: start no batch, hand all partitions over, leave. Returns how many partitions could not be handed over: their
/// leases expire, or this instance resolves them after its restart.
#[derive(Message)]
#[rtype(result = "usize")]
pub struct Retire {
    /// Longest wait for each hand-over; they run in parallel.
    pub deadline: Duration,
}

/// Longest one batch may take. A worker that takes longer still occupies its mailbox's only permit, so no batch runs twice.
const RUN_DEADLINE: Duration = Duration::from_secs(120);
/// Pause before a partition whose batch failed runs again: long enough to spare a store that is down, short enough to notice its recovery.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(500);
/// Pause before a partition whose worker did not take the batch runs again.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(20);

/// The publisher of one instance.
pub struct OutboxPublisher {
    dependencies: Dependencies,
    options: Arc<Options>,
    /// `None` without a broker: rows then stay PENDING.
    workers: Option<Workers>,
    membership: Membership,
    peers: Peers,
    dirty: DirtyPartitions,
    schedule: Schedule,
    pacing: Pacing,
    breaker: BreakerGuard,
    sweeper: Sweeper,
    status: RelayStatus,
    retiring: bool,
}

impl OutboxPublisher {
    /// A publisher that owns no partition yet.
    pub fn new(
        dependencies: Dependencies,
        options: Arc<Options>,
        bus: SupervisionBus,
        workers: Option<Workers>,
        membership: Membership,
        dirty: DirtyPartitions,
    ) -> Self {
        let (health, metrics) = (dependencies.health.clone(), Arc::clone(&dependencies.metrics));
        Self {
            workers,
            membership,
            peers: Peers::new(dependencies.wake_channel.clone()),
            dirty,
            schedule: Schedule::new(options.affinity_groups),
            pacing: Pacing::new(&options),
            breaker: BreakerGuard::new(options.breaker.clone(), health, metrics, bus),
            sweeper: Sweeper::new(&dependencies, &options),
            status: RelayStatus::default(),
            retiring: false,
            dependencies,
            options,
        }
    }

    fn owns(&self, partition: PartitionNo) -> bool {
        self.workers.as_ref().is_some_and(|workers| workers.find(partition).is_some())
    }

    // Runs: which partition moves a batch now.

    /// Starts all batches that may run now.
    fn run_due(&mut self, ctx: &mut Context<Self>) {
        let max = self.options.max_in_flight;
        while !self.retiring && self.schedule.is_waiting() && self.schedule.running() < max {
            let probe = match self.breaker.pass() {
                BreakerPermit::Free => false,
                BreakerPermit::Probe => true,
                BreakerPermit::Wait(pause) => return self.run_due_after(pause, ctx),
            };
            let Some((partition, kind)) = self.schedule.next(max) else {
                if probe {
                    self.breaker.unused();
                }
                return;
            };
            if probe {
                self.breaker.begin_probe(partition);
            }
            self.run(partition, kind, probe, ctx);
        }
    }

    fn run_due_after(&mut self, pause: Duration, ctx: &mut Context<Self>) {
        if self.breaker.request_retry() {
            ctx.run_later(pause, |this, ctx| {
                this.breaker.retry_began();
                this.run_due(ctx);
            });
        }
    }

    fn run(&mut self, partition: PartitionNo, kind: ClaimKind, probe: bool, ctx: &mut Context<Self>) {
        // Cleared before the claim and not on receipt of the wake-up: until then each further row costs no message, and a row that commits
        // after the claim marks the partition again.
        self.dirty.clear(partition);
        let handing_over = self.membership.is_handing_over(partition);
        let worker = self.workers.as_ref().filter(|_| !handing_over).and_then(|workers| workers.find(partition));
        let Some(worker) = worker else {
            self.schedule.finished(partition);
            self.schedule.forget(partition);
            self.breaker.end_probe(partition, BrokerSignal::None);
            return;
        };
        let started = Instant::now();
        let ask = async move { worker.try_ask(RunBatch { kind, probe }, RUN_DEADLINE).await };
        ctx.spawn(ask.into_actor(self).map(move |reply, this, ctx| this.ran(partition, started, reply, ctx)));
    }

    fn ran(
        &mut self,
        partition: PartitionNo,
        started: Instant,
        reply: Result<BatchReport, AskError>,
        ctx: &mut Context<Self>,
    ) {
        let woken = self.schedule.finished(partition);
        let report = match reply {
            Ok(report) => report,
            // The worker died, or still works on an earlier batch.
            Err(AskError::Closed | AskError::Overloaded | AskError::Timeout) => {
                self.breaker.end_probe(partition, BrokerSignal::None);
                self.wake_after(partition, PAUSE_AFTER_REFUSAL, ctx);
                return self.run_due(ctx);
            }
        };
        if report.sent > 0 {
            self.schedule.record_batch(report.more);
            self.pacing.batch_sent(partition, started, Instant::now(), self.schedule.running());
            self.dependencies.metrics.outbox_publish_duration.record(started.elapsed());
        }
        self.breaker.record(partition, &report);
        self.status.record(&report);
        if report.suspect_due {
            self.schedule.request_trial(partition);
        }
        match (&report.error, report.more, report.next_due) {
            (Some(_), _, _) => self.wake_after(partition, PAUSE_AFTER_FAILURE, ctx),
            (None, true, _) => self.schedule.wake(partition),
            (None, false, Some(due)) => self.wake_after(partition, due, ctx),
            (None, false, None) => {}
        }
        if woken {
            self.wake(partition, ctx);
        }
        if report.held_elsewhere {
            self.hand_over(partition, ctx);
            self.scan_soon(ctx);
        }
        self.run_due(ctx);
    }

    /// A partition has new rows. One that ran a moment ago finishes its pause first, so that under load a batch carries several events; an
    /// idle one runs at once.
    fn wake(&mut self, partition: PartitionNo, ctx: &mut Context<Self>) {
        match self.pacing.pause_left(partition, Instant::now()) {
            Duration::ZERO => self.schedule.wake(partition),
            pause => self.wake_after(partition, pause, ctx),
        }
    }

    fn wake_after(&mut self, partition: PartitionNo, pause: Duration, ctx: &mut Context<Self>) {
        let now = Instant::now();
        if self.pacing.set_alarm(partition, now + pause, now) {
            ctx.run_later(pause, move |this, ctx| {
                this.pacing.alarm_fired(partition, Instant::now());
                this.schedule.wake(partition);
                this.run_due(ctx);
            });
        }
    }

    /// Wakes every partition in case a wake-up was lost. The interval varies by a fifth, so that instances do not poll in step.
    fn poll(&mut self, ctx: &mut Context<Self>) {
        for partition in self.workers.as_ref().map(Workers::partitions).unwrap_or_default() {
            self.wake(partition, ctx);
        }
        self.run_due(ctx);
        let jitter = 0.8 + 0.4 * self.dependencies.rng.fraction();
        ctx.run_later(self.options.poll_interval.mul_f64(jitter), Self::poll);
    }

    // Membership: which partitions this instance owns.

    fn heartbeat(&mut self, ctx: &mut Context<Self>) {
        if self.breaker.broker_recovered() {
            self.run_due(ctx);
        }
        self.scan(ctx);
        ctx.run_later(self.membership.next_heartbeat(self.options.heartbeat), Self::heartbeat);
    }

    fn scan(&mut self, ctx: &mut Context<Self>) {
        let workers = self.workers.as_ref().filter(|_| !self.retiring).map(Workers::partitions);
        let scan = self.membership.scan(workers);
        ctx.spawn(scan.into_actor(self).map(|result, this, ctx| {
            if let Some(result) = result {
                this.scanned(result, ctx);
            }
        }));
    }

    fn scanned(&mut self, result: Result<LeaseScan, Error>, ctx: &mut Context<Self>) {
        let Some(scan) = self.membership.accept(result) else { return };
        let Some(workers) = self.workers.clone().filter(|_| !self.retiring) else { return self.publish_ownership() };
        let Balance { take, give, lost } = self.membership.rebalance(&scan, &workers.partitions());
        for partition in take {
            match workers.start(partition) {
                Ok(()) => self.schedule.wake(partition),
                Err(error) => {
                    tracing::debug!(event = "worker_not_hired", partition = partition.0, error = %error, "a worker could not be started yet");
                }
            }
        }
        give.into_iter().chain(lost).for_each(|partition| self.hand_over(partition, ctx));
        if self.membership.joins() {
            self.scan_soon(ctx);
        }
        self.publish_ownership();
        self.run_due(ctx);
    }

    /// Partitions moved: scans before the next heartbeat, once for all moves of the meantime.
    fn scan_soon(&mut self, ctx: &mut Context<Self>) {
        let Some(delay) = scan_delay(self.membership.rank().rank, self.options.heartbeat) else { return };
        if self.peers.request_scan() {
            ctx.run_later(delay, |this, ctx| {
                this.peers.scan_began();
                this.scan(ctx);
            });
        }
    }

    /// Hands a partition over: no new claim, then settle the batch in flight, then release. The message waits in the worker's mailbox behind
    /// the batch in flight, so that a busy partition changes its owner, too. A hand-over that fails is repeated at the next heartbeat.
    fn hand_over(&mut self, partition: PartitionNo, ctx: &mut Context<Self>) {
        let Some(workers) = self.workers.clone() else { return };
        let Some(worker) = workers.find(partition) else { return };
        if !self.membership.begin_hand_over(partition) {
            return;
        }
        self.schedule.forget(partition);
        let (peers, deadline, held) = (self.peers.clone(), self.options.relay.lease, self.membership.holds(partition));
        let work = hand_over((partition, worker), held, workers, peers, deadline);
        ctx.spawn(work.into_actor(self).map(move |(), this, ctx| {
            this.membership.end_hand_over(partition);
            this.schedule.wake(partition);
            this.run_due(ctx);
        }));
    }

    fn publish_ownership(&self) {
        let owned = self.membership.owned();
        self.dependencies.metrics.outbox_partitions_owned.set(i64::try_from(owned).unwrap_or(i64::MAX));
        self.dependencies.health.update(|snapshot| {
            snapshot.partitions_owned = owned;
            snapshot.started = true;
        });
    }

    // Sweeps: expired records.

    fn sweep(&mut self, ctx: &mut Context<Self>) {
        let page = self.sweeper.clone().sweep_page();
        ctx.spawn(
            page.into_actor(self).map(|full, this, ctx| if full { this.sweep(ctx) } else { this.sweep_later(ctx) }),
        );
    }

    fn sweep_later(&mut self, ctx: &mut Context<Self>) {
        ctx.run_later(self.options.sweep_interval, Self::sweep);
    }
}

impl Actor for OutboxPublisher {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.breaker.publish_state();
        if self.workers.is_none() {
            tracing::warn!(
                event = "broker_absent",
                "no broker is configured: events stay PENDING until broker.kind is set"
            );
        }
        if let Some(notifications) = self.peers.notifications() {
            ctx.add_message_stream(notifications.map(PeersNotified));
        }
        self.heartbeat(ctx);
        self.poll(ctx);
        self.sweep_later(ctx);
    }
}

supervision::supervised!(OutboxPublisher);

impl Handler<MailboxMessage<Wake>> for OutboxPublisher {
    type Result = ();

    fn handle(&mut self, message: MailboxMessage<Wake>, ctx: &mut Self::Context) {
        let (Wake { partition }, _permit) = message.begin(ctx);
        if self.workers.is_some() && !self.owns(partition) {
            self.dirty.clear(partition);
            return self.peers.notify(WakeUp::Due(partition));
        }
        self.wake(partition, ctx);
        self.run_due(ctx);
    }
}

impl Handler<PeersNotified> for OutboxPublisher {
    type Result = ();

    fn handle(&mut self, PeersNotified(wake_ups): PeersNotified, ctx: &mut Self::Context) {
        for wake_up in wake_ups {
            match wake_up {
                WakeUp::Due(partition) if self.owns(partition) => self.wake(partition, ctx),
                WakeUp::Free(partition) if !self.owns(partition) => self.scan_soon(ctx),
                WakeUp::Due(_) | WakeUp::Free(_) => {}
            }
        }
        self.run_due(ctx);
    }
}

impl Handler<MailboxMessage<Retire>> for OutboxPublisher {
    type Result = ResponseActFuture<Self, usize>;

    fn handle(&mut self, message: MailboxMessage<Retire>, ctx: &mut Self::Context) -> Self::Result {
        let (Retire { deadline }, permit) = message.begin(ctx);
        self.retiring = true;
        let workers = self.workers.as_ref().map(Workers::all).unwrap_or_default();
        let (leave, peers) = (self.membership.leave(), self.peers.clone());
        let work = async move {
            let _permit = permit;
            hand_over_all(workers, leave, peers, deadline).await
        };
        Box::pin(work.into_actor(self))
    }
}
