//! The bounded mailbox of an actor: the handle for senders, the queued message with its permit, and the counters behind both.

pub(crate) mod ask_error;
pub(crate) mod handle;
pub(crate) mod message;
pub(crate) mod state;
pub(crate) mod type_name;
