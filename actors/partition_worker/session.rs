//! A lease in hand, taken and resolved: nothing of the past is open when a session begins.
use ports::Error;
use ports::outbox::{BatchOutcome, FencedOutcome};
use ports::partitions::{
    AcquireReason, Acquired, Acquisition, Fence, OpenBatch, PartitionNo, ProducerSessionId, Release, Token,
};

use super::Broker;
use super::cycle::Relay;

/// What a worker acts under.
pub(super) struct Session {
    /// Owner, epoch and the counter we know.
    pub fence: Fence,
    /// The lane session our claims belong to.
    pub lane: ProducerSessionId,
}

/// What came of taking a partition.
pub(super) enum Begun {
    /// Ours, and clean.
    Session(Session),
    /// Somebody alive holds it.
    HeldElsewhere,
}

/// Why a session could not begin, and what that says about the broker.
pub(super) struct Trouble {
    pub error: Error,
    pub broker: Broker,
}

impl Trouble {
    fn of_broker(error: Error) -> Self {
        Self { error, broker: Broker::Failed }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self { error, broker: Broker::NotAsked }
    }
}

impl Relay {
    /// Takes the partition and resolves what its former owner left open. Every acquisition reads the watermark, so that the counter
    /// stays above it although the store may have gone back in time: under the lease and after the fence, because a transaction that
    /// a dead owner left open holds the answer back until the broker itself gives it up.
    pub(super) async fn begin(&self, partition: PartitionNo, because: &mut AcquireReason) -> Result<Begun, Trouble> {
        let Some(mut fence) = self.take(partition, because, None).await? else { return Ok(Begun::HeldElsewhere) };
        let watermark = self.broker.watermark(partition).await.map_err(Trouble::of_broker)?;
        if watermark.is_some_and(|mark| mark > fence.counter) {
            let Some(above) = self.take(partition, because, watermark).await? else { return Ok(Begun::HeldElsewhere) };
            fence = above;
        }
        let lane = self.lanes.session(partition).await.map_err(Trouble::of_broker)?;
        Ok(Begun::Session(Session { fence, lane }))
    }

    /// Takes it, if nobody alive holds it, and resolves. `because` stays as it is until the store has heard it: a death counts although
    /// the first look after it failed.
    async fn take(
        &self,
        partition: PartitionNo,
        because: &mut AcquireReason,
        watermark: Option<Token>,
    ) -> Result<Option<Fence>, Trouble> {
        let asked = self.book.asking();
        let taken = self.leases.acquire(partition, &self.instance, *because, watermark, self.book.ttl()).await?;
        let Acquired { mut fence, in_flight } = match taken {
            Acquisition::Taken(acquired) => acquired,
            Acquisition::Held { .. } => {
                *because = AcquireReason::Vacant;
                return Ok(None);
            }
        };
        *because = AcquireReason::Uncertain;
        self.book.took(partition, fence.epoch, asked);
        if let Some(open) = in_flight {
            fence.counter = self.resolve(&fence, &open).await?;
        }
        Ok(Some(fence))
    }

    /// Fence first: only then can nothing of the open batch commit any more, and only then does the watermark tell the truth.
    async fn resolve(&self, fence: &Fence, open: &OpenBatch) -> Result<u64, Trouble> {
        self.broker.fence(&open.session).await.map_err(Trouble::of_broker)?;
        self.lanes.over(&open.session).await;
        let watermark = self.broker.watermark(fence.partition).await.map_err(Trouble::of_broker)?;
        let published = watermark.is_some_and(|mark| mark >= open.token);
        let verdict = match (published, open.claimer_died) {
            (true, _) => BatchOutcome::Published,
            (false, true) => BatchOutcome::ClaimerDied,
            (false, false) => BatchOutcome::NotSent,
        };
        let changed = self.outbox.resolve(fence, open.token, verdict).await?;
        self.metrics.outbox_lease_reclaimed_total.inc();
        let (partition, epoch, token) = (fence.partition.0, fence.epoch, open.token);
        tracing::info!(
            event = "batch_resolved", partition, epoch, token, verdict = ?verdict, lane = %open.session,
            "a batch that was left open was resolved"
        );
        match changed {
            FencedOutcome::Done { counter, .. } => Ok(counter),
            FencedOutcome::Stale => {
                Err(Error::Unreachable(format!("partition {partition} changed hands while it was resolved")).into())
            }
        }
    }

    /// Gives a partition back, so that its next owner starts at once. Answers whether it is free of us. A lease without a session needs
    /// no broker for it, which may be away, unless a batch is open that nobody knows about: the store refuses then, and it is resolved
    /// first, or our heartbeat would renew the lease for ever.
    pub(super) async fn hand_over(
        &self,
        partition: PartitionNo,
        mut session: Option<Session>,
        because: &mut AcquireReason,
    ) -> (bool, Option<Session>) {
        loop {
            let known = session.as_ref().map(|session| session.fence.epoch);
            let Some(epoch) = known.or_else(|| self.book.epoch(partition)) else { return (true, None) };
            match self.leases.release(partition, &self.instance, epoch).await {
                Ok(Release::Done | Release::NotOurs) => {
                    self.book.lost(partition);
                    return (true, None);
                }
                Ok(Release::InFlight) if session.is_none() => match self.begin(partition, because).await {
                    Ok(Begun::Session(begun)) => session = Some(begun),
                    Ok(Begun::HeldElsewhere) => return (true, None),
                    Err(_) => return (false, None),
                },
                Ok(Release::InFlight) | Err(_) => return (false, session),
            }
        }
    }
}
