//! The report of a shutdown: its duration and the actors that did not finish.

use std::time::Duration;

use crate::child::exit::ExitReason;

/// The result of a [`RootSupervisor::shutdown`](crate::RootSupervisor::shutdown).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Shutdown, or what ended the tree before; shutdown_timeout when a blocked thread kept the tree from ending.
    pub reason: ExitReason,
    /// Time from the call to the end of the tree.
    pub elapsed: Duration,
    /// The actors that did not finish, in the order in which they ended. Empty = every actor drained.
    pub unfinished: Vec<UnfinishedActor>,
}

/// An actor that was killed while it drained, or that ended with messages in its mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedActor {
    /// The actor's path in the tree.
    pub path: String,
    /// Messages that the actor held and did not finish; 0 when it held none and still did not end in time.
    pub queued_or_in_flight: usize,
}
