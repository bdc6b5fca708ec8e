//! OutboxPublisher: says which partition runs when. Holds the instance's membership, its leases and its breaker; moves no row itself.
mod fellows;
mod membership;
mod pace;
mod retire;
mod schedule;
mod sweep;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Release};
use std::time::Duration;

use actix::prelude::*;
use app::breaker::{Breaker, Pass};
use app::vitals::Vitals;
use ports::outbox::ClaimKind;
use ports::partitions::PartitionNo;
pub use retire::Retire;
use supervision::{AskError, MailboxMessage, SupervisionBus};
use tokio::time::Instant;

use crate::partition_worker::{Broker, Report, Run};
use crate::roster::Roster;
use crate::world::{Options, World};
pub use membership::Membership;
use pace::Pace;
use schedule::Schedule;

/// There is something new in a partition. Lossy: the poll finds what a lost one meant.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Wake {
    /// Which.
    pub partition: PartitionNo,
}

/// Longest one batch may take; a worker that takes longer still holds its mailbox's only permit, so nothing runs twice.
const RUN_DEADLINE: Duration = Duration::from_secs(120);
/// Pause before a partition whose run failed runs again. Long enough not to spin on a store that is away, short enough to notice its return.
const FAILED_PAUSE: Duration = Duration::from_millis(500);

/// The actor.
pub struct OutboxPublisher {
    world: World,
    options: Arc<Options>,
    bus: SupervisionBus,
    roster: Option<Roster>,
    membership: Membership,
    woken: Arc<[AtomicBool]>,
    schedule: Schedule,
    breaker: Breaker,
    born: Instant,
    probing: Option<PartitionNo>,
    /// Partitions that wait for a moment of their own, earliest wins.
    alarms: BTreeMap<PartitionNo, Instant>,
    pace: Pace,
    failing: bool,
    retiring: bool,
    pump_is_due: bool,
    look_is_due: bool,
    /// The broker's own probe failed, and has not succeeded since.
    broker_away: bool,
}

impl OutboxPublisher {
    /// A publisher that owns nothing yet. Without a roster there is no broker: rows pile up as PENDING.
    pub fn new(
        world: World,
        options: Arc<Options>,
        bus: SupervisionBus,
        roster: Option<Roster>,
        membership: Membership,
        woken: Arc<[AtomicBool]>,
    ) -> Self {
        let breaker = Breaker::new(options.breaker.clone());
        let (schedule, pace) = (Schedule::new(options.neighbourhoods), Pace::new(&options));
        Self {
            world,
            options,
            bus,
            roster,
            membership,
            woken,
            schedule,
            breaker,
            born: Instant::now(),
            probing: None,
            alarms: BTreeMap::new(),
            pace,
            failing: false,
            retiring: false,
            pump_is_due: false,
            look_is_due: false,
            broker_away: false,
        }
    }

    /// Runs whatever may run now.
    fn pump(&mut self, ctx: &mut Context<Self>) {
        while !self.retiring && self.schedule.is_waiting() && self.schedule.running() < self.options.max_in_flight {
            let probe = match self.breaker.pass(self.born.elapsed()) {
                Pass::Free => false,
                Pass::Probe => true,
                Pass::Wait(pause) => return self.pump_later(pause, ctx),
            };
            let Some((partition, kind)) = self.schedule.next(self.options.max_in_flight) else {
                if probe {
                    self.breaker.undecided(self.born.elapsed());
                }
                return;
            };
            if probe {
                self.probing = Some(partition);
                self.show_breaker();
            }
            self.run(partition, kind, probe, ctx);
        }
    }

    /// Comes back when the breaker may let one through; a probe's end pumps by itself.
    fn pump_later(&mut self, pause: Duration, ctx: &mut Context<Self>) {
        // One timer however many wake-ups come meanwhile.
        if self.probing.is_none() && !std::mem::replace(&mut self.pump_is_due, true) {
            ctx.run_later(pause, |this, ctx| {
                this.pump_is_due = false;
                this.pump(ctx);
            });
        }
    }

    fn run(&mut self, partition: PartitionNo, kind: ClaimKind, probe: bool, ctx: &mut Context<Self>) {
        // Lowered before the claim, and not when the wake-up is heard: until then every further row costs no message, and a row that is
        // committed after the claim raises it again.
        self.heard(partition);
        let giving = self.membership.giving.contains(&partition);
        let worker = self.roster.as_ref().filter(|_| !giving).and_then(|roster| roster.find(partition));
        let Some(worker) = worker else {
            self.schedule.finished(partition);
            self.schedule.forget(partition);
            self.end_probe(partition, Broker::NotAsked);
            return;
        };
        let begun = Instant::now();
        let ask = async move { worker.try_ask(Run { kind, probe }, RUN_DEADLINE).await };
        ctx.spawn(ask.into_actor(self).map(move |answer, this, ctx| this.ran(partition, begun, answer, ctx)));
    }

    /// Whoever wakes this partition from now on is heard again.
    fn heard(&self, partition: PartitionNo) {
        if let Some(flag) = self.woken.get(partition.0 as usize) {
            flag.store(false, Release);
        }
    }

    fn ran(
        &mut self,
        partition: PartitionNo,
        begun: Instant,
        answer: Result<Report, AskError>,
        ctx: &mut Context<Self>,
    ) {
        let woken = self.schedule.finished(partition);
        let report = match answer {
            Ok(report) => report,
            // The worker died, or still works on a batch it was given before: ask again shortly.
            Err(AskError::Closed | AskError::Overloaded | AskError::Timeout) => {
                self.end_probe(partition, Broker::NotAsked);
                self.wake_in(partition, Duration::from_millis(20), ctx);
                return self.pump(ctx);
            }
        };
        if report.sent > 0 {
            self.schedule.came_back(report.more);
            self.pace.sent(partition, begun, Instant::now(), self.schedule.running());
            self.world.metrics.outbox_publish_duration.record(begun.elapsed());
        }
        self.heed(partition, &report);
        self.show_failing(&report);
        if report.suspect_due {
            self.schedule.wants_trial(partition);
        }
        match (&report.error, report.more, report.next_due) {
            (Some(_), _, _) => self.wake_in(partition, FAILED_PAUSE, ctx),
            (None, true, _) => self.schedule.wake(partition),
            (None, false, Some(due)) => self.wake_in(partition, due, ctx),
            (None, false, None) => {}
        }
        if woken {
            self.wake(partition, ctx);
        }
        if report.held_elsewhere {
            self.membership.look_again(ctx);
        }
        self.pump(ctx);
    }

    fn heed(&mut self, partition: PartitionNo, report: &Report) {
        let probing = self.probing == Some(partition);
        let changed = match report.broker {
            Broker::Works => self.breaker.succeeded(),
            Broker::Failed => self.breaker.failed(self.born.elapsed()),
            Broker::NotAsked => false,
        };
        if probing {
            self.end_probe(partition, report.broker);
        }
        if changed {
            self.tell_breaker(report);
        }
    }

    /// A broker that its probe sees come back is tried at once: the breaker's time is for one that nobody has heard of.
    fn watch_broker(&mut self, ctx: &mut Context<Self>) {
        let picture = self.vitals().read();
        let Some(broker) = picture.components.iter().find(|component| component.name == "broker") else { return };
        let away = broker.detail.is_some();
        if std::mem::replace(&mut self.broker_away, away) && !away {
            self.breaker.hasten(self.born.elapsed());
            self.pump_is_due = false;
            self.pump(ctx);
        }
    }

    /// A probe that found nothing to send says nothing about the broker: the next one probes.
    fn end_probe(&mut self, partition: PartitionNo, said: Broker) {
        if self.probing != Some(partition) {
            return;
        }
        self.probing = None;
        if said == Broker::NotAsked {
            self.breaker.undecided(self.born.elapsed());
        }
        self.show_breaker();
    }

    fn tell_breaker(&self, report: &Report) {
        let state = self.breaker.name();
        let error = report.error.as_ref().map(ToString::to_string).unwrap_or_default();
        if state == "open" {
            tracing::warn!(event = "breaker_opened", error, "the broker keeps failing; sends pause, nothing is lost");
        } else {
            tracing::info!(event = "breaker_closed", "the broker works again");
        }
        self.bus.publish_external("breaker", vec![("state", state.to_owned()), ("error", error)]);
        self.show_breaker();
    }

    fn show_breaker(&self) {
        let name = self.breaker.name();
        self.world.metrics.kafka_breaker_state.set(self.breaker.number());
        self.world.vitals.paint(|picture| picture.breaker = name);
    }

    /// Logs the change from working to failing and back, not every turn.
    fn show_failing(&mut self, report: &Report) {
        match &report.error {
            Some(error) if !self.failing => {
                self.failing = true;
                tracing::warn!(event = "relay_failing", error = %error, "events cannot leave at the moment");
            }
            None if self.failing && report.sent > 0 => {
                self.failing = false;
                tracing::info!(event = "relay_recovered", "events leave again");
            }
            _ => {}
        }
    }

    /// A partition has something new. One whose last batch began a moment ago rests first, so that under load a batch carries several
    /// events and not one; one that was idle runs at once.
    fn wake(&mut self, partition: PartitionNo, ctx: &mut Context<Self>) {
        match self.pace.left(partition, Instant::now()) {
            Duration::ZERO => self.schedule.wake(partition),
            pause => self.wake_in(partition, pause, ctx),
        }
    }

    /// Wakes a partition after a pause; of several alarms the earliest counts.
    fn wake_in(&mut self, partition: PartitionNo, pause: Duration, ctx: &mut Context<Self>) {
        let at = Instant::now() + pause;
        if self.alarms.get(&partition).is_some_and(|earlier| *earlier <= at && *earlier > Instant::now()) {
            return;
        }
        self.alarms.insert(partition, at);
        ctx.run_later(pause, move |this, ctx| {
            if this.alarms.get(&partition).is_some_and(|alarm| *alarm <= Instant::now()) {
                this.alarms.remove(&partition);
            }
            this.schedule.wake(partition);
            this.pump(ctx);
        });
    }

    /// The safety net: every partition gets a look, a fifth of the interval earlier or later so that instances do not march in step. One
    /// that rests gets it after its rest: it was looked at a moment ago.
    fn poll(&mut self, ctx: &mut Context<Self>) {
        for partition in self.roster.as_ref().map(Roster::partitions).unwrap_or_default() {
            self.wake(partition, ctx);
        }
        self.pump(ctx);
        let jitter = 0.8 + 0.4 * self.world.dice.fraction();
        ctx.run_later(self.options.poll_interval.mul_f64(jitter), Self::poll);
    }

    /// Health, as the store of the picture sees it.
    fn vitals(&self) -> &Vitals {
        &self.world.vitals
    }
}

impl Actor for OutboxPublisher {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.show_breaker();
        if self.roster.is_none() {
            tracing::warn!(
                event = "broker_absent",
                "no broker is configured: events wait as PENDING and leave once broker.kind is set"
            );
        }
        self.listen(ctx);
        self.beat(ctx);
        self.poll(ctx);
        self.sweep_later(ctx);
    }
}

supervision::supervised!(OutboxPublisher);

impl Handler<MailboxMessage<Wake>> for OutboxPublisher {
    type Result = ();

    fn handle(&mut self, message: MailboxMessage<Wake>, ctx: &mut Self::Context) {
        let (Wake { partition }, _permit) = message.begin(ctx);
        if self.tell(partition) {
            return;
        }
        self.wake(partition, ctx);
        self.pump(ctx);
    }
}
