//! The thread of a group member: it owns the consumer, polls it all the time and answers requests.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ports::Error;
use ports::broker::Position;
use ports::broker::consumer_groups::{AckOutcome, Lag};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::{Message, Offset, TopicPartitionList};

use crate::connection::message::consumer_record;
use crate::consumer::context::{AssignmentChange, MemberContext, apply};
use crate::consumer::member_request::{MemberReply, MemberRequest};
use crate::consumer::offset_commits::{
    AssignedPartition, CommitNumber, OffsetCommits, OffsetsReply, PendingAcknowledgement,
};
use crate::consumer::partition_buffer::PartitionBuffer;
use crate::consumer::poll_callers::PollCallers;
use crate::error::{is_temporary, map_err};
use crate::options::Options;

/// Longest wait for a request: a wake-up may be lost.
const WAKE_INTERVAL: Duration = Duration::from_millis(100);
/// Most messages taken from the consumer before requests are answered again.
const FETCH_MAX: usize = 1_000;
/// Empty polls in a row after which the consumer's queue counts as empty: a poll that serves an event without a message returns nothing too.
const EMPTY_POLLS: usize = 4;
/// Most bytes of undelivered messages of one partition; at this size the partition is paused.
const READY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The state of a member's thread.
pub(crate) struct MemberThread {
    consumer: Arc<BaseConsumer<MemberContext>>,
    options: Arc<Options>,
    group: String,
    buffers: BTreeMap<AssignedPartition, PartitionBuffer>,
    topics: BTreeMap<String, Arc<str>>,
    callers: PollCallers,
    commits: OffsetCommits,
    /// Revoked partitions, and how long their in-flight messages may delay the revocation.
    revoking: Option<(Instant, TopicPartitionList)>,
    /// The error that the next poll without messages returns.
    failure: Option<Error>,
    has_left: bool,
}

impl MemberThread {
    pub(crate) fn new(
        consumer: Arc<BaseConsumer<MemberContext>>,
        commits: OffsetCommits,
        options: Arc<Options>,
        (group, topics): (&str, &[String]),
    ) -> Self {
        Self {
            consumer,
            options,
            group: group.to_owned(),
            buffers: BTreeMap::new(),
            topics: topics.iter().map(|name| (name.clone(), Arc::from(name.as_str()))).collect(),
            callers: PollCallers::default(),
            commits,
            revoking: None,
            failure: None,
            has_left: false,
        }
    }

    /// Runs until the handle is dropped. Then leaves the group at once, so that the other members need not wait for a session timeout.
    pub(crate) fn run(mut self, requests: &Receiver<MemberRequest>) {
        while !self.has_left {
            match requests.recv_timeout(self.time_to_next_deadline()) {
                Ok(request) => {
                    self.handle(request);
                    requests.try_iter().for_each(|request| self.handle(request));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.fetch();
            self.check_client();
            self.commits.fail_overdue(Instant::now());
            self.finish_revocation();
            self.repeat_commit();
            self.callers.deliver(&mut self.buffers, &mut self.failure);
            self.report_removed_records();
            self.pause_and_resume();
        }
        self.consumer.context().close();
        if let Some((_, list)) = self.revoking.take() {
            self.apply(&AssignmentChange::Revoked(list));
        }
        while let Some(change) = self.consumer.context().next_change() {
            self.apply(&change);
        }
    }

    fn time_to_next_deadline(&self) -> Duration {
        let revocation = self.revoking.as_ref().map(|(deadline, _)| *deadline);
        let next = revocation.into_iter().chain(self.commits.repeat_at()).min();
        next.map_or(WAKE_INTERVAL, |next| next.saturating_duration_since(Instant::now()).min(WAKE_INTERVAL))
    }

    fn handle(&mut self, request: MemberRequest) {
        match request {
            MemberRequest::Wake => {}
            MemberRequest::Leave => self.has_left = true,
            MemberRequest::Poll(poll) => self.callers.poll(poll),
            MemberRequest::AwaitMessages(wait) => self.callers.wait(wait),
            MemberRequest::Offsets(OffsetsReply::Committed(number, result)) => self.handle_commit(number, &result),
            MemberRequest::Offsets(OffsetsReply::Read(committed)) => self.record_committed(&committed),
            MemberRequest::Acknowledge { positions, reply } => self.acknowledge(positions, reply),
            MemberRequest::Rewind { reply } => {
                self.buffers.values_mut().for_each(PartitionBuffer::rewind);
                drop(reply.send(Ok(())));
            }
            MemberRequest::RewindTo { from, reply } => {
                let buffer = self.buffers.get_mut(&(Arc::clone(&from.topic), from.partition));
                let rewound = buffer.map(|buffer| buffer.rewind_to(from.offset));
                drop(reply.send(Ok(rewound.is_some())));
            }
            MemberRequest::Lag { reply } => drop(reply.send(Ok(self.lag()))),
        }
    }

    /// Takes messages from the consumer, a limited number, so that requests are answered in between.
    fn fetch(&mut self) {
        let (mut fetched, mut empty) = (0, 0);
        while empty < EMPTY_POLLS && fetched < FETCH_MAX {
            match self.consumer.poll(Duration::ZERO) {
                None => empty += 1,
                Some(Ok(message)) => {
                    fetched += 1;
                    self.consumer.context().contact().record_response();
                    let Some(topic) = self.topics.get(message.topic()) else { continue };
                    let partition = (Arc::clone(topic), message.partition().unsigned_abs());
                    // A message of a partition that was revoked meanwhile belongs to another member.
                    if let Some(buffer) = self.buffers.get_mut(&partition) {
                        let message = consumer_record(&message, topic);
                        if buffer.log_was_truncated(&message) {
                            buffer.report_truncated_log(&message.position);
                            buffer.restart(message.position.offset);
                            self.commits.restart(partition, message.position.offset);
                        }
                        buffer.note_fetch(message.position.offset, self.consumer.context().statistics());
                        buffer.push(message);
                    }
                }
                Some(Err(error)) => {
                    fetched += 1;
                    self.record_failure(&error);
                }
            }
            self.handle_assignment_changes();
        }
    }

    /// A client that has lost its brokers never finds them again (see `client_replacement`): the next poll fails, and the caller joins with
    /// a new client. So it does where one of its topics was deleted.
    fn check_client(&mut self) {
        self.discard_outdated_messages();
        if self.consumer.context().has_lost_brokers() {
            let reason = "the client of this group member has lost its brokers for good; join again";
            self.failure = Some(Error::Unreachable(reason.into()));
        }
    }

    /// Discards all messages once a topic of the client was deleted, because the group's offsets were deleted with it: messages of a new topic may
    /// begin behind its first one, and the group would skip those before if it acknowledged them.
    fn discard_outdated_messages(&mut self) {
        if self.consumer.context().has_outdated_positions() {
            self.buffers.clear();
            self.failure = Some(Error::Unreachable("a topic of this member was deleted; join again".into()));
        }
    }

    fn record_failure(&mut self, error: &KafkaError) {
        let failure = map_err(error, "consuming");
        // An outage is temporary; polls return only what an operator must repair, and fatal errors.
        if !is_temporary(&failure) || matches!(error, KafkaError::MessageConsumptionFatal(_)) {
            self.failure = Some(failure);
        }
    }

    fn handle_assignment_changes(&mut self) {
        while let Some(change) = self.consumer.context().next_change() {
            match &change {
                AssignmentChange::Assigned(list) => {
                    self.commits.read(list.clone());
                    let statistics = self.consumer.context().statistics();
                    for partition in self.partitions(list) {
                        self.buffers.insert(partition, PartitionBuffer::assigned_after(statistics));
                    }
                    self.apply(&change);
                }
                AssignmentChange::Revoked(list) => {
                    for partition in self.partitions(list) {
                        self.buffers.entry(partition).and_modify(|buffer| buffer.is_being_revoked = true);
                    }
                    let timeout =
                        if self.consumer.assignment_lost() { Duration::ZERO } else { self.options.handover_timeout };
                    self.revoking = Some((Instant::now() + timeout, list.clone()));
                }
            }
        }
    }

    /// Records the offsets that the group has committed in assigned partitions.
    fn record_committed(&mut self, committed: &TopicPartitionList) {
        for element in committed.elements() {
            let (Offset::Offset(offset), Some(topic)) = (element.offset(), self.topics.get(element.topic())) else {
                continue;
            };
            let partition = (Arc::clone(topic), element.partition().unsigned_abs());
            self.buffers.entry(partition).and_modify(|buffer| buffer.record_committed(offset.unsigned_abs()));
        }
    }

    /// Reports records that the broker removed before the group read them, once statistics show where the log began.
    fn report_removed_records(&mut self) {
        let context = self.consumer.context();
        let statistics = context.statistics();
        for ((topic, partition), buffer) in &mut self.buffers {
            let Some(gap) = buffer.gap.take_if(|gap| gap.statistics < statistics) else { continue };
            let log_start = context.fetch_position(topic, *partition).and_then(|position| position.log_start);
            if log_start.is_some_and(|log_start| gap.was_removed(log_start)) {
                gap.report(&self.group, topic, *partition);
            }
        }
    }

    /// Gives up revoked partitions once none of their messages is in flight, or when the time for it is over.
    fn finish_revocation(&mut self) {
        let Some((deadline, list)) = &self.revoking else { return };
        let partitions = self.partitions(list);
        let mut buffers = partitions.iter().filter_map(|partition| self.buffers.get(partition));
        let is_in_flight = buffers.any(|buffer| buffer.in_flight() > 0);
        if is_in_flight && Instant::now() < *deadline && !self.consumer.assignment_lost() {
            return;
        }
        for partition in partitions {
            let buffer = self.buffers.remove(&partition);
            if buffer.is_some_and(|buffer| buffer.is_paused) {
                self.clear_pause(&partition);
            }
        }
        if let Some((_, list)) = self.revoking.take() {
            self.apply(&AssignmentChange::Revoked(list));
        }
    }

    /// Clears the client's pause of a partition that the member gives up. The client keeps a pause after the revocation and would fetch nothing of a
    /// partition that comes back. It is cleared before the revocation, because a resumption right after an assignment may change the fetch position.
    fn clear_pause(&mut self, (topic, partition): &AssignedPartition) {
        if let Err(error) = self.consumer.resume(&single(topic, *partition)) {
            self.failure = Some(map_err(&error, "resuming a revoked partition"));
        }
    }

    fn apply(&mut self, change: &AssignmentChange) {
        if let Err(error) = apply(&self.consumer, change) {
            self.failure = Some(map_err(&error, "changing partitions"));
        }
    }

    fn partitions(&self, list: &TopicPartitionList) -> Vec<AssignedPartition> {
        let elements = list.elements();
        let partition = |element: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| {
            Some((Arc::clone(self.topics.get(element.topic())?), element.partition().unsigned_abs()))
        };
        elements.iter().filter_map(partition).collect()
    }

    fn acknowledge(&mut self, positions: Vec<Position>, reply: MemberReply<AckOutcome>) {
        self.discard_outdated_messages();
        let (mut offsets, mut outcome) = (BTreeMap::<AssignedPartition, u64>::new(), AckOutcome::Complete);
        for position in positions {
            let partition = (Arc::clone(&position.topic), position.partition);
            match self.buffers.get(&partition) {
                Some(buffer) if position.offset < buffer.acknowledged() => {}
                Some(buffer) if buffer.has_delivered(position.offset) => {
                    let next = offsets.entry(partition).or_default();
                    *next = (position.offset + 1).max(*next);
                }
                Some(_) | None => outcome = AckOutcome::PartitionsLost,
            }
        }
        self.commits.add(PendingAcknowledgement { offsets, outcome, reply });
    }

    /// A partition that went to another member and came back has a new buffer, which has delivered nothing of the commit.
    fn repeat_commit(&mut self) {
        let Self { commits, buffers, .. } = self;
        let is_held = |partition: &AssignedPartition, next: u64| {
            buffers.get(partition).is_some_and(|buffer| buffer.has_delivered(next.saturating_sub(1)))
        };
        commits.repeat(Instant::now(), is_held);
    }

    fn handle_commit(&mut self, number: CommitNumber, result: &KafkaResult<()>) {
        for (partition, next) in self.commits.handle_result(number, result) {
            if let Some(buffer) = self.buffers.get_mut(&partition) {
                buffer.acknowledge(next);
            }
        }
    }

    /// Pauses partitions whose buffer is full, and resumes them when it is half empty.
    fn pause_and_resume(&mut self) {
        let ready_max = self.options.prefetch_max;
        for ((topic, partition), buffer) in &mut self.buffers {
            let (ready, bytes) = (buffer.ready(), buffer.ready_bytes());
            let is_full = ready >= ready_max || bytes >= READY_BYTES_MAX;
            let is_low = ready < ready_max / 2 && bytes < READY_BYTES_MAX / 2;
            let list = single(topic, *partition);
            if is_full && !buffer.is_paused {
                buffer.is_paused = self.consumer.pause(&list).is_ok();
            } else if is_low && buffer.is_paused {
                buffer.is_paused = self.consumer.resume(&list).is_err();
            }
        }
    }

    fn lag(&mut self) -> Vec<Lag> {
        let now = self.options.clock.wall();
        let context = self.consumer.context();
        let statistics = context.statistics();
        let lag = |((topic, partition), buffer): (&AssignedPartition, &mut PartitionBuffer)| {
            let position = context.fetch_position(topic, *partition).unwrap_or_default();
            let fetched = buffer.fetched().unwrap_or(position.next);
            // The client's queue is counted exactly. The number of unfetched messages is estimated by the difference of offsets, control records
            // included.
            let queued = position.queued.min(position.next.saturating_sub(fetched));
            let unfetched = position.stable.saturating_sub(position.next.max(fetched));
            let messages = buffer.unacknowledged() as u64 + queued + unfetched;
            if messages == 0 && buffer.knows_end(statistics, position.has_reached_end) {
                buffer.record_caught_up(now);
            }
            Lag { topic: topic.to_string(), partition: *partition, messages, age: buffer.age(now) }
        };
        self.buffers.iter_mut().map(lag).collect()
    }
}

fn single(topic: &str, partition: u32) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    list.add_partition(topic, partition as i32);
    list
}
