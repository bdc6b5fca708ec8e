//! The lease row: what it says, and the judgement of who stands behind it.
use ports::outbox::FencedOutcome;
use ports::partitions::{Epoch, Fence, InstanceId, Liveness, Token};
use rusqlite::{OptionalExtension, params};

use crate::engine::Work;
use crate::error::Answer;

/// A partition's lease as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) owner: Option<String>,
    pub(crate) epoch: Epoch,
    pub(crate) expires_at: i64,
    pub(crate) counter: u64,
    pub(crate) in_flight: Option<OpenClaim>,
    /// The batch closed last.
    pub(crate) closed: Option<Token>,
}

/// The batch that a lease row names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenClaim {
    pub(crate) token: Token,
    pub(crate) lane: String,
    /// The acquisition under which it was claimed.
    pub(crate) epoch: Epoch,
    /// What the first taker after that found out.
    pub(crate) died: bool,
    pub(crate) trial: bool,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

/// Reads a partition's lease.
pub(crate) fn read(work: &Work<'_>, partition: u32) -> Answer<Option<Lease>> {
    let mut statement = work.sql.prepare_cached(
        "SELECT owner, epoch, expires_at, counter, in_flight, lane, claim_epoch, died, trial, first_id, last_id, closed
         FROM outbox_lease WHERE partition = ?1",
    )?;
    let lease = statement.query_row([partition], |row| {
        let token: Option<i64> = row.get(4)?;
        let in_flight = match token {
            None => None,
            Some(token) => Some(OpenClaim {
                token: token as u64,
                lane: row.get::<_, Option<String>>(5)?.unwrap_or_default(),
                epoch: row.get::<_, Option<i64>>(6)?.unwrap_or_default() as u64,
                died: row.get(7)?,
                trial: row.get(8)?,
                first: row.get::<_, Option<i64>>(9)?.unwrap_or_default(),
                last: row.get::<_, Option<i64>>(10)?.unwrap_or(i64::MAX),
            }),
        };
        Ok(Lease {
            owner: row.get(0)?,
            epoch: row.get::<_, i64>(1)? as u64,
            expires_at: row.get::<_, Option<i64>>(2)?.unwrap_or_default(),
            counter: row.get::<_, i64>(3)? as u64,
            in_flight,
            closed: row.get::<_, Option<i64>>(11)?.map(|token| token as u64),
        })
    });
    Ok(lease.optional()?)
}

impl Lease {
    /// Whether somebody else may not take the partition.
    pub(crate) fn held_against(&self, taker: &InstanceId, heart: Liveness, now: i64) -> bool {
        let other = self.owner.as_deref().is_some_and(|owner| owner != &*taker.0);
        other && self.expires_at > now && heart != Liveness::Dead
    }

    /// Whether the open batch's claimer died with it in hand. The first taker finds out; later ones only know what it wrote down.
    pub(crate) fn claimer_died(&self, owner_died: bool) -> bool {
        self.in_flight.as_ref().is_some_and(|open| if open.epoch == self.epoch { owner_died } else { open.died })
    }

    /// Whether owner and epoch are the ones named.
    pub(crate) fn is_of(&self, fence: &Fence) -> bool {
        self.owner.as_deref() == Some(&*fence.owner.0) && self.epoch == fence.epoch
    }

    /// What one hears who closes this batch, where it is not open under this lease: a lost answer may be asked for again.
    pub(crate) fn repeated(&self, fence: &Fence, token: Token) -> FencedOutcome {
        if self.is_of(fence) && self.in_flight.is_none() && self.closed == Some(token) {
            return FencedOutcome::Done { counter: self.counter, rows: 0 };
        }
        FencedOutcome::Stale
    }

    /// The open batch, if it is this one and the lease is the one named.
    pub(crate) fn open(&self, fence: &Fence, token: Token) -> Option<&OpenClaim> {
        self.in_flight.as_ref().filter(|open| self.is_of(fence) && open.token == token)
    }
}

/// What is known of a member.
pub(crate) fn heart(work: &Work<'_>, instance: &str) -> Answer<Liveness> {
    let mut statement =
        work.sql.prepare_cached("SELECT seen_at + dead_after_ms > ?2 FROM member WHERE instance = ?1")?;
    let beats: Option<bool> = statement.query_row(params![instance, work.now.millis()], |row| row.get(0)).optional()?;
    Ok(match beats {
        Some(true) => Liveness::Alive,
        Some(false) => Liveness::Dead,
        None => Liveness::Unknown,
    })
}

/// Closes the open batch and raises the counter; answers the new one.
pub(crate) fn close(work: &Work<'_>, fence: &Fence, lease: &Lease) -> Answer<u64> {
    let mut statement = work.sql.prepare_cached(
        "UPDATE outbox_lease SET counter = counter + 1, in_flight = NULL, lane = NULL, claim_epoch = NULL, died = 0, trial = 0,
           first_id = NULL, last_id = NULL, closed = in_flight WHERE partition = ?1",
    )?;
    statement.execute([fence.partition.0])?;
    Ok(lease.counter + 1)
}

/// Raises the counter; answers the new one.
pub(crate) fn raise(work: &Work<'_>, partition: u32) -> Answer<u64> {
    let mut statement = work
        .sql
        .prepare_cached("UPDATE outbox_lease SET counter = counter + 1 WHERE partition = ?1 RETURNING counter")?;
    Ok(statement.query_row([partition], |row| row.get::<_, i64>(0))? as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(owner: &str, epoch: Epoch, claimed_under: Epoch, died: bool) -> Lease {
        let open =
            OpenClaim { token: 7, lane: "l".into(), epoch: claimed_under, died, trial: false, first: 1, last: 2 };
        Lease { owner: Some(owner.into()), epoch, expires_at: 100, counter: 7, in_flight: Some(open), closed: None }
    }

    #[test]
    fn a_taker_that_dies_leaves_its_successor_as_wise() {
        assert!(lease("me", 1, 1, false).claimer_died(true));
        assert!(!lease("me", 1, 1, true).claimer_died(false));
        assert!(!lease("me", 2, 1, false).claimer_died(true), "the taker died, not the claimer");
        assert!(lease("me", 2, 1, true).claimer_died(false));
    }

    #[test]
    fn a_living_owner_holds_until_its_lease_runs_out() {
        let (me, lease) = (InstanceId("me".into()), lease("other", 1, 1, false));

        assert!(lease.held_against(&me, Liveness::Alive, 99));
        assert!(lease.held_against(&me, Liveness::Unknown, 99));
        assert!(!lease.held_against(&me, Liveness::Dead, 99));
        assert!(!lease.held_against(&me, Liveness::Alive, 100));
        assert!(!lease.held_against(&InstanceId("other".into()), Liveness::Alive, 99));
    }
}
