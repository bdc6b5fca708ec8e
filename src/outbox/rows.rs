//! The life of a row: its status, and what a claim, an exclusion, a resolution, a retry and an operator do to it.

pub mod claim;
pub mod exclusion;
pub mod operator;
pub mod poison;
pub mod resolution;
pub mod retry;
pub mod row;
pub mod status;
pub mod topic_rules;
