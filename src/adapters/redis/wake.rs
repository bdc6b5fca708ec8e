//! Wake-ups between instances that share one Redis.
pub(crate) mod queues;
mod wake_channel;
