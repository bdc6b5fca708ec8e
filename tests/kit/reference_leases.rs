//! The reference's partition leases.
use std::time::Duration;

use async_trait::async_trait;
use domain::Timestamp;
use ports::Error;
use ports::outbox::RowStatus;
use ports::partitions::{
    AcquireReason, Acquired, Acquisition, Epoch, Fence, InstanceId, MemberView, OpenBatch, PartitionLeases,
    PartitionNo, PartitionView, Release, Token,
};

use crate::reference::{Reference, State};

impl State {
    fn alive(&self, instance: &InstanceId, now: Timestamp) -> bool {
        self.members.get(instance).is_some_and(|(seen, dead_after)| now.since(*seen) < *dead_after)
    }

    fn acquire(&mut self, taking: &Taking<'_>, now: Timestamp) -> Acquisition {
        let former = self.lease(taking.partition).owner.clone();
        let other = former.as_ref().filter(|former| *former != taking.owner);
        let other_lives = other.is_some_and(|other| self.alive(other, now));
        let remaining = self.lease(taking.partition).expires_at.map_or(Duration::ZERO, |until| until.since(now));
        if let Some(by) = other.filter(|_| other_lives && !remaining.is_zero()) {
            return Acquisition::Held { by: by.clone(), remaining };
        }
        let died = match (other, taking.because) {
            (Some(_), _) => !other_lives,
            (None, AcquireReason::Vacant | AcquireReason::WorkerDied) => true,
            (None, AcquireReason::Uncertain) => false,
        };
        if died && taking.because == AcquireReason::Vacant {
            self.absolve(taking.partition);
        }
        let lease = self.lease(taking.partition);
        lease.epoch += 1;
        lease.counter = lease.counter.max(taking.watermark.unwrap_or(0)) + 1;
        lease.owner = Some(taking.owner.clone());
        lease.expires_at = Some(now.after(taking.ttl));
        let in_flight = lease.open.as_mut().map(|open| {
            open.claimer_died |= died;
            OpenBatch { token: open.token, session: open.lane.clone(), claimer_died: open.claimer_died }
        });
        let fence = Fence {
            partition: taking.partition,
            owner: taking.owner.clone(),
            epoch: lease.epoch,
            counter: lease.counter,
        };
        Acquisition::Taken(Acquired { fence, in_flight })
    }

    /// A death clears those who were not in hand.
    fn absolve(&mut self, partition: PartitionNo) {
        let innocent =
            |row: &&mut crate::reference::Row| row.written.partition == partition && row.status != RowStatus::InFlight;
        for row in self.rows.values_mut().filter(innocent) {
            (row.deaths, row.trial_deaths) = (0, 0);
        }
    }
}

struct Taking<'a> {
    partition: PartitionNo,
    owner: &'a InstanceId,
    because: AcquireReason,
    watermark: Option<Token>,
    ttl: Duration,
}

#[async_trait]
impl PartitionLeases for Reference {
    async fn heartbeat(&self, instance: &InstanceId, dead_after: Duration) -> Result<Vec<MemberView>, Error> {
        let now = self.now();
        let mut state = self.state.lock();
        state.members.insert(instance.clone(), (now, dead_after));
        let member = |(instance, (seen_at, _)): (&InstanceId, &(Timestamp, Duration))| MemberView {
            instance: instance.clone(),
            alive: now.since(*seen_at) < dead_after,
            seen_at: *seen_at,
        };
        Ok(state.members.iter().map(member).collect())
    }

    async fn leave(&self, instance: &InstanceId) -> Result<(), Error> {
        self.state.lock().members.remove(instance);
        Ok(())
    }

    async fn acquire(
        &self,
        partition: PartitionNo,
        owner: &InstanceId,
        because: AcquireReason,
        watermark: Option<Token>,
        ttl: Duration,
    ) -> Result<Acquisition, Error> {
        let taking = Taking { partition, owner, because, watermark, ttl };
        Ok(self.state.lock().acquire(&taking, self.now()))
    }

    async fn renew(
        &self,
        owner: &InstanceId,
        held: &[(PartitionNo, Epoch)],
        ttl: Duration,
    ) -> Result<Vec<PartitionNo>, Error> {
        let now = self.now();
        let mut state = self.state.lock();
        let mut ours = Vec::new();
        for (partition, epoch) in held {
            let lease = state.lease(*partition);
            let valid = lease.expires_at.is_some_and(|until| until > now);
            if lease.owner.as_ref() == Some(owner) && lease.epoch == *epoch && valid {
                lease.expires_at = Some(now.after(ttl));
                ours.push(*partition);
            }
        }
        Ok(ours)
    }

    async fn release(&self, partition: PartitionNo, owner: &InstanceId, epoch: Epoch) -> Result<Release, Error> {
        let mut state = self.state.lock();
        let lease = state.lease(partition);
        if lease.owner.as_ref() != Some(owner) || lease.epoch != epoch {
            return Ok(Release::NotOurs);
        }
        if lease.open.is_some() {
            return Ok(Release::InFlight);
        }
        (lease.owner, lease.expires_at) = (None, None);
        Ok(Release::Done)
    }

    async fn overview(&self) -> Result<Vec<PartitionView>, Error> {
        let state = self.state.lock();
        let depth = |partition| {
            state.rows.values().filter(|row| row.written.partition == partition && !row.left()).count() as u64
        };
        let view = |(partition, lease): (u32, &crate::reference::Lease)| PartitionView {
            partition: PartitionNo(partition),
            owner: lease.owner.clone(),
            epoch: lease.epoch,
            counter: lease.counter,
            in_flight: lease.open.as_ref().map(|open| open.token),
            expires_at: lease.expires_at,
            depth: depth(PartitionNo(partition)),
        };
        Ok((0..).zip(&state.leases).map(view).collect())
    }
}
