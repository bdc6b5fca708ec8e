//! A lease in hand, taken and resolved: nothing of the past is open when a session begins.
use ports::Error;
use ports::outbox::{Changed, Verdict};
use ports::partitions::{Acquired, Acquisition, Because, Fence, LaneId, OpenBatch, PartitionNo, Release};

use super::cycle::Relay;

/// What a worker acts under.
pub(super) struct Session {
    /// Owner, epoch and the counter we know.
    pub fence: Fence,
    /// The lane session our claims belong to.
    pub lane: LaneId,
}

/// What came of taking a partition.
pub(super) enum Begun {
    /// Ours, and clean.
    Session(Session),
    /// Somebody alive holds it.
    HeldElsewhere,
}

impl Relay {
    /// Takes the partition and resolves what its former owner left open. Every acquisition reads the watermark, so that the counter
    /// stays above it although the store may have gone back in time. `because` stays as it is until the store has heard it: a death
    /// counts although the first look after it failed.
    pub(super) async fn begin(&self, partition: PartitionNo, because: &mut Because) -> Result<Begun, Error> {
        let watermark = self.broker.watermark(partition).await?;
        let asked = self.book.asking();
        let taken = self.leases.acquire(partition, &self.instance, *because, watermark, self.book.ttl()).await?;
        let Acquired { mut fence, in_flight } = match taken {
            Acquisition::Taken(acquired) => acquired,
            Acquisition::Held { .. } => {
                *because = Because::Vacant;
                return Ok(Begun::HeldElsewhere);
            }
        };
        *because = Because::Uncertain;
        self.book.took(partition, fence.epoch, asked);
        if let Some(open) = in_flight {
            fence.counter = self.resolve(&fence, &open).await?;
        }
        let lane = self.lanes.session(partition).await?;
        Ok(Begun::Session(Session { fence, lane }))
    }

    /// Fence first: only then can nothing of the open batch commit any more, and only then does the watermark tell the truth.
    async fn resolve(&self, fence: &Fence, open: &OpenBatch) -> Result<u64, Error> {
        self.broker.fence(&open.lane).await?;
        self.lanes.over(&open.lane).await;
        let published = self.broker.watermark(fence.partition).await?.is_some_and(|mark| mark >= open.token);
        let verdict = match (published, open.died) {
            (true, _) => Verdict::Published,
            (false, true) => Verdict::Died,
            (false, false) => Verdict::Returned,
        };
        let changed = self.outbox.resolve(fence, open.token, verdict).await?;
        self.metrics.outbox_lease_reclaimed_total.inc();
        let (partition, epoch, token) = (fence.partition.0, fence.epoch, open.token);
        tracing::info!(
            event = "batch_resolved", partition, epoch, token, verdict = ?verdict, lane = %open.lane,
            "a batch that was left open was resolved"
        );
        match changed {
            Changed::Done { counter, .. } => Ok(counter),
            Changed::Stale => {
                Err(Error::Unreachable(format!("partition {partition} changed hands while it was resolved")))
            }
        }
    }

    /// Gives a partition back, so that its next owner starts at once. Answers whether it is free of us. A lease without a session has
    /// a batch open that nobody knows about: it is resolved first, or our heartbeat would renew the lease for ever.
    pub(super) async fn hand_over(
        &self,
        partition: PartitionNo,
        session: Option<Session>,
        because: &mut Because,
    ) -> (bool, Option<Session>) {
        let session = match session {
            Some(session) => session,
            None if !self.book.holds(partition) => return (true, None),
            None => match self.begin(partition, because).await {
                Ok(Begun::Session(session)) => session,
                Ok(Begun::HeldElsewhere) => return (true, None),
                Err(_) => return (false, None),
            },
        };
        let released = self.leases.release(partition, &self.instance, session.fence.epoch).await;
        match released {
            Ok(Release::Done | Release::NotOurs) => {
                self.book.lost(partition);
                (true, None)
            }
            Ok(Release::InFlight) | Err(_) => (false, Some(session)),
        }
    }
}
