//! Checks of the relay on the values of a topic. The producer of a topic supplies its contract; the relay knows none itself.
use std::fmt;
use std::sync::Arc;

use ports::outbox::ClaimedRow;

/// The contract of the values of one topic.
pub trait ValueContract: fmt::Debug + Send + Sync {
    /// Checks a row's value, which another program may have written.
    ///
    /// # Errors
    /// Why the value does not belong to the row's event; the row is parked.
    fn check(&self, row: &ClaimedRow, payload: &[u8]) -> Result<(), String>;

    /// Number of bytes that [`ValueContract::framed`] adds.
    fn frame_bytes(&self) -> usize {
        0
    }

    /// The value as it is published.
    fn framed(&self, payload: &Arc<[u8]>) -> Arc<[u8]> {
        Arc::clone(payload)
    }
}

/// The contracts of the topics that have one. The values of every other topic are published as they are.
#[derive(Clone, Debug, Default)]
pub struct TopicContracts(Vec<(Arc<str>, Arc<dyn ValueContract>)>);

impl TopicContracts {
    /// These contracts and one more, of a topic by its full name.
    pub fn with(mut self, topic: Arc<str>, contract: Arc<dyn ValueContract>) -> Self {
        self.0.push((topic, contract));
        self
    }

    /// The contract of a topic, if it has one.
    pub fn get(&self, topic: &str) -> Option<&dyn ValueContract> {
        self.0.iter().find(|(name, _)| **name == *topic).map(|(_, contract)| &**contract)
    }
}
