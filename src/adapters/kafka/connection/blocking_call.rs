//! Blocking calls of librdkafka on threads of their own, for async callers.
use ports::Error;
use tokio::sync::oneshot;

/// Runs one blocking call on a new thread and waits for its result. Only for rare calls: opening and fencing sessions. Cancel-safe: the
/// call runs to its end even when the caller drops this future.
pub(crate) async fn run_blocking<T: Send + 'static>(
    thread_name: &str,
    call: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (reply, result) = oneshot::channel();
    // The send fails only when the caller was dropped; the effect of the call remains.
    let run = move || drop(reply.send(call()));
    std::thread::Builder::new()
        .name(thread_name.to_owned())
        .spawn(run)
        .map_err(|error| Error::Overloaded(format!("cannot start the thread {thread_name}: {error}")))?;
    result.await.unwrap_or_else(|_| Err(client_stopped()))
}

/// The error of a request to a thread that has ended, which happens only while the adapter is dropped.
pub(crate) fn client_stopped() -> Error {
    Error::Unreachable("the Kafka client was shut down".into())
}
