//! Acquiring a partition: whether another instance still holds its lease, and whether the former owner or the claimer died.
use std::time::Duration;

use crate::ids::{Counter, Epoch, InstanceId, Token};
use crate::lease::Lease;

/// Why an instance acquires a partition, which may be one whose lease it already holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireReason {
    /// It is free, expired, its owner is dead, or an earlier process of this instance held it. The claimer of an open batch has died.
    Unowned,
    /// This instance holds it, and its own worker died (a panic, a kill) with the batch in flight.
    WorkerDied,
    /// This instance holds it and is alive, but the outcome of a statement is unknown, or its producer session is lost.
    OutcomeUnknown,
}

/// The state of an instance by its heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Its heartbeat is younger than its `dead_after`.
    Alive,
    /// Its heartbeat is older than its `dead_after`.
    Dead,
    /// The store has no heartbeat of it: it never sent one, it left, or the store was reopened since.
    Unknown,
}

/// Whether an instance may acquire a partition, and the new values of the lease row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquireDecision {
    /// Another instance holds the lease.
    Held {
        /// The holder of the lease.
        by: InstanceId,
        /// Time until the lease expires, unless the holder renews it.
        remaining: Duration,
    },
    /// The instance becomes the owner. An open batch stays in the lease row.
    Acquired {
        /// The epoch to write.
        epoch: Epoch,
        /// The counter to write: above every counter and watermark ever written.
        counter: Counter,
        /// Whether the claimer of the open batch died; stored with the open batch.
        claimer_died: bool,
        /// Whether the deaths of rows outside the open batch are set to zero: the owner died while they were not in flight, so they did
        /// not cause it.
        clears_deaths: bool,
    },
}

impl Lease {
    /// Decides an acquisition. `liveness` is the present owner's, `watermark` the broker's for this partition.
    pub fn acquire(
        &self,
        acquirer: &InstanceId,
        reason: AcquireReason,
        liveness: Liveness,
        watermark: Option<Token>,
    ) -> AcquireDecision {
        if let Some(by) = self.owner.as_ref().filter(|_| self.is_held_by_other(acquirer, liveness)) {
            return AcquireDecision::Held { by: by.clone(), remaining: self.remaining };
        }
        let owner_died = self.owner_died(reason, acquirer, liveness);
        AcquireDecision::Acquired {
            epoch: self.epoch + 1,
            counter: self.counter.max(watermark.unwrap_or(0)) + 1,
            claimer_died: self.claimer_died(owner_died),
            clears_deaths: reason == AcquireReason::Unowned && owner_died,
        }
    }

    /// Whether another instance holds the lease, so that `acquirer` may not acquire it: it has not expired and its owner is not known to be dead.
    pub fn is_held_by_other(&self, acquirer: &InstanceId, liveness: Liveness) -> bool {
        let other = self.owner.as_ref().is_some_and(|owner| owner != acquirer);
        other && !self.remaining.is_zero() && liveness != Liveness::Dead
    }

    /// Whether the owner in the lease row is dead, by the acquisition's reason and the owner's heartbeat.
    pub fn owner_died(&self, reason: AcquireReason, acquirer: &InstanceId, liveness: Liveness) -> bool {
        match &self.owner {
            None => false,
            // A lease under the acquiring instance's own name belonged to its former process.
            Some(owner) if owner == acquirer => reason != AcquireReason::OutcomeUnknown,
            Some(_) => liveness != Liveness::Alive,
        }
    }

    /// Whether the claimer of the open batch died while it was in flight. The first acquisition after the claim judges it by
    /// `owner_died`; later ones read the judgement that the first one recorded, because the owner is no longer the claimer.
    pub fn claimer_died(&self, owner_died: bool) -> bool {
        self.open_batch
            .as_ref()
            .is_some_and(|open| if open.epoch == self.epoch { owner_died } else { open.claimer_died })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ProducerSessionId;
    use crate::lease::OpenClaim;

    const SECOND: Duration = Duration::from_secs(1);

    fn id(name: &str) -> InstanceId {
        InstanceId(name.into())
    }

    fn claim(epoch: Epoch, claimer_died: bool) -> OpenClaim {
        OpenClaim { token: 7, session: ProducerSessionId("session".into()), epoch, claimer_died, trial: false }
    }

    /// Epoch 2, counter 9, batch 7 open since epoch 2, batch 5 closed last.
    fn lease(owner: &str) -> Lease {
        Lease {
            owner: Some(id(owner)),
            epoch: 2,
            counter: 9,
            remaining: SECOND,
            open_batch: Some(claim(2, false)),
            closed: Some(5),
        }
    }

    #[test]
    fn owner_death_depends_on_the_reason_and_on_the_heartbeat() {
        let cases = [
            ("me", AcquireReason::Unowned, Liveness::Alive, true),
            ("me", AcquireReason::WorkerDied, Liveness::Alive, true),
            ("me", AcquireReason::OutcomeUnknown, Liveness::Alive, false),
            ("me", AcquireReason::OutcomeUnknown, Liveness::Dead, false),
            ("me", AcquireReason::OutcomeUnknown, Liveness::Unknown, false),
            ("other", AcquireReason::Unowned, Liveness::Alive, false),
            ("other", AcquireReason::Unowned, Liveness::Dead, true),
            ("other", AcquireReason::Unowned, Liveness::Unknown, true),
            ("other", AcquireReason::WorkerDied, Liveness::Alive, false),
            ("other", AcquireReason::OutcomeUnknown, Liveness::Dead, true),
        ];

        for (owner, reason, liveness, died) in cases {
            assert_eq!(lease(owner).owner_died(reason, &id("me"), liveness), died, "{owner} {reason:?} {liveness:?}");
        }
        let free = Lease { owner: None, ..lease("me") };
        assert!(!free.owner_died(AcquireReason::Unowned, &id("me"), Liveness::Unknown));
    }

    #[test]
    fn first_acquisition_judges_the_claimer_and_later_ones_read_its_judgement() {
        let cases = [
            (Some(claim(2, false)), true, true),
            (Some(claim(2, true)), false, false),
            // The instance that acquired the partition after the claimer has died, not the claimer.
            (Some(claim(1, false)), true, false),
            (Some(claim(1, true)), false, true),
            (None, true, false),
        ];

        for (open_batch, owner_died, died) in cases {
            let lease = Lease { open_batch, ..lease("me") };
            assert_eq!(lease.claimer_died(owner_died), died, "{lease:?}");
        }
    }

    #[test]
    fn live_owner_holds_its_lease_until_it_expires() {
        let cases = [
            ("other", SECOND, Liveness::Alive, true),
            ("other", SECOND, Liveness::Unknown, true),
            ("other", SECOND, Liveness::Dead, false),
            ("other", Duration::ZERO, Liveness::Alive, false),
            ("me", SECOND, Liveness::Alive, false),
        ];

        for (owner, remaining, liveness, held) in cases {
            let lease = Lease { remaining, ..lease(owner) };
            assert_eq!(lease.is_held_by_other(&id("me"), liveness), held, "{owner} {remaining:?} {liveness:?}");
        }
        assert!(!Lease { owner: None, ..lease("other") }.is_held_by_other(&id("me"), Liveness::Unknown));
    }

    #[test]
    fn acquisition_raises_epoch_and_counter_above_the_watermark() {
        let me = id("me");
        let taken = |counter, claimer_died, clears_deaths| AcquireDecision::Acquired {
            epoch: 3,
            counter,
            claimer_died,
            clears_deaths,
        };
        let cases = [
            ("me", AcquireReason::Unowned, Liveness::Alive, None, taken(10, true, true)),
            ("me", AcquireReason::WorkerDied, Liveness::Alive, Some(4), taken(10, true, false)),
            ("me", AcquireReason::OutcomeUnknown, Liveness::Alive, Some(20), taken(21, false, false)),
            ("other", AcquireReason::Unowned, Liveness::Dead, Some(9), taken(10, true, true)),
            (
                "other",
                AcquireReason::Unowned,
                Liveness::Alive,
                None,
                AcquireDecision::Held { by: id("other"), remaining: SECOND },
            ),
        ];

        for (owner, reason, liveness, watermark, decision) in cases {
            assert_eq!(lease(owner).acquire(&me, reason, liveness, watermark), decision, "{owner} {reason:?}");
        }
    }

    #[test]
    fn expired_lease_of_a_live_owner_is_taken_without_a_death() {
        let expired = Lease { remaining: Duration::ZERO, ..lease("other") };

        let decision = expired.acquire(&id("me"), AcquireReason::Unowned, Liveness::Alive, None);

        let expected = AcquireDecision::Acquired { epoch: 3, counter: 10, claimer_died: false, clears_deaths: false };
        assert_eq!(decision, expected);
    }
}
