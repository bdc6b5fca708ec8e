//! Calls of the store's scripts and commands, with their latencies and errors.
use std::time::{Duration, Instant};

use deadpool_redis::redis::{Cmd, FromRedisValue, Script, Value, cmd};
use ports::Error;

use crate::connection::call::{Caller, Request};
use crate::connection::client::Redis;
use crate::store::arguments::ScriptArguments;
use crate::store::client::RedisStore;
use crate::store::reply::Reply;

/// Runs a script under the store's key prefix. `operation` labels its latency and names it in errors.
pub(crate) async fn run_script(
    redis: &Redis,
    prefix: &str,
    operation: &'static str,
    script: &Script,
    arguments: ScriptArguments,
) -> Result<Value, Error> {
    let mut call = script.prepare_invoke();
    call.key(prefix).arg(&arguments.0);
    let started = Instant::now();
    let result = redis.inner.call(Caller::Store, operation, Request::Script(&call)).await;
    if let Some(metrics) = &redis.inner.options.metrics {
        metrics.db_query_duration.with([operation]).record(started.elapsed());
    }
    result
}

impl RedisStore {
    /// Runs a script that may change data.
    pub(crate) async fn write(
        &self,
        operation: &'static str,
        script: &Script,
        arguments: ScriptArguments,
    ) -> Result<Value, Error> {
        run_script(&self.inner.redis, &self.inner.prefix, operation, script, arguments).await
    }

    /// Runs a script that only reads.
    pub(crate) async fn read(
        &self,
        operation: &'static str,
        script: &Script,
        arguments: ScriptArguments,
    ) -> Result<Value, Error> {
        self.write(operation, script, arguments).await.map_err(read_error)
    }

    /// Sends one command that only reads.
    pub(crate) async fn read_command<T: FromRedisValue>(
        &self,
        operation: &'static str,
        command: Cmd,
    ) -> Result<T, Error> {
        self.inner.redis.inner.store_command(operation, command).await.map_err(read_error)
    }

    /// Reads one field of one of the store's hashes.
    pub(crate) async fn hash_field(
        &self,
        operation: &'static str,
        hash: &str,
        field: &str,
    ) -> Result<Option<String>, Error> {
        let mut get = cmd("HGET");
        get.arg(format!("{}{hash}", self.inner.prefix)).arg(field);
        self.read_command(operation, get).await
    }

    /// Runs a script that may change data and returns a list.
    pub(crate) async fn write_list(
        &self,
        operation: &'static str,
        script: &Script,
        arguments: ScriptArguments,
    ) -> Result<Reply, Error> {
        Reply::from_value(self.write(operation, script, arguments).await?)
    }

    /// Runs a script that only reads and returns a list.
    pub(crate) async fn read_list(
        &self,
        operation: &'static str,
        script: &Script,
        arguments: ScriptArguments,
    ) -> Result<Reply, Error> {
        Reply::from_value(self.read(operation, script, arguments).await?)
    }
}

/// A read whose reply was lost changed nothing, so its outcome is not unknown.
fn read_error(error: Error) -> Error {
    match error {
        Error::Unknown(text) => Error::Unreachable(text),
        other => other,
    }
}

/// Whole milliseconds of a duration, bounded so that the scripts can add it to a time.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}
