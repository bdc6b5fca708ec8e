//! Lifecycle events: their type, their stream for subscribers, their log line, and the observer that another crate implements.

pub(crate) mod event;
pub(crate) mod log_line;
pub(crate) mod observer;
pub(crate) mod sentence;
pub(crate) mod stream;
