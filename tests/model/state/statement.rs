//! A statement to the store, with all that its sender knew, and its replies.
use crate::configuration::PARTITIONS_MAX;
use crate::state::event_set::EventSet;

/// The effect of a statement on the lease row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StatementKind {
    /// Takes the lease with a higher epoch.
    #[default]
    Acquire,
    /// Settles the batches of one cycle and claims those of the next, for many partitions.
    Cycle,
    /// Takes a row, and the later rows of its key, out of the open batch.
    Exclude,
    /// Closes the open batch as published.
    ResolvePublished,
    /// Closes the open batch as not published: its rows are due again.
    ResolveUnpublished,
    /// Raises the counter above a watermark.
    RaiseCounter,
    /// Releases the lease of a drained partition.
    Release,
}

/// The position from which the next scan starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ScanStart {
    /// No ready row is below it.
    pub position: u8,
    /// Ids below it whose transactions had not ended when it was recorded: a scan starts at the first of them that has committed since.
    pub unfinished: EventSet,
}

/// The part of a statement that concerns one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StatementPart {
    pub is_present: bool,
    pub epoch: u8,
    /// The counter that the sender knew before it read the rows.
    pub counter: u8,
    /// Token of the batch to settle, exclude from or resolve; zero if the part only claims. For `RaiseCounter`, the watermark.
    pub token: u8,
    /// Rows that the claim's read found.
    pub rows: EventSet,
    /// The scan start after that read, if the claim takes effect.
    pub next_scan: ScanStart,
    /// The scan start after the settlement, if the claim is refused.
    pub settled_scan: ScanStart,
    pub is_trial: bool,
    /// The row that an exclusion removes.
    pub row: u8,
    /// Rows that the settlement excludes; only where that rule is broken.
    pub failed: EventSet,
}

/// A statement to the store, with its reply still to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Statement {
    pub kind: StatementKind,
    pub instance: u8,
    /// Producer of the claims.
    pub producer: u8,
    pub parts: [StatementPart; PARTITIONS_MAX],
    /// Whether its reply reaches the worker.
    pub is_answered: bool,
}

/// The reply for one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reply {
    /// The statement names no such partition.
    #[default]
    Absent,
    /// The fence was out of date, and nothing was changed.
    Stale,
    /// Done; the counter that the next statement names.
    Done { counter: u8 },
    /// Claimed under this token; a settlement in the same statement is done, too.
    Claimed { token: u8, rows: EventSet },
    /// The lease is taken, with the batch that a former claimer left open, or zero.
    Acquired { epoch: u8, counter: u8, open_token: u8, former_id: Option<u8> },
    /// Another live instance holds the lease.
    Held,
}
