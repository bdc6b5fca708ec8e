//! The memory of dead letters that operators sent back: each goes back once, whoever asks and however often, and who asked is known.
use std::time::Duration;

use async_trait::async_trait;
use domain::Timestamp;

use crate::broker::Position;
use crate::error::Error;
use crate::operators::Audit;

/// A dead letter's name. A topic that is made anew counts its places from 0 again, so the record's time belongs to the name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeadLetterId {
    /// Where it stands.
    pub position: Position,
    /// The record's own time.
    pub timestamp: Timestamp,
}

/// What is known of a letter that somebody took in hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedriveRecord {
    /// Who took it, and why.
    pub audit: Audit,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// Whether it stands in its topic again. One that does not is on its way, or whoever took it has died.
    pub arrived: bool,
}

/// Dead letters and who sent them back.
#[async_trait]
pub trait RedriveLedger: Send + Sync {
    /// Takes letters in hand; answers in their order which of them are the caller's now. Those are: letters that nobody took, and
    /// those that somebody took at least `again_after` ago and that never arrived. All of them or, with an error, none.
    async fn reserve(&self, letters: &[DeadLetterId], again_after: Duration, audit: &Audit)
    -> Result<Vec<bool>, Error>;

    /// They stand in their topic again: nobody takes them any more.
    async fn confirm(&self, letters: &[DeadLetterId]) -> Result<(), Error>;

    /// They were certainly not sent: whoever wants may take them at once. A letter that has arrived stays so.
    async fn release(&self, letters: &[DeadLetterId]) -> Result<(), Error>;

    /// What is known of each, in their order; nothing of those that nobody took.
    async fn find(&self, letters: &[DeadLetterId]) -> Result<Vec<Option<RedriveRecord>>, Error>;
}
