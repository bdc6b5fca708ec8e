//! Buffer: the messages of one topic partition that a group member has fetched and not acknowledged.
use std::collections::VecDeque;

use ports::broker::consumer_groups::ConsumerRecord;
use tokio::time::Instant;

/// The messages, in order. Those in flight come first.
pub struct Buffer {
    messages: VecDeque<ConsumerRecord>,
    in_flight: usize,
    /// The offset after the last one that was fetched, records of aborted transactions included.
    pub fetched: u64,
    /// The offset after the last delivered one.
    delivered: u64,
    /// Every lower offset was acknowledged.
    pub acknowledged: u64,
    /// Until when the messages in flight may delay a revocation. No further message is delivered.
    pub revocation_deadline: Option<Instant>,
    /// No message is delivered until this time.
    pub paused_until: Option<Instant>,
}

impl Buffer {
    /// An empty buffer that begins at this offset.
    pub fn new(next: u64) -> Self {
        let messages = VecDeque::new();
        Self {
            messages,
            in_flight: 0,
            fetched: next,
            delivered: 0,
            acknowledged: 0,
            revocation_deadline: None,
            paused_until: None,
        }
    }

    /// Adds the messages of a fetch from offset `from` to before `next`. Ignores a reply that is not the continuation.
    pub fn push(&mut self, from: u64, messages: Vec<ConsumerRecord>, next: u64) {
        if self.fetched == from {
            self.messages.extend(messages);
            self.fetched = next;
        }
    }

    /// How many messages can be delivered now.
    pub fn ready(&self, now: Instant) -> usize {
        let is_held = self.revocation_deadline.is_some() || self.paused_until.is_some_and(|until| until > now);
        if is_held { 0 } else { self.waiting() }
    }

    /// How many messages are fetched and not in flight.
    pub fn waiting(&self) -> usize {
        self.messages.len() - self.in_flight
    }

    /// How many messages are fetched and not acknowledged.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// The first message that is not acknowledged.
    pub fn oldest(&self) -> Option<&ConsumerRecord> {
        self.messages.front()
    }

    /// Delivers at most `limit` messages.
    pub fn take(&mut self, limit: usize, now: Instant) -> Vec<ConsumerRecord> {
        let first = self.in_flight;
        self.in_flight += self.ready(now).min(limit);
        let taken: Vec<ConsumerRecord> = self.messages.range(first..self.in_flight).cloned().collect();
        self.delivered = taken.last().map_or(self.delivered, |last| self.delivered.max(last.position.offset + 1));
        taken
    }

    /// Whether the message at this offset was delivered from this buffer and is not acknowledged.
    pub fn has_delivered(&self, offset: u64) -> bool {
        offset < self.delivered && self.oldest().is_some_and(|oldest| oldest.position.offset <= offset)
    }

    /// Makes the messages from this offset on deliverable again.
    pub fn rewind_to(&mut self, offset: u64) {
        self.in_flight = self.in_flight.min(self.before(offset));
    }

    /// Removes the messages below this offset.
    pub fn acknowledge(&mut self, next: u64) {
        let done = self.before(next);
        self.messages.drain(..done);
        self.in_flight = self.in_flight.saturating_sub(done);
        self.acknowledged = self.acknowledged.max(next);
    }

    /// Whether the partition may be revoked now: no message is in flight, or the deadline has passed.
    pub fn can_be_revoked(&self, now: Instant) -> bool {
        self.revocation_deadline.is_some_and(|deadline| self.in_flight == 0 || deadline <= now)
    }

    fn before(&self, offset: u64) -> usize {
        self.messages.partition_point(|message| message.position.offset < offset)
    }
}
