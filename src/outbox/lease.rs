//! The lease of a partition: which instance may change its rows, and what a statement with a given fence may do.
//!
//! A store reads the lease row, measures `remaining` by its own clock and calls these functions. Statements that compare the lease in SQL
//! or Lua instead of loading it must come to the same result.
use std::time::Duration;

use crate::ids::{Counter, Epoch, InstanceId, LeaseFence, ProducerSessionId, Token};

/// The lease row of a partition at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The instance that acquired it last; `None` after a release.
    pub owner: Option<InstanceId>,
    /// The number of its latest acquisition.
    pub epoch: Epoch,
    /// The counter after the latest statement that changed rows.
    pub counter: Counter,
    /// Time until it expires, by the store's clock; zero once it has expired.
    pub remaining: Duration,
    /// The claimed batch whose outcome is not recorded yet.
    pub open_batch: Option<OpenClaim>,
    /// The batch that was closed last.
    pub closed: Option<Token>,
}

/// The claimed batch that a lease row names. It stays there until it is settled or resolved, across acquisitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenClaim {
    /// Fencing token under which the batch was claimed, or of its last exclusion.
    pub token: Token,
    /// The producer session that may have published it.
    pub session: ProducerSessionId,
    /// The acquisition under which it was claimed.
    pub epoch: Epoch,
    /// Whether the claimer died, as the first acquisition after the claim recorded it; meaningless before that.
    pub claimer_died: bool,
    /// Whether the batch is a trial: one suspect, as the only work of its process.
    pub trial: bool,
}

/// The result of a fenced statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FencedOutcome {
    /// The statement took effect, now or when it was sent before.
    Done {
        /// The counter that the next statement must name.
        counter: Counter,
        /// Rows that this statement changed.
        rows: u64,
    },
    /// The fence was out of date; nothing was changed.
    Stale,
}

/// The result of excluding rows from an open batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExclusionOutcome {
    /// The rows have left the batch.
    Done {
        /// The token of the rest of the batch, which is also the counter that the next statement must name. The former token names no
        /// batch any more: a store that loses the exclusion cannot take the watermark of the rest for the watermark of the whole batch.
        token: Token,
        /// Rows that this statement changed.
        rows: u64,
    },
    /// The fence or the token was out of date, or no named row was left in the batch; nothing was changed.
    Stale,
}

/// The result of releasing a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The partition is free at once.
    Done,
    /// Refused because a batch is in flight: settle or resolve it first.
    InFlight,
    /// The caller no longer held the partition.
    NotHeld,
}

impl Lease {
    /// Whether the fence names the owner and epoch of this lease. The counter and the time of expiry are not compared.
    pub fn is_held_by(&self, fence: &LeaseFence) -> bool {
        self.is_of(&fence.owner, fence.epoch)
    }

    /// Whether a claim under this fence may take rows: owner, epoch and counter agree, no batch is open, the lease has not expired.
    pub fn may_claim(&self, fence: &LeaseFence) -> bool {
        self.is_held_by(fence)
            && self.counter == fence.counter
            && self.open_batch.is_none()
            && !self.remaining.is_zero()
    }

    /// The open batch, if it has this token and the fence's owner and epoch hold the lease. For settling: the counter is not compared,
    /// because the token alone names a batch that the broker has acknowledged.
    pub fn open_batch(&self, fence: &LeaseFence, token: Token) -> Option<&OpenClaim> {
        self.open_batch.as_ref().filter(|open| self.is_held_by(fence) && open.token == token)
    }

    /// The open batch as in [`Lease::open_batch`], if the fence also names the present counter. For excluding and resolving, which rely
    /// on everything the caller knows about the rows.
    pub fn open_batch_at_counter(&self, fence: &LeaseFence, token: Token) -> Option<&OpenClaim> {
        self.open_batch(fence, token).filter(|_| self.counter == fence.counter)
    }

    /// The outcome of settling or resolving a batch that is not open under this lease. A repetition of the close that came last is done,
    /// with no rows and the present counter, so that a caller may repeat it after a lost reply.
    pub fn repeated_close(&self, fence: &LeaseFence, token: Token) -> FencedOutcome {
        if self.is_held_by(fence) && self.open_batch.is_none() && self.closed == Some(token) {
            return FencedOutcome::Done { counter: self.counter, rows: 0 };
        }
        FencedOutcome::Stale
    }

    /// Whether the owner may release the partition. Expiry is not compared: an expired lease that no other instance has acquired is released.
    pub fn release(&self, owner: &InstanceId, epoch: Epoch) -> ReleaseOutcome {
        match &self.open_batch {
            _ if !self.is_of(owner, epoch) => ReleaseOutcome::NotHeld,
            Some(_) => ReleaseOutcome::InFlight,
            None => ReleaseOutcome::Done,
        }
    }

    fn is_of(&self, owner: &InstanceId, epoch: Epoch) -> bool {
        self.owner.as_ref() == Some(owner) && self.epoch == epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PartitionNo;

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
            remaining: Duration::from_secs(1),
            open_batch: Some(claim(2, false)),
            closed: Some(5),
        }
    }

    fn fence(owner: &str, epoch: Epoch, counter: Counter) -> LeaseFence {
        LeaseFence { partition: PartitionNo(0), owner: id(owner), epoch, counter }
    }

    #[test]
    fn claim_needs_the_exact_fence_no_open_batch_and_time_left() {
        let free = Lease { open_batch: None, ..lease("me") };
        let cases = [
            (free.clone(), fence("me", 2, 9), true),
            (free.clone(), fence("other", 2, 9), false),
            (free.clone(), fence("me", 1, 9), false),
            (free.clone(), fence("me", 2, 8), false),
            (Lease { remaining: Duration::ZERO, ..free.clone() }, fence("me", 2, 9), false),
            (Lease { owner: None, ..free }, fence("me", 2, 9), false),
            (lease("me"), fence("me", 2, 9), false),
        ];

        for (lease, fence, allowed) in cases {
            assert_eq!(lease.may_claim(&fence), allowed, "{lease:?} {fence:?}");
        }
    }

    #[test]
    fn open_batch_compares_the_counter_only_where_its_name_says_so() {
        let cases = [
            (fence("me", 2, 9), 7, true, true),
            (fence("me", 2, 8), 7, true, false),
            (fence("me", 2, 9), 6, false, false),
            (fence("me", 1, 9), 7, false, false),
            (fence("other", 2, 9), 7, false, false),
        ];

        for (fence, token, open, at_counter) in cases {
            let lease = Lease { remaining: Duration::ZERO, ..lease("me") };
            let seen =
                (lease.open_batch(&fence, token).is_some(), lease.open_batch_at_counter(&fence, token).is_some());
            assert_eq!(seen, (open, at_counter), "{fence:?} {token}");
        }
    }

    #[test]
    fn repeated_close_is_done_only_for_the_batch_closed_last() {
        let closed = Lease { open_batch: None, ..lease("me") };
        let done = FencedOutcome::Done { counter: 9, rows: 0 };
        let cases = [
            (closed.clone(), fence("me", 2, 1), 5, done),
            (closed.clone(), fence("me", 2, 9), 7, FencedOutcome::Stale),
            (closed.clone(), fence("me", 1, 9), 5, FencedOutcome::Stale),
            (closed, fence("other", 2, 9), 5, FencedOutcome::Stale),
            (lease("me"), fence("me", 2, 9), 5, FencedOutcome::Stale),
        ];

        for (lease, fence, token, outcome) in cases {
            assert_eq!(lease.repeated_close(&fence, token), outcome, "{fence:?} {token}");
        }
    }

    #[test]
    fn release_is_refused_while_a_batch_is_in_flight() {
        let free = Lease { open_batch: None, remaining: Duration::ZERO, ..lease("me") };
        let cases = [
            (free.clone(), "me", 2, ReleaseOutcome::Done),
            (free.clone(), "me", 1, ReleaseOutcome::NotHeld),
            (free, "other", 2, ReleaseOutcome::NotHeld),
            (lease("me"), "me", 2, ReleaseOutcome::InFlight),
            (lease("me"), "other", 2, ReleaseOutcome::NotHeld),
        ];

        for (lease, owner, epoch, release) in cases {
            assert_eq!(lease.release(&id(owner), epoch), release, "{owner} {epoch}");
        }
    }
}
