//! The lease row: what it says, and the judgement of who stands behind it.
use std::time::Duration;

use ports::outbox::FencedOutcome;
use ports::partitions::{Epoch, Fence, InstanceId, Liveness, PartitionNo, Token};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::Answer;
use crate::session::{Session, Transaction};
use crate::value::get;

/// A partition's lease as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) owner: Option<String>,
    pub(crate) epoch: Epoch,
    /// How long it is still valid.
    pub(crate) left: Duration,
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
}

macro_rules! select {
    () => {
        "SELECT owner, epoch, greatest(coalesce(extract(epoch FROM expires_at - clock_timestamp()), 0), 0)::float8, counter, in_flight,
           lane, claim_epoch, died, trial, closed FROM outbox_lease WHERE partition = $1"
    };
}

const READ: &str = select!();
const LOCK: &str = concat!(select!(), " FOR UPDATE");

/// Reads a partition's lease, as it was a moment ago.
pub(crate) async fn read(session: &Session, partition: PartitionNo) -> Answer<Option<Lease>> {
    let rows = session.read(READ, &[(&(partition.0 as i32), Type::INT4)]).await?;
    rows.first().map(of_row).transpose()
}

/// Begins a transaction with a partition's lease in its hand: statements after this one see all that was done before it.
pub(crate) async fn lock(session: Session, partition: PartitionNo) -> Answer<(Transaction, Option<Lease>)> {
    let (transaction, rows) = session.begin_with(LOCK, &[(&(partition.0 as i32), Type::INT4)]).await?;
    let lease = rows.first().map(of_row).transpose()?;
    Ok((transaction, lease))
}

/// Locks a lease within a transaction.
pub(crate) async fn lock_in(transaction: &Transaction, partition: u32) -> Answer<Option<Lease>> {
    let rows = transaction.query(LOCK, &[(&(partition as i32), Type::INT4)]).await?;
    rows.first().map(of_row).transpose()
}

/// Raises the counter; answers the new one.
pub(crate) async fn raise(transaction: &Transaction, partition: u32) -> Answer<u64> {
    let text = "UPDATE outbox_lease SET counter = counter + 1 WHERE partition = $1 RETURNING counter";
    counter(&transaction.query(text, &[(&(partition as i32), Type::INT4)]).await?)
}

/// Closes the open batch and raises the counter; answers the new one.
pub(crate) async fn close(transaction: &Transaction, partition: PartitionNo) -> Answer<u64> {
    let text = "UPDATE outbox_lease SET counter = counter + 1, in_flight = NULL, lane = NULL, claim_epoch = NULL, died = false, trial = false,
           first_id = NULL, last_id = NULL, closed = in_flight WHERE partition = $1 RETURNING counter";
    counter(&transaction.query(text, &[(&(partition.0 as i32), Type::INT4)]).await?)
}

fn counter(rows: &[Row]) -> Answer<u64> {
    let row = rows.first().ok_or_else(|| crate::error::broken("a lease row is gone"))?;
    Ok(get::<i64>(row, 0)? as u64)
}

fn of_row(row: &Row) -> Answer<Lease> {
    let in_flight = match get::<Option<i64>>(row, 4)? {
        None => None,
        Some(token) => Some(OpenClaim {
            token: token as u64,
            lane: get::<Option<_>>(row, 5)?.unwrap_or_default(),
            epoch: get::<Option<i64>>(row, 6)?.unwrap_or_default() as u64,
            died: get(row, 7)?,
            trial: get(row, 8)?,
        }),
    };
    Ok(Lease {
        owner: get(row, 0)?,
        epoch: get::<i64>(row, 1)? as u64,
        left: Duration::try_from_secs_f64(get(row, 2)?).unwrap_or_default(),
        counter: get::<i64>(row, 3)? as u64,
        in_flight,
        closed: get::<Option<i64>>(row, 9)?.map(|token| token as u64),
    })
}

/// What is known of a member.
pub(crate) async fn heart(transaction: &Transaction, instance: &str) -> Answer<Liveness> {
    let text = "SELECT seen_at + dead_after > clock_timestamp() FROM member WHERE instance = $1";
    let rows = transaction.query(text, &[(&instance, Type::TEXT)]).await?;
    Ok(match rows.first().map(|row| get(row, 0)).transpose()? {
        Some(true) => Liveness::Alive,
        Some(false) => Liveness::Dead,
        None => Liveness::Unknown,
    })
}

impl Lease {
    /// Whether somebody else may not take the partition.
    pub(crate) fn held_against(&self, taker: &InstanceId, heart: Liveness) -> bool {
        let other = self.owner.as_deref().is_some_and(|owner| owner != &*taker.0);
        other && !self.left.is_zero() && heart != Liveness::Dead
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

    /// The open batch, if it is this one and the lease, counter and all, is the one named.
    pub(crate) fn open(&self, fence: &Fence, token: Token) -> Option<&OpenClaim> {
        self.in_flight.as_ref().filter(|open| self.is_of(fence) && self.counter == fence.counter && open.token == token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(owner: &str, epoch: Epoch, claimed_under: Epoch, died: bool) -> Lease {
        let open = OpenClaim { token: 7, lane: "l".into(), epoch: claimed_under, died, trial: false };
        let left = Duration::from_secs(1);
        Lease { owner: Some(owner.into()), epoch, left, counter: 7, in_flight: Some(open), closed: None }
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
        let (me, valid) = (InstanceId("me".into()), lease("other", 1, 1, false));

        assert!(valid.held_against(&me, Liveness::Alive));
        assert!(valid.held_against(&me, Liveness::Unknown));
        assert!(!valid.held_against(&me, Liveness::Dead));
        assert!(!Lease { left: Duration::ZERO, ..valid.clone() }.held_against(&me, Liveness::Alive));
        assert!(!valid.held_against(&InstanceId("other".into()), Liveness::Alive));
    }
}
