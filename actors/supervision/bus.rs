//! The public handle of a running tree: event stream, actor snapshot, fault injection, and adding or removing children.

pub(crate) mod arbiter_probe;
pub(crate) mod drain_report;
pub(crate) mod faults;
pub(crate) mod options;
pub(crate) mod registry;
pub(crate) mod snapshot;
pub(crate) mod supervision_bus;
pub(crate) mod supervisor_command;
pub(crate) mod supervisor_registry;
