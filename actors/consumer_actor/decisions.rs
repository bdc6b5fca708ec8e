//! Decisions: what becomes of the messages of a poll, as data.
use std::collections::HashSet;

use domain::Timestamp;
use ports::broker::consumer_groups::Delivery;
use ports::broker::{Position, Record};
use ports::inbox::{DetourChange, ProcessedEvent};

/// A record for a retry topic or the dead letters.
pub struct ForwardedRecord {
    /// The record, with its topic.
    pub record: Record,
    /// What becomes of the detour of its key if the broker refuses the record: this change instead of its entry.
    pub if_refused: Option<DetourChange>,
}

/// Decisions of one poll or of one key's messages in it, applied in the order of the fields: a message is processed before a later one of its
/// key goes to a retry topic, because other members read that one from then on. Detours end after the acknowledgement: a message that may be
/// delivered again is not overtaken. A crash in between repeats the poll: the inbox and the detours absorb the repetition, and only a retried or
/// dead message may then appear twice in its topic.
#[derive(Default)]
pub struct Decisions {
    /// Events for the inbox.
    pub processed: Vec<ProcessedEvent>,
    /// Records for retry topics and dead letters.
    pub forward: Vec<ForwardedRecord>,
    /// Keys whose later messages begin or end to wait.
    pub detours: Vec<DetourChange>,
    /// Messages that are done.
    pub acknowledge: Vec<Position>,
    /// When each processed event happened, for its age at its consumption.
    pub occurred_at: Vec<Timestamp>,
    /// Number of messages whose processing failed: invalid ones, and those whose handler failed.
    pub failed: u64,
}

/// Separates the changes that come before the acknowledgement from the ends of detours, which come after it. An end before a later entry of its
/// key is dropped: that message ends the detour.
pub fn split_detours(changes: Vec<DetourChange>) -> (Vec<DetourChange>, Vec<DetourChange>) {
    let (mut entered, mut entries, mut ends) = (HashSet::new(), Vec::new(), Vec::new());
    for change in changes.into_iter().rev() {
        match &change {
            DetourChange::Enter { key, .. } => {
                entered.insert(key.clone());
                entries.push(change);
            }
            DetourChange::Leave { key, .. } if entered.contains(key) => {}
            DetourChange::Leave { .. } => ends.push(change),
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
        self.detours.append(&mut other.detours);
        self.acknowledge.append(&mut other.acknowledge);
        self.occurred_at.append(&mut other.occurred_at);
        self.failed += other.failed;
    }

    /// Of the messages that are done, leaves those in front of the first one of their partition that is not: the group continues there. If others
    /// come again, no detour ends: a later message of theirs must not overtake them. The next message of its key ends it.
    pub fn acknowledge_up_to_undone(&mut self, deliveries: &[Delivery]) {
        let done: HashSet<&Position> = self.acknowledge.iter().collect();
        let mut ended: HashSet<(&str, u32)> = HashSet::new();
        let acknowledge = deliveries.iter().map(|delivery| &delivery.position).filter(|position| {
            let partition = (&*position.topic, position.partition);
            if !done.contains(position) {
                ended.insert(partition);
            }
            !ended.contains(&partition)
        });
        let acknowledge: Vec<Position> = acknowledge.cloned().collect();
        if acknowledge.len() < self.acknowledge.len() {
            self.keep_detours();
        }
        self.acknowledge = acknowledge;
    }

    /// Ends no detour: messages that were done come again.
    pub fn keep_detours(&mut self) {
        self.detours.retain(|change| matches!(change, DetourChange::Enter { .. }));
    }
}

#[cfg(test)]
mod tests {
    use ports::broker::Record;

    use super::*;

    fn delivery(topic: &str, partition: u32, offset: u64) -> Delivery {
        let record = Record {
            topic: topic.into(),
            key: "k".into(),
            headers: Vec::new(),
            value: b"".as_slice().into(),
            timestamp: Timestamp::from_millis(0),
        };
        Delivery { position: Position { topic: topic.into(), partition, offset }, record }
    }

    #[test]
    fn detours_end_apart_from_the_entries_unless_a_later_message_of_the_key_enters() {
        let enter = |key: &str, offset| DetourChange::Enter { key: key.into(), stage: 0, offset };
        let leave = |key: &str, offset| DetourChange::Leave { key: key.into(), offset };
        let changes = vec![leave("a", 1), leave("a", 2), leave("b", 3), enter("b", 4), enter("c", 5), leave("c", 5)];

        let (entries, ends) = split_detours(changes);

        assert_eq!(entries, [enter("b", 4), enter("c", 5)]);
        assert_eq!(ends, [leave("a", 1), leave("a", 2), leave("c", 5)]);
    }

    #[test]
    fn message_behind_one_that_is_not_done_is_not_acknowledged() {
        let deliveries =
            [delivery("a", 0, 5), delivery("b", 0, 1), delivery("a", 0, 6), delivery("a", 0, 7), delivery("a", 1, 9)];
        let done = [3, 4, 0].map(|number: usize| deliveries[number].position.clone());
        let detours = vec![DetourChange::Leave { key: "k".into(), offset: 7 }];
        let mut decisions = Decisions { acknowledge: done.to_vec(), detours: detours.clone(), ..Decisions::default() };

        decisions.acknowledge_up_to_undone(&deliveries);

        assert_eq!(decisions.acknowledge, [0, 4].map(|number: usize| deliveries[number].position.clone()));
        assert_eq!(decisions.detours, [], "it comes again, and a later message of its key waits for it");
        decisions.detours = detours.clone();
        decisions.acknowledge_up_to_undone(&[&deliveries[..2], &deliveries[4..]].concat());
        assert_eq!(decisions.detours, detours, "nothing comes again");
    }
}
