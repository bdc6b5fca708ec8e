//! The supervisors: the run loop, start, stop, restart and escalation of children, the watchdog, and the root of the tree.

pub(crate) mod child_record;
pub(crate) mod reports;
pub(crate) mod restart;
pub(crate) mod restart_intensity;
pub(crate) mod root;
pub(crate) mod run;
pub(crate) mod signals;
pub(crate) mod start;
pub(crate) mod stop;
pub(crate) mod supervisor;
pub(crate) mod watchdog;
