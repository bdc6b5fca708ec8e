//! The broker, one port for every backend. `publish` commits a claimed batch and its watermark atomically; `append` writes records without
//! a watermark (retry topics, dead letters, publishing without an outbox).
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::outbox::{InstanceId, PartitionNo, ProducerSessionId, RowId, Token};
use async_trait::async_trait;

use crate::error::Error;

pub mod consumer_groups;
mod record;
mod record_headers;
pub mod topic_log;
pub mod topics;

pub use record::{Position, Record};
pub use record_headers::{NULL_KEY, NULL_VALUE, RAW_KEY, RecordHeaderIter, RecordHeaders, is_virtual_header};

/// A claimed batch as records to publish.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Outbox partition of its rows.
    pub partition: PartitionNo,
    /// Fencing token of the batch; becomes the partition's watermark when the batch is committed.
    pub token: Token,
    /// Records in id order, which is the order of each key's events.
    pub records: Vec<(RowId, Record)>,
    /// Remaining time of the lease; after it nothing of the batch may be committed.
    pub time_left: Duration,
    /// How many other batches of the session are expected within about a millisecond. A broker with a cost per transaction may wait for
    /// them that long.
    pub expected_batches: u32,
}

/// Identifies one failure of a transaction or a producer session. All batches that it concerns report the same id, so that a circuit
/// breaker counts it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FailureId(u64);

impl FailureId {
    /// An id that no other failure of this process has.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A failure of the broker that no record caused.
#[derive(Clone, Debug)]
pub struct BrokerFailure {
    /// Which failure it is.
    pub id: FailureId,
    /// Its cause, for operators and the retry policy.
    pub error: Error,
}

impl BrokerFailure {
    /// A new failure after which it is unknown what the broker has done.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Error::Unknown(reason.into()).into()
    }
}

impl From<Error> for BrokerFailure {
    /// A failure that no batch has reported yet.
    fn from(error: Error) -> Self {
        Self { id: FailureId::unique(), error }
    }
}

/// Result of publishing a batch. With exactly-once delivery there is no partial success: records and watermark commit together or not at all.
#[derive(Clone, Debug)]
pub enum PublishOutcome {
    /// All records and the watermark are durable and visible to `read_committed`.
    Committed(Vec<(RowId, Position)>),
    /// Confirmed abort because of these rows, which the broker refused: no record is visible, nor ever will be. The others may be published under
    /// the new token once these are excluded.
    RowsRefused(Vec<(RowId, Error)>),
    /// Confirmed abort that no row caused: no record is visible, nor ever will be.
    Aborted {
        /// The failure of the broker, or the end of the lease.
        cause: BrokerFailure,
        /// Whether any record reached the broker; if none did, the rows' attempt is not counted.
        reached: bool,
    },
    /// With at-least-once delivery only: some records are durable and some were refused. No record after a refused one of its key was sent.
    Partial {
        /// Rows whose records are durable.
        sent: Vec<(RowId, Position)>,
        /// Rows whose records the broker refused.
        refused: Vec<(RowId, Error)>,
    },
    /// The outcome is unknown: the caller fences the session and reads the watermark.
    Unknown(BrokerFailure),
    /// The producer session is fenced or lost: every open batch claimed under it must be resolved.
    SessionLost(BrokerFailure),
}

/// A broker that publishes a batch and its watermark atomically.
///
/// Cancellation: a dropped call may still take effect, also after the drop. Treat it as [`Error::Unknown`], except for
/// [`Broker::recovered`] and the calls that only read.
#[async_trait]
pub trait Broker: Send + Sync {
    /// Opens a producer session and fences the former session of this slot. Claims name the returned id.
    ///
    /// # Errors
    /// After an error the former session may be fenced, and no session of the slot is known to be open: open one again.
    async fn open_session(&self, slot: u32) -> Result<ProducerSessionId, Error>;

    /// Publishes a batch with its watermark. The adapter may put several batches into one transaction; each gets its own result.
    /// Not cancel-safe: after a dropped call the outcome is unknown until [`Broker::fence`] returns.
    async fn publish(&self, session: &ProducerSessionId, batch: Batch) -> PublishOutcome;

    /// Reads the highest token of this partition that was ever committed. With `fenced`, it first waits until every transaction of that
    /// session is decided: after [`Broker::fence`] the result is final for the session's batches, and a resolution relies on it. Without a
    /// session it waits for no transaction, and a token that was committed a moment ago may be missing.
    ///
    /// # Errors
    /// [`Error::Unreachable`] also when a transaction stays open for longer than the broker's adapter waits.
    async fn watermark(
        &self,
        partition: PartitionNo,
        fenced: Option<&ProducerSessionId>,
    ) -> Result<Option<Token>, Error>;

    /// Fences a producer session: its open transactions are aborted and it can commit nothing afterwards. Idempotent.
    ///
    /// # Errors
    /// After an error the session may still commit: its batches cannot be resolved before a repetition succeeds.
    async fn fence(&self, session: &ProducerSessionId) -> Result<(), Error>;

    /// Fences every producer session that any process of the installation has ever opened, waits until all their transactions are decided,
    /// and then reads the highest committed token of each partition. No session that was open before the call can raise them afterwards.
    /// For a store that was rewound: it no longer contains every session. Idempotent; not atomic, so repeat it after an error.
    ///
    /// # Errors
    /// Fails as [`Broker::fence`] and [`Broker::watermark`] do.
    async fn fence_all(&self) -> Result<BTreeMap<PartitionNo, Token>, Error>;

    /// Fences the producer sessions of every instance that is not among `members`, as [`Broker::fence_all`] does, and removes them, so that a
    /// later [`Broker::fence_all`] need not fence them again. At most `limit` producer slots in one call; returns their number. An instance
    /// that opens a session afterwards is fenced by it again. Idempotent; not atomic.
    ///
    /// # Errors
    /// Fails as [`Broker::fence`] does; the slots before the failure are removed.
    async fn remove_sessions(&self, _members: &[InstanceId], _limit: u32) -> Result<u32, Error> {
        Ok(0)
    }

    /// Appends records without a watermark, all of them or none. They are acknowledged and durable when it returns.
    ///
    /// # Errors
    /// [`Error::Rejected`] if the broker will never accept one of them. After [`Error::Unknown`] they may have been appended: a repetition may
    /// append them twice. After any other error none was.
    async fn append(&self, records: Vec<Record>) -> Result<Vec<Position>, Error>;

    /// As [`Broker::append`], with one result for each record in their order: where the broker permanently refuses some of them
    /// ([`Error::Rejected`]), it appends the others. After another failure it sends no further record.
    async fn append_individually(&self, records: Vec<Record>) -> Vec<Result<Position, Error>> {
        match self.append(records.clone()).await {
            Ok(positions) => return positions.into_iter().map(Ok).collect(),
            Err(Error::Rejected(_)) if records.len() > 1 => {}
            Err(error) => return vec![Err(error); records.len()],
        }
        let (mut results, mut failure): (Vec<_>, Option<Error>) = (Vec::with_capacity(records.len()), None);
        for record in records {
            let result = match &failure {
                Some(error) => {
                    Err(Error::Unreachable(format!("not sent after the failure of an earlier record: {error}")))
                }
                None => self.append(vec![record]).await.and_then(only_position),
            };
            if let (Err(error), None) = (&result, &failure)
                && !matches!(error, Error::Rejected(_))
            {
                failure = Some(error.clone());
            }
            results.push(result);
        }
        results
    }

    /// Waits until the broker answers again after an outage. A recovery while no caller waits is kept for the next call; several count as one. For
    /// one caller at a time. Cancel-safe. The default, for a broker inside the process, never returns.
    async fn recovered(&self) {
        std::future::pending().await
    }

    /// Deletes at most `limit` records past their retention and returns the number deleted. A broker that expires records itself deletes none.
    ///
    /// # Errors
    /// After [`Error::Unknown`] records may have been deleted; the next call continues after them.
    async fn sweep(&self, _limit: u32) -> Result<u64, Error> {
        Ok(0)
    }

    /// Limit of a record's value, in bytes.
    fn record_bytes_max(&self) -> usize;
}

fn only_position(positions: Vec<Position>) -> Result<Position, Error> {
    positions.into_iter().next().ok_or_else(|| Error::Broken("the broker returned no position of a record".into()))
}
