//! Decisions: what becomes of the messages of a poll, as data.
use domain::Timestamp;
use ports::broker::{Position, Record};
use ports::inbox::{DetourChange, ProcessedEvent};

/// Decisions of one poll or of one key's messages in it, applied in the order of the fields: a message is processed before a later one of its
/// key goes to a retry topic, and before the later ones wait for it no longer, because other members read them from then on. A crash in between
/// repeats the poll: the inbox and the detours absorb the repetition, and only a retried or dead message may then appear twice in its topic.
#[derive(Default)]
pub struct Decisions {
    /// Events for the inbox.
    pub processed: Vec<ProcessedEvent>,
    /// Records for retry topics and dead letters.
    pub forward: Vec<Record>,
    /// Keys whose later messages begin or end to wait.
    pub detours: Vec<DetourChange>,
    /// Messages that are done.
    pub acknowledge: Vec<Position>,
    /// When each processed event happened, for its age at its consumption.
    pub occurred_at: Vec<Timestamp>,
    /// Number of messages whose processing failed: invalid ones, and those whose handler failed.
    pub failed: u64,
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
}
