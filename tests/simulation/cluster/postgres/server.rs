//! SimulatedPostgres: the primary. The reference executes each statement; this file adds transactions that commit late and out of id order,
//! settlements that a crash undoes, and a fail-over to a standby that lagged.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use domain::{EventId, OrderId};
use kit::clock::{START_TIME, TestClock, TokioClock};
use kit::reference::{Reference, ReferenceSnapshot};
use parking_lot::{Mutex, MutexGuard};
use ports::Error;
use ports::clock::Clock;
use ports::inbox::InboxOutcome;
use ports::orders::{Commit, CommitOutcome};
use ports::outbox::events::ExternalEvent;
use ports::outbox::{
    BatchOutcome, Claim, ClaimKind, ClaimOutcome, FencedOutcome, OutboxStore, PoisonPolicy, ResolvedBatch, RowId,
    Settlement,
};
use ports::partitions::{LeaseFence, PartitionLeases, PartitionNo, TimelineAcceptance, TimelineChange, Token};
use tokio::time::Instant;

use crate::cluster::flaw::Flaw;
use crate::cluster::kafka::broker::SimulatedKafka;
use crate::cluster::network::{Network, Server};
use crate::cluster::postgres::events::KeyRows;
use crate::cluster::postgres::inbox::AppliedEvent;
use crate::cluster::postgres::scan_start::{IdSnapshot, ScanStart, TransactionNo};
use crate::cluster::trace::Trace;

/// Longest time after which a commit that did not wait is on disk.
const WRITE_DELAY: Duration = Duration::from_millis(600);

/// The primary, with the snapshots from which a standby or a restarted server continues. Clones share it.
#[derive(Clone)]
pub struct SimulatedPostgres(pub(super) Arc<Shared>);

pub(super) struct Shared {
    reference: Reference,
    pub(super) partitions: u32,
    /// The reference's clock, set to the runtime's time before each statement.
    clock: TestClock,
    time: TokioClock,
    flaw: Option<Flaw>,
    kafka: SimulatedKafka,
    network: Network,
    pub(super) trace: Trace,
    pub(super) state: Mutex<PrimaryState>,
}

#[derive(Default)]
pub(super) struct PrimaryState {
    pub(super) restarts: u32,
    /// The data before the first settlement that may not be on disk yet, and when it was executed.
    pub(super) before_settlements: Option<(Instant, ReferenceSnapshot)>,
    /// The primary crashes a moment after the next settlement.
    crashes_soon: bool,
    timeline: u32,
    accepted: u32,
    accepted_at: Option<Instant>,
    transactions: TransactionNo,
    running: BTreeMap<TransactionNo, RowId>,
    order_rows: BTreeMap<OrderId, Arc<tokio::sync::Mutex<()>>>,
    pub(super) key_rows: KeyRows,
    /// Every event that was ever committed, also on a timeline that was lost.
    pub(super) committed: BTreeSet<EventId>,
    /// How often each event was claimed, also on a timeline that was lost.
    claims: BTreeMap<EventId, usize>,
    /// The committed events of other services.
    pub(super) written: BTreeMap<EventId, ExternalEvent>,
    /// The events whose effects the inbox has committed, in order, also on a timeline that was lost.
    applied: Vec<AppliedEvent>,
}

/// A transaction that has drawn the ids of its rows.
pub(super) struct RunningTransaction {
    number: TransactionNo,
    restarts: u32,
    pub(super) first_row: RowId,
}

impl SimulatedPostgres {
    /// An empty store with this many outbox partitions. It breaks the connections of this network when it crashes.
    pub fn new(partitions: u32, kafka: SimulatedKafka, network: Network, flaw: Option<Flaw>, trace: Trace) -> Self {
        let clock = TestClock::at(START_TIME);
        let reference = Reference::partitioned(clock.clone(), partitions);
        let time = TokioClock::starting_at(START_TIME);
        let state = Mutex::default();
        Self(Arc::new(Shared { reference, partitions, clock, time, flaw, kafka, network, trace, state }))
    }

    /// The data, at the present time.
    pub fn data(&self) -> &Reference {
        self.0.clock.set(self.0.time.now());
        &self.0.reference
    }

    /// The data, for a statement whose commit waits for the disk: all commits before it are then on disk, too.
    pub fn durable_data(&self) -> &Reference {
        self.0.state.lock().before_settlements = None;
        self.data()
    }

    fn ids(&self) -> IdSnapshot {
        let state = self.0.state.lock();
        let (restarts, running) = (state.restarts, state.running.clone());
        IdSnapshot { restarts, last_id: self.0.reference.draw_row_ids(0) - 1, running }
    }

    /// A transaction of a command: it locks the order's row, draws ids, and commits after this time.
    pub async fn commit(&self, commit: Commit, duration: Duration) -> Result<CommitOutcome, Error> {
        let row = Arc::clone(self.0.state.lock().order_rows.entry(commit.order.id).or_default());
        let _locked = row.lock().await;
        let events: Vec<EventId> = commit.events.iter().map(|event| event.event_id).collect();
        let transaction = self.begin(events.len());
        tokio::time::sleep(duration).await;
        let mut state = self.end(&transaction)?;
        state.before_settlements = None;
        let committed = self.data().commit_with_ids(commit, transaction.first_row);
        if committed == CommitOutcome::Done {
            state.committed.extend(events);
        }
        Ok(committed)
    }

    /// Begins a transaction that draws the ids of so many rows.
    pub(super) fn begin(&self, rows: usize) -> RunningTransaction {
        let mut state = self.0.state.lock();
        let first_row = self.0.reference.draw_row_ids(rows);
        state.transactions += 1;
        let number = state.transactions;
        state.running.insert(number, first_row);
        RunningTransaction { number, restarts: state.restarts, first_row }
    }

    /// Ends a transaction. The caller commits before it unlocks the state, or rolls back.
    pub(super) fn end(&self, transaction: &RunningTransaction) -> Result<MutexGuard<'_, PrimaryState>, Error> {
        let mut state = self.0.state.lock();
        state.running.remove(&transaction.number);
        if state.restarts == transaction.restarts { Ok(state) } else { Err(connection_lost()) }
    }

    /// A claim, by a scan that begins at `start`. Returns where the next scan begins.
    pub fn claim(&self, claim: Claim, start: Option<ScanStart>) -> (ClaimOutcome, Option<ScanStart>) {
        let ids = self.ids();
        let from = start.map_or(0, |start| match self.0.flaw {
            Some(Flaw::ScanPassesLateCommitters) => start.id_without_late_commits(&ids),
            _ => start.id(&ids),
        });
        let (fence, kind) = (claim.fence.clone(), claim.kind);
        let claimed = self.durable_data().claim_above(claim, from);
        self.0.trace.print(format_args!("claim {fence:?} above {from}: {}", summary(&claimed)));
        if let ClaimOutcome::Batch(batch) = &claimed {
            let mut state = self.0.state.lock();
            batch.rows.iter().for_each(|row| *state.claims.entry(row.event_id).or_default() += 1);
        }
        let (counter, last) = match &claimed {
            ClaimOutcome::Batch(batch) => (batch.token, batch.rows.last().map(|row| row.id).filter(|_| batch.more)),
            ClaimOutcome::NoneDue { .. } => (fence.counter, None),
            ClaimOutcome::Fenced => {
                self.0.trace.add("fenced claim", u64::from(fence.partition.0), fence.epoch);
                return (claimed, None);
            }
        };
        let is_ordinary = kind == ClaimKind::Ordinary;
        (claimed, is_ordinary.then(|| ScanStart::after_scan(fence.epoch, counter, last, ids)))
    }

    /// A settlement. Returns whether it may have unblocked a key.
    pub async fn settle(&self, mut settlement: Settlement) -> Result<(FencedOutcome, bool), Error> {
        let partition = settlement.fence.partition;
        if self.0.flaw == Some(Flaw::SettlementIgnoresToken) {
            let views = self.data().overview().await?;
            let view = &views[partition.0 as usize];
            settlement.fence.epoch = view.epoch;
            settlement.fence.owner = view.owner.clone().unwrap_or(settlement.fence.owner);
            settlement.token = view.open_batch.unwrap_or(settlement.token);
        }
        let (events, has_head) = self.data().open_batch(partition);
        self.remember_before_settlement();
        let outcome = self.data().settle(settlement).await?;
        if outcome == FencedOutcome::Stale {
            self.0.trace.add("stale settlement", u64::from(partition.0), 0);
        }
        self.check_sent(partition, &events, outcome);
        Ok((outcome, has_head))
    }

    /// A settlement, and the claim after it in the same transaction: durable together. Returns where the next scan begins.
    pub async fn settle_and_claim(
        &self,
        settlement: Settlement,
        mut claim: Claim,
        start: Option<ScanStart>,
    ) -> Result<(FencedOutcome, ClaimOutcome, Option<ScanStart>), Error> {
        let (settled, has_head) = self.settle(settlement).await?;
        let FencedOutcome::Done { counter, .. } = settled else { return Ok((settled, ClaimOutcome::Fenced, None)) };
        claim.fence.counter = counter;
        let start = start.filter(|_| !has_head).and_then(|start| start.after_settlement(counter));
        let (claimed, next) = self.claim(claim, start);
        Ok((settled, claimed, next))
    }

    /// Closes an open batch by its resolved outcome.
    pub async fn resolve(
        &self,
        fence: &LeaseFence,
        token: Token,
        outcome: BatchOutcome,
        poison: &PoisonPolicy,
    ) -> Result<ResolvedBatch, Error> {
        let (events, _) = self.data().open_batch(fence.partition);
        let resolved = self.durable_data().resolve(fence, token, outcome, poison).await?;
        let kind = match outcome {
            BatchOutcome::Published => "resolved as published",
            BatchOutcome::NotSent => "resolved as not sent",
            BatchOutcome::ClaimerDied => "resolved after a death",
        };
        self.0.trace.add(kind, u64::from(fence.partition.0), token);
        self.0.trace.print(format_args!("{kind}: {fence:?} {token} {resolved:?}"));
        if outcome == BatchOutcome::Published {
            self.check_sent(fence.partition, &events, resolved.closed);
        }
        Ok(resolved)
    }

    /// A row becomes SENT only after the broker has committed its event. `events` are those of the batch that was open before.
    fn check_sent(&self, partition: PartitionNo, events: &[EventId], outcome: FencedOutcome) {
        if matches!(outcome, FencedOutcome::Stale | FencedOutcome::Done { rows: 0, .. }) {
            return;
        }
        for event in events.iter().filter(|event| !self.0.kafka.has_committed(&event.to_string())) {
            self.0
                .trace
                .violation(format!("event {event} of partition {partition} is SENT, and the broker does not have it"));
        }
    }

    /// The flaw of this store.
    pub fn flaw(&self) -> Option<Flaw> {
        self.0.flaw
    }

    /// The standby's state: what it has if the primary fails later.
    pub fn standby(&self) -> ReferenceSnapshot {
        self.data().snapshot()
    }

    /// The primary fails, and its standby continues from this state.
    pub fn fail_over(&self, standby: ReferenceSnapshot) {
        self.restart("fail-over");
        self.0.state.lock().timeline += 1;
        self.0.reference.restore(standby);
        self.0.reference.raise_epochs();
    }

    /// All transactions and connections end.
    fn restart(&self, reason: &'static str) {
        self.0.trace.add(reason, 0, 0);
        self.0.trace.print(format_args!("{reason} of the primary"));
        self.0.network.break_all(Server::Postgres);
        let mut state = self.0.state.lock();
        state.restarts += 1;
        state.running.clear();
        state.key_rows.clear();
        state.before_settlements = None;
    }

    /// Whether the primary crashes a moment after the next settlement, which it may then have forgotten.
    pub fn set_crashes_soon(&self, crashes: bool) {
        self.0.state.lock().crashes_soon = crashes;
    }

    /// A settlement does not wait for the disk: a crash within [`WRITE_DELAY`] undoes it, unless a commit that waits has followed.
    fn remember_before_settlement(&self) {
        let now = Instant::now();
        let mut state = self.0.state.lock();
        if state.before_settlements.as_ref().is_none_or(|(at, _)| *at + WRITE_DELAY < now) {
            state.before_settlements = Some((now, self.0.reference.snapshot()));
        }
        if std::mem::take(&mut state.crashes_soon) {
            let (server, delay) = (self.clone(), self.0.network.random_millis(0, 6));
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                server.crash();
            });
        }
    }

    fn crash(&self) {
        let lost = self.0.state.lock().before_settlements.take();
        self.restart("crash");
        if let Some((_, before)) = lost.filter(|(at, _)| *at + WRITE_DELAY >= Instant::now()) {
            self.0.trace.add("undone settlement", 0, 0);
            self.0.reference.restore(before);
        }
    }

    /// The change that waits for its acceptance, if there is one.
    pub fn timeline_change(&self) -> Option<TimelineChange> {
        let state = self.0.state.lock();
        let is_accepted = state.timeline == state.accepted;
        (!is_accepted).then(|| TimelineChange { timeline: state.timeline.to_string(), complete_until: None })
    }

    /// Accepts the present timeline.
    pub fn accept_timeline(
        &self,
        change: &TimelineChange,
        watermarks: &BTreeMap<PartitionNo, Token>,
    ) -> TimelineAcceptance {
        let mut state = self.0.state.lock();
        if state.timeline == state.accepted || change.timeline != state.timeline.to_string() {
            return TimelineAcceptance::AlreadyDone;
        }
        state.before_settlements = None;
        (state.accepted, state.accepted_at) = (state.timeline, Some(Instant::now()));
        TimelineAcceptance::Accepted { partitions_behind: self.0.reference.raise_counters(watermarks) }
    }

    /// How often the primary failed.
    pub fn fail_overs(&self) -> u32 {
        self.0.state.lock().timeline
    }

    /// When the last fail-over was accepted.
    pub fn accepted_at(&self) -> Option<Instant> {
        self.0.state.lock().accepted_at
    }

    /// Prints a line if the trace is printed.
    pub(super) fn print(&self, line: std::fmt::Arguments<'_>) {
        self.0.trace.print(line);
    }

    /// Records the outcome of a consumed event's transaction.
    pub(super) fn record_consumption(&self, event_id: EventId, outcome: InboxOutcome) {
        let mut state = self.0.state.lock();
        let timeline = state.timeline;
        match outcome {
            InboxOutcome::New => {
                if !self.0.kafka.has_committed(&event_id.to_string()) {
                    self.0
                        .trace
                        .violation(format!("event {event_id} was applied, and the broker has not committed it"));
                }
                state.applied.push(AppliedEvent { event_id, timeline });
                self.0.trace.add("applied", state.applied.len() as u64, 0);
            }
            InboxOutcome::Duplicate => self.0.trace.add("duplicate message", state.applied.len() as u64, 0),
        }
    }

    /// The events whose effects the inbox has committed, in order.
    pub fn applied_events(&self) -> Vec<AppliedEvent> {
        self.0.state.lock().applied.clone()
    }

    /// Whether an event was ever committed, also on a timeline that was lost.
    pub fn was_committed(&self, event: &str) -> bool {
        let event = EventId::parse(event);
        event.is_some_and(|event| self.0.state.lock().committed.contains(&event))
    }

    /// How often an event was ever claimed.
    pub fn claims(&self, event: &str) -> usize {
        EventId::parse(event).and_then(|event| self.0.state.lock().claims.get(&event).copied()).unwrap_or(0)
    }
}

/// The error of a transaction that the primary's failure ended.
pub(super) fn connection_lost() -> Error {
    Error::Unknown("the primary failed during the transaction".into())
}

/// A short description of a claim's result, for the trace.
fn summary(claimed: &ClaimOutcome) -> String {
    match claimed {
        ClaimOutcome::Batch(batch) => {
            let rows: Vec<RowId> = batch.rows.iter().map(|row| row.id).collect();
            format!("batch {} of rows {rows:?}", batch.token)
        }
        ClaimOutcome::NoneDue { .. } => "nothing".to_owned(),
        ClaimOutcome::Fenced => "fenced".to_owned(),
    }
}
