//! The rules of the outbox as pure functions: a row's life, a lease's validity, batch sizes, retries, topic names, the partition hash.
//!
//! A store loads a lease and its rows, calls a function of this crate and applies the result. A store that must state a rule in SQL or Lua is
//! checked against the tables of [`cases`]. The crate knows no order, no client and no runtime; time is handed in as a
//! [`std::time::Duration`] and a row's key is a type parameter.
#![warn(missing_docs)]

pub mod acquire;
pub mod cases;
pub mod event_key;
pub mod event_rules;
pub mod failure;
pub mod ids;
pub mod lease;
pub mod limits;
pub mod partition;
mod rows;
pub mod scripts;
pub mod topics;

pub use acquire::{AcquireDecision, AcquireReason, Liveness};
pub use event_key::{EventKey, EventKeyError};
pub use failure::{FailureType, FaultClass, truncate_reason};
pub use ids::{Counter, Epoch, InstanceId, LeaseFence, PartitionNo, ProducerSessionId, RowId, Token};
pub use lease::{ExclusionOutcome, FencedOutcome, Lease, OpenClaim, ReleaseOutcome};
pub use rows::exclusion::{Disposition, Exclusion};
pub use rows::operator::OperatorAction;
pub use rows::poison::{PoisonAction, PoisonPolicy};
pub use rows::resolution::{BatchOutcome, store_was_rewound};
pub use rows::retry::{RetryDecision, RetryPolicy};
pub use rows::row::{OutboxRow, RowChange};
pub use rows::status::{RowState, RowStatus};
pub use rows::topic_rules::TopicRules;
pub use rows::{claim, exclusion, operator, resolution, retry, row, status, topic_rules};
pub use topics::group_offsets::{OffsetCommitMode, offset_after_commit};
