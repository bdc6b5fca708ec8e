//! Where events go. One port for every backend: `publish` carries a claimed batch and its watermark as one thing that stands or falls
//! together; `append` carries what has no watermark (retry topics, dead letters, publishing without an outbox).
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::Timestamp;

use crate::error::Error;
use crate::outbox::RowId;
use crate::partitions::{PartitionNo, ProducerSessionId, Token};

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Full name of the topic.
    pub topic: Arc<str>,
    /// Chooses the topic's partition as Java's clients do (murmur2), so that a shared topic stays in order.
    pub key: Arc<str>,
    /// Names and values, in order.
    pub headers: Vec<Header>,
    /// The value.
    pub value: Arc<[u8]>,
    /// When it happened.
    pub timestamp: Timestamp,
}

impl Record {
    /// The value of a header; the first one's, where a name stands twice.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let (_, value) = self.headers.iter().find(|(header, _)| &**header == name)?;
        Some(value)
    }

    /// The same, where it is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.header(name)?).ok()
    }
}

/// A header's name and value; most values are text, some are binary.
pub type Header = (Arc<str>, Arc<[u8]>);

/// Where a record stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Which topic.
    pub topic: Arc<str>,
    /// Which of its partitions.
    pub partition: u32,
    /// Which place.
    pub offset: u64,
}

/// A claimed batch on its way.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The outbox partition it comes from.
    pub partition: PartitionNo,
    /// Its name; becomes the partition's watermark when it is committed.
    pub token: Token,
    /// Its records, in the order in which each key's must arrive.
    pub records: Vec<(RowId, Record)>,
    /// What is left of the lease: past this nothing of the batch may be committed any more.
    pub time_left: Duration,
}

/// What became of a batch. Exactly once there is no partial success: records and watermark stand or fall together.
#[derive(Clone, Debug)]
pub enum Published {
    /// All of it, and the watermark, is durable and visible to `read_committed`.
    Committed(Vec<(RowId, Position)>),
    /// Confirmed: nothing of it is visible, nor ever will be.
    Aborted {
        /// Rows the broker refused; the rest may go again under the same token once these are excluded.
        refused: Vec<(RowId, Error)>,
        /// Why, when no row is to blame.
        cause: Option<Error>,
        /// Whether anything reached the broker; when not, the attempt is returned.
        reached: bool,
    },
    /// At least once only, where nothing binds a batch's records together: some are durable, some were refused, and nothing that came
    /// after a refused record of its key was sent.
    Partial {
        /// Rows that are durable.
        sent: Vec<(RowId, Position)>,
        /// Rows the broker refused.
        refused: Vec<(RowId, Error)>,
    },
    /// Nobody knows: fence the lane and ask the watermark.
    Unknown(String),
    /// The lane's session is over: every claim made under it goes to resolution.
    SessionLost(String),
}

/// A broker that can publish a batch once.
#[async_trait]
pub trait Broker: Send + Sync {
    /// Opens a lane: from now on the former session of this slot is dead. Returns the session's id, under which claims are made.
    async fn open_session(&self, slot: u32) -> Result<ProducerSessionId, Error>;

    /// Publishes a batch with its watermark. The adapter may put several batches into one transaction; each gets its own answer.
    /// Once called, only its answer (or [`Broker::fence`]) tells the outcome: dropping the call tells nothing.
    async fn publish(&self, lane: &ProducerSessionId, batch: Batch) -> Published;

    /// The highest token of this partition that was ever committed. Valid for resolution only after [`Broker::fence`].
    async fn watermark(&self, partition: PartitionNo) -> Result<Option<Token>, Error>;

    /// Kills a lane's session: whatever it still has open is aborted, nothing of it can commit afterwards. Idempotent.
    async fn fence(&self, lane: &ProducerSessionId) -> Result<(), Error>;

    /// Appends records without a watermark; acknowledged and durable when it returns. All of them or none.
    async fn append(&self, records: Vec<Record>) -> Result<Vec<Position>, Error>;

    /// Forgets at most `limit` records past their retention; says how many. A broker that looks after itself has nothing to do.
    async fn sweep(&self, _limit: u32) -> Result<u64, Error> {
        Ok(0)
    }

    /// Largest value in bytes a record may have.
    fn record_bytes_max(&self) -> usize;
}
