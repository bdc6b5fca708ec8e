//! One call to the server: a connection, a request, its reply, and the consequences of a failure for later calls.
use std::time::Instant;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{self, FromRedisValue, Pipeline, RedisResult, ScriptInvocation};
use ports::Error;

use crate::connection::client::{RedisInner, RedisOutage};
use crate::connection::error;

/// The component that makes a call, as the metric of failures names it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Caller {
    Cache,
    Idempotency,
    RateLimit,
    Probe,
    Maintenance,
    Store,
}

impl Caller {
    fn as_str(self) -> &'static str {
        match self {
            Caller::Cache => "cache",
            Caller::Idempotency => "idempotency",
            Caller::RateLimit => "rate_limit",
            Caller::Probe => "probe",
            Caller::Maintenance => "keeper",
            Caller::Store => "store",
        }
    }
}

/// A request that takes one round trip.
pub(crate) enum Request<'a> {
    Script(&'a ScriptInvocation<'a>),
    Pipeline(&'a Pipeline),
}

impl Request<'_> {
    async fn send<T: FromRedisValue>(&self, connection: &mut MultiplexedConnection) -> RedisResult<T> {
        match self {
            Request::Script(script) => script.invoke_async(connection).await,
            Request::Pipeline(pipeline) => pipeline.query_async(connection).await,
        }
    }
}

/// One command, as a pipeline of one.
pub(crate) fn single(command: redis::Cmd) -> Pipeline {
    let mut pipeline = redis::pipe();
    pipeline.add_command(command);
    pipeline
}

impl RedisInner {
    /// Sends a request, unless the server is known to be unavailable: then it fails at once. `operation` names the request in errors.
    pub(crate) async fn call<T: FromRedisValue>(
        &self,
        caller: Caller,
        operation: &str,
        request: Request<'_>,
    ) -> Result<T, Error> {
        if let Some(error) = self.unavailable_error() {
            self.count_failure(caller);
            return Err(error);
        }
        self.try_call(caller, operation, request).await
    }

    /// Sends one command of the store.
    pub(crate) async fn store_command<T: FromRedisValue>(
        &self,
        operation: &str,
        command: redis::Cmd,
    ) -> Result<T, Error> {
        let (reply,) = self.call(Caller::Store, operation, Request::Pipeline(&single(command))).await?;
        Ok(reply)
    }

    /// Sends a request also while the server is known to be unavailable: for the callers that detect its return.
    pub(crate) async fn try_call<T: FromRedisValue>(
        &self,
        caller: Caller,
        operation: &str,
        request: Request<'_>,
    ) -> Result<T, Error> {
        let started = Instant::now();
        let result = self.exchange(operation, request).await;
        let duration = started.elapsed();
        if let Some(metrics) = &self.options.metrics {
            metrics.redis_command_latency.record(duration);
        }
        let (duration_ms, failed) = (duration.as_secs_f64() * 1e3, result.is_err());
        tracing::debug!(event = "dependency_called", operation, duration_ms, failed, "Redis was called");
        match &result {
            Err(error @ (Error::Unreachable(_) | Error::Unknown(_))) => {
                self.count_failure(caller);
                self.mark_unavailable(error);
            }
            Err(error) => self.record_cause(error),
            Ok(_) => {}
        }
        result
    }

    /// The error of every call while the server is known to be unavailable.
    pub(crate) fn unavailable_error(&self) -> Option<Error> {
        let outage = self.outage.lock();
        let RedisOutage { since, cause } = outage.as_ref()?;
        let seconds = since.elapsed().as_secs();
        Some(Error::Unreachable(format!("Redis has not answered for {seconds} s: {cause}")))
    }

    async fn exchange<T: FromRedisValue>(&self, operation: &str, request: Request<'_>) -> Result<T, Error> {
        let _permit = self.connection.permit().await?;
        let mut connection = self.connection.get().await?;
        request.send(&mut connection).await.map_err(|error| error::call_error(operation, &error))
    }

    /// Serves nothing from the cache until the maintenance task has raised the epoch.
    pub(crate) fn invalidate_cache(&self) {
        if self.epoch.lock().invalidate() {
            self.maintenance.notify_one();
        }
    }

    /// A call got no reply: later calls fail at once instead of waiting for the same time-out.
    fn mark_unavailable(&self, error: &Error) {
        if self.connection.is_closed() {
            return;
        }
        self.invalidate_cache();
        let mut outage = self.outage.lock();
        if let Some(outage) = &mut *outage {
            outage.cause = cause_text(error);
        } else {
            *outage = Some(RedisOutage { since: Instant::now(), cause: cause_text(error) });
            self.connection.discard();
            tracing::warn!(event = "redis_unreachable", error = %error, "Redis does not answer; continuing without it: {error}");
            self.maintenance.notify_one();
        }
    }

    /// A server that is unavailable refused a call: that may be why it stays so, for example because of a new password.
    fn record_cause(&self, error: &Error) {
        if let Some(outage) = &mut *self.outage.lock() {
            outage.cause = cause_text(error);
        }
    }

    /// The server answered a write. One without free memory refuses it and answers reads: it is available. The cache stays invalid until the epoch
    /// has been raised.
    pub(crate) fn mark_available_after_write(&self, result: &Result<(), Error>) {
        if !matches!(result, Ok(()) | Err(Error::Full(_))) {
            return;
        }
        if let Some(RedisOutage { since, .. }) = self.outage.lock().take() {
            let seconds = since.elapsed().as_secs_f64();
            tracing::info!(event = "redis_recovered", seconds, "Redis answers again after {seconds} s");
            self.maintenance.notify_one();
        }
    }

    pub(crate) fn count_failure(&self, caller: Caller) {
        if let Some(metrics) = &self.options.metrics {
            metrics.redis_connection_failures.with([caller.as_str()]).inc();
        }
    }
}

/// The error's text without its kind: the calls that fail for this cause have another one.
fn cause_text(error: &Error) -> String {
    match error {
        Error::Unreachable(text)
        | Error::Overloaded(text)
        | Error::Full(text)
        | Error::Unknown(text)
        | Error::Rejected(text)
        | Error::Broken(text) => text.clone(),
    }
}
