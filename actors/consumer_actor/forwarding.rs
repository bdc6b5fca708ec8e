//! Forwarding: how a consumer group passes messages that it could not process on to retry topics and dead letters, and how a key's later
//! messages wait behind them.
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use app::consume::chain::{ATTEMPTS_MAX, FailureAction};
use app::consume::forward::{Forward, RETRY_ROUND_HEADER, forward_record, without_earlier_failures};
use app::consume::message_decision::MessageFailure;
use app::consume::spring_headers;
use domain::Timestamp;
use outbox::topics::{RETRY_DELAYS, base_topic, dead_letter_topic, retry_stage, retry_topic};
use ports::Error;
use ports::broker::consumer_groups::{ConsumerRecord, GroupMember};
use ports::broker::{Position, RAW_KEY, Record};
use ports::inbox::RetryRouteChange;

use crate::consumer_actor::decisions::{DeadLettered, Decisions, ForwardedRecord};
use crate::consumer_actor::group_consumer::GroupConsumer;
use crate::consumer_actor::message_log;

/// How often the delay of a message that blocks its key doubles. Each round of the message appends all that wait behind it again; 2 doublings
/// make the rounds of 8 s half a minute long. The other keys of its partition of the last retry topic wait as long.
const BLOCKED_DOUBLINGS_MAX: u32 = 2;

/// The last stage of a retry route: stores hold it as a signed 32-bit integer. At one round per half minute a message takes two thousand years to
/// reach it.
const RETRY_STAGE_MAX: u32 = i32::MAX.unsigned_abs();

/// The messages of a poll that are handled now, and those that are only acknowledged. Messages behind one that is not due are in neither list.
pub struct DueMessages<'a> {
    /// The messages that the group handles now.
    pub due: Vec<&'a ConsumerRecord>,
    /// The positions of the messages that are not for the group.
    pub not_for_group: Vec<Position>,
}

impl GroupConsumer {
    /// The messages of a poll as this group receives them. Messages outside its retry topics lose the headers with attempts, origin and due time:
    /// another consumer, whose retry or dead-letter topic this group reads, has written them.
    pub(super) fn normalize_headers(&self, messages: Vec<ConsumerRecord>) -> Vec<ConsumerRecord> {
        let normalize = |message: ConsumerRecord| match self.own_stage(&message) {
            Some(_) => message,
            None => without_earlier_failures(message),
        };
        messages.into_iter().map(normalize).collect()
    }

    /// The stage of the group's retry topic that a message is in; `None` for every other topic, also for one of a name that only ends like theirs.
    fn own_stage(&self, message: &ConsumerRecord) -> Option<usize> {
        let topic = &message.position.topic;
        retry_stage(topic).filter(|_| base_topic(topic) == self.base)
    }

    /// Selects the messages of a poll that are due. At the first message of the group that is not due, a partition pauses: no task sleeps, and
    /// nothing behind that message is acknowledged.
    ///
    /// # Errors
    /// Returns the broker's error if a partition could not be paused.
    pub async fn due<'a>(
        &self,
        member: &dyn GroupMember,
        messages: &'a [ConsumerRecord],
        is_for_group: impl Fn(&ConsumerRecord) -> bool,
    ) -> Result<DueMessages<'a>, Error> {
        let (mut due, mut not_for_group) = (Vec::with_capacity(messages.len()), Vec::new());
        let mut paused: Vec<(&Arc<str>, u32)> = Vec::new();
        for message in messages {
            let position = &message.position;
            let topic_partition = (&position.topic, position.partition);
            if paused.contains(&topic_partition) {
                continue;
            }
            if !is_for_group(message) {
                not_for_group.push(position.clone());
            } else if let Some(wait) = self.remaining_delay(message) {
                member.pause(position, wait).await?;
                paused.push(topic_partition);
            } else {
                due.push(message);
            }
        }
        Ok(DueMessages { due, not_for_group })
    }

    /// Time until a message of a retry topic is due: by its header, but at most the longest delay after its timestamp, or else by the topic's delay.
    /// If that is further away than the longest delay, the clock of its writer is ahead: the message waits for the longest delay, counted from when
    /// this instance first sees it, and the later messages of that writer wait at the same time. A message that blocks its key has longer delays.
    fn remaining_delay(&self, message: &ConsumerRecord) -> Option<Duration> {
        let stage = self.own_stage(message)?;
        let written = message.record.timestamp;
        let attempts = spring_headers::attempts_made(&message.record).unwrap_or(0);
        let longest = blocked_delay(*self.retry_delays.iter().max()?, attempts);
        let by_stage = || self.retry_delays.get(stage).map(|delay| written.plus(*delay));
        let by_header = |due: Timestamp| Some(due.min(written.plus(longest)));
        let due = spring_headers::due(&message.record).map_or_else(by_stage, by_header)?;
        // The due time may be of another instance.
        let wall = self.clock.wall();
        let mut left = due.since(wall);
        if left > longest {
            left = due.since(wall.plus(self.clock_skews.measure(&message.position, written, wall, longest)));
        }
        Some(left).filter(|left| !left.is_zero())
    }

    /// The stage of an earlier message of the key that this one must wait behind. A message that has reached that stage itself is that earlier
    /// message, and waits for none.
    async fn stage_ahead(&self, message: &ConsumerRecord, decisions: &Decisions) -> Result<Option<u32>, Error> {
        let key = self.retry_route_key(&message.record);
        let in_this_poll = decisions.retry_routes.iter().rev().find_map(|change| match change {
            RetryRouteChange::Enter { key: entered, stage, .. } if *entered == key => Some(*stage),
            RetryRouteChange::Enter { .. } | RetryRouteChange::Leave { .. } => None,
        });
        let ahead = match in_this_poll {
            Some(stage) => Some(stage),
            None => self.inbox.retry_route(&self.group, &key).await?.map(|retry_route| retry_route.stage),
        };
        Ok(ahead.filter(|ahead| self.retry_stage_of(message).is_none_or(|route_stage| route_stage < *ahead)))
    }

    /// Sends a message to a retry topic if an earlier one of its key is being retried, so that it stays behind that one. Returns whether it did.
    ///
    /// # Errors
    /// Returns the error of the store, which keeps the retry routes.
    pub async fn queue_behind_earlier(
        &self,
        message: &ConsumerRecord,
        needs_order: bool,
        decisions: &mut Decisions,
    ) -> Result<bool, Error> {
        if !is_ordered(message, needs_order) {
            return Ok(false);
        }
        let Some(ahead) = self.stage_ahead(message, decisions).await? else { return Ok(false) };
        // Stage by stage, so that no message of the key overtakes an earlier one.
        let stage = self.retry_stage_of(message).map_or(0, next_stage);
        // Without a delay of its own: the earlier message is ahead in the partition, which pauses until that one is due. Once it is done, a delay
        // would only postpone this message and the end of the retry route.
        let attempts_made = spring_headers::attempts_made(&message.record).unwrap_or(0);
        let record = self.retry_record(message, stage, Duration::ZERO, &waits_for_earlier(), attempts_made);
        // If the broker refuses the record, the earlier message still is in its retry topic: the retry route stays as it is. A route that already
        // counts this message as its last ends with the next message of the key.
        decisions.forward.push(ForwardedRecord { record, if_refused: None, dead_letter: None });
        decisions.retry_routes.push(self.enter_retry_route(message, ahead));
        Ok(true)
    }

    /// Forwards a message whose attempt has failed, and logs it: to a retry topic, where the later messages of its key wait behind it if they need
    /// order, or to the dead letters.
    pub fn forward_failed(
        &self,
        message: &ConsumerRecord,
        needs_order: bool,
        action: FailureAction,
        failure: &MessageFailure,
        decisions: &mut Decisions,
    ) {
        let attempt = spring_headers::attempt(&message.record);
        decisions.failed += 1;
        match action {
            FailureAction::Retry => message_log::retried(message, attempt, failure),
            // Its further rounds are not reported.
            FailureAction::BlockKey if attempt <= ATTEMPTS_MAX => message_log::blocks_key(message, failure),
            FailureAction::BlockKey => {}
            FailureAction::DeadLetter => {
                self.dead_letter(message, attempt, failure, decisions);
                return self.leave_retry_route(message, needs_order, decisions);
            }
        }
        self.retry(message, needs_order, failure, attempt, decisions);
    }

    /// Sends a message whose `attempts` attempts have failed to the retry topic of their number. The later messages of its key wait behind it where
    /// they need order.
    fn retry(
        &self,
        message: &ConsumerRecord,
        needs_order: bool,
        failure: &MessageFailure,
        attempts: u32,
        decisions: &mut Decisions,
    ) {
        let stage = attempts - 1;
        let needs_order = is_ordered(message, needs_order);
        // A message may have waited in a later retry topic than its own failures lead to. It continues from there: in an earlier one, later
        // messages of its key could overtake it.
        let route_stage = self.retry_stage_of(message).filter(|_| needs_order);
        let stage = route_stage.map_or(stage, |route_stage| stage.max(next_stage(route_stage)));
        let delay = blocked_delay(self.retry_delays[topic_stage(stage)], attempts);
        let record = self.retry_record(message, stage, delay, failure, attempts);
        let if_refused = self.end_of_retry_route(message, needs_order);
        decisions.forward.push(ForwardedRecord { record, if_refused, dead_letter: None });
        decisions.retry_routes.extend(needs_order.then(|| self.enter_retry_route(message, stage)));
    }

    fn retry_record(
        &self,
        message: &ConsumerRecord,
        stage: u32,
        delay: Duration,
        failure: &MessageFailure,
        attempts: u32,
    ) -> Record {
        let target = retry_topic(&self.base, topic_stage(stage));
        let now = self.clock.wall();
        let due = now.plus(delay);
        let forward = Forward { target, group: &self.group, failure, attempts_made: attempts, now, due };
        let mut record = forward_record(message, forward);
        record.headers.retain(|name| name != RETRY_ROUND_HEADER);
        if topic_stage(stage) < stage as usize {
            record.headers.push(RETRY_ROUND_HEADER, stage.to_string().as_bytes());
        }
        self.add_header(&mut record);
        record
    }

    fn enter_retry_route(&self, message: &ConsumerRecord, stage: u32) -> RetryRouteChange {
        RetryRouteChange::Enter { key: self.retry_route_key(&message.record), stage, offset: first_offset(message) }
    }

    /// Ends the wait of a key's later messages for this one.
    pub fn leave_retry_route(&self, message: &ConsumerRecord, needs_order: bool, decisions: &mut Decisions) {
        decisions.retry_routes.extend(self.end_of_retry_route(message, needs_order));
    }

    /// The end of the retry route that this message may end; `None` for a message outside the retry topics, which can only begin a route, and for one
    /// that an operator has sent to a retry topic, which no message waits for.
    fn end_of_retry_route(&self, message: &ConsumerRecord, needs_order: bool) -> Option<RetryRouteChange> {
        let retried = spring_headers::attempts_made(&message.record).is_some();
        let ends = is_ordered(message, needs_order) && retried && self.own_stage(message).is_some();
        ends.then(|| RetryRouteChange::Leave {
            key: self.retry_route_key(&message.record),
            offset: first_offset(message),
        })
    }

    /// Sends a message to the dead-letter topic.
    pub fn dead_letter(
        &self,
        message: &ConsumerRecord,
        attempts_made: u32,
        failure: &MessageFailure,
        decisions: &mut Decisions,
    ) {
        let (target, now) = (dead_letter_topic(&self.base), self.clock.wall());
        let forward = Forward { target, group: &self.group, failure, attempts_made, now, due: now };
        let mut record = forward_record(message, forward);
        self.add_header(&mut record);
        let dead_letter = DeadLettered {
            position: message.position.clone(),
            reason: failure.reason.clone(),
            span: tracing::Span::current(),
        };
        decisions.forward.push(ForwardedRecord { record, if_refused: None, dead_letter: Some(dead_letter) });
    }

    /// The key of a message's retry route. Offsets order the messages of one topic only, so topics that share retry topics have separate routes.
    pub(super) fn retry_route_key(&self, record: &Record) -> String {
        let Record { topic, .. } = record;
        let key = match record.header(RAW_KEY) {
            // Keys that are not UTF-8 may have the same text.
            Some(bytes) => bytes.escape_ascii().to_string(),
            None => record.key.to_string(),
        };
        match self.added_header {
            None => key,
            Some(_) => format!("{} {key}", spring_headers::original_topic(record).unwrap_or(topic)),
        }
    }

    /// The stage of a key's retry route that a message of a retry topic belongs to: the topic's stage, and beyond the last topic the header's
    /// count, which distinguishes a message that entered that topic again from those that were there before. Only a message that a consumer has
    /// forwarded has that count: from any other, which a client of the broker wrote, it could send the later messages of the key round for years.
    fn retry_stage_of(&self, message: &ConsumerRecord) -> Option<u32> {
        let stage = u32::try_from(self.own_stage(message)?).ok()?;
        let round = forwarded_from(&message.record).and_then(|_| message.record.text(RETRY_ROUND_HEADER)?.parse().ok());
        Some(round.unwrap_or(stage).min(RETRY_STAGE_MAX))
    }

    fn add_header(&self, record: &mut Record) {
        if let Some((name, value)) = &self.added_header {
            record.headers.retain(|header| header != *name);
            record.headers.push(name, value.as_bytes());
        }
    }
}

/// Whether a message follows the earlier ones of its key, where its handler needs that. One without a key has no order: such messages are in all
/// partitions, whose offsets cannot be compared.
fn is_ordered(message: &ConsumerRecord, needs_order: bool) -> bool {
    needs_order && message.record.key_bytes().is_some()
}

/// Groups messages by key: the messages of each key in their order, the keys in the order of their first messages. A message without a key is a
/// group of its own.
pub fn by_key(messages: Vec<&ConsumerRecord>) -> Vec<Vec<&ConsumerRecord>> {
    let mut keys: Vec<Vec<&ConsumerRecord>> = Vec::new();
    let mut indexes: HashMap<&str, usize> = HashMap::with_capacity(messages.len());
    for message in messages {
        let next = keys.len();
        let index = if is_ordered(message, true) { *indexes.entry(&message.record.key).or_insert(next) } else { next };
        match keys.get_mut(index) {
            Some(messages) => messages.push(message),
            None => keys.push(vec![message]),
        }
    }
    keys
}

/// The number of the retry topic for this stage: a message enters the last one again and again.
fn topic_stage(stage: u32) -> usize {
    (stage as usize).min(RETRY_DELAYS.len() - 1)
}

/// The delay of a message after this number of attempts. Only a message that blocks its key is retried after [`ATTEMPTS_MAX`]: its delay doubles
/// with each further attempt, up to [`BLOCKED_DOUBLINGS_MAX`] times, and so does the wait of the messages behind it in the partition.
fn blocked_delay(delay: Duration, attempts: u32) -> Duration {
    delay * 2_u32.pow(attempts.saturating_sub(ATTEMPTS_MAX).min(BLOCKED_DOUBLINGS_MAX))
}

/// The stage after this one.
fn next_stage(stage: u32) -> u32 {
    (stage + 1).min(RETRY_STAGE_MAX)
}

/// The offset of a message before it was first sent to a retry topic.
fn first_offset(message: &ConsumerRecord) -> u64 {
    forwarded_from(&message.record).unwrap_or(message.position.offset)
}

/// The offset of a forwarded message before it was first sent to a retry topic; `None` for any other.
pub(super) fn forwarded_from(record: &Record) -> Option<u64> {
    spring_headers::original_offset(record).and_then(|offset| u64::try_from(offset).ok())
}

/// The failure of a message that only waits for an earlier one of its key.
fn waits_for_earlier() -> MessageFailure {
    MessageFailure {
        failure_type: ports::FailureType::System,
        class: "posthaste.WaitsForEarlier",
        reason: "an earlier message of its key is being retried".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use ports::broker::NULL_KEY;

    use super::*;

    fn message(offset: u64, key: Option<&str>) -> ConsumerRecord {
        let record = Record {
            topic: "t".into(),
            key: key.unwrap_or_default().into(),
            headers: key.is_none().then_some((NULL_KEY, "")).into_iter().collect(),
            value: b"".as_slice().into(),
            timestamp: Timestamp::from_millis(0),
        };
        ConsumerRecord { position: Position { topic: "t".into(), partition: 0, offset }, record }
    }

    #[test]
    fn messages_of_a_key_are_one_group_and_each_without_a_key_is_its_own() {
        let keys = [Some("a"), None, Some(""), Some("a"), None, Some("")];
        let messages: Vec<_> = (0..).zip(keys).map(|(offset, key)| message(offset, key)).collect();

        let groups = by_key(messages.iter().collect());

        let offsets = |group: &Vec<&ConsumerRecord>| group.iter().map(|message| message.position.offset).collect();
        let offsets: Vec<Vec<u64>> = groups.iter().map(offsets).collect();
        assert_eq!(offsets, [vec![0, 3], vec![1], vec![2, 5], vec![4]]);
    }
}
