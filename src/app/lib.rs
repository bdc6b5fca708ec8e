//! Use cases and policies: pure but for port calls. Decides and returns; never logs, never spawns, never reads a clock but through a port.

pub mod admission;
pub mod breaker;
pub mod chain;
pub mod commands;
pub mod contract;
pub mod dead_letters;
pub mod dispatch;
pub mod error;
pub mod gate;
pub mod handlers;
pub mod intake;
pub mod operate;
pub mod policy;
pub mod queries;
pub mod relay;
pub mod units;
pub mod vitals;

/// What rooms that may not see the ports need to name.
pub mod seen {
    pub use ports::FailureType;
    pub use ports::broker::Position;
    pub use ports::operators::{Audit, RowDiagnosis, RowFilter, RowSelector, RowView};
    pub use ports::orders::TraceContext;
    pub use ports::outbox::{Depth, RowId, RowStatus};
    pub use ports::partitions::PartitionView;
    pub use ports::source::Delivery;
}
