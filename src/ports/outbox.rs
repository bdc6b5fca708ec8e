//! The outbox as the relay sees it: claim, exclude, settle, resolve. Every transition is fenced by owner, epoch and counter or token;
//! one that comes late or twice changes nothing. Attempts and deaths are counted when a row is claimed.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{EventId, Hlc, OrderId, RegionId, Timestamp};

use crate::broker::Position;
use crate::error::Error;
use crate::orders::TraceContext;
use crate::partitions::{Fence, ProducerSessionId, Token};

pub use ::outbox::{BatchOutcome, Disposition, Exclusion, FencedOutcome, RowId, RowStatus};

/// What a worker asks for.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The lease, with the counter the worker knows.
    pub fence: Fence,
    /// The lane session that will carry the batch; the claim belongs to it.
    pub session: ProducerSessionId,
    /// Most rows.
    pub limit: u32,
    /// What may be taken.
    pub kind: ClaimKind,
}

/// Poison is convicted alone: a suspect (3 deaths or more) is never claimed beside other work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimKind {
    /// Everything but suspects. Rows that carry deaths come in ever smaller pieces: with d deaths at most limit / 8^d rows.
    Ordinary,
    /// One due suspect, alone. The caller sees to it that nothing else runs in its process; the store keeps 10 s between two trials
    /// of a row, the first one included.
    Trial,
}

/// What a claim found.
#[derive(Clone, Debug)]
pub enum Claimed {
    /// Rows, in id order; attempts are counted, the claim is durable.
    Batch(ClaimedBatch),
    /// Nothing is due. The counter is unchanged.
    Nothing {
        /// How long until a waiting row is due, if one waits.
        next_due: Option<Duration>,
        /// Whether a suspect is due: ask for a trial.
        suspect_due: bool,
    },
    /// The fence is out of date (not owner, other epoch, other counter, expired, a batch open): acquire again.
    Fenced,
}

/// Rows taken under one token.
#[derive(Clone, Debug)]
pub struct ClaimedBatch {
    /// The batch's name; the fence's counter from now on.
    pub token: Token,
    /// The rows, in id order.
    pub rows: Vec<ClaimedRow>,
    /// Whether the limit cut it off, so that more may be due.
    pub more: bool,
}

/// One claimed row.
#[derive(Clone, Debug)]
pub struct ClaimedRow {
    /// Its place.
    pub id: RowId,
    /// Its event's name.
    pub event_id: EventId,
    /// Its key.
    pub key: OrderId,
    /// Its type's name, as it was written (a later version of us may not know it).
    pub kind: Arc<str>,
    /// Where it goes.
    pub topic: Arc<str>,
    /// Its encoded value; `None` when the payload is gone, which parks the row.
    pub payload: Option<Arc<[u8]>>,
    /// Place in its key's line.
    pub sequence: u64,
    /// When it happened.
    pub occurred_at: Timestamp,
    /// Where it happened.
    pub region: RegionId,
    /// Its stamp.
    pub hlc: Hlc,
    /// Trace context.
    pub trace: Option<TraceContext>,
    /// Attempts, this one included.
    pub attempt: u32,
    /// When its transaction committed, by the store's clock.
    pub created_at: Timestamp,
}

/// A batch acknowledged by the broker.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The lease under which it was claimed. The counter is not compared: the token names the batch.
    pub fence: Fence,
    /// The batch.
    pub token: Token,
    /// Where each row stands in the broker, as far as known.
    pub positions: Vec<(RowId, Position)>,
    /// Rows that went to their type's fallback instead of their topic.
    pub by_fallback: Vec<RowId>,
}

/// How much waits, and how old it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// PENDING rows.
    pub pending: u64,
    /// IN_FLIGHT rows.
    pub in_flight: u64,
    /// FAILED rows that wait for their next attempt.
    pub failed: u64,
    /// PARKED rows.
    pub parked: u64,
    /// SENT rows still in the archive.
    pub sent: u64,
    /// Age of the oldest row that has not left and is not parked.
    pub oldest_unsent: Option<Duration>,
}

/// The outbox of one store.
#[async_trait]
pub trait OutboxStore: Send + Sync {
    /// Claims the partition's next due rows in id order: no row of a key whose earlier row waits or is parked under `ParkKey`; a
    /// blocked key's head by itself once it is due. Requires the lease valid and no batch open. Durable before it returns.
    ///
    /// # Errors
    /// After [`Error::Unknown`] do nothing under what you believed: acquire again and resolve.
    async fn claim(&self, claim: Claim) -> Result<Claimed, Error>;

    /// Takes rows out of an open batch, before it is published: the named rows meet their fate; later rows of the same keys in the
    /// batch go back to PENDING with their attempt returned, under `ParkRow` too: the caller drops them from its batch. The token stays
    /// open for the rest, even when nothing is left.
    async fn exclude(&self, fence: &Fence, token: Token, rows: &[Exclusion]) -> Result<FencedOutcome, Error>;

    /// Marks what is left of an open batch SENT and archives it; lifts the blocks of its heads. Compares owner, epoch and token, not the
    /// counter. Repeating the last one under the same lease answers `Done` with no rows and the present counter.
    async fn settle(&self, settlement: Settlement) -> Result<FencedOutcome, Error>;

    /// Closes an open batch by what was found out about it; also one of which nothing is left. Compares the counter. Repeating the last
    /// one under the same lease answers `Done` with no rows.
    async fn resolve(&self, fence: &Fence, token: Token, verdict: BatchOutcome) -> Result<FencedOutcome, Error>;

    /// How much waits.
    async fn depth(&self) -> Result<Depth, Error>;

    /// Forgets archived rows older than `keep`, and payloads below the smallest row that has not left: at most `limit` of each, or
    /// somewhat more where the archive is kept by batch, and whole days at once where it is kept by day. Says how many it forgot. Never touches a row that has not left.
    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error>;
}
