//! Decisions: the actions of the consumer on the messages of a poll, as data.
use std::collections::HashSet;

use domain::Timestamp;
use ports::broker::consumer_groups::ConsumerRecord;
use ports::broker::{Position, Record};
use ports::inbox::{ProcessedEvent, RetryRouteChange};

use crate::consumer_actor::consumer_poll::PollProgress;

/// A record for a retry topic or the dead letters.
pub struct ForwardedRecord {
    /// The record, with its topic.
    pub record: Record,
    /// The change that replaces the entry of its key's retry route if the broker rejects the record; `None` only removes the entry.
    pub if_refused: Option<RetryRouteChange>,
    /// Reported once the record is among the dead letters; `None` for a record of a retry topic.
    pub dead_letter: Option<DeadLettered>,
}

/// The log event of a message that became a dead letter.
pub struct DeadLettered {
    /// Where the group has read it.
    pub position: Position,
    /// Why it was not processed.
    pub reason: String,
    /// The span of the message.
    pub span: tracing::Span,
}

/// Input of the metrics of an event, which are counted once it is in the inbox.
#[derive(Clone, Copy, Debug)]
pub struct EventMetricInput {
    /// When it happened, for its age at its consumption.
    pub occurred_at: Timestamp,
    /// Whether the region rule rejected its change.
    pub is_stale: bool,
}

/// Decisions of one poll or of one key's messages in it. The consumer applies them in this order:
///
/// 1. commit the processed events to the inbox, before a later message of their keys enters a retry topic, where another member may read it;
/// 2. append to retry and dead-letter topics;
/// 3. record the entries of retry routes;
/// 4. acknowledge;
/// 5. end retry routes: no later message overtakes one that may be delivered again.
///
/// A crash between steps repeats the poll; the only effect is a possible duplicate in a retry or dead-letter topic.
#[derive(Default)]
pub struct Decisions {
    /// Events for the inbox.
    pub processed: Vec<ProcessedEvent>,
    /// Records for retry topics and dead letters.
    pub forward: Vec<ForwardedRecord>,
    /// Changes of the retry routes of keys.
    pub retry_routes: Vec<RetryRouteChange>,
    /// Messages that are done.
    pub acknowledge: Vec<Position>,
    /// Input of the metrics of each processed event.
    pub metric_inputs: Vec<EventMetricInput>,
    /// Number of messages whose processing failed: invalid ones, and those whose handler failed.
    pub failed: u64,
}

/// Separates the entries of retry routes, applied before the acknowledgement, from their ends, applied after it. Drops an end that a later
/// entry of the same key follows: the message of that entry ends the route.
pub fn split_retry_routes(changes: Vec<RetryRouteChange>) -> (Vec<RetryRouteChange>, Vec<RetryRouteChange>) {
    let (mut entered, mut entries, mut ends) = (HashSet::new(), Vec::new(), Vec::new());
    for change in changes.into_iter().rev() {
        match &change {
            RetryRouteChange::Enter { key, .. } => {
                entered.insert(key.clone());
                entries.push(change);
            }
            RetryRouteChange::Leave { key, .. } if entered.contains(key) => {}
            RetryRouteChange::Leave { .. } => ends.push(change),
        }
    }
    entries.reverse();
    ends.reverse();
    (entries, ends)
}

impl Decisions {
    /// Adds the decisions on another key's messages.
    pub fn append(&mut self, mut other: Decisions) {
        self.processed.append(&mut other.processed);
        self.forward.append(&mut other.forward);
        self.retry_routes.append(&mut other.retry_routes);
        self.acknowledge.append(&mut other.acknowledge);
        self.metric_inputs.append(&mut other.metric_inputs);
        self.failed += other.failed;
    }

    /// Acknowledges, in each partition, only the done messages before the first message that is not done; the group continues there. If a done
    /// message is delivered again, its retry route stays, so that no later message of the key overtakes it. The next message of the key ends it.
    pub fn acknowledge_up_to_undone(&mut self, messages: &[ConsumerRecord]) {
        let done: HashSet<&Position> = self.acknowledge.iter().collect();
        let mut ended: HashSet<(&str, u32)> = HashSet::new();
        let acknowledge = messages.iter().map(|message| &message.position).filter(|position| {
            let partition = (&*position.topic, position.partition);
            if !done.contains(position) {
                ended.insert(partition);
            }
            !ended.contains(&partition)
        });
        let acknowledge: Vec<Position> = acknowledge.cloned().collect();
        if acknowledge.len() < self.acknowledge.len() {
            self.drop_retry_route_ends();
        }
        self.acknowledge = acknowledge;
    }

    /// The progress of the poll once these decisions are applied.
    pub fn progress(&self) -> PollProgress {
        if self.acknowledge.is_empty() { PollProgress::Idle } else { PollProgress::Advanced }
    }

    /// Removes the ends of retry routes: done messages will be delivered again, and a later message of their key must not overtake them.
    fn drop_retry_route_ends(&mut self) {
        self.retry_routes.retain(|change| matches!(change, RetryRouteChange::Enter { .. }));
    }
}

#[cfg(test)]
mod tests {
    use ports::broker::Record;

    use super::*;

    fn consumer_record(topic: &str, partition: u32, offset: u64) -> ConsumerRecord {
        let record = Record {
            topic: topic.into(),
            key: "k".into(),
            headers: Default::default(),
            value: b"".as_slice().into(),
            timestamp: Timestamp::from_millis(0),
        };
        ConsumerRecord { position: Position { topic: topic.into(), partition, offset }, record }
    }

    #[test]
    fn retry_route_end_before_a_later_entry_of_its_key_is_dropped() {
        let enter = |key: &str, offset| RetryRouteChange::Enter { key: key.into(), stage: 0, offset };
        let leave = |key: &str, offset| RetryRouteChange::Leave { key: key.into(), offset };
        let changes = vec![leave("a", 1), leave("a", 2), leave("b", 3), enter("b", 4), enter("c", 5), leave("c", 5)];

        let (entries, ends) = split_retry_routes(changes);

        assert_eq!(entries, [enter("b", 4), enter("c", 5)]);
        assert_eq!(ends, [leave("a", 1), leave("a", 2), leave("c", 5)]);
    }

    #[test]
    fn message_behind_one_that_is_not_done_is_not_acknowledged() {
        let messages = [
            consumer_record("a", 0, 5),
            consumer_record("b", 0, 1),
            consumer_record("a", 0, 6),
            consumer_record("a", 0, 7),
            consumer_record("a", 1, 9),
        ];
        let done = [3, 4, 0].map(|number: usize| messages[number].position.clone());
        let retry_routes = vec![RetryRouteChange::Leave { key: "k".into(), offset: 7 }];
        let mut decisions =
            Decisions { acknowledge: done.to_vec(), retry_routes: retry_routes.clone(), ..Decisions::default() };

        decisions.acknowledge_up_to_undone(&messages);

        assert_eq!(decisions.acknowledge, [0, 4].map(|number: usize| messages[number].position.clone()));
        assert_eq!(decisions.retry_routes, [], "it is delivered again, and a later message of its key waits for it");
        decisions.retry_routes = retry_routes.clone();
        decisions.acknowledge_up_to_undone(&[&messages[..2], &messages[4..]].concat());
        assert_eq!(decisions.retry_routes, retry_routes, "nothing is delivered again");
    }
}
