//! The outbox as the relay uses it: claim, exclude, settle, resolve. Every transition is fenced by owner, epoch and counter or token;
//! a late or repeated one changes nothing. A claim counts attempts and deaths.
use std::sync::Arc;
use std::time::Duration;

use ::outbox::RowChange;
use async_trait::async_trait;
use domain::{EventId, Timestamp};

use crate::broker::Position;
use crate::error::Error;
use crate::event_headers::EventHeaders;
use crate::orders::{RegionStamp, TraceContext};
use crate::partitions::{LeaseFence, ProducerSessionId, Token};

pub mod events;

pub use ::outbox::{
    BatchOutcome, Disposition, EventKey, EventKeyError, Exclusion, ExclusionOutcome, FencedOutcome, PoisonAction,
    PoisonPolicy, RowId, RowStatus,
};

/// A request for due rows of one partition.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Lease of the partition, with the counter that the worker read last.
    pub fence: LeaseFence,
    /// Producer session that will publish the batch.
    pub session: ProducerSessionId,
    /// Limit of rows in the batch.
    pub limit: u32,
    /// Whether ordinary rows or one suspect are claimed.
    pub kind: ClaimKind,
}

/// A suspect row (3 deaths or more) is claimed by itself, so that a further death can only be its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimKind {
    /// All due rows except suspects. A batch with a row of d deaths has at most limit / 8^d rows.
    Ordinary,
    /// One due suspect by itself. The caller ensures that its process publishes nothing else meanwhile; the store keeps 10 s between two
    /// trials of a row, and before the first one.
    Trial,
}

/// Result of a claim.
#[derive(Clone, Debug)]
pub enum ClaimOutcome {
    /// Claimed rows in id order; their attempts are counted and the claim is durable.
    Batch(ClaimedBatch),
    /// No row is due. The counter is unchanged.
    NoneDue {
        /// Time until the next waiting row is due, if one waits.
        next_due: Option<Duration>,
        /// Whether a suspect is due, so that the caller should claim a trial.
        suspect_due: bool,
    },
    /// The fence is stale (not owner, other epoch, other counter, expired, a batch open): the worker acquires the lease again.
    Fenced,
}

/// Rows claimed under one fencing token.
#[derive(Clone, Debug)]
pub struct ClaimedBatch {
    /// Fencing token of the batch; also the new counter of the fence.
    pub token: Token,
    /// The claimed rows in id order.
    pub rows: Vec<ClaimedRow>,
    /// Whether the limit was reached, so that more rows may be due.
    pub more: bool,
    /// Time by the store's clock when the result of the claim arrived, to within the travel of one message. The age of a row is this time minus
    /// its `created_at`, plus the time that has passed in the process since.
    pub store_time: Timestamp,
}

/// One row of a claimed batch.
#[derive(Clone, Debug)]
pub struct ClaimedRow {
    /// Id of the row; a key's rows are published in id order.
    pub id: RowId,
    /// Event that the row publishes.
    pub event_id: EventId,
    /// Record key as it was inserted.
    pub key: EventKey,
    /// Event type as it was inserted; another version of the service may not know it.
    pub event_type: Arc<str>,
    /// Full name of the topic.
    pub topic: Arc<str>,
    /// Encoded value; `None` when the payload is missing, which parks the row.
    pub payload: Option<Arc<[u8]>>,
    /// Position among the events of the key in its topic, from 1.
    pub sequence: u64,
    /// Time of the change.
    pub occurred_at: Timestamp,
    /// Region and HLC stamp of the change; `None` for events of other services.
    pub stamp: Option<RegionStamp>,
    /// Trace context of the request that made the change.
    pub trace: Option<TraceContext>,
    /// Id of the request that made the change.
    pub request_id: Option<Arc<str>>,
    /// Headers that the writer added.
    pub headers: EventHeaders,
    /// Media type of the payload; `None` is `application/json`.
    pub content_type: Option<Arc<str>>,
    /// The codec's checksum of the payload as it was inserted; `None` if the row has none.
    pub contract_checksum: Option<u32>,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// Commit time of the row's transaction, by the store's clock. Compare it with [`ClaimedBatch::store_time`] only.
    pub created_at: Timestamp,
}

/// A batch that the broker acknowledged.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// Lease under which the batch was claimed. The counter is not compared, because the token identifies the batch.
    pub fence: LeaseFence,
    /// Fencing token of the batch: of its claim, or of its last exclusion.
    pub token: Token,
    /// Topic position of each row, as far as known. Shared, because a settlement is kept for a repetition until the store has answered.
    pub positions: Arc<[(RowId, Position)]>,
    /// Rows that were published to their fallback instead of their topic.
    pub by_fallback: Vec<RowId>,
}

/// Result of a settlement and the claim after it.
#[derive(Debug)]
pub struct SettledClaim {
    /// The outcome of the settlement.
    pub settled: FencedOutcome,
    /// The result of the claim; [`ClaimOutcome::Fenced`] after a stale settlement.
    pub claimed: Result<ClaimOutcome, Error>,
}

/// Result of a resolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedBatch {
    /// Whether the batch was closed, with the counter and the number of its rows.
    pub closed: FencedOutcome,
    /// The rows that this resolution parked as poison; none if it repeats an earlier one.
    pub parked: Vec<PoisonRow>,
}

impl From<FencedOutcome> for ResolvedBatch {
    fn from(closed: FencedOutcome) -> Self {
        Self { closed, parked: Vec::new() }
    }
}

/// A row that was parked because its claimer died in its trials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoisonRow {
    /// Id of the row.
    pub id: RowId,
    /// Event that the row does not publish.
    pub event_id: EventId,
    /// Key of the row, whose later rows wait or go on by the policy.
    pub key: EventKey,
    /// Event type, for operators.
    pub event_type: Arc<str>,
    /// Id of the request that made the change.
    pub request_id: Option<Arc<str>>,
    /// Attempts made, including those in which its claimer died.
    pub attempts: u32,
    /// The stored failure reason.
    pub reason: String,
}

/// The part of a row's event that a store reads when it may park the row. All of it is empty for an event that was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowEvent {
    /// Id of the event.
    pub id: EventId,
    /// Topic of the event, whose policy is applied.
    pub topic: Arc<str>,
    /// Event type, whose policy is applied where its topic has none.
    pub event_type: Arc<str>,
    /// Text of the key, unless it is the canonical form of its group.
    pub key_text: Option<String>,
    /// Id of the request that made the change.
    pub request_id: Option<Arc<str>>,
}

impl PoisonRow {
    /// The row of this change, if the change parks it. `group` is the stored group of its key.
    pub fn from_change<K>(change: &RowChange<K>, group: [u8; 16], event: &RowEvent) -> Option<Self> {
        let reason = change.reason.clone().filter(|_| change.state.status() == RowStatus::Parked)?;
        let key = EventKey::from_stored(group, event.key_text.as_deref());
        let RowEvent { id: event_id, event_type, request_id, .. } = event.clone();
        Some(Self { id: change.id, event_id, key, event_type, request_id, attempts: change.attempts, reason })
    }
}

/// Number of rows by status, and the age of the oldest unsent row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// Number of PENDING rows.
    pub pending: u64,
    /// Number of IN_FLIGHT rows.
    pub in_flight: u64,
    /// Number of FAILED rows, which wait for their next attempt.
    pub failed: u64,
    /// Number of PARKED rows.
    pub parked: u64,
    /// Number of SENT rows that the archive still keeps.
    pub sent: u64,
    /// Age of the oldest row that is neither SENT nor PARKED, nor waits behind a row that is parked with its key.
    pub oldest_unsent: Option<Duration>,
}

/// The outbox table of one store.
///
/// Cancellation: a dropped call that writes may still take effect, also after the drop. Treat it as [`Error::Unknown`]. A claim that has not
/// begun may be skipped, because nothing would publish its batch.
#[async_trait]
pub trait OutboxStore: Send + Sync {
    /// Claims the partition's next due rows in id order. It skips a key whose earlier row waits or is parked under `ParkKey`, and claims a
    /// blocked key's head by itself once that is due. Requires a valid lease and no open batch. Durable before it returns.
    ///
    /// # Errors
    /// After [`Error::Unknown`] the fence is not reliable: the worker acquires the lease again and resolves.
    async fn claim(&self, claim: Claim) -> Result<ClaimOutcome, Error>;

    /// Removes rows from an open batch before it is published. Each row of `exclusions` gets its disposition; later rows of the same keys
    /// return to PENDING with their attempt subtracted, also under `ParkRow`, and the caller drops them from its batch. The batch stays
    /// open for the other rows, even when none is left, under a new token: the new counter. Compares the counter, so a repetition is
    /// stale.
    ///
    /// # Errors
    /// After [`Error::Unknown`] neither fence nor token is reliable: the worker acquires the lease again and resolves.
    async fn exclude(
        &self,
        fence: &LeaseFence,
        token: Token,
        exclusions: &[Exclusion],
    ) -> Result<ExclusionOutcome, Error>;

    /// Marks the remaining rows of an open batch SENT, archives them and unblocks the keys of which they were the head. Compares owner,
    /// epoch and token, not the counter. Repeating the last settlement under the same lease returns `Done` with no rows and the present
    /// counter. A crash of the store may undo a settlement, but none that a later claim of the partition has followed; the batch is then open.
    ///
    /// # Errors
    /// After [`Error::Unknown`] the batch may be settled: a repetition under the same lease is safe; under another lease the batch, if it is
    /// still open, is resolved. After any other error it is open.
    async fn settle(&self, settlement: Settlement) -> Result<FencedOutcome, Error>;

    /// Settles an open batch, and claims the next due rows of its partition under the counter that the settlement returns, whatever counter
    /// the claim's fence has. A store that can do both in one transaction saves a commit for each batch.
    ///
    /// # Errors
    /// Returns the error of the settlement; then nothing was claimed. After [`Error::Unknown`] both may have happened: the worker acquires the lease
    /// again and resolves.
    async fn settle_and_claim(&self, settlement: Settlement, mut claim: Claim) -> Result<SettledClaim, Error> {
        let settled = self.settle(settlement).await?;
        let claimed = match settled {
            FencedOutcome::Done { counter, .. } => {
                claim.fence.counter = counter;
                self.claim(claim).await
            }
            FencedOutcome::Stale => Ok(ClaimOutcome::Fenced),
        };
        Ok(SettledClaim { settled, claimed })
    }

    /// Closes an open batch, also an empty one, by its resolved outcome. A row that this parks as poison blocks its key or not by the
    /// policy of its topic and event type. Compares the counter. Repeating the last resolution under the same lease returns `Done` with no rows.
    ///
    /// # Errors
    /// After [`Error::Unknown`] the batch may be closed, and the rows that were parked are not reported: repeat it under the same lease. After
    /// any other error it is open.
    async fn resolve(
        &self,
        fence: &LeaseFence,
        token: Token,
        outcome: BatchOutcome,
        poison: &PoisonPolicy,
    ) -> Result<ResolvedBatch, Error>;

    /// A hint: this many claims and settlements of different partitions follow within a moment. A store that runs requests of many
    /// partitions together may wait for them; it never relies on them.
    fn expect_requests(&self, count: u32) {
        let _ = count;
    }

    /// Counts rows by status.
    ///
    /// # Errors
    /// The store cannot be read; nothing is changed.
    async fn depth(&self) -> Result<RowCounts, Error>;

    /// Whether this event was written to this outbox: of SENT rows, at least those that the archive keeps.
    ///
    /// # Errors
    /// The store cannot be read; nothing is changed.
    async fn contains(&self, event: EventId) -> Result<bool, Error>;

    /// Deletes archived rows older than `keep`, and payloads below the smallest unsent row: at most `limit` of each, or somewhat more where
    /// the archive is kept by batch, and whole days where it is kept by day. Returns the number deleted, or `limit` if the next page should
    /// follow at once. Never deletes an unsent row.
    ///
    /// # Errors
    /// After [`Error::Unknown`] rows may have been deleted; the next call continues after them.
    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error>;
}
