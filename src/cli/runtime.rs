//! Runs the asynchronous part of a command.

/// Runs one future to its end on a new actix system.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    actix_rt::System::new().block_on(future)
}
