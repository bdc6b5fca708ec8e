//! The way to the server: a connection, one question, its answer, and what a failure means for everybody else.
use std::time::Instant;

use deadpool_redis::redis::{FromRedisValue, Pipeline, RedisResult, ScriptInvocation};
use deadpool_redis::{Connection, redis};
use ports::Error;
use tokio::time::timeout;

use crate::error;
use crate::open::Inner;

/// Who asks, as the metric names it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Caller {
    Cache,
    Idempotency,
    RateLimit,
    Probe,
    Keeper,
    Store,
}

impl Caller {
    fn as_str(self) -> &'static str {
        match self {
            Caller::Cache => "cache",
            Caller::Idempotency => "idempotency",
            Caller::RateLimit => "rate_limit",
            Caller::Probe => "probe",
            Caller::Keeper => "keeper",
            Caller::Store => "store",
        }
    }
}

/// What is asked.
pub(crate) enum Ask<'a> {
    Script(&'a ScriptInvocation<'a>),
    Pipe(&'a Pipeline),
}

impl Ask<'_> {
    async fn send<T: FromRedisValue>(&self, connection: &mut Connection) -> RedisResult<T> {
        match self {
            Ask::Script(call) => call.invoke_async(connection).await,
            Ask::Pipe(pipe) => pipe.query_async(connection).await,
        }
    }
}

/// One command, as a pipeline of one.
pub(crate) fn one(command: redis::Cmd) -> Pipeline {
    let mut pipe = redis::pipe();
    pipe.add_command(command);
    pipe
}

impl Inner {
    /// Asks, unless the server is known to be away: then the answer is there at once.
    pub(crate) async fn ask<T: FromRedisValue>(&self, who: Caller, doing: &str, ask: Ask<'_>) -> Result<T, Error> {
        if let Some(away) = self.away() {
            self.count_failure(who);
            return Err(away);
        }
        self.ask_anyway(who, doing, ask).await
    }

    /// One command of the store's.
    pub(crate) async fn ask_one<T: FromRedisValue>(&self, doing: &str, command: redis::Cmd) -> Result<T, Error> {
        let (told,) = self.ask(Caller::Store, doing, Ask::Pipe(&one(command))).await?;
        Ok(told)
    }

    /// Asks, whatever is known. For those who find out.
    pub(crate) async fn ask_anyway<T: FromRedisValue>(
        &self,
        who: Caller,
        doing: &str,
        ask: Ask<'_>,
    ) -> Result<T, Error> {
        let begun = Instant::now();
        let answer = match self.connection().await {
            Ok(mut connection) => ask.send(&mut connection).await.map_err(|error| error::of_call(doing, &error)),
            Err(error) => Err(error),
        };
        if let Some(metrics) = &self.options.metrics {
            metrics.redis_command_latency.record(begun.elapsed());
        }
        if let Err(error @ (Error::Unreachable(_) | Error::Unknown(_))) = &answer {
            self.count_failure(who);
            self.lost(error);
        }
        answer
    }

    /// What a call hears while the server is known to be away.
    pub(crate) fn away(&self) -> Option<Error> {
        let seconds = (*self.away.lock())?.elapsed().as_secs();
        Some(Error::Unreachable(format!("Redis has been away for {seconds} s")))
    }

    /// A connection that has just answered. The pool tries idle ones first, each with a limit of its own; this limit holds for all.
    pub(crate) async fn connection(&self) -> Result<Connection, Error> {
        let within = self.options.connect_within;
        match timeout(within, self.pool.get()).await {
            Ok(got) => got.map_err(|error| error::of_pool(&error)),
            Err(_) => Err(Error::Unreachable(format!("connect: no connection answered within {within:?}"))),
        }
    }

    /// The cache may show something too old until the epoch has been raised.
    pub(crate) fn doubt(&self) {
        if self.trust.lock().doubt() {
            self.wake.notify_one();
        }
    }

    /// A call went into the void: the others need not follow it there.
    fn lost(&self, error: &Error) {
        if self.pool.is_closed() {
            return;
        }
        self.doubt();
        let mut away = self.away.lock();
        if away.is_none() {
            *away = Some(Instant::now());
            // What idles in the pool leads to the same void, and would be tried first when the server is back.
            let _ = self.pool.retain(|_, _| false);
            tracing::warn!(event = "redis_away", error = %error, "Redis does not answer; going on without it");
            self.wake.notify_one();
        }
    }

    /// The server took a write.
    pub(crate) fn back(&self) {
        if let Some(since) = self.away.lock().take() {
            let seconds = since.elapsed().as_secs_f64();
            tracing::info!(event = "redis_back", seconds, "Redis answers again");
            self.wake.notify_one();
        }
    }

    pub(crate) fn count_failure(&self, who: Caller) {
        if let Some(metrics) = &self.options.metrics {
            metrics.redis_connection_failures.with([who.as_str()]).inc();
        }
    }
}
