//! The commands, one file each.
pub(super) mod actors;
pub(super) mod adopt;
pub(super) mod audit;
pub(super) mod demo;
pub(super) mod dlt;
pub(super) mod doctor;
pub(super) mod documents;
pub(super) mod migrate;
pub(super) mod outbox;
pub(super) mod serve;
pub(super) mod token;
pub(super) mod top;
pub(super) mod topic;
pub(super) mod version;
pub(super) mod webhook;
