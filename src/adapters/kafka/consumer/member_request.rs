//! Requests to a group member's thread.
use std::collections::BTreeSet;

use ports::Error;
use ports::broker::Position;
use ports::broker::consumer_groups::{AckOutcome, ConsumerRecord, Lag};
use tokio::sync::oneshot;

use crate::consumer::offset_commits::{AssignedPartition, OffsetsReply};

/// Receives the result of a request; the send fails when the caller was dropped.
pub(crate) type MemberReply<T> = oneshot::Sender<Result<T, Error>>;

/// A request for at most `limit` messages of partitions that are not paused.
pub(crate) struct PollRequest {
    pub(crate) limit: usize,
    pub(crate) paused: BTreeSet<AssignedPartition>,
    pub(crate) reply: MemberReply<Vec<ConsumerRecord>>,
}

/// A request for a reply once a poll with these pauses would deliver messages or fail.
pub(crate) struct WaitRequest {
    pub(crate) paused: BTreeSet<AssignedPartition>,
    pub(crate) reply: MemberReply<()>,
}

/// A request to a group member's thread, or an event that wakes it.
pub(crate) enum MemberRequest {
    /// Deliver messages, without waiting for one.
    Poll(PollRequest),
    /// Reply once a poll would deliver messages or fail.
    AwaitMessages(WaitRequest),
    /// Commit these positions, and acknowledge all earlier ones with them.
    Acknowledge { positions: Vec<Position>, reply: MemberReply<AckOutcome> },
    /// Make every unacknowledged message deliverable again.
    Rewind { reply: MemberReply<()> },
    /// Make the messages of one partition deliverable again, from this position on.
    RewindTo { from: Position, reply: MemberReply<bool> },
    /// Report how far the group is behind in this member's partitions.
    Lag { reply: MemberReply<Vec<Lag>> },
    /// A request about the group's offsets has ended.
    Offsets(OffsetsReply),
    /// The consumer has new events.
    Wake,
    /// The handle was dropped: leave the group.
    Leave,
}
