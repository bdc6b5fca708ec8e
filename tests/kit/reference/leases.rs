//! The membership and the partition leases of the reference.
use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use domain::Timestamp;
use ports::Error;
use ports::outbox::RowStatus;
use ports::partitions::{
    AcquireReason, AcquiredLease, Acquisition, Epoch, FreePartition, InstanceId, InstanceLoad, InstanceRank,
    LeaseFence, LeaseSurvey, OpenBatch, PartitionLeases, PartitionNo, PartitionView, ReleaseOutcome, Renewal, Token,
};

use crate::reference::state::{Lease, Reference, Row, State};

impl State {
    fn is_alive(&self, instance: &InstanceId, now: Timestamp) -> bool {
        self.members.get(instance).is_some_and(|(seen, dead_after)| now.since(*seen) < *dead_after)
    }

    fn is_dead(&self, instance: &InstanceId, now: Timestamp) -> bool {
        self.members.get(instance).is_some_and(|(seen, dead_after)| now.since(*seen) >= *dead_after)
    }

    fn survey(&self, instance: &InstanceId, now: Timestamp) -> LeaseSurvey {
        let mut survey = LeaseSurvey::default();
        // When each member dies, and how many leases it holds.
        let mut members: HashMap<&InstanceId, (Timestamp, u32)> = HashMap::new();
        for (member, (seen, dead_after)) in &self.members {
            members.insert(member, (seen.plus(*dead_after), 0));
        }
        for (number, lease) in (0..).zip(&self.leases) {
            let mut owner = lease.owner.as_ref().and_then(|owner| members.get_mut(owner));
            let dies = owner.as_ref().map(|(dies, _)| *dies);
            if lease.owner.is_none() || !lease.is_valid(now) || dies.is_some_and(|dies| dies <= now) {
                let since = [lease.expires_at, dies].into_iter().flatten().min().unwrap_or_default();
                survey.free.push(FreePartition { partition: PartitionNo(number), idle: now.since(since) });
                continue;
            }
            if lease.owner.as_ref() == Some(instance) {
                survey.own.push(PartitionNo(number));
            }
            if let Some((_, held)) = &mut owner {
                *held += 1;
            }
        }
        survey.free.sort_by_key(|free| std::cmp::Reverse(free.idle));
        members.retain(|_, (dies, _)| *dies > now);
        let load =
            |(instance, (_, held)): (&InstanceId, (Timestamp, u32))| InstanceLoad { instance: instance.clone(), held };
        survey.members = members.into_iter().map(load).collect();
        survey.members.sort_by(|a, b| a.instance.cmp(&b.instance));
        survey
    }

    fn acquire(&mut self, request: &AcquireRequest<'_>, now: Timestamp) -> Acquisition {
        let former = self.lease(request.partition).owner.clone();
        let other = former.as_ref().filter(|former| *former != request.owner);
        let other_alive = other.is_some_and(|other| self.is_alive(other, now));
        let other_dead = other.is_some_and(|other| self.is_dead(other, now));
        let remaining = self.lease(request.partition).expires_at.map_or(Duration::ZERO, |expiry| expiry.since(now));
        if let Some(by) = other.filter(|_| !other_dead && !remaining.is_zero()) {
            return Acquisition::Held { by: by.clone(), remaining };
        }
        let owner_died = match (other, request.reason) {
            (Some(_), _) => !other_alive,
            (None, AcquireReason::Unowned | AcquireReason::WorkerDied) => true,
            (None, AcquireReason::OutcomeUnknown) => false,
        };
        if owner_died && request.reason == AcquireReason::Unowned {
            self.clear_deaths(request.partition);
        }
        let lease = self.lease(request.partition);
        lease.epoch += 1;
        lease.counter = lease.counter.max(request.watermark.unwrap_or(0)) + 1;
        lease.owner = Some(request.owner.clone());
        lease.expires_at = Some(now.plus(request.ttl));
        let open_batch = lease.open.as_mut().map(|open| {
            open.claimer_died |= owner_died;
            OpenBatch { token: open.token, session: open.session.clone(), claimer_died: open.claimer_died }
        });
        let fence = LeaseFence {
            partition: request.partition,
            owner: request.owner.clone(),
            epoch: lease.epoch,
            counter: lease.counter,
        };
        Acquisition::Acquired(AcquiredLease { fence, open_batch })
    }

    /// Clears the deaths of rows that were not in flight when the owner died.
    fn clear_deaths(&mut self, partition: PartitionNo) {
        let not_in_flight = |row: &&mut Row| row.event.partition == partition && row.status != RowStatus::InFlight;
        for row in self.rows.values_mut().filter(not_in_flight) {
            (row.deaths, row.trial_deaths) = (0, 0);
        }
    }
}

struct AcquireRequest<'a> {
    partition: PartitionNo,
    owner: &'a InstanceId,
    reason: AcquireReason,
    watermark: Option<Token>,
    ttl: Duration,
}

#[async_trait]
impl PartitionLeases for Reference {
    async fn heartbeat(&self, instance: &InstanceId, dead_after: Duration) -> Result<InstanceRank, Error> {
        let now = self.now();
        let mut state = self.state.lock();
        state.members.insert(instance.clone(), (now, dead_after));
        let (mut rank, mut live) = (0, 0);
        for (member, (seen, dead_after)) in &state.members {
            let alive = u32::from(now.since(*seen) < *dead_after);
            live += alive;
            rank += if member < instance { alive } else { 0 };
        }
        Ok(InstanceRank { rank, live })
    }

    async fn survey(&self, instance: &InstanceId) -> Result<LeaseSurvey, Error> {
        Ok(self.state.lock().survey(instance, self.now()))
    }

    async fn leave(&self, instance: &InstanceId) -> Result<(), Error> {
        self.state.lock().members.remove(instance);
        Ok(())
    }

    async fn acquire(
        &self,
        partition: PartitionNo,
        owner: &InstanceId,
        reason: AcquireReason,
        watermark: Option<Token>,
        ttl: Duration,
    ) -> Result<Acquisition, Error> {
        let request = AcquireRequest { partition, owner, reason, watermark, ttl };
        Ok(self.state.lock().acquire(&request, self.now()))
    }

    async fn renew(&self, owner: &InstanceId, held: &[(PartitionNo, Epoch)], ttl: Duration) -> Result<Renewal, Error> {
        let now = self.now();
        let mut state = self.state.lock();
        let mut renewed = Vec::new();
        for (partition, epoch) in held {
            let lease = state.lease(*partition);
            if lease.is_held_by(owner, *epoch) && lease.is_valid(now) {
                lease.expires_at = Some(now.plus(ttl));
                renewed.push(*partition);
            }
        }
        Ok(Renewal { renewed, locked: Vec::new() })
    }

    async fn release(&self, partition: PartitionNo, owner: &InstanceId, epoch: Epoch) -> Result<ReleaseOutcome, Error> {
        let now = self.now();
        let mut state = self.state.lock();
        let lease = state.lease(partition);
        if !lease.is_held_by(owner, epoch) {
            return Ok(ReleaseOutcome::NotHeld);
        }
        if lease.open.is_some() {
            return Ok(ReleaseOutcome::InFlight);
        }
        (lease.owner, lease.expires_at) = (None, Some(now));
        Ok(ReleaseOutcome::Done)
    }

    async fn overview(&self) -> Result<Vec<PartitionView>, Error> {
        let state = self.state.lock();
        let depth = |partition| {
            state.rows.values().filter(|row| row.event.partition == partition && !row.is_sent()).count() as u64
        };
        let view = |(partition, lease): (u32, &Lease)| PartitionView {
            partition: PartitionNo(partition),
            owner: lease.owner.clone(),
            epoch: lease.epoch,
            counter: lease.counter,
            open_batch: lease.open.as_ref().map(|open| open.token),
            expires_at: lease.expires_at.filter(|_| lease.owner.is_some()),
            depth: depth(PartitionNo(partition)),
        };
        Ok((0..).zip(&state.leases).map(view).collect())
    }
}
