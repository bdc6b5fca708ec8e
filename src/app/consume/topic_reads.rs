//! Reading topics without a broker's client, and committing the offsets of consumer groups.
use std::ops::Range;
use std::sync::Arc;

use ::outbox::OffsetCommitMode;
use ports::Error;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::topic_log::{NextRecords, OffsetCommitOutcome, ReadLimits, TopicAdmission, TopicLog};
use ports::broker::topics::TopicView;
use ports::endpoint::webhooks;

use super::topic_chain;
use super::topic_cursor::{CursorError, ReadStart, TopicCursor};
use crate::error::QueryError;

/// Longest name of a group, in characters.
pub const GROUP_MAX: usize = 128;

/// Why a topic could not be read, or offsets could not be committed. Nothing was changed unless `Query` says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// There is no such topic.
    #[error("there is no topic {topic}; there are: {names}")]
    NoTopic {
        /// Topic that was requested.
        topic: String,
        /// Topics that exist, separated by commas.
        names: String,
    },
    /// The cursor does not fit the topic.
    #[error("{}", fault_text(.0))]
    Cursor(CursorError),
    /// The group is one of the service's own consumers, which commit their offsets themselves.
    #[error("the group {0} is the service's own; choose another name")]
    OwnGroup(String),
    /// The log keeps the offsets of the maximum number of groups.
    #[error("the offsets of {0} groups are kept already; use one of these groups")]
    TooManyGroups(u32),
    /// The log has the maximum number of topics, and a client names others.
    #[error(
        "there are {0} topics, and no more are created for events; name one of these, or add the topic to broker.topics"
    )]
    TooManyTopics(usize),
    /// The log failed, or did not answer in time.
    #[error(transparent)]
    Query(#[from] QueryError),
}

impl From<Error> for TopicError {
    fn from(error: Error) -> Self {
        Self::Query(error.into())
    }
}

fn fault_text(fault: &CursorError) -> String {
    match fault {
        CursorError::NoPartition { partition, partitions } => {
            format!("the topic has {partitions} partitions; there is no partition {partition}")
        }
        CursorError::BeyondEnd { partition, end } => format!(
            "partition {partition} ends at {end}, before the cursor: it belongs to another topic, or the data was restored to an earlier state"
        ),
        CursorError::Removed { partition, records, next } => format!(
            "retention has deleted {records} records behind the cursor, the first ones in partition {partition}; to continue without them, use {next}"
        ),
    }
}

/// Where a reader begins: a cursor of its own, or the offsets that its group has committed.
#[derive(Clone, Debug)]
pub struct ReadRequest {
    /// Name of the topic, prefix included.
    pub topic: String,
    /// Group whose committed offsets count where `start` is `None`.
    pub group: Option<String>,
    /// Start of the read; `None` for the group's offsets, or for the first record without a group.
    pub start: Option<ReadStart>,
    /// Partitions to read; `None` for all.
    pub partitions: Option<Vec<u32>>,
}

/// The committed offsets of a group in one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOffsets {
    /// The topic with the offsets that its partitions keep.
    pub view: TopicView,
    /// The offsets at which the group continues, in partition order; `None` where it has never read.
    pub committed: Vec<Option<u64>>,
}

impl GroupOffsets {
    /// The cursor at which the group continues.
    pub fn cursor(&self) -> TopicCursor {
        let next = |(committed, kept): (&Option<u64>, &Range<u64>)| committed.unwrap_or(kept.start);
        TopicCursor::from_offsets((0..).zip(self.committed.iter().zip(&self.view.partitions).map(next)))
    }
}

/// Reads topics of a log that serves readers itself.
///
/// Every asynchronous method also fails where the log cannot be read or, where it registers, admits or commits, written. Cancellation: a dropped
/// read has no effect. A dropped registration ([`TopicReads::begin`] with a group too), admission or commit may still take effect, also after the
/// drop. A repeated registration changes nothing, nor does a repeated [`OffsetCommitMode::Forward`] commit of a cursor.
pub struct TopicReads {
    log: Arc<dyn TopicLog>,
    own_group: String,
}

impl TopicReads {
    /// Reads from `log`. `own_group` is the group of the orders' consumers.
    pub fn new(log: Arc<dyn TopicLog>, own_group: &str) -> Self {
        Self { log, own_group: own_group.to_owned() }
    }

    /// The cursor at which a read begins. A group is registered, so that retention keeps its unread records.
    ///
    /// # Errors
    /// The topic does not exist, or cannot be read from there without a gap.
    pub async fn begin(&self, request: &ReadRequest) -> Result<TopicCursor, TopicError> {
        let mut view = self.view(&request.topic).await?;
        if let Some(group) = &request.group {
            self.register(group, &request.topic).await?;
        }
        let start = match (&request.start, &request.group) {
            (Some(start), _) => start.clone(),
            (None, Some(group)) => {
                let committed = self.log.committed(group, &request.topic).await?;
                // Another reader of the group may have committed offsets beyond the end that was read before. Ends only grow.
                view = self.view(&request.topic).await?;
                ReadStart::At(GroupOffsets { view: view.clone(), committed }.cursor())
            }
            (None, None) => ReadStart::Beginning,
        };
        start.cursor(&view, request.partitions.as_deref()).map_err(TopicError::Cursor)
    }

    /// Registers a group that reads a topic, so that retention keeps its unread records. Cheap for a group that was registered a moment ago.
    ///
    /// # Errors
    /// The group is the service's own, or there are too many.
    pub async fn register(&self, group: &str, topic: &str) -> Result<(), TopicError> {
        self.check_group(group)?;
        check_outcome(self.log.register(group, topic).await?)
    }

    /// Reads the next records from a cursor on; none at the end of the topic.
    ///
    /// # Errors
    /// [`CursorError::Removed`] when retention has deleted a record at or after the cursor.
    pub async fn next(
        &self,
        topic: &str,
        cursor: &TopicCursor,
        limits: ReadLimits,
    ) -> Result<Vec<ConsumerRecord>, TopicError> {
        let offsets = cursor.offsets();
        if let NextRecords::Found(found) = self.log.read_next(topic, &offsets, limits).await? {
            return Ok(found);
        }
        let partitions: Vec<u32> = offsets.iter().map(|(partition, _)| *partition).collect();
        let view = self.view(topic).await?;
        let fault = ReadStart::At(cursor.clone()).cursor(&view, Some(&partitions));
        fault.map_or_else(|fault| Err(TopicError::Cursor(fault)), |_| Ok(Vec::new()))
    }

    /// Waits until there is a record at or after a cursor. It may miss records of other processes. Cancel-safe.
    pub async fn wait_for_records(&self, topic: &str, cursor: &TopicCursor) -> Result<(), TopicError> {
        Ok(self.log.wait_for_records(topic, &cursor.offsets()).await?)
    }

    /// The committed offsets of a group in a topic.
    pub async fn offsets(&self, group: &str, topic: &str) -> Result<GroupOffsets, TopicError> {
        let view = self.view(topic).await?;
        let committed = self.log.committed(group, topic).await?;
        Ok(GroupOffsets { view, committed })
    }

    /// Commits offsets of a group; partitions that the cursor does not name keep theirs. Idempotent.
    ///
    /// # Errors
    /// Fails as [`TopicReads::begin`] does; a cursor beyond the end of the topic changes nothing.
    pub async fn commit(
        &self,
        group: &str,
        topic: &str,
        to: &ReadStart,
        mode: OffsetCommitMode,
    ) -> Result<GroupOffsets, TopicError> {
        self.check_group(group)?;
        let view = self.view(topic).await?;
        let cursor = match to {
            ReadStart::At(cursor) => cursor.clone(),
            start => start.cursor(&view, None).map_err(TopicError::Cursor)?,
        };
        let partitions = view.partitions.len() as u32;
        let offsets = cursor.offsets();
        if let Some((partition, _)) = offsets.iter().find(|(partition, _)| *partition >= partitions) {
            return Err(TopicError::Cursor(CursorError::NoPartition { partition: *partition, partitions }));
        }
        check_outcome(self.log.commit(group, topic, &offsets, mode).await?)?;
        self.offsets(group, topic).await
    }

    /// Counts the topics of events that do not exist yet against the limit of topics.
    ///
    /// # Errors
    /// [`TopicError::TooManyTopics`] when they would exceed the limit.
    pub async fn admit_topics(&self, names: &[&str]) -> Result<(), TopicError> {
        match self.log.admit_topics(names).await? {
            TopicAdmission::Admitted => Ok(()),
            TopicAdmission::TooManyTopics(most) => Err(TopicError::TooManyTopics(most)),
        }
    }

    /// Reverses [`TopicReads::admit_topics`] for topics to which no record was written.
    pub fn release_topics(&self, names: &[&str]) {
        self.log.release_topics(names);
    }

    async fn view(&self, topic: &str) -> Result<TopicView, TopicError> {
        if let Some(view) = self.log.view(topic).await? {
            return Ok(view);
        }
        let names = self.log.topic_names().await?.join(", ");
        Err(TopicError::NoTopic { topic: topic.to_owned(), names })
    }

    fn check_group(&self, group: &str) -> Result<(), TopicError> {
        let is_own = group == self.own_group || topic_chain::is_group(group) || webhooks::is_group(group);
        if is_own { Err(TopicError::OwnGroup(group.to_owned())) } else { Ok(()) }
    }
}

/// Whether a text can name a group.
pub fn is_group_name(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=GROUP_MAX).contains(&text.len()) && text.bytes().all(legal)
}

fn check_outcome(outcome: OffsetCommitOutcome) -> Result<(), TopicError> {
    match outcome {
        OffsetCommitOutcome::Committed => Ok(()),
        OffsetCommitOutcome::BeyondEnd { partition, end } => {
            Err(TopicError::Cursor(CursorError::BeyondEnd { partition, end }))
        }
        OffsetCommitOutcome::TooManyGroups(most) => Err(TopicError::TooManyGroups(most)),
    }
}
