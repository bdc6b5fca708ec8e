//! One child: its spec, its exit reasons, the commands it receives, and the task that runs an actor and survives the actor's panics.

pub(crate) mod actor;
pub(crate) mod actor_task;
pub(crate) mod backoff;
pub(crate) mod command;
pub(crate) mod command_channel;
pub(crate) mod exit;
pub(crate) mod in_progress;
pub(crate) mod panic_guard;
pub(crate) mod policy;
pub(crate) mod signal;
pub(crate) mod spec;
pub(crate) mod supervised;
