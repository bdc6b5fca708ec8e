//! The memory of what was already consumed (`processed_events`), and the effects that must commit with it.
use std::time::Duration;

use async_trait::async_trait;
use domain::{EventId, Hlc, OrderId, RegionId};

use crate::broker::Position;
use crate::error::Error;

/// A consumed message to remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessedEvent {
    /// The event's own name: what makes a second delivery a duplicate.
    pub event_id: EventId,
    /// Where it stood.
    pub position: Position,
    /// What must become true together with the mark.
    pub effects: Vec<Effect>,
}

/// What a handler wants done, as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Another region's update of an order won: remember its stamp.
    RememberRemote {
        /// Whose.
        order_id: OrderId,
        /// By whom.
        region: RegionId,
        /// Its stamp.
        hlc: Hlc,
    },
}

/// What became of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxOutcome {
    /// New: its effects are done.
    New,
    /// Seen before, also when another consumer won the race: nothing was done, acknowledge it.
    Duplicate,
}

/// The stamp that last won for an order, from another region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteStamp {
    /// By whom.
    pub region: RegionId,
    /// Its stamp.
    pub hlc: Hlc,
}

/// A consumer group's memory.
#[async_trait]
pub trait Inbox: Send + Sync {
    /// Remembers all marks and does their effects, in one transaction; answers for each in order. A duplicate fails no neighbour.
    async fn commit(&self, group: &str, marks: Vec<ProcessedEvent>) -> Result<Vec<InboxOutcome>, Error>;

    /// The stamp that last won for an order, from another region.
    async fn remote(&self, order_id: OrderId) -> Result<Option<RemoteStamp>, Error>;

    /// A key that takes a detour: its later messages follow the first into retry topic `stage` until that one is done.
    async fn detour(&self, group: &str, key: &str) -> Result<Option<Detour>, Error>;

    /// Begins or ends detours. All of them or none.
    async fn set_detours(&self, group: &str, changes: Vec<DetourChange>) -> Result<(), Error>;

    /// Forgets at most `limit` marks older than `keep`; says how many.
    async fn sweep(&self, keep: Duration, limit: u32) -> Result<u64, Error>;
}

/// Where a key's messages wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detour {
    /// The retry topic's number.
    pub stage: u32,
    /// Messages of the key that are on the way round and not yet done.
    pub outstanding: u32,
}

/// A change of one key's detour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DetourChange {
    /// One more message of the key goes to this stage.
    Enter {
        /// Whose.
        key: String,
        /// Which retry topic.
        stage: u32,
    },
    /// One message of the key is done (or dead-lettered); the detour ends with the last.
    Leave {
        /// Whose.
        key: String,
    },
}
