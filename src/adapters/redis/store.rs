//! A store that keeps its data only in Redis: orders, outbox, leases and inbox in one slot. Every change is one script, so it happens as a whole or
//! not at all. Each statement of the relay names owner, epoch and counter or token, as in every other store.
//!
//! A partition's lease replaces the lock that such stores usually give to one poller: it is acquired with a token, renewed and released by
//! comparison, and lost when it expires. A Redis that may lose data is refused at the start: see [`options::Durability`].
pub(crate) mod arguments;
pub(crate) mod call;
pub(crate) mod client;
mod durability;
mod instance_id;
mod open;
pub(crate) mod open_error;
pub(crate) mod options;
mod persistence;
pub(crate) mod probe;
pub(crate) mod reply;
mod scripts;
pub(crate) mod throwaway;
