//! Offset commits of a group member: one at a time; acknowledgements that arrive meanwhile share the next commit. Reads of the group's offsets.
//!
//! librdkafka reports their results only to a caller that blocks, so they run on a thread of their own and the member's thread continues.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use ports::Error;
use ports::broker::consumer_groups::AckOutcome;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::oneshot;

use crate::connection::blocking_call::client_stopped;
use crate::consumer::context::MemberContext;
use crate::error::map_err;

/// A topic's name and one of its partitions.
pub(crate) type AssignedPartition = (Arc<str>, u32);

/// Longest wait for the result of a commit, repetitions included.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the group's offsets. Its coordinator answers within milliseconds, and the next commit waits for the read.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause before a commit is repeated that the group's coordinator refused during a rebalance. The last step of a rebalance takes milliseconds.
const REPEAT_PAUSE: Duration = Duration::from_millis(50);

/// An acknowledgement and its caller.
pub(crate) struct PendingAcknowledgement {
    /// The offset after the highest acknowledged one of each partition.
    pub(crate) offsets: BTreeMap<AssignedPartition, u64>,
    /// The result once the commit has succeeded.
    pub(crate) outcome: AckOutcome,
    /// Receives the result of the commit.
    pub(crate) reply: oneshot::Sender<Result<AckOutcome, Error>>,
}

/// The number of a commit. The result of a commit that was given up must not count as that of the next one.
pub(crate) type CommitNumber = u64;

/// The waiting acknowledgements of a member, and the commit in flight.
pub(crate) struct OffsetCommits {
    waiting: Vec<PendingAcknowledgement>,
    in_flight: Option<CommitInFlight>,
    next: CommitNumber,
    thread: Sender<OffsetsRequest>,
}

/// A request about the group's offsets.
enum OffsetsRequest {
    Commit(CommitNumber, TopicPartitionList),
    Read(TopicPartitionList),
}

/// The result of a request about the group's offsets.
pub(crate) enum OffsetsReply {
    /// The commit of this number has ended with this result.
    Committed(CommitNumber, KafkaResult<()>),
    /// The group has committed these offsets. A read that fails has no reply.
    Read(TopicPartitionList),
}

struct CommitInFlight {
    number: CommitNumber,
    deadline: Instant,
    batch: Vec<PendingAcknowledgement>,
    /// When it is repeated, if a rebalance has refused it.
    repeat_at: Option<Instant>,
}

impl OffsetCommits {
    /// Starts the thread that commits; it ends when this value is dropped. `on_reply` runs on that thread after each commit, and after
    /// each read that succeeds.
    pub(crate) fn start(
        consumer: Arc<BaseConsumer<MemberContext>>,
        on_reply: impl Fn(OffsetsReply) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (thread, requests) = channel();
        let run = move || {
            for request in requests {
                match request {
                    OffsetsRequest::Commit(number, list) => {
                        on_reply(OffsetsReply::Committed(number, consumer.commit(&list, CommitMode::Sync)));
                    }
                    // Only the report of removed records needs them, so a read that fails counts as no offsets.
                    OffsetsRequest::Read(list) => {
                        if let Ok(committed) = consumer.committed_offsets(list, READ_TIMEOUT) {
                            on_reply(OffsetsReply::Read(committed));
                        }
                    }
                }
            }
        };
        std::thread::Builder::new().name("kafka-commits".into()).spawn(run)?;
        Ok(Self::with_thread(thread))
    }

    fn with_thread(thread: Sender<OffsetsRequest>) -> Self {
        Self { waiting: Vec::new(), in_flight: None, next: 0, thread }
    }

    /// Reads the offsets that the group has committed in these partitions, before later commits change them.
    pub(crate) fn read(&self, partitions: TopicPartitionList) {
        // The send fails only after the thread has ended; then no report follows.
        drop(self.thread.send(OffsetsRequest::Read(partitions)));
    }

    /// Adds an acknowledgement to the next commit, and starts it when none is in flight.
    pub(crate) fn add(&mut self, acknowledgement: PendingAcknowledgement) {
        self.waiting.push(acknowledgement);
        self.start_next();
    }

    /// Commits this next offset of a partition whose log was truncated. The acknowledgements until now are of messages that it has lost.
    pub(crate) fn restart(&mut self, partition: AssignedPartition, next: u64) {
        let in_flight = self.in_flight.iter_mut().flat_map(|commit| &mut commit.batch);
        for acknowledgement in self.waiting.iter_mut().chain(in_flight) {
            acknowledgement.offsets.remove(&partition);
        }
        // Without a receiver: if this commit fails, the next acknowledgement of the partition replaces it.
        let (reply, _) = oneshot::channel();
        let offsets = BTreeMap::from([(partition, next)]);
        self.add(PendingAcknowledgement { offsets, outcome: AckOutcome::Complete, reply });
    }

    /// Handles the result of a commit; returns the next offset of each partition in it. That of a commit that was given up changes nothing, and one
    /// that a rebalance has refused is kept for [`OffsetCommits::repeat`].
    pub(crate) fn handle_result(
        &mut self,
        number: CommitNumber,
        result: &KafkaResult<()>,
    ) -> BTreeMap<AssignedPartition, u64> {
        let Some(mut commit) = self.in_flight.take_if(|commit| commit.number == number) else {
            return BTreeMap::new();
        };
        let repeat_at = Instant::now() + REPEAT_PAUSE;
        if is_refused_by_a_rebalance(result) && repeat_at < commit.deadline {
            commit.repeat_at = Some(repeat_at);
            self.in_flight = Some(commit);
            return BTreeMap::new();
        }
        let batch = commit.batch;
        let committed =
            result.as_ref().map(|()| highest_offsets(&batch)).map_err(|error| map_err(error, "acknowledging"));
        for acknowledgement in batch {
            acknowledgement.finish(committed.as_ref().map(drop).map_err(Error::clone));
        }
        self.start_next();
        committed.unwrap_or_default()
    }

    /// When [`OffsetCommits::repeat`] is due.
    pub(crate) fn repeat_at(&self) -> Option<Instant> {
        self.in_flight.as_ref()?.repeat_at
    }

    /// Repeats a commit that a rebalance has refused, if it is due, without the partitions that the member has lost: the coordinator would accept
    /// their offsets, because it checks the member's generation and not its partitions. `is_held` takes a partition and its next offset.
    pub(crate) fn repeat(&mut self, now: Instant, is_held: impl Fn(&AssignedPartition, u64) -> bool) {
        let is_due = |commit: &mut CommitInFlight| commit.repeat_at.is_some_and(|repeat_at| repeat_at <= now);
        let Some(CommitInFlight { deadline, mut batch, .. }) = self.in_flight.take_if(is_due) else { return };
        for acknowledgement in &mut batch {
            let offsets = acknowledgement.offsets.len();
            acknowledgement.offsets.retain(|partition, next| is_held(partition, *next));
            if acknowledgement.offsets.len() < offsets {
                acknowledgement.outcome = AckOutcome::PartitionsLost;
            }
        }
        self.send(batch, deadline);
        self.start_next();
    }

    /// Fails the acknowledgements of a commit without a result in time, and starts the next commit.
    pub(crate) fn fail_overdue(&mut self, now: Instant) {
        if let Some(CommitInFlight { batch, .. }) = self.in_flight.take_if(|commit| commit.deadline < now) {
            fail(batch, &Error::Unknown("no broker answered an offset commit in time".into()));
            self.start_next();
        }
    }

    fn start_next(&mut self) {
        if self.in_flight.is_none() && !self.waiting.is_empty() {
            let batch = std::mem::take(&mut self.waiting);
            self.send(batch, Instant::now() + COMMIT_TIMEOUT);
        }
    }

    fn send(&mut self, batch: Vec<PendingAcknowledgement>, deadline: Instant) {
        let offsets = highest_offsets(&batch);
        if offsets.is_empty() {
            return batch.into_iter().for_each(|acknowledgement| acknowledgement.finish(Ok(())));
        }
        let list = commit_list(&offsets).map_err(|error| map_err(&error, "acknowledging"));
        self.next += 1;
        let number = self.next;
        let commit = list.map(|list| OffsetsRequest::Commit(number, list));
        match commit.and_then(|commit| self.thread.send(commit).map_err(|_| client_stopped())) {
            Ok(()) => self.in_flight = Some(CommitInFlight { number, deadline, batch, repeat_at: None }),
            Err(error) => fail(batch, &error),
        }
    }
}

impl PendingAcknowledgement {
    fn finish(self, committed: Result<(), Error>) {
        // The send fails only when the caller was dropped; the commit remains.
        drop(self.reply.send(committed.map(|()| self.outcome)));
    }
}

/// Whether the group has begun a new generation and this member has not completed its join yet. The client neither defers nor repeats such a commit.
fn is_refused_by_a_rebalance(result: &KafkaResult<()>) -> bool {
    let code = result.as_ref().err().and_then(|error| error.rdkafka_error_code());
    matches!(code, Some(Code::RebalanceInProgress | Code::IllegalGeneration))
}

fn fail(batch: Vec<PendingAcknowledgement>, error: &Error) {
    batch.into_iter().for_each(|acknowledgement| acknowledgement.finish(Err(error.clone())));
}

fn highest_offsets(batch: &[PendingAcknowledgement]) -> BTreeMap<AssignedPartition, u64> {
    let mut offsets: BTreeMap<AssignedPartition, u64> = BTreeMap::new();
    for (partition, next) in batch.iter().flat_map(|acknowledgement| &acknowledgement.offsets) {
        let highest = offsets.entry(partition.clone()).or_insert(*next);
        *highest = (*highest).max(*next);
    }
    offsets
}

fn commit_list(offsets: &BTreeMap<AssignedPartition, u64>) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::with_capacity(offsets.len());
    for ((topic, partition), next) in offsets {
        list.add_partition_offset(topic, *partition as i32, Offset::Offset(*next as i64))?;
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use rdkafka::error::KafkaError;

    use super::*;

    fn acknowledgement(next: u64) -> (PendingAcknowledgement, oneshot::Receiver<Result<AckOutcome, Error>>) {
        let (reply, result) = oneshot::channel();
        let offsets = BTreeMap::from([((Arc::from("t"), 0), next)]);
        (PendingAcknowledgement { offsets, outcome: AckOutcome::Complete, reply }, result)
    }

    fn commits_in(sent: &Receiver<OffsetsRequest>) -> impl Iterator<Item = (CommitNumber, TopicPartitionList)> {
        sent.try_iter().filter_map(|request| match request {
            OffsetsRequest::Commit(number, list) => Some((number, list)),
            OffsetsRequest::Read(_) => None,
        })
    }

    #[test]
    fn late_result_of_a_commit_that_was_given_up_does_not_acknowledge_the_next_one() {
        let (thread, sent) = channel();
        let mut commits = OffsetCommits::with_thread(thread);
        let ((first, mut of_first), (second, mut of_second)) = (acknowledgement(1), acknowledgement(2));
        commits.add(first);
        commits.add(second);

        commits.fail_overdue(Instant::now() + COMMIT_TIMEOUT * 2);
        assert!(matches!(of_first.try_recv(), Ok(Err(Error::Unknown(_)))));
        let numbers: Vec<CommitNumber> = commits_in(&sent).map(|(number, _)| number).collect();
        assert_eq!(numbers.len(), 2, "the acknowledgement that waited is committed now");

        assert_eq!(commits.handle_result(numbers[0], &Ok(())), BTreeMap::new());
        assert!(of_second.try_recv().is_err(), "its own commit has not ended");
        assert_eq!(commits.handle_result(numbers[1], &Ok(())), BTreeMap::from([((Arc::from("t"), 0), 2)]));
        assert!(matches!(of_second.try_recv(), Ok(Ok(AckOutcome::Complete))));
    }

    #[test]
    fn commit_that_a_rebalance_refuses_is_repeated_without_lost_partitions() {
        let (thread, sent) = channel();
        let mut commits = OffsetCommits::with_thread(thread);
        let ((kept, mut of_kept), (mut lost, mut of_lost)) = (acknowledgement(7), acknowledgement(5));
        lost.offsets.insert((Arc::from("t"), 1), 9);
        let (refused, is_held) = (KafkaError::ConsumerCommit(Code::IllegalGeneration), |_: &_, next| next != 9);
        commits.add(acknowledgement(1).0);
        commits.add(kept);
        commits.add(lost);
        commits.handle_result(1, &Ok(()));

        for number in [2, 3] {
            assert_eq!(commits.handle_result(number, &Err(refused.clone())), BTreeMap::new());
            let due = commits.repeat_at().expect("it is repeated");
            commits.repeat(due - REPEAT_PAUSE, is_held);
            assert_eq!(commits.next, number, "it is not due");
            commits.repeat(due, is_held);
        }

        assert!(of_kept.try_recv().is_err() && of_lost.try_recv().is_err(), "the commit has not succeeded");
        let partitions: Vec<usize> = commits_in(&sent).map(|(_, list)| list.count()).collect();
        assert_eq!(partitions, [1, 2, 1, 1]);
        assert_eq!(commits.handle_result(4, &Ok(())), BTreeMap::from([((Arc::from("t"), 0), 7)]));
        assert!(matches!(of_kept.try_recv(), Ok(Ok(AckOutcome::Complete))));
        assert!(matches!(of_lost.try_recv(), Ok(Ok(AckOutcome::PartitionsLost))));
    }

    #[test]
    fn lower_offset_is_committed_after_the_log_was_truncated() {
        let (thread, sent) = channel();
        let mut commits = OffsetCommits::with_thread(thread);
        let ((first, mut of_first), (second, mut of_second)) = (acknowledgement(1_000), acknowledgement(1_001));
        commits.add(first);
        commits.add(second);

        commits.restart((Arc::from("t"), 0), 950);

        assert_eq!(commits.handle_result(1, &Ok(())), BTreeMap::new(), "it acknowledges no message of the new log");
        assert!(matches!(of_first.try_recv(), Ok(Ok(AckOutcome::Complete))));
        let committed = |(_, list): (CommitNumber, TopicPartitionList)| list.elements()[0].offset();
        let offsets: Vec<Offset> = commits_in(&sent).map(committed).collect();
        assert_eq!(offsets, [Offset::Offset(1_000), Offset::Offset(950)]);
        assert_eq!(commits.handle_result(2, &Ok(())), BTreeMap::from([((Arc::from("t"), 0), 950)]));
        assert!(matches!(of_second.try_recv(), Ok(Ok(AckOutcome::Complete))));
    }
}
