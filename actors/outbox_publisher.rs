//! OutboxPublisher: decides which partition runs when, and which partitions this instance owns. It routes messages between the parts that
//! decide; the workers claim and publish the rows.
mod breaker_guard;
mod cycles;
pub mod dirty_partitions;
mod due_batches;
mod event_rate;
pub mod handover;
pub mod membership;
pub mod messages;
mod partition_timers;
pub mod peers;
mod relay_status;
mod schedule;
mod sweeper;
pub mod workers;

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use app::policy::partition::Rebalance;
use futures::StreamExt;
use ports::Error;
use ports::partitions::PartitionNo;
use ports::partitions::wake::WakeUp;
use supervision::{AskError, MailboxMessage, SupervisionBus};
use tokio::time::Instant;

use crate::partition_worker::batch_request::RunBatch;
use crate::partition_worker::report::{BatchReport, BrokerSignal, RunEnd};
use crate::system::dependencies::Dependencies;
use crate::system::options::Options;
use breaker_guard::BreakerGuard;
use cycles::Cycles;
use dirty_partitions::DirtyPartitions;
use due_batches::DueBatches;
use handover::{hand_over, hand_over_all};
use membership::{Membership, RefreshResult};
use messages::{CycleEnded, PeersNotified, Retire, RunDue, Wake};
use partition_timers::PartitionTimers;
use peers::Peers;
use relay_status::RelayStatus;
use schedule::partition_schedule::Schedule;
use sweeper::Sweeper;
use workers::Workers;

/// Longest one batch may take. A worker that takes longer still occupies its mailbox's only permit, so no batch runs twice.
const RUN_DEADLINE: Duration = Duration::from_secs(120);
/// Pause before a partition whose batch failed runs again: long enough to spare a store that is down, short enough to notice its recovery.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(500);
/// Pause before a partition whose worker did not take the batch runs again.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(20);

/// Schedules the partitions that this instance owns; holds no row.
pub struct OutboxPublisher {
    dependencies: Dependencies,
    options: Arc<Options>,
    /// `None` without a broker, and where the publisher is switched off: rows then stay PENDING until another instance takes them.
    workers: Option<Workers>,
    membership: Membership,
    peers: Peers,
    dirty: DirtyPartitions,
    schedule: Schedule,
    cycles: Cycles,
    timers: PartitionTimers,
    /// Whether a `RunDue` message is already queued; messages before it are handled first.
    run_requested: bool,
    /// When the timer of the next cycle fires.
    cycle_timer: Option<Instant>,
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
        let (clock, breaker) = (Arc::clone(&dependencies.clock), options.breaker.clone());
        Self {
            schedule: Schedule::resuming(workers.iter().flat_map(Workers::partitions)),
            workers,
            membership,
            peers: Peers::new(dependencies.wake_channel.clone()),
            dirty: dirty.cleared(),
            cycles: Cycles::new(&options),
            timers: PartitionTimers::default(),
            run_requested: false,
            cycle_timer: None,
            breaker: BreakerGuard::new(breaker, clock, health, metrics, bus.clone()),
            sweeper: Sweeper::new(&dependencies, &options),
            status: RelayStatus::new(bus),
            retiring: false,
            dependencies,
            options,
        }
    }

    fn has_worker(&self, partition: PartitionNo) -> bool {
        self.workers.as_ref().is_some_and(|workers| workers.find(partition).is_some())
    }

    // Runs: which partition claims and publishes a batch now.

    /// Queues `RunDue` behind the waiting messages: wake-ups that arrive together start together.
    fn request_run(&mut self, ctx: &mut Context<Self>) {
        if !std::mem::replace(&mut self.run_requested, true) {
            ctx.notify(RunDue);
        }
    }

    /// Starts all batches that may run now: a cycle, or full batches until the next cycle may begin.
    fn run_due(&mut self, ctx: &mut Context<Self>) {
        if self.retiring {
            return;
        }
        let (max, now) = (self.options.max_in_flight, Instant::now());
        let due = DueBatches::take(&mut self.schedule, &mut self.cycles, &mut self.breaker, max, now);
        if let Some(at) = due.next_cycle {
            self.run_due_at(at, ctx);
        }
        if let Some(pause) = due.pause {
            self.run_due_after(pause, ctx);
        }
        due.expect_requests(&*self.dependencies.outbox);
        for (partition, request) in due.requests {
            self.run(request, partition, ctx);
        }
    }

    /// Sets the timer of the next cycle. One timer is enough; it may fire early, when a cycle has ended before.
    fn run_due_at(&mut self, at: Instant, ctx: &mut Context<Self>) {
        let now = Instant::now();
        if self.cycle_timer.is_some_and(|timer| timer <= at && timer > now) {
            return;
        }
        self.cycle_timer = Some(at);
        ctx.run_later(at.saturating_duration_since(now), Self::run_due);
    }

    fn run_due_after(&mut self, pause: Duration, ctx: &mut Context<Self>) {
        if self.breaker.request_retry() {
            ctx.run_later(pause, |this, ctx| {
                this.breaker.retry_started();
                this.run_due(ctx);
            });
        }
    }

    /// Asks the partition's worker for a batch.
    fn run(&mut self, mut batch: RunBatch, partition: PartitionNo, ctx: &mut Context<Self>) {
        // Cleared before the claim and not on receipt of the wake-up: until then each further row costs no message, and a row that commits
        // after the claim marks the partition again.
        batch.woken_at = self.dirty.clear(partition);
        let workers = self.workers.as_ref().filter(|_| !self.membership.is_handing_over(partition));
        let Some(worker) = workers.and_then(|workers| workers.find(partition)) else {
            match workers {
                Some(_) => self.schedule.remove_foreign(partition),
                None => self.schedule.cancel_run(partition),
            }
            self.breaker.end_probe(partition, BrokerSignal::None);
            return;
        };
        let started = Instant::now();
        let ask = async move { worker.mailbox.try_ask(batch, RUN_DEADLINE).await };
        ctx.spawn(ask.into_actor(self).map(move |reply, this, ctx| this.end_run(partition, started, reply, ctx)));
    }

    fn end_run(
        &mut self,
        partition: PartitionNo,
        started: Instant,
        reply: Result<BatchReport, AskError>,
        ctx: &mut Context<Self>,
    ) {
        // A run without a report may have left a batch open.
        let end = reply.as_ref().map_or(RunEnd::Unresolved, |report| report.end);
        let woken = self.schedule.record_end(partition, end);
        let report = match reply {
            Ok(report) => report,
            // The worker died, or still works on an earlier batch.
            Err(AskError::Closed | AskError::Overloaded | AskError::Timeout) => {
                self.breaker.end_probe(partition, BrokerSignal::None);
                self.wake_after(partition, PAUSE_AFTER_REFUSAL, ctx);
                return self.request_run(ctx);
            }
        };
        if report.sent > 0 {
            self.dependencies.metrics.outbox_publish_duration.record(started.elapsed());
        }
        self.breaker.record(partition, &report, started);
        self.status.record(&report);
        if report.suspect_due {
            self.schedule.request_trial(partition);
        }
        match (&report.error, report.more, report.next_due) {
            (Some(_), _, _) => self.wake_after(partition, PAUSE_AFTER_FAILURE, ctx),
            (None, true, _) => self.schedule.wake_full(partition),
            (None, false, Some(due)) => self.wake_after(partition, due, ctx),
            (None, false, None) => {}
        }
        if woken {
            self.schedule.wake(partition);
        }
        if end == RunEnd::HeldElsewhere {
            self.hand_over(partition, ctx);
            self.refresh_soon(ctx);
        }
        self.cycles.record_report(report.sent, report.cycle);
        self.request_run(ctx);
    }

    fn wake_after(&mut self, partition: PartitionNo, pause: Duration, ctx: &mut Context<Self>) {
        let now = Instant::now();
        if self.timers.set(partition, now + pause, now) {
            ctx.run_later(pause, move |this, ctx| {
                this.timers.remove_fired(partition, Instant::now());
                this.schedule.wake(partition);
                this.run_due(ctx);
            });
        }
    }

    /// Wakes every partition in case a wake-up was lost. The interval varies by a fifth, so that instances do not poll in step.
    fn poll(&mut self, ctx: &mut Context<Self>) {
        for partition in self.workers.as_ref().map(Workers::partitions).unwrap_or_default() {
            self.schedule.wake(partition);
        }
        self.run_due(ctx);
        let jitter = 0.8 + 0.4 * self.dependencies.rng.fraction();
        ctx.run_later(self.options.poll_interval.mul_f64(jitter), Self::poll);
    }

    // Membership: which partitions this instance owns.

    fn heartbeat(&mut self, ctx: &mut Context<Self>) {
        self.breaker.read_health();
        self.refresh(ctx);
        ctx.run_later(self.membership.next_heartbeat(self.options.heartbeat), Self::heartbeat);
    }

    fn refresh(&mut self, ctx: &mut Context<Self>) {
        // Without workers this instance takes no partition. As a member it would have a quota of partitions that have no owner.
        let Some(workers) = &self.workers else { return self.publish_ownership() };
        let refresh = self.membership.refresh((!self.retiring).then(|| workers.partitions()));
        ctx.spawn(refresh.into_actor(self).map(|result, this, ctx| this.apply_refresh(result, ctx)));
    }

    fn apply_refresh(&mut self, result: Option<Result<RefreshResult, Error>>, ctx: &mut Context<Self>) {
        let Some(refresh) = result.and_then(|result| self.membership.record_refresh(result)) else { return };
        let Some(workers) = self.workers.clone().filter(|_| !self.retiring) else { return self.publish_ownership() };
        let Rebalance { acquire, release, lost } = self.membership.rebalance(&refresh, &workers.partitions());
        acquire
            .into_iter()
            .filter(|partition| workers.start(*partition))
            .for_each(|partition| self.schedule.wake(partition));
        release.into_iter().chain(lost).for_each(|partition| self.hand_over(partition, ctx));
        if self.membership.is_first_refresh_of_group() {
            self.refresh_soon(ctx);
        }
        self.publish_ownership();
        self.run_due(ctx);
    }

    /// Partitions moved: schedules a refresh before the next heartbeat.
    fn refresh_soon(&mut self, ctx: &mut Context<Self>) {
        if let Some(delay) = self.membership.request_refresh(self.options.heartbeat) {
            ctx.run_later(delay, |this, ctx| {
                this.membership.begin_requested_refresh();
                this.refresh(ctx);
            });
        }
    }

    /// Hands a partition over. A handover that fails is repeated at the next heartbeat.
    fn hand_over(&mut self, partition: PartitionNo, ctx: &mut Context<Self>) {
        let Some(workers) = self.workers.clone() else { return };
        let Some(worker) = workers.find(partition).filter(|_| self.membership.begin_handover(partition)) else {
            return;
        };
        self.schedule.remove(partition);
        // Without the lease, another instance holds the partition, which is therefore not free.
        let after_release = self.membership.holds_lease(partition).then_some(WakeUp::Free(partition));
        let handover = hand_over(worker, after_release, workers, self.peers.clone(), self.options.relay.lease);
        ctx.spawn(handover.into_actor(self).map(move |(), this, ctx| {
            this.membership.end_handover(partition);
            if !this.has_worker(partition) {
                this.schedule.mark_resolved(partition);
            }
            this.schedule.wake(partition);
            this.run_due(ctx);
        }));
    }

    fn publish_ownership(&mut self) {
        self.status.publish_ownership(self.membership.lease_count(), &self.dependencies);
    }

    fn sweep(&mut self, ctx: &mut Context<Self>) {
        let page = self.sweeper.next_page(self.membership.rank().rank == 0);
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
        self.status.warn_if_inactive(self.workers.is_some(), self.dependencies.broker.is_some());
        if let Some(notifications) = self.peers.notifications() {
            ctx.add_message_stream(notifications.map(PeersNotified));
        }
        ctx.add_message_stream(self.cycles.endings().map(CycleEnded));
        ctx.add_message_stream(self.breaker.recoveries(self.dependencies.broker.clone()).map(|()| RunDue));
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
        if !self.has_worker(partition) {
            self.dirty.clear(partition);
            return self.peers.notify(WakeUp::Due(partition));
        }
        self.schedule.wake(partition);
        self.request_run(ctx);
    }
}

impl Handler<RunDue> for OutboxPublisher {
    type Result = ();

    fn handle(&mut self, RunDue: RunDue, ctx: &mut Self::Context) {
        self.run_requested = false;
        self.run_due(ctx);
    }
}

impl Handler<CycleEnded> for OutboxPublisher {
    type Result = ();

    fn handle(&mut self, CycleEnded(number): CycleEnded, ctx: &mut Self::Context) {
        self.cycles.end(number, Instant::now());
        self.request_run(ctx);
    }
}

impl Handler<PeersNotified> for OutboxPublisher {
    type Result = ();

    fn handle(&mut self, PeersNotified(wake_ups): PeersNotified, ctx: &mut Self::Context) {
        for wake_up in wake_ups {
            match wake_up {
                WakeUp::Due(partition) if self.has_worker(partition) => self.schedule.wake(partition),
                WakeUp::Free(partition) if !self.has_worker(partition) => self.refresh_soon(ctx),
                WakeUp::Due(_) | WakeUp::Free(_) => {}
            }
        }
        self.run_due(ctx);
    }
}

impl Handler<MailboxMessage<Retire>> for OutboxPublisher {
    type Result = ResponseActFuture<Self, Vec<(PartitionNo, Error)>>;

    fn handle(&mut self, message: MailboxMessage<Retire>, ctx: &mut Self::Context) -> Self::Result {
        let (Retire { deadline }, permit) = message.begin(ctx);
        self.retiring = true;
        let workers = self.workers.clone();
        let (leave, peers) = (self.membership.leave(), self.peers.clone());
        let handovers = async move {
            let _permit = permit;
            hand_over_all(workers, leave, peers, deadline).await
        };
        Box::pin(handovers.into_actor(self))
    }
}
