//! PostgresClient: the store's ports as one instance has them: each call is a statement over its connections.
use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use domain::{EventId, Order, OrderId, Status, Subject};
use ports::Error;
use ports::orders::{Commit, CommitOutcome, IdempotencyRecord, OrderFilter, OrderStore, PageStart};
use ports::outbox::{
    BatchOutcome, Claim, ClaimOutcome, Disposition, Exclusion, ExclusionOutcome, FencedOutcome, OutboxStore,
    PoisonPolicy, ResolvedBatch, RowCounts, RowId, SettledClaim, Settlement,
};
use ports::partitions::{
    AcquireReason, Acquisition, Epoch, InstanceId, InstanceRank, LeaseFence, LeaseSurvey, PartitionLeases, PartitionNo,
    PartitionView, ReleaseOutcome, Renewal, TimelineAcceptance, TimelineChange, Token,
};

use crate::cluster::flaw::Flaw;
use crate::cluster::network::Link;
use crate::cluster::postgres::rounds::Rounds;
use crate::cluster::postgres::scan_start::{ScanStart, ScanStarts};
use crate::cluster::postgres::server::SimulatedPostgres;

/// The results of a settlement and of the claim after it, and where the next scan begins.
type SettledClaimReply = Result<(FencedOutcome, ClaimOutcome, Option<ScanStart>), Error>;

/// The connections of one process. What it remembers of scans ends with it.
pub struct PostgresClient {
    server: SimulatedPostgres,
    link: Link,
    scan_starts: ScanStarts,
    claims: Rounds<(ClaimOutcome, Option<ScanStart>)>,
    settlements: Rounds<Result<(FencedOutcome, bool), Error>>,
    settled_claims: Rounds<SettledClaimReply>,
    /// Probability of a transaction that commits late.
    late_commit_probability: f64,
}

impl PostgresClient {
    /// The client of a new process.
    pub fn new(server: SimulatedPostgres, link: Link, late_commit_probability: f64) -> Self {
        let (claims, settlements) = (Rounds::new(link.clone(), "claim"), Rounds::new(link.clone(), "settle"));
        let settled_claims = Rounds::new(link.clone(), "settle_and_claim");
        Self {
            server,
            link,
            scan_starts: ScanStarts::default(),
            claims,
            settlements,
            settled_claims,
            late_commit_probability,
        }
    }

    /// How long the next transaction takes.
    pub(super) fn commit_duration(&self) -> Duration {
        let network = self.link.network();
        match network.random_bool(self.late_commit_probability) {
            true => network.random_millis(20, 1_500),
            false => network.random_millis(1, 4),
        }
    }

    /// A statement that the reference executes.
    pub(super) async fn execute<T, F>(
        &self,
        name: &'static str,
        statement: impl FnOnce(SimulatedPostgres) -> F + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let server = self.server.clone();
        self.link.call(name, async move { statement(server).await }).await?
    }
}

#[async_trait]
impl OrderStore for PostgresClient {
    async fn commit(&self, commit: Commit) -> Result<CommitOutcome, Error> {
        let duration = self.commit_duration();
        self.execute("commit", move |server| async move { server.commit(commit, duration).await }).await
    }
    async fn find(&self, id: OrderId) -> Result<Option<Order>, Error> {
        self.execute("find", move |server| async move { server.data().find(id).await }).await
    }
    async fn list(&self, filter: &OrderFilter, from: PageStart, limit: u32) -> Result<Vec<Order>, Error> {
        let filter = filter.clone();
        self.execute("list", move |server| async move { server.data().list(&filter, from, limit).await }).await
    }
    async fn count(&self, filter: &OrderFilter) -> Result<u64, Error> {
        self.server.data().count(filter).await
    }
    async fn oldest(&self, status: Status, after: Option<OrderId>, limit: u32) -> Result<Vec<OrderId>, Error> {
        self.server.data().oldest(status, after, limit).await
    }
    async fn find_idempotency_record(
        &self,
        subject: &Subject,
        key: &str,
        keep: Duration,
    ) -> Result<Option<IdempotencyRecord>, Error> {
        self.server.data().find_idempotency_record(subject, key, keep).await
    }
    async fn sweep_idempotency_records(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        self.server.data().sweep_idempotency_records(keep, limit).await
    }
}

#[async_trait]
impl OutboxStore for PostgresClient {
    async fn claim(&self, claim: Claim) -> Result<ClaimOutcome, Error> {
        let (server, partition) = (self.server.clone(), claim.fence.partition);
        let start = self.scan_starts.take(&claim.fence);
        let (claimed, next) = self.claims.call(async move { server.claim(claim, start) }).await?;
        if let Some(next) = next {
            self.scan_starts.put(partition, next);
        }
        Ok(claimed)
    }

    async fn exclude(
        &self,
        fence: &LeaseFence,
        token: Token,
        exclusions: &[Exclusion],
    ) -> Result<ExclusionOutcome, Error> {
        self.scan_starts.take(fence);
        let (fence, exclusions) = (fence.clone(), exclusions.to_vec());
        let exclude = move |server: SimulatedPostgres| async move {
            let outcome = server.durable_data().exclude(&fence, token, &exclusions).await?;
            if server.flaw() == Some(Flaw::ExclusionUnblocksKey) && outcome != ExclusionOutcome::Stale {
                let retried = |exclusion: &&Exclusion| matches!(exclusion.disposition, Disposition::Retry(_));
                let rows: Vec<RowId> = exclusions.iter().filter(retried).map(|exclusion| exclusion.row).collect();
                server.data().unblock_keys_of(&rows);
            }
            Ok(outcome)
        };
        self.execute("exclude", exclude).await
    }

    async fn settle(&self, settlement: Settlement) -> Result<FencedOutcome, Error> {
        let (server, partition) = (self.server.clone(), settlement.fence.partition);
        let start = self.scan_starts.take(&settlement.fence);
        let (outcome, unblocked) = self.settlements.call(async move { server.settle(settlement).await }).await??;
        if let (FencedOutcome::Done { counter, .. }, false) = (outcome, unblocked) {
            self.scan_starts.keep(partition, start, counter);
        }
        Ok(outcome)
    }

    async fn settle_and_claim(&self, settlement: Settlement, claim: Claim) -> Result<SettledClaim, Error> {
        let (server, partition) = (self.server.clone(), settlement.fence.partition);
        let start = self.scan_starts.take(&settlement.fence);
        let statements = async move { server.settle_and_claim(settlement, claim, start).await };
        let (settled, claimed, next) = self.settled_claims.call(statements).await??;
        if let Some(next) = next {
            self.scan_starts.put(partition, next);
        }
        Ok(SettledClaim { settled, claimed: Ok(claimed) })
    }

    async fn resolve(
        &self,
        fence: &LeaseFence,
        token: Token,
        outcome: BatchOutcome,
        poison: &PoisonPolicy,
    ) -> Result<ResolvedBatch, Error> {
        self.scan_starts.take(fence);
        let (fence, poison) = (fence.clone(), poison.clone());
        self.execute("resolve", move |server| async move { server.resolve(&fence, token, outcome, &poison).await })
            .await
    }

    async fn depth(&self) -> Result<RowCounts, Error> {
        self.server.data().depth().await
    }
    async fn contains(&self, event: EventId) -> Result<bool, Error> {
        self.execute("outbox_contains", move |server| async move { server.data().contains(event).await }).await
    }
    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error> {
        OutboxStore::sweep(self.server.data(), keep, limit).await
    }
}

#[async_trait]
impl PartitionLeases for PostgresClient {
    async fn heartbeat(&self, instance: &InstanceId, dead_after: Duration) -> Result<InstanceRank, Error> {
        let instance = instance.clone();
        let heartbeat = move |server: SimulatedPostgres| async move {
            server.durable_data().heartbeat(&instance, dead_after).await
        };
        self.execute("heartbeat", heartbeat).await
    }
    async fn survey(&self, instance: &InstanceId) -> Result<LeaseSurvey, Error> {
        let instance = instance.clone();
        self.execute("survey", move |server| async move { server.data().survey(&instance).await }).await
    }
    async fn leave(&self, instance: &InstanceId) -> Result<(), Error> {
        let instance = instance.clone();
        self.execute("leave", move |server| async move { server.durable_data().leave(&instance).await }).await
    }
    async fn acquire(
        &self,
        partition: PartitionNo,
        owner: &InstanceId,
        reason: AcquireReason,
        watermark: Option<Token>,
        ttl: Duration,
    ) -> Result<Acquisition, Error> {
        let owner = owner.clone();
        let acquire = move |server: SimulatedPostgres| async move {
            match server.timeline_change() {
                Some(change) => Ok(Acquisition::TimelineChanged(change)),
                None => server.durable_data().acquire(partition, &owner, reason, watermark, ttl).await,
            }
        };
        self.execute("acquire", acquire).await
    }
    async fn accept_timeline(
        &self,
        change: &TimelineChange,
        watermarks: &BTreeMap<PartitionNo, Token>,
    ) -> Result<TimelineAcceptance, Error> {
        let (change, watermarks) = (change.clone(), watermarks.clone());
        self.execute("accept_timeline", move |server| async move { Ok(server.accept_timeline(&change, &watermarks)) })
            .await
    }
    async fn renew(&self, owner: &InstanceId, held: &[(PartitionNo, Epoch)], ttl: Duration) -> Result<Renewal, Error> {
        let (owner, held) = (owner.clone(), held.to_vec());
        self.execute("renew", move |server| async move { server.durable_data().renew(&owner, &held, ttl).await }).await
    }
    async fn release(&self, partition: PartitionNo, owner: &InstanceId, epoch: Epoch) -> Result<ReleaseOutcome, Error> {
        let owner = owner.clone();
        let release = move |server: SimulatedPostgres| async move {
            server.durable_data().release(partition, &owner, epoch).await
        };
        self.execute("release", release).await
    }
    async fn overview(&self) -> Result<Vec<PartitionView>, Error> {
        self.server.data().overview().await
    }
}
